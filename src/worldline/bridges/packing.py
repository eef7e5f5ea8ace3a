"""Pytrees of worlds as plain arrays.

`Packing` writes one row of 32-bit words for each world: TorchRL carries the worlds so. `Bundle`
writes many small arrays into two: without it a step of one world through Gymnasium takes about
half as long again, since JAX takes time for each array that enters or leaves a program.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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

    @functools.cached_property
    def carrier(self) -> np.dtype[Any]:
        """The type of at least 32 bits that holds every value of the leaf's."""
        if self.dtype.itemsize >= 4:
            return self.dtype
        return np.dtype(np.float32 if self.real else np.int32)

    @property
    def real(self) -> bool:
        return jnp.issubdtype(self.dtype, jnp.floating)


class Packing:
    """Writes a pytree of worlds into one array, and reads it back bit for bit.

    Args:
        make: returns the pytree, with `B` in front of every leaf. It is traced, not run.
    """

    def __init__(self, make: Callable[[], PyTree]) -> None:
        specs, impls, self._structure = _plain_specs(make)
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
        pairs = zip(_leaves(tree), self._layout, strict=True)
        return _join([_to_words(_plain(x), leaf) for x, leaf in pairs])

    def unpack(self, rows: Array) -> PyTree:
        """The tree that was packed into `(B, words)` int32."""
        leaves, start = [], 0
        for leaf in self._layout:
            leaves.append(_from_words(rows[:, start : start + leaf.words], leaf))
            start += leaf.words
        return jax.tree.unflatten(self._structure, leaves)

    def reals(self, tree: PyTree) -> Array:
        """The real numbers of a tree, `(B, nreal)` float32: those that have a derivative."""
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


class _Span(NamedTuple):
    """Where a leaf lies: a part of one of the arrays."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    key_impl: Any
    """The kind of random keys that the leaf holds; None for an ordinary array."""
    array: int
    start: int
    end: int


class Bundle:
    """Writes a pytree of worlds into few flat arrays: all small leaves of real numbers into one
    float32 array, all other small leaves into one int32 array, each large leaf into its own.

    Args:
        make: returns the pytree, with `B` in front of every leaf. It is traced, not run.
        small: the most values that a world has in a leaf which counts as small.
    """

    def __init__(self, make: Callable[[], PyTree], small: int = 32) -> None:
        specs, impls, self._structure = _plain_specs(make)
        self._spans: list[_Span] = []
        sizes: list[int] = []
        self._dtypes: list[np.dtype[Any]] = []
        shared: dict[np.dtype[Any], int] = {}
        for spec, impl in zip(specs, impls, strict=True):
            array, dtype = len(sizes), spec.dtype
            if math.prod(spec.shape[1:]) <= small and dtype.itemsize <= 4:
                real = jnp.issubdtype(dtype, jnp.floating)
                dtype = np.dtype(np.float32 if real else np.int32)
                array = shared.setdefault(dtype, array)
            if array == len(sizes):
                sizes.append(0)
                self._dtypes.append(dtype)
            start, sizes[array] = sizes[array], sizes[array] + math.prod(spec.shape)
            self._spans.append(_Span(spec.shape, spec.dtype, impl, array, start, sizes[array]))

    def pack(self, tree: PyTree) -> list[Array]:
        """The tree as flat arrays."""
        parts: list[list[Array]] = [[] for _ in self._dtypes]
        for leaf, span in zip(_leaves(tree), self._spans, strict=True):
            parts[span.array].append(_plain(leaf).reshape(-1).astype(self._dtypes[span.array]))
        return [jnp.concatenate(part) for part in parts]

    def unpack(self, arrays: Sequence[Array]) -> PyTree:
        """The tree of such arrays."""
        leaves = (self._leaf(arrays, span) for span in self._spans)
        return jax.tree.unflatten(self._structure, map(_as_keys, leaves, self._spans))

    def read(self, arrays: Sequence[Array]) -> PyTree:
        """The tree as NumPy arrays, each the caller's own to write in; keys as words."""
        mine = [np.array(x) for x in arrays]
        return jax.tree.unflatten(self._structure, [self._leaf(mine, s) for s in self._spans])

    def _leaf(self, arrays: Sequence[Any], span: _Span) -> Any:
        """A leaf in arrays of JAX or NumPy; keys as words."""
        part = arrays[span.array][span.start : span.end].reshape(span.shape)
        return part if part.dtype == span.dtype else part.astype(span.dtype)


def _plain_specs(make: Callable[[], PyTree]) -> tuple[list[jax.ShapeDtypeStruct], list[Any], Any]:
    """Of a pytree, its leaves with the words of random keys in place of keys; the kind of each
    leaf's keys, None where it has none; and the structure.
    """
    impls: list[Any] = []

    def plain() -> PyTree:
        tree = make()
        impls.extend(jax.random.key_impl(x) if _is_key(x) else None for x in _leaves(tree))
        return jax.tree.map(_plain, tree)

    specs, structure = jax.tree.flatten(jax.eval_shape(plain))
    return specs, impls, structure


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


def _to_words(value: Array, leaf: _Leaf) -> Array:
    return jax.lax.bitcast_convert_type(value.astype(leaf.carrier), jnp.int32)


def _from_words(rows: Array, leaf: _Leaf) -> Array:
    halves = (2,) if leaf.dtype.itemsize == 8 else ()
    words = rows.reshape(len(rows), *leaf.shape, *halves)
    value = jax.lax.bitcast_convert_type(words, leaf.carrier).astype(leaf.dtype)
    return _as_keys(value, leaf)


def _as_keys(value: Array, leaf: _Leaf | _Span) -> Array:
    """A leaf's keys, of their words; another leaf as it is."""
    return value if leaf.key_impl is None else jax.random.wrap_key_data(value, impl=leaf.key_impl)
