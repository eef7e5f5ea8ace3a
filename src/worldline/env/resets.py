"""Resets: new episodes in some of many worlds, at a cost in proportion to their number."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from worldline.types import Array, PyTree

#: The state of some worlds at the start of their next episodes: `(state, ranges, rows) -> state`,
#: with `rows` `(n,)` the numbers of the worlds; a number of B stands for no world.
Begin: TypeAlias = Callable[[Any, PyTree, Array], Any]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def begin_where(begin: Begin, state: Any, ranges: PyTree, mask: Array) -> Any:
    """Begins a new episode in some worlds, a few at a time, until none is left.

    Args:
        begin: returns the state at a start; its differentiable inputs are only `state.fixed` and
            the ranges.
        state: a `WorldsState`, `(B, ...)` a leaf, without ranges and with words for keys.
        ranges: the ranges from which constants are drawn, for all worlds.
        mask: `(B,)` bool, the worlds that begin a new episode.
    """
    # Few rows at a time, since most steps end a handful of episodes; in proportion to the worlds,
    # since a pass costs as much as a few rows do, and random humanoids end one in 25 a step. On
    # several devices these are a device's share.
    number = mask.shape[0]
    size = min(number, max(4, number // 16))

    def begin_some(carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        state, waiting = carry
        (rows,) = jnp.nonzero(waiting, size=size, fill_value=number)
        fresh = begin(state, ranges, rows)
        state = jax.tree.map(lambda old, new: old.at[rows].set(new, mode="drop"), state, fresh)
        return state, waiting.at[rows].set(False, mode="drop")

    return jax.lax.while_loop(lambda carry: carry[1].any(), begin_some, (state, mask))[0]


@functools.partial(begin_where.defjvp, symbolic_zeros=True)
def _begin_where_jvp(begin: Begin, primals: Any, tangents: Any) -> Any:
    """The derivative of a world that goes on is its own, and that of a fresh start is `begin`'s.

    The latter is computed only if someone differentiates by what the start depends on.
    """
    state, ranges, mask = primals
    moved, ranges_moved, _ = tangents
    sources, by = (state.fixed, ranges), (moved.fixed, ranges_moved)
    if all(map(_is_zero, jax.tree.leaves(by, is_leaf=_is_zero))):
        fresh = jax.tree.map(lambda _: None, moved, is_leaf=_is_zero)
    else:

        def begin_all(fixed: PyTree, ranges: PyTree) -> Any:
            # Every row: one outside the mask is unspecified and may have no finite derivative.
            rows = jnp.arange(mask.shape[0])
            return begin(dataclasses.replace(state, fixed=fixed), ranges, rows)

        arrays = jax.tree.map(_as_array, by, sources, is_leaf=_is_zero)
        _, fresh = jax.jvp(begin_all, sources, arrays)

    def choose(old: Any, new: Any) -> Any:
        """The tangent of a leaf; one that is known to be zero stays so, and costs nothing."""
        if new is not None and new.dtype != jax.dtypes.float0:
            return where_rows(mask, new, _as_array(old, new))
        return old if _is_zero(old) else where_rows(mask, jnp.zeros_like(old), old)

    moved = jax.tree.map(choose, moved, fresh, is_leaf=_is_zero)
    return begin_where(begin, *primals), moved


def where_rows(mask: Array, new: Array, old: Array) -> Array:
    """The rows of `new` where `mask`, such as `(B,)` bool, is True, and of `old` elsewhere."""
    return jnp.where(mask.reshape(mask.shape + (1,) * (new.ndim - mask.ndim)), new, old)


def _as_array(tangent: Any, like: Any) -> Any:
    """A tangent as an array, also where it is known to be zero."""
    if not _is_zero(tangent):
        return tangent
    zeros = np.zeros if tangent.dtype == jax.dtypes.float0 else jnp.zeros
    return zeros(jnp.shape(like), tangent.dtype)


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, SymbolicZero)
