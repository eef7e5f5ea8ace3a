"""The VecEnv, side by side with Stable-Baselines3's own over an environment written by hand."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from puck_twin import HandwrittenPuck, PuckWithDict, programs

import toys
import worldline
from worldline.errors import ActionError, VariationError

pytest.importorskip("stable_baselines3")

from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecEnvWrapper,
    VecMonitor,
    VecNormalize,
)

from worldline.bridges.sb3 import VecEnv

B = 3
kinds = pytest.mark.parametrize("kind", [toys.Puck, PuckWithDict])
PUSH = np.full((B, 2), 0.5, np.float32)


def pair(kind: type[toys.Puck] = toys.Puck) -> tuple[VecEnv, DummyVecEnv]:
    """Ours, and SB3's, of the same pucks; the first reset needs a seed."""
    worlds, starts = programs(B, kind)
    thunk = [lambda: HandwrittenPuck(starts, kind is PuckWithDict)] * B
    return VecEnv(worlds), DummyVecEnv(thunk)


def assert_same(mine: Any, other: Any) -> None:
    if isinstance(other, dict):  # SB3's own observations are OrderedDicts
        other = dict(other)
    if isinstance(other, tuple) and isinstance(other[0], dict):
        other = (dict(other[0]), *other[1:])
    assert jax.tree.structure(mine) == jax.tree.structure(other), (mine, other)
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(other), strict=True):
        assert np.shape(a) == np.shape(b)
        if isinstance(b, np.ndarray) and b.ndim:
            assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@kinds
def test_it_gives_what_dummy_vec_env_gives(kind: type[toys.Puck]) -> None:
    envs, random, ends, cuts = pair(kind), np.random.default_rng(0), 0, 0
    for env in envs:
        assert env.seed(5) == [5, 6, 7]
    assert_same(*(env.reset() for env in envs))
    for step in range(60):
        if step == 30:  # goes on with the worlds' own random numbers
            assert_same(*(env.reset() for env in envs))
        actions = random.uniform(-1, 1, (B, 2)).astype(np.float32)
        ours, theirs = (env.step(actions) for env in envs)
        assert_same(ours, theirs)
        ends += ours[2].sum()
        cuts += sum(info["TimeLimit.truncated"] for info in ours[3])
    assert ends > cuts > B


@kinds
def test_spaces_and_attributes(kind: type[toys.Puck]) -> None:
    ours, theirs = pair(kind)
    for name in ("num_envs", "observation_space", "action_space", "render_mode", "metadata"):
        assert getattr(ours, name) == getattr(theirs, name)
        if hasattr(theirs.envs[0], name) and name != "metadata":
            assert_same(ours.get_attr(name), theirs.get_attr(name))


def test_seeds_and_options_are_used_once() -> None:
    env = VecEnv(worldline.Worlds(worldline.Env(toys.Swing()), B))
    env.seed(3)
    env.set_options({"variation": {"dof_damping": [2.0]}})
    start = env.reset()
    assert env._seeds == [None] * B
    assert env._options == [{}] * B
    slow = env.step(np.ones((B, 1), np.float32))[0]
    assert (env.reset() != start)[:, 0].all()
    env.seed(3)
    env.set_options([{"variation": {"dof_damping": [d]}} for d in (2.0, 0.02, 2.0)])
    np.testing.assert_array_equal(env.reset(), start)
    mixed = env.step(np.ones((B, 1), np.float32))[0]
    np.testing.assert_array_equal((mixed == slow).all(axis=1), [True, False, True])
    env.set_options([{}, {"variation": {"dof_damping": [1.0]}}, {}])
    with pytest.raises(VariationError, match="give all of them the same"):
        env.reset()


class TestWorldsOneByOne:
    def test_attributes(self) -> None:
        env = pair()[0]
        assert env.get_attr("control_timestep") == [0.25] * B
        assert env.get_attr("model", indices=1) == [env.vector.worlds.env.model]
        env.set_attr("level", 3, indices=[0, 2])
        assert env.get_attr("level", indices=[0, 2]) == [3, 3]
        assert not env.has_attr("level")
        assert env.has_attr("wall")
        with pytest.raises(AttributeError, match="has an attribute 'walll'"):
            env.get_attr("walll")

    def test_methods(self) -> None:
        env = pair()[0]
        env.seed(0)
        first = env.reset()
        env.step(PUSH)
        ((again, info),) = env.env_method("reset", seed=1, indices=1)
        np.testing.assert_array_equal(again, first[1])
        assert info == {}
        bounds = env.env_method("mjcf", indices=[0, 1])
        assert bounds == [toys.Puck(mjcf_text=bounds[0]).mjcf()] * 2
        assert env.env_is_wrapped(VecEnvWrapper) == [False] * B

    def test_pictures(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MUJOCO_GL", "disable")
        env = VecEnv(programs(B)[0], render_mode="rgb_array", render_size=(16, 24))
        env.seed(0)
        env.reset()
        images = env.get_images()
        assert [image.shape for image in images] == [(16, 24, 3)] * B
        np.testing.assert_array_equal(env.env_method("render")[1], images[1])
        assert env.render().shape == (32, 48, 3)  # tiled by SB3
        env.close()


def test_what_it_gives_is_the_callers_to_change() -> None:
    left, right = (pair()[0] for _ in range(2))
    for env in (left, right):
        env.seed(0)
        env.reset()
    for _ in range(15):
        given = [env.step(PUSH) for env in (left, right)]
        assert_same(*given)
        for leaf in jax.tree.leaves(given[0]):
            if isinstance(leaf, np.ndarray):
                leaf.fill(1)


def test_bad_actions_are_refused() -> None:
    env = pair()[0]
    env.reset()
    with pytest.raises(ActionError, match=r"shape \(3, 3\); this environment takes \(3, 2\)"):
        env.step(np.zeros((B, 3), np.float32))


def test_sb3s_wrappers() -> None:
    env = VecNormalize(VecMonitor(pair()[0]))
    env.seed(0)
    env.reset()
    episodes = 0
    for _ in range(20):
        _, _, done, infos = env.step(PUSH)
        for info in (infos[i] for i in np.flatnonzero(done)):
            assert info["episode"]["l"] == info["episode_length"]
            np.testing.assert_allclose(info["episode"]["r"], info["episode_return"], atol=1e-5)
            episodes += 1
    assert episodes > B


@pytest.fixture
def alarms_off() -> Iterator[None]:
    """SBX's own programs promote types and use keys as they like."""
    with jax.numpy_dtype_promotion("standard"), jax.debug_key_reuse(False), jax.debug_nans(False):
        yield


@pytest.mark.exhaustive
@pytest.mark.usefixtures("alarms_off")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("library", ["stable_baselines3", "sbx"])
def test_ppo_and_sac_learn_on_it(library: str) -> None:
    """The puck comes to where the reward is."""
    import torch

    torch.set_num_threads(1)
    algorithms = pytest.importorskip(library)

    def mean_return(model: Any) -> float:
        env, returns = VecEnv(programs(16)[0]), []
        env.seed(100)
        obs = env.reset()
        for _ in range(12):
            obs, _, done, infos = env.step(model.predict(obs, deterministic=True)[0])
            returns += [infos[i]["episode_return"] for i in np.flatnonzero(done)]
        return float(np.mean(returns))

    options: list[tuple[str, int, dict[str, Any]]] = [
        ("PPO", 12_000, {"n_steps": 64, "batch_size": 256, "learning_rate": 1e-3}),
        ("SAC", 3_000, {"learning_starts": 500, "gradient_steps": 4, "learning_rate": 2e-3}),
    ]
    for name, steps, settings in options:
        model = getattr(algorithms, name)(
            "MlpPolicy", VecEnv(programs(16)[0]), seed=0, device="cpu", **settings
        )
        before = mean_return(model)
        model.learn(steps)
        assert mean_return(model) > before + 1.0
