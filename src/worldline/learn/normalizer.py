"""Running mean and variance of observations, which normalise the inputs of networks."""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from worldline.env.mirror import Mirror
from worldline.learn.networks.vision import Observed
from worldline.types import Array


class RunningStatistics(eqx.Module):
    """Mean and variance of all values so far, of each component.

    Merged as in Chan, Golub and LeVeque (1979), "Updating formulae and a pairwise algorithm for
    computing sample variances", equation 2.1; stable in float32.
    """

    count: Array
    """The number of values so far, `()` float32."""
    mean: Array
    """`(n,)`"""
    variance: Array
    """`(n,)`; 1 before the first values."""

    @classmethod
    def zero(cls, shape: tuple[int, ...]) -> RunningStatistics:
        """Statistics before the first values; they do not change values."""
        none = jnp.zeros((), jnp.float32)
        return cls(none, jnp.zeros(shape, jnp.float32), jnp.ones(shape, jnp.float32))

    def update(self, values: Array) -> RunningStatistics:
        """The statistics after adding these values, `(..., n)`."""
        axes = tuple(range(values.ndim - self.mean.ndim))
        number = jnp.float32(math.prod(values.shape[: len(axes)]))
        mean, variance = values.mean(axes), values.var(axes)
        total = self.count + number
        shift = mean - self.mean
        weight = number / total
        merged = self.variance * (1 - weight) + variance * weight + shift**2 * weight * (1 - weight)
        return RunningStatistics(
            count=total,
            mean=self.mean + shift * weight,
            variance=jnp.where(self.count > 0, merged, variance),
        )

    def with_images(self, mirror: Mirror) -> RunningStatistics:
        """The statistics of all values so far and of their mirror images."""
        image, places = mirror(self.mean), np.array(mirror.index)
        return RunningStatistics(
            count=self.count,
            mean=0.5 * (self.mean + image),
            variance=0.5 * (self.variance + self.variance[places])
            + 0.25 * (self.mean - image) ** 2,
        )

    def normalize(self, values: Array) -> Array:
        """The values, `(..., n)`, less the mean, over the standard deviation, clipped to [-10, 10].

        The standard deviation is at least 0.01, because a component that was constant so far may
        change later.
        """
        std = jnp.maximum(jnp.sqrt(self.variance), 1e-2)
        return jnp.clip((values - self.mean) / std, -10.0, 10.0)

    def normalize_observed(self, obs: Observed) -> Observed:
        """An observation with normalised numbers and unchanged images."""
        return {**obs, "state": self.normalize(obs["state"])}


class ObservationStatistics(eqx.Module):
    """Statistics of the numbers in the policy's observations and in the critic's observations."""

    actor: RunningStatistics
    critic: RunningStatistics
    mirrors: tuple[Mirror, Mirror] | None = eqx.field(static=True, default=None)
    """What becomes of both in the mirror, where their mirror images count too."""

    @classmethod
    def zero(
        cls,
        actor_obs: Observed,
        critic_obs: Observed,
        mirrors: tuple[Mirror, Mirror] | None = None,
    ) -> ObservationStatistics:
        """Statistics before the first observations, with the sizes of these observations."""
        actor, critic = (
            RunningStatistics.zero(obs["state"].shape[-1:]) for obs in (actor_obs, critic_obs)
        )
        return cls(actor, critic, mirrors)

    def update(self, actor_obs: Observed, critic_obs: Observed) -> ObservationStatistics:
        """The statistics after adding these observations, `(..., n)` each."""
        seen = (actor_obs["state"], critic_obs["state"])
        both = [part.update(obs) for part, obs in zip((self.actor, self.critic), seen, strict=True)]
        if self.mirrors is not None:
            both = [part.with_images(m) for part, m in zip(both, self.mirrors, strict=True)]
        return dataclasses.replace(self, actor=both[0], critic=both[1])

    def normalize(self, actor_obs: Observed, critic_obs: Observed) -> tuple[Observed, Observed]:
        """The observations of policy and critic, each normalised by its own statistics."""
        return self.actor.normalize_observed(actor_obs), self.critic.normalize_observed(critic_obs)
