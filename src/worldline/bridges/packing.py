"""Worlds as plain arrays: a row of 32-bit words a world, and their real numbers by themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from worldline.types import Array, PyTree


@dataclasses.dataclass(frozen=True)
class _Leaf:
    """How one leaf is written; its shape without the axis `B`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    key_impl: Any
    """The kind of random keys that the leaf holds; None for an ordinary array."""
    words: int
    """32-bit words a world."""

    @property
    def real(self) -> bool:
        return jnp.issubdtype(self.dtype, jnp.floating)


class Packing:
    """Writes a pytree of worlds into one array, and reads it back bit for bit.

    Args:
        make: gives the pytree, with `B` in front of every leaf. It is traced, not run.
    """

    def __init__(self, make: Callable[[], PyTree]) -> None:
        impls: list[Any] = []

        def plain() -> PyTree:
            tree = make()
            impls.extend(jax.random.key_impl(x) if _is_key(x) else None for x in _leaves(tree))
            return jax.tree.map(_plain, tree)

        specs, self._structure = jax.tree.flatten(jax.eval_shape(plain))
        self._layout = [_leaf(spec, impl) for spec, impl in zip(specs, impls, strict=True)]

    @property
    def words(self) -> int:
        """The length of a row."""
        return sum(leaf.words for leaf in self._layout)

    @property
    def num_reals(self) -> int:
        """How many real numbers a world has."""
        return sum(int(np.prod(leaf.shape)) for leaf in self._layout if leaf.real)

    def pack(self, tree: PyTree) -> Array:
        """The tree as `(B, words)` int32."""
        return _join([_to_words(_plain(x)) for x in _leaves(tree)])

    def unpack(self, rows: Array) -> PyTree:
        """The tree that was packed into `(B, words)` int32."""
        leaves, start = [], 0
        for leaf in self._layout:
            leaves.append(_from_words(rows[:, start : start + leaf.words], leaf))
            start += leaf.words
        return jax.tree.unflatten(self._structure, leaves)

    def reals(self, tree: PyTree) -> Array:
        """The real numbers of a tree, `(B, nreal)` float32: all that has a derivative."""
        pairs = zip(_leaves(tree), self._layout, strict=True)
        return _join([jnp.asarray(x, jnp.float32) for x, leaf in pairs if leaf.real])

    def with_reals(self, tree: PyTree, reals: Array) -> PyTree:
        """The tree with other real numbers, as `reals` gives them."""
        leaves, start = _leaves(tree), 0
        for i, leaf in enumerate(self._layout):
            if leaf.real:
                size = int(np.prod(leaf.shape))
                part = reals[:, start : start + size].reshape(len(reals), *leaf.shape)
                leaves[i], start = part.astype(leaf.dtype), start + size
        return jax.tree.unflatten(self._structure, leaves)


def _leaves(tree: PyTree) -> list[Any]:
    return jax.tree.leaves(tree)


def _join(arrays: list[Array]) -> Array:
    """Arrays with `B` in front side by side, `(B, n)`."""
    return jnp.concatenate([x.reshape(len(x), int(np.prod(x.shape[1:]))) for x in arrays], axis=1)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Array) -> Array:
    """Random keys as the words they are made of; other arrays as they are."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _leaf(spec: jax.ShapeDtypeStruct, key_impl: Any) -> _Leaf:
    shape = tuple(spec.shape[1:])
    words = int(np.prod(shape)) * max(1, spec.dtype.itemsize // 4)
    return _Leaf(shape, np.dtype(spec.dtype), key_impl, words)


def _carrier(dtype: np.dtype[Any]) -> Any:
    """The type of at least 32 bits that holds every value of a type."""
    if dtype.itemsize >= 4:
        return dtype
    return jnp.float32 if jnp.issubdtype(dtype, jnp.floating) else jnp.int32


def _to_words(leaf: Array) -> Array:
    return jax.lax.bitcast_convert_type(leaf.astype(_carrier(leaf.dtype)), jnp.int32)


def _from_words(rows: Array, leaf: _Leaf) -> Array:
    halves = (2,) if leaf.dtype.itemsize == 8 else ()
    words = rows.reshape(len(rows), *leaf.shape, *halves)
    value = jax.lax.bitcast_convert_type(words, _carrier(leaf.dtype)).astype(leaf.dtype)
    return value if leaf.key_impl is None else jax.random.wrap_key_data(value, impl=leaf.key_impl)
