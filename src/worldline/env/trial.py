"""Test runs for `check_env`: worlds under random and extreme actions, and each function alone."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.env import Env, EnvState
from worldline.env.task import Task
from worldline.types import Array, Key, NDArray, PyTree, in_32_bits

_SEEDS = 8


@dataclasses.dataclass(frozen=True)
class Trial:
    """Worlds from their starts under actions, as NumPy arrays."""

    env: Env
    start: Any
    """An `EnvState` with `B` in front."""
    states: Any
    """An `EnvState` with `T, B` in front."""
    actions: NDArray
    driven_by: list[str]
    """How each world's actions were chosen, `B` of them."""
    first_obs: Any
    """What `observe` gave at the starts; `start.obs` has zeros where it is not finite."""
    obs: Any
    """What `observe` gave; `states.obs` has the last good observation where it is not finite."""
    reward: NDArray
    """What `outcome` gave."""
    running: NDArray
    """Whether the episode had not ended before the step, bool."""
    results: dict[str, Any]
    """Of each of the task's functions at the first step of the first world: called as they are,
    `"eager"`; in a compiled program, `"compiled"`; and in one of all worlds, `"among others"`."""
    alone: list[EnvState]
    """The first world by itself: its start, and the steps of a compiled program from there."""
    traces: int
    """How often that program was traced."""


def run_worlds(env: Env, steps: int, seed: int) -> Trial:
    """Runs worlds for `steps` control steps; `seed` decides their starts and random actions."""
    actions, driven_by = _actions(env, steps, seed)

    def step(state: EnvState, action: Array) -> tuple[EnvState, Any]:
        after = env.step(state, action)
        outcome = env.task.outcome(state.physics, action, after.physics, state.memory)
        outcome = in_32_bits(outcome)
        obs = in_32_bits(env.task.observe(after.physics, outcome.memory))
        return after, (after, obs, outcome.reward)

    @jax.jit
    def run(keys: Key, actions: Array) -> Any:
        start = jax.vmap(env.reset)(keys)
        first_obs = in_32_bits(jax.vmap(env.task.observe)(start.physics, start.memory))
        return start, first_obs, jax.lax.scan(jax.vmap(step), start, actions)[1]

    keys = jax.random.split(jax.random.key(seed), len(driven_by))
    start, first_obs, (states, obs, reward) = run(keys, actions)
    alone, traces = _run_alone(env, jax.tree.map(lambda x: x[0], start), actions[:3, 0])
    words = jax.random.key_data(jax.random.split(jax.random.key(seed), len(driven_by)))
    results = _ways_to_call(env.task, words, start, actions[0], states)
    start, first_obs, states, obs, reward = jax.device_get((start, first_obs, states, obs, reward))
    ended = np.cumsum(states.terminated | states.diverged, axis=0) > 0
    running = np.concatenate([np.ones_like(ended[:1]), ~ended[:-1]])
    return Trial(
        env,
        start,
        states,
        actions,
        driven_by,
        first_obs,
        obs,
        reward,
        running,
        results,
        alone,
        traces,
    )


def _ways_to_call(
    task: Task, words: Array, start: EnvState, actions: NDArray, states: EnvState
) -> dict[str, Any]:
    """What `Trial.results` holds.

    All take the same arguments. A whole step would not do: a robot in contact makes much of what
    one function rounds in another way.
    """
    results = functools.partial(results_of, task)
    after = jax.tree.map(lambda x: x[0], states.physics)
    every = words, start.physics, jnp.asarray(actions), after, start.memory
    one = jax.tree.map(lambda x: x[0], every)
    among = jax.tree.map(lambda x: x[0], jax.jit(jax.vmap(results))(*every))
    return {"eager": results(*one), "compiled": jax.jit(results)(*one), "among others": among}


def _run_alone(env: Env, state: EnvState, actions: NDArray) -> tuple[list[EnvState], int]:
    """A world's states, and how often its step was traced."""
    traces = 0

    @jax.jit
    def step(state: EnvState, action: Array) -> EnvState:
        nonlocal traces
        traces += 1
        return env.step(state, action)

    states = [state]
    for action in actions:
        states.append(step(states[-1], action))
    return states, traces


def _actions(env: Env, steps: int, seed: int) -> tuple[NDArray, list[str]]:
    """Actions `(T, B, nact)`, and how each world's were chosen."""
    low, high = finite_bounds(env)
    random = np.random.default_rng(seed).uniform(low, high, (steps, _SEEDS, low.size))
    shape = (steps, _SEEDS, low.size)
    groups = {
        "random actions": random,
        "the lowest action": np.broadcast_to(low, shape),
        "the highest action": np.broadcast_to(high, shape),
    }
    actions = np.concatenate(list(groups.values()), axis=1).astype(np.float32)
    return actions, [name for name in groups for _ in range(_SEEDS)]


def results_of(
    task: Task, words: Array, before: Any, action: Array, after: Any, memory: PyTree
) -> dict[str, Any]:
    """The result of each function of a task, for a step from `before` to `after`.

    The key of its start comes as words, since JAX's check for keys that are used twice would not
    have it that one is used again to compare.
    """
    return in_32_bits({
        "start": task.start(jax.random.wrap_key_data(words)),
        "control": task.control(action, before, memory),
        "outcome": task.outcome(before, action, after, memory),
        "observe": task.observe(before, memory),
    })  # fmt: skip


def finite_bounds(env: Env) -> tuple[NDArray, NDArray]:
    """The action bounds, with -1 and 1 in place of infinite ones."""
    low = np.where(np.isfinite(env.action_low), env.action_low, np.float32(-1))
    return low, np.where(np.isfinite(env.action_high), env.action_high, np.float32(1))
