"""The single environment, with Gymnasium's own checker."""

import copy
import pickle
import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from puck_twin import HandwrittenPuck, PuckWithDict, Starts, puck

import toys
import worldline
from worldline.bridges.gymnasium import Env, EpisodeOverError
from worldline.errors import ActionError, ConfigError, TaskError, VariationError

#: Said of every unbounded observation, of actions in the actuators' own units, and of what was not
#: made by name.
_RECOMMENDATIONS = ("infinity", "symmetric and normalized space", "environment not having a spec")


@pytest.fixture(autouse=True)
def rays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same pictures on every machine."""
    monkeypatch.setenv("MUJOCO_GL", "disable")


def check(env: gymnasium.Env) -> None:
    """Gymnasium's checks, its recommendations aside; a complaint is a failure."""
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        check_env(env)
    for complaint in complaints:
        assert any(words in str(complaint.message) for words in _RECOMMENDATIONS), complaint.message


@pytest.fixture(scope="module")
def one() -> Env:
    """A puck, compiled once; a reset with a seed makes it like new."""
    return Env(puck(), render_mode="rgb_array", render_size=(24, 32))


def test_gymnasiums_checks(one: Env) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one, "close", lambda: None)  # the checker closes what it has checked
        check(one)


def test_gymnasiums_checks_of_dicts() -> None:
    check(Env(puck(PuckWithDict), render_mode="rgb_array", render_size=(24, 32)))


def test_gymnasiums_checks_by_name() -> None:
    options = {"render_mode": "rgb_array", "render_size": (24, 32)}
    check(gymnasium.make("worldline/gym-inverted-pendulum-v0", **options).unwrapped)


def test_it_is_the_puck_written_by_hand(one: Env) -> None:
    ours, theirs = one, HandwrittenPuck(Starts(puck()), as_dict=False)
    random, ends = np.random.default_rng(0), 0
    seed: int | None = 4
    for _ in range(20):
        given = [env.reset(seed=seed) for env in (ours, theirs)]
        assert data_equivalence(given[0], given[1], exact=True)
        over, seed = False, None
        while not over:
            action = random.uniform(-1, 1, 2).astype(np.float32)
            given = [env.step(action) for env in (ours, theirs)]
            assert data_equivalence(given[0], given[1], exact=True)
            over = given[0][2] or given[0][3]
        ends += given[0][2]
    assert 0 < ends < 20


def test_an_episode_that_is_over_is_not_stepped(one: Env) -> None:
    one.reset(seed=0)
    over = False
    while not over:
        *_, terminated, truncated, _ = one.step(np.zeros(2, np.float32))
        over = terminated or truncated
    with pytest.raises(EpisodeOverError):
        one.step(np.zeros(2, np.float32))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_a_copy_goes_on_as_the_original_does(duplicate: Any) -> None:
    env = Env(worldline.Env(toys.Swing()))
    env.reset(seed=3)
    env.step(np.ones(1, np.float32))
    twin = duplicate(env)
    given = [e.step(np.ones(1, np.float32)) for e in (env, twin)]
    assert data_equivalence(given[0], given[1], exact=True)
    assert data_equivalence(env.reset(), twin.reset(), exact=True)


def test_a_world_may_have_constants_of_its_own() -> None:
    env, push = Env(worldline.Env(toys.Swing())), np.ones(1, np.float32)
    speeds = []
    for damping in (0.02, 2.0):
        env.reset(seed=0, options={"variation": {"dof_damping": [damping]}})
        speeds.append(abs(env.step(push)[0][1]))
    assert speeds[0] > speeds[1]
    with pytest.raises(VariationError):
        env.reset(options={"variation": {"dof_damping": [1.0, 2.0]}})


def test_a_world_may_have_a_context_of_its_own() -> None:
    env = Env(worldline.Env(toys.Swing(), context=["gravity"]))
    obs, _ = env.reset(seed=0, options={"context": {"gravity": -5.0}})
    np.testing.assert_array_equal(obs["context"], [-5.0])
    with pytest.raises(VariationError, match="did you mean 'gravity'"):
        env.reset(options={"context": {"gravty": -5.0}})


def test_options_are_a_tasks_fields() -> None:
    env = Env("gym/inverted-pendulum", "fake", reset_noise_scale=0.0)
    np.testing.assert_array_equal(env.reset(seed=0)[0], 0)
    with pytest.raises(TaskError, match="did you mean 'reset_noise_scale'"):
        Env("gym/inverted-pendulum", "fake", reset_noise_scal=0.0)
    with pytest.raises(ConfigError, match="to its task"):
        Env(puck(), wall=2.0)


def test_wrong_actions_say_what_shape_is_right(one: Env) -> None:
    one.reset(seed=0)
    with pytest.raises(ActionError, match=r"shape \(3,\); this environment takes \(2,\)"):
        one.step(np.zeros(3, np.float32))


def test_pictures(one: Env) -> None:
    one.reset(seed=0)
    frame = one.render()
    assert (frame.shape, frame.dtype) == ((24, 32, 3), np.uint8)
    assert one.metadata["render_fps"] == 4


def test_a_closed_environment_says_so() -> None:
    env = Env(puck())
    env.close()
    env.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        env.reset()


def test_an_id_with_its_module_needs_no_import():
    """Gymnasium imports the module in front of an id; it looks for no plugins since 1.0."""
    code = (
        "import gymnasium, sys; assert 'worldline' not in sys.modules;"
        "envs = gymnasium.make_vec('worldline:worldline/gym-inverted-pendulum-v0', num_envs=2);"
        "assert envs.reset(seed=0)[0].shape == (2, 4)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
