"""Environments are copied and pickled, and the copies do what the originals do, bit for bit."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import worldline
from worldline.variation import Domain, Uniform, scale

COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda it: pickle.loads(pickle.dumps(it)),
}
DOMAIN = Domain(scale("body_mass", Uniform(0.8, 1.2)))


def env_of(task: str) -> worldline.Env:
    return worldline.make(task).but(action_repeat=2, last_action=True)


def assert_same(ours: Any, theirs: Any) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("task", ["gym/reacher", "suite/cheetah-run", "suite/finger-spin"])
def test_an_environment(task, way):
    env = env_of(task)
    _ = env.task.model, jax.eval_shape(env.task.start, jax.random.key(0))  # what it keeps
    again = COPIES[way](env)
    assert again.config == env.config
    ours, theirs = (it.reset(jax.random.key(1)) for it in (again, env))
    assert_same(ours.obs, theirs.obs)


@pytest.mark.parametrize("way", COPIES)
def test_worlds(way):
    worlds = worldline.Worlds(env_of("gym/reacher"), 3, 5, DOMAIN, resample_every=2)
    action, shown = np.full((3, 2), 0.5, np.float32), []
    for it in (COPIES[way](worlds), worlds):
        state, steps = it.reset(jax.random.key(1)), []
        for _ in range(4):
            state, step = it.step(state, action)
            steps.append(step)
        shown.append((steps, dict(state.variation)))
    assert_same(*shown)


@pytest.mark.parametrize("way", COPIES)
def test_torchrl_in_the_middle_of_an_episode(way):
    pytest.importorskip("torchrl")
    from worldline.bridges.torchrl import WorldlineEnv

    env = WorldlineEnv("gym/reacher", batch_size=[2], seed=3, domain=DOMAIN)
    data = env.step(env.rand_action(env.reset()))["next"]
    data["action"] = env.rand_action(data)["action"]
    again = COPIES[way](env)
    ours, theirs = (it.step(data.clone())["next"] for it in (again, env))
    for name in ("observation", "reward", "world"):
        assert (ours[name] == theirs[name]).all(), name
    assert (again.reset()["world"] == env.reset()["world"]).all()


@pytest.mark.parametrize("way", COPIES)
def test_stable_baselines3_in_the_middle_of_an_episode(way):
    pytest.importorskip("stable_baselines3")
    from worldline.bridges.sb3 import VecEnv

    envs = VecEnv(worldline.Worlds(worldline.make("gym/reacher"), 2))
    envs.seed(0)
    envs.reset()
    actions = np.full((2, 2), 0.3, np.float32)
    envs.step(actions)
    again = COPIES[way](envs)
    for _ in range(60):  # past the end of the episode
        for ours, theirs in zip(again.step(actions)[:3], envs.step(actions)[:3], strict=True):
            np.testing.assert_array_equal(ours, theirs)
