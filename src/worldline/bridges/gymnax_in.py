"""Environments of gymnax as worlds; their params are constants that can vary."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.bridges.gymnax import NEVER
from worldline.env.env import Env
from worldline.errors import ConfigError
from worldline.tasks.brax import brax_env
from worldline.types import Array, Observation, PyTree


class _State(eqx.Module):
    """A world, in the words of Brax's states."""

    obs: Observation
    """What the environment shows, `(nobs,)` or a dict."""
    reward: Array
    """The reward of the last step, `()`."""
    done: Array
    """Whether the environment has ended the episode, `()` float32."""
    metrics: dict[str, Array]
    """Empty."""
    own: PyTree
    """The environment's own state."""
    key: Array
    """The words of the key of the next step, `(2,)` uint32."""


class _AsBrax:
    """A gymnax environment with the interface of Brax's, whose system are the params."""

    def __init__(self, env: Any, params: Any) -> None:
        space = env.action_space(params)
        shape = tuple(getattr(space, "shape", ()))
        if not hasattr(space, "low") or len(shape) > 1:
            raise ConfigError(
                f"the action space of {env.name} is {space}; give one with a Box with one axis"
            )
        #: The params, whose fields may vary.
        self.sys = params
        #: The numbers of an action.
        self.action_size = int(np.prod(shape))
        #: Seconds of a step.
        self.dt = float(getattr(params, "dt", 1.0))
        self._own = env
        self._shape = shape

    def reset(self, rng: Array) -> _State:
        """A world at the start of an episode."""
        start_key, key = jax.random.split(jax.random.wrap_key_data(rng))
        obs, own = self._own.reset_env(start_key, self.sys)
        zero = jnp.float32(0)
        return _State(obs, zero, zero, {}, own, jax.random.key_data(key))

    def step(self, state: _State, action: Array) -> _State:
        """The world after an action between -1 and 1, which are the bounds of the environment's."""
        step_key, key = jax.random.split(jax.random.wrap_key_data(state.key))
        given = self._scaled(action).reshape(self._shape)
        obs, own, reward, terminated, _ = self._own.step_env(step_key, state.own, given, self.sys)
        reward, done = (jnp.asarray(x, jnp.float32).reshape(()) for x in (reward, terminated))
        return _State(obs, reward, done, {}, own, jax.random.key_data(key))

    def _scaled(self, action: Array) -> Array:
        space = self._own.action_space(self.sys)
        low, high = (
            jnp.broadcast_to(jnp.asarray(x), action.shape) for x in (space.low, space.high)
        )
        bounded = jnp.isfinite(low) & jnp.isfinite(high)
        middle, half = (jnp.where(bounded, x, 0) for x in ((high + low) / 2, (high - low) / 2))
        return jnp.where(bounded, middle + half * action, action).astype(jnp.float32)


def from_gymnax(env: Any, params: Any = None, episode_length: int | None = None) -> Env:
    """A gymnax environment as an `Env`: `Worlds(from_gymnax(env), 64)` has 64 copies of it.

    A `Domain` draws its params for each episode by their names, for example `scale("m",
    Uniform(0.5, 2.0))`. Actions are between -1 and 1, and are scaled to its bounds.

    Args:
        env: a `gymnax.environments.environment.Environment` with a `Box` as action space.
        params: its params; None: its defaults.
        episode_length: steps after which an episode is truncated; 0 for no limit; None for
            `params.max_steps_in_episode`.

    Raises:
        ConfigError: its actions are discrete, or its own code fails.
    """
    params = env.default_params if params is None else params
    limit = getattr(params, "max_steps_in_episode", 0)
    if hasattr(params, "max_steps_in_episode"):
        params = params.replace(max_steps_in_episode=NEVER)  # the worlds count the steps
    length = int(limit) if episode_length is None else episode_length
    return brax_env(_AsBrax(env, params), length)
