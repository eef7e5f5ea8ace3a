"""Policy: what a robot needs of a training run; from observation to action."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.errors import TaskError
from worldline.learn.nets import Actor
from worldline.learn.normalizer import RunningStatistics
from worldline.types import Array, Key, Observation

Squash: TypeAlias = Literal["clip", "tanh"]


class Policy(eqx.Module):
    """Normaliser, network and action bounds in one pytree; a callable."""

    actor: Actor
    statistics: RunningStatistics
    """Of the observations."""
    low: Array
    """Lowest action, `(nact,)`."""
    high: Array
    """Highest action, `(nact,)`."""
    squash: Squash = eqx.field(static=True)
    """How the network's unbounded output comes into [-1, 1] before it is scaled to the bounds."""

    def __call__(self, obs: Any, key: Key | None = None) -> Any:
        """The action at an observation, one or many.

        Args:
            obs: `(nobs,)` or `(..., nobs)`, as the environment gives it; or a dict with `state`.
            key: draws the action; None takes the most likely one.

        Returns:
            `(nact,)` or `(..., nact)`; NumPy for NumPy, JAX for JAX.

        Raises:
            TaskError: the observation has another size than those the policy was trained on.
        """
        flat = state_of(obs)
        size = self.statistics.mean.shape[0]
        if flat.shape[-1:] != (size,):
            raise TaskError(
                f"the observation has shape {flat.shape}; this policy takes (..., {size})"
            )
        action = _act(self, jnp.asarray(flat, jnp.float32), key)
        return action if isinstance(flat, jax.Array) else np.asarray(action)

    def to_action(self, raw: Array) -> Array:
        """The network's unbounded output `(..., nact)` in the units of the environment."""
        unit = jnp.tanh(raw) if self.squash == "tanh" else jnp.clip(raw, -1.0, 1.0)
        bounded = jnp.isfinite(self.low) & jnp.isfinite(self.high)
        low, high = jnp.where(bounded, self.low, -1.0), jnp.where(bounded, self.high, 1.0)
        scaled = low + 0.5 * (unit + 1.0) * (high - low)
        return jnp.where(bounded, scaled, raw)


@eqx.filter_jit
def _act(policy: Policy, obs: Array, key: Key | None) -> Array:
    distribution = policy.actor(policy.statistics.normalize(obs))
    raw = (
        distribution.mean
        if key is None
        else distribution.at(jax.random.normal(key, distribution.mean.shape))
    )
    return policy.to_action(raw)


def state_of(obs: Observation | Any) -> Any:
    """The flat part of an observation that the policy reads: itself, or its `state`.

    Raises:
        TaskError: a dict without `state`.
    """
    if not isinstance(obs, dict):
        return obs
    if "state" not in obs:
        raise TaskError(f"the observation has {sorted(obs)} but no 'state' for the policy to read")
    return obs["state"]
