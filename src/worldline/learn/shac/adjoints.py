"""Bounded adjoints: no world dominates the gradient of a rollout.

If a body falls or a foot slips, the gradient of its world can become a million times larger than
the others (Metz et al. 2021, "Gradients are not all you need"). Clipping the mean gradient does not
help, because its direction is already that of this world. So each world's adjoint, the gradient
with respect to its state between two steps, is bounded by the median over the worlds at that step.
"""

from __future__ import annotations

import dataclasses
from typing import Generic

import jax
import jax.numpy as jnp

from worldline.env.worlds import Step
from worldline.learn.batched_env import StateT, Steppable
from worldline.types import Array, PyTree


@dataclasses.dataclass(frozen=True, eq=False)
class BoundedAdjoints(Generic[StateT]):
    """Worlds with the same steps, and with bounded adjoints in the backward pass."""

    worlds: Steppable[StateT]
    """The worlds to act in."""
    times_median: Array | float
    """A world's adjoint is scaled down to at most this many times the median norm, `()`."""

    @property
    def num_worlds(self) -> int:
        """The number of worlds, B."""
        return self.worlds.num_worlds

    def step(self, state: StateT, action: Array, /) -> tuple[StateT, Step]:
        """The worlds one control step later, as `Worlds.step`."""
        after, step = self.worlds.step(state, action)
        return bounded(after, jnp.float32(self.times_median), self.num_worlds), step


def bounded(state: StateT, times_median: Array, num_worlds: int) -> StateT:
    """The same state; its adjoint is bounded in the backward pass.

    Args:
        state: the state of the worlds. A leaf with the first axis `B` has an entry for each world.
        times_median: a world's adjoint is scaled down to this many times the median norm, `()`.
        num_worlds: B.
    """

    @jax.custom_vjp
    def same(state: StateT, times_median: Array) -> StateT:
        return state

    def forwards(state: StateT, times_median: Array) -> tuple[StateT, Array]:
        return state, times_median

    def backwards(times_median: Array, adjoint: PyTree) -> tuple[PyTree, Array]:
        return _bound(adjoint, times_median, num_worlds), jnp.zeros_like(times_median)

    same.defvjp(forwards, backwards)
    return same(state, times_median)


def _bound(adjoint: PyTree, times_median: Array, num_worlds: int) -> PyTree:
    """Scales each world's part down to `times_median` times the median norm, which is taken over
    the worlds whose norm is not 0.
    """

    def is_worlds(x: Array) -> bool:
        return x.dtype != jax.dtypes.float0 and x.ndim > 0 and x.shape[0] == num_worlds

    rows = [x.reshape(num_worlds, -1) for x in jax.tree.leaves(adjoint) if is_worlds(x)]
    norm = jnp.sqrt(sum((jnp.float32(x) ** 2).sum(axis=1) for x in rows))
    having = (norm > 0).sum()
    median = jnp.sort(norm)[num_worlds - 1 - having // 2]  # those without one come first
    limit = times_median * median
    scale = jnp.where(norm > limit, limit / jnp.where(norm > 0, norm, 1.0), 1.0)

    def scaled(x: Array) -> Array:
        if not is_worlds(x):
            return x
        return x * scale.reshape(num_worlds, *[1] * (x.ndim - 1)).astype(x.dtype)

    return jax.tree.map(scaled, adjoint)
