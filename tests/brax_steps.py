"""Worlds of environments of Brax and Playground beside the environments' own steps."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@contextlib.contextmanager
def alarms_off() -> Iterator[None]:
    """Environments of others promote types and use keys as they like."""
    with jax.numpy_dtype_promotion("standard"), jax.debug_key_reuse(False):
        yield


@functools.cache
def program(worlds: Any) -> Any:
    """Steps worlds with actions `(N, B, nact)`: their states before each step, and the steps."""

    def step(state: Any, action: Any) -> Any:
        after, step = worlds.step(state, action)
        return after, (state, step)

    return jax.jit(lambda state, actions: jax.lax.scan(step, state, actions)[1])


def rolled(worlds: Any, state: Any, actions: np.ndarray) -> Any:
    return jax.device_get(program(worlds)(state, actions))


def assert_as_by_brax(worlds: Any, states: Any, steps: Any, actions: np.ndarray) -> None:
    """Each step is that of Brax's own `EpisodeWrapper`, bit for bit, from the same state.

    Playground trains in the same wrapper.
    """
    from brax.envs.wrappers.training import EpisodeWrapper

    wrapped = EpisodeWrapper(worlds.env.model.env, worlds.episode_length, 1)

    def theirs(state: Any, steps: Any, action: Any) -> Any:
        begun = wrapped.reset(jnp.zeros(2, jnp.uint32))
        info = {**begun.info, **state.info, "steps": steps.astype(jnp.float32)}
        return wrapped.step(state.replace(info=info), action)

    every = jax.jit(jax.vmap(jax.vmap(theirs)))
    after = jax.device_get(every(states.env.physics.engine, states.steps, actions))
    jax.tree.map(np.testing.assert_array_equal, steps.final_obs, after.obs)
    np.testing.assert_array_equal(steps.reward, after.reward)
    for name, value in after.metrics.items():
        np.testing.assert_array_equal(steps.metrics[name], value)
    np.testing.assert_array_equal(steps.terminated | steps.truncated, after.done > 0)
    np.testing.assert_array_equal(steps.truncated, after.info["truncation"] > 0)
