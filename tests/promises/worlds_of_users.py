"""Runs of registered tasks, as users make them: worlds of a domain in a compiled loop."""

import functools
from typing import Any

import jax
import numpy as np

import worldline
from worldline.env.episodes import WorldsState
from worldline.env.worlds import Step

TASKS = ("gym/ant", "gym/humanoid", "suite/quadruped-walk", "arm/pick-cube")

#: The most worlds; control steps; control steps of an episode, so that each world begins anew.
MOST, STEPS, EPISODE_LENGTH = 256, 30, 20


@functools.cache
def env_of(task: str) -> worldline.Env:
    return worldline.make(task)


def actions(env: worldline.Env) -> np.ndarray:
    """Random actions, `(STEPS, MOST, nact)`."""
    random = np.random.default_rng(2)
    shape = (STEPS, MOST, env.action_low.size)
    return random.uniform(env.action_low, env.action_high, shape).astype(np.float32)


@functools.cache
def run(task: str, num_worlds: int) -> tuple[WorldsState, Step]:
    """The first worlds after all steps, and the steps `(STEPS, B, ...)`, on the host."""
    env = env_of(task)
    domain = env.task.domains["light"]
    worlds = worldline.Worlds(env, num_worlds, EPISODE_LENGTH, domain=domain)
    loop = jax.jit(lambda state, actions: jax.lax.scan(worlds.step, state, actions))
    state = worlds.reset(jax.random.key(8))
    return jax.device_get(loop(state, actions(env)[:, :num_worlds]))


def rows(tree: Any, number: int, axis: int) -> Any:
    """The first worlds of a tree of arrays."""
    return jax.tree.map(lambda x: np.take(np.asarray(x), range(number), axis=axis), tree)
