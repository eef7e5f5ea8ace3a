"""Pytrees of worlds as one array, with a row of 32-bit words for each world.

TorchRL carries worlds as one tensor. The Gymnasium environments keep theirs as one array, because
JAX takes some microseconds for each array that enters or leaves a program, and a state has about
thirty: a step of one world through Gymnasium would take half as long again. Without packing they
would hold the `WorldsState` itself and compile `Worlds.step`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from worldline.keys import is_key
from worldline.types import Array, PyTree


@dataclasses.dataclass(frozen=True)
class _Leaf:
    """The words of one leaf in a row."""

    shape: tuple[int, ...]
    """The leaf's shape without the axis `B`."""
    dtype: np.dtype[Any]
    key_impl: Any
    """The kind of random keys that the leaf holds; None for an ordinary array."""
    start: int
    """The index of its first word."""

    @functools.cached_property
    def size(self) -> int:
        """How many values of the leaf a world has."""
        return math.prod(self.shape)

    @functools.cached_property
    def stored(self) -> np.dtype[Any]:
        """The type that is written: a bool takes a whole word."""
        return np.dtype(np.int32) if self.dtype == bool else self.dtype

    @functools.cached_property
    def words(self) -> slice:
        """Where the leaf lies in a row."""
        return slice(self.start, self.start - (-self.size * self.stored.itemsize // 4))

    @functools.cached_property
    def padding(self) -> int:
        """How many values fill up the last word."""
        written = 4 * (self.words.stop - self.start)
        return written // self.stored.itemsize - self.size

    @property
    def real(self) -> bool:
        return jnp.issubdtype(self.dtype, jnp.floating)

    def to_words(self, value: Array) -> Array:
        """The leaf, `(B, *shape)`, as `(B, words)` int32."""
        plain = value if self.key_impl is None else jax.random.key_data(value)
        flat = plain.reshape(len(plain), self.size).astype(self.stored)
        return jnp.pad(flat, ((0, 0), (0, self.padding))).view(jnp.int32)

    def from_words(self, rows: Any) -> Any:
        """The leaf in rows of JAX or NumPy; random keys stay words."""
        flat = rows[:, self.words].view(self.stored)
        if self.padding:
            flat = flat[:, : self.size]
        value = flat.reshape(len(rows), *self.shape)
        return value if self.stored == self.dtype else value.astype(self.dtype)


class Packing:
    """Writes pytrees of one structure into an array, and reads them back bit for bit.

    Args:
        example: a pytree of arrays, or of their shapes, with `B` in front of every leaf.
    """

    def __init__(self, example: PyTree) -> None:
        keys: list[Any] = []

        def plain(leaves: list[Array]) -> list[Array]:
            keys.extend(jax.random.key_impl(x) if is_key(x) else None for x in leaves)
            return [jax.random.key_data(x) if is_key(x) else x for x in leaves]

        leaves, self._structure = jax.tree.flatten(example)
        self._leaves: list[_Leaf] = []
        #: The length of a row.
        self.words = 0
        for spec, key in zip(jax.eval_shape(plain, leaves), keys, strict=True):
            self._leaves.append(_Leaf(spec.shape[1:], np.dtype(spec.dtype), key, self.words))
            self.words = self._leaves[-1].words.stop

    @property
    def num_reals(self) -> int:
        """How many real numbers a world has."""
        return sum(leaf.size for leaf in self._leaves if leaf.real)

    def pack(self, tree: PyTree) -> Array:
        """The tree as `(B, words)` int32."""
        pairs = zip(jax.tree.leaves(tree), self._leaves, strict=True)
        return jnp.concatenate([leaf.to_words(x) for x, leaf in pairs], axis=1)

    def unpack(self, rows: Array) -> PyTree:
        """The tree that was packed into `(B, words)` int32."""
        values = [leaf.from_words(rows) for leaf in self._leaves]
        for i, leaf in enumerate(self._leaves):
            if leaf.key_impl is not None:
                values[i] = jax.random.wrap_key_data(values[i], impl=leaf.key_impl)
        return jax.tree.unflatten(self._structure, values)

    def read(self, rows: Array) -> PyTree:
        """The tree as NumPy arrays, which the caller may change; random keys as words."""
        here = np.asarray(rows)
        values = [np.array(leaf.from_words(here)) for leaf in self._leaves]
        return jax.tree.unflatten(self._structure, values)

    def reals(self, tree: PyTree) -> Array:
        """The real numbers of a tree, `(B, nreal)` float32: those that have a derivative."""
        pairs = zip(jax.tree.leaves(tree), self._leaves, strict=True)
        parts = [jnp.asarray(x, jnp.float32).reshape(len(x), f.size) for x, f in pairs if f.real]
        return jnp.concatenate(parts, axis=1)

    def with_reals(self, tree: PyTree, reals: Array) -> PyTree:
        """The tree with other real numbers, as `reals` returns them."""
        values, start = jax.tree.leaves(tree), 0
        for i, leaf in enumerate(self._leaves):
            if leaf.real:
                part = reals[:, start : start + leaf.size].reshape(len(reals), *leaf.shape)
                values[i], start = part.astype(leaf.dtype), start + leaf.size
        return jax.tree.unflatten(self._structure, values)
