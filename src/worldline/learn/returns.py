"""Advantages and returns of a rollout that contains ends of episodes."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from worldline.learn.normalizer import RunningStatistics
from worldline.types import Array


def generalized_advantage(
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    discount: Array | float,
    gae_lambda: Array | float,
) -> Array:
    """Generalised advantage estimation: Schulman et al. (2016), equation 16, over episode ends.

    For a terminated step, the successor's value is 0. For a truncated step, it is the value of the
    true successor, the last observation of the episode. No sum goes beyond an episode.

    Args:
        reward: `(T, B)`.
        value: value of the observation before the action, `(T, B)`.
        next_value: value of the true successor (`Step.final_obs`), `(T, B)`.
        terminated: `(T, B)` bool.
        truncated: `(T, B)` bool.
        discount: per step, in [0, 1].
        gae_lambda: in [0, 1]; 0 gives the one-step error, 1 the whole return.

    Returns:
        The advantages, `(T, B)`; add `value` for the targets of the value function.
    """
    error = reward + discount * jnp.where(terminated, 0.0, next_value) - value
    carry_on = jnp.where(terminated | truncated, 0.0, discount * gae_lambda)

    def backwards(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        error, carry_on = now
        advantage = error + carry_on * later
        return advantage, advantage

    start = jnp.zeros_like(error[0])
    return jax.lax.scan(backwards, start, (error, carry_on), reverse=True)[1]


def discounted_return_so_far(
    carry: Array, reward: Array, ended: Array, discount: Array | float
) -> tuple[Array, Array]:
    """The discounted sum of rewards up to each step of a rollout, for scaling rewards.

    Args:
        carry: the sum before the first step, `(B,)`.
        reward: `(T, B)`.
        ended: whether the episode ended with the step, `(T, B)` bool.
        discount: per step.

    Returns:
        The sum after the last step, `(B,)`, and after each, `(T, B)`.
    """

    def forwards(total: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, ended = now
        total = discount * total + reward
        return jnp.where(ended, 0.0, total), total

    return jax.lax.scan(forwards, carry, (reward, ended))


class RewardScale(eqx.Module):
    """The running standard deviation of the discounted return; rewards are divided by it."""

    return_so_far: Array
    """Each world's discounted sum of rewards in its episode, `(B,)`."""
    statistics: RunningStatistics
    """Statistics of these sums over all steps."""

    @classmethod
    def zero(cls, num_worlds: int) -> RewardScale:
        """The scale before the first step of `num_worlds` worlds."""
        return cls(jnp.zeros(num_worlds, jnp.float32), RunningStatistics.zero(()))

    def update(self, reward: Array, ended: Array, discount: Array | float) -> RewardScale:
        """The scale after a rollout; the arguments are those of `discounted_return_so_far`."""
        after, sums = discounted_return_so_far(self.return_so_far, reward, ended, discount)
        return RewardScale(after, self.statistics.update(sums))

    def scaled(self, reward: Array) -> Array:
        """The rewards over the standard deviation, clipped to [-10, 10]."""
        return jnp.clip(reward / jnp.sqrt(self.statistics.variance + 1e-8), -10, 10)


def standardized(advantage: Array, floor: Array | float) -> Array:
    """The advantages with mean 0, divided by their standard deviation or by a larger `floor`."""
    return (advantage - advantage.mean()) / (jnp.maximum(advantage.std(), floor) + 1e-8)


def explained_variance(value: Array, target: Array) -> Array:
    """The share of the targets' variance that the value function explains, `()`; 1 is perfect."""
    return 1.0 - (target - value).var() / (target.var() + 1e-8)
