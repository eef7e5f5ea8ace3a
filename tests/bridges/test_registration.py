"""Worldline's tasks in Gymnasium's registry."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import toys
import worldline
from worldline.bridges.gymnasium import VectorEnv, register_tasks
from worldline.bridges.registration import gymnasium_id
from worldline.tasks import registry
from worldline.tasks.names import TASKS

HOPPER = "worldline/gym-hopper-v0"


def run(program: str) -> str:
    """What a program prints in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_task_is_registered_with_the_length_of_its_episodes() -> None:
    program = "from worldline.tasks import registry; print(*registry.list_tasks())"
    lengths = {name: registry.task_class(name).episode_length for name in run(program).split()}
    assert lengths == {name: entry.episode_length for name, entry in TASKS.items()}
    for name, length in lengths.items():
        assert gymnasium.spec(gymnasium_id(name)).max_episode_steps == length


@pytest.mark.parametrize(
    "imports",
    [
        "import gymnasium, worldline",
        "import worldline, gymnasium, worldline.bridges.gymnasium",
        "import gymnasium, worldline.bridges.gymnasium",
    ],
)
def test_import_worldline_is_enough_after_gymnasium(imports: str) -> None:
    program = f"{imports}; print(sorted(i for i in gymnasium.registry if 'worldline' in i))"
    assert run(program).strip() == str(sorted(gymnasium_id(name) for name in TASKS))


def test_gymnasium_imports_worldline_itself_when_the_id_says_so() -> None:
    program = f"import gymnasium; print(gymnasium.make('worldline:{HOPPER}').spec.id)"
    assert run(program).strip() == HOPPER


@pytest.mark.parametrize("imports", ["import worldline", "import gymnasium, worldline"])
def test_it_costs_no_import(imports: str) -> None:
    heavy = {"jax", "mujoco", "equinox", "matplotlib"} | (
        {"gymnasium", "numpy"} if "gymnasium" not in imports else set()
    )
    program = f"import sys; {imports}; print(sorted({heavy} & sys.modules.keys()))"
    assert run(program).strip() == "[]"


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_make_vec(mode: AutoresetMode) -> None:
    env = gymnasium.make_vec(HOPPER, num_envs=3, autoreset_mode=mode, physics="fake")
    assert isinstance(env, VectorEnv)
    assert env.metadata["autoreset_mode"] is mode
    assert env.num_envs == 3
    assert env.worlds.episode_length == 1000
    obs, _ = env.reset(seed=0)
    assert obs in env.observation_space


def test_keywords_reach_the_task_and_the_worlds() -> None:
    options = {"physics": "fake", "reset_noise_scale": 0.0}
    env = gymnasium.make_vec(HOPPER, num_envs=2, max_episode_steps=2, **options)
    obs, _ = env.reset(seed=0)
    np.testing.assert_array_equal(obs[0], obs[1])
    actions = np.zeros((2, 3), np.float32)
    assert not env.step(actions)[3].any()
    assert env.step(actions)[3].all()


def test_a_spec_makes_the_same_again() -> None:
    env = gymnasium.make_vec(HOPPER, num_envs=3, max_episode_steps=7, physics="fake")
    again = gymnasium.make_vec(env.spec)
    assert (again.num_envs, again.worlds.episode_length) == (3, 7)
    alone = gymnasium.make(HOPPER, physics="fake")
    assert gymnasium.make(alone.spec).spec == alone.spec
    assert '"worldline/gym-hopper-v0"' in alone.spec.to_json()


@pytest.mark.parametrize("limit", [3, 1500])
def test_the_time_limit_is_gymnasiums(limit: int) -> None:
    env = gymnasium.make("worldline/gym-swimmer-v0", max_episode_steps=limit, physics="fake")
    env.reset(seed=0)
    steps, truncated = 0, False
    while not truncated:
        *_, truncated, _ = env.step(np.zeros(2, np.float32))
        steps += 1
    assert steps == limit


def test_sync_vectorization_of_single_environments() -> None:
    env = gymnasium.make_vec(HOPPER, 2, "sync", physics="fake", vector_kwargs={})
    assert isinstance(env, SyncVectorEnv)
    obs, _ = env.reset(seed=3)
    batch, _ = gymnasium.make_vec(HOPPER, 2, physics="fake").reset(seed=3)
    np.testing.assert_array_equal(obs, batch)


def test_tasks_of_your_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))
    worldline.register("tests/swing", toys.Swing)
    register_tasks()
    register_tasks()
    env = gymnasium.make_vec("worldline/tests-swing-v0", num_envs=2)
    assert env.worlds.episode_length == 20
    env.reset(seed=0)
    del gymnasium.registry["worldline/tests-swing-v0"]
