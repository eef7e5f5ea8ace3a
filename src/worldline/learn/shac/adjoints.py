"""What comes back through the worlds when a rollout is differentiated, kept from being taken over
by a few of them.

Where a body falls or a foot slips, the gradient of one world is soon a million times that of the
others (Metz et al. 2021, "Gradients are not all you need"). A bound on the mean's norm comes too
late then: its direction is already that world's. So each world's adjoint, the gradient by its state
between two steps, is bounded by what is usual among the worlds at that moment.
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
    """Worlds that step as they did; differentiated, none counts much more than the usual one."""

    worlds: Steppable[StateT]
    """Where to act."""
    times_median: Array | float
    """A world's adjoint is scaled down to at most this many times the median norm, `()`."""

    @property
    def num_worlds(self) -> int:
        """B."""
        return self.worlds.num_worlds

    def step(self, state: StateT, action: Array, /) -> tuple[StateT, Step]:
        """All worlds one control step later, as `Worlds.step`."""
        after, step = self.worlds.step(state, action)
        return bounded(after, jnp.float32(self.times_median), self.num_worlds), step


def bounded(state: StateT, times_median: Array, num_worlds: int) -> StateT:
    """The state itself, whose gradient is bounded on its way back.

    Args:
        state: of the worlds; a leaf is a world's where it begins with `B`.
        times_median: how many times the median norm a world's gradient may have, `()`.
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
    """Each world's part scaled down to `times_median` times the median norm of those that have a
    gradient at all.
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
