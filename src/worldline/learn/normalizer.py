"""Running mean and variance of what flows past, for networks that want inputs of unit scale."""

from __future__ import annotations

import math

import equinox as eqx
import jax.numpy as jnp

from worldline.types import Array


class RunningStatistics(eqx.Module):
    """Mean and variance of all values seen, component by component.

    Merged by Chan, Golub and LeVeque (1979), "Updating formulae and a pairwise algorithm for
    computing sample variances", equation 2.1; stable in float32.
    """

    count: Array
    """How many values, `()` float32."""
    mean: Array
    """`(n,)`"""
    variance: Array
    """`(n,)`; 1 before anything was seen."""

    @classmethod
    def zero(cls, shape: tuple[int, ...]) -> RunningStatistics:
        """Statistics of nothing, which normalise nothing."""
        return cls(jnp.zeros(()), jnp.zeros(shape), jnp.ones(shape))

    def update(self, values: Array) -> RunningStatistics:
        """With `values`, `(..., n)`, seen too."""
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

    def normalize(self, values: Array, clip: float = 10.0) -> Array:
        """`values`, `(..., n)`, with mean 0 and variance 1 over what was seen, clipped.

        A component that was constant so far is divided by 0.01 at the least: it may yet move.
        """
        std = jnp.maximum(jnp.sqrt(self.variance), 1e-2)
        return jnp.clip((values - self.mean) / std, -clip, clip)
