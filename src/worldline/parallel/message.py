"""A tree of arrays as one vector of words, which travels as one message, and again as a tree."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from worldline.keys import is_key
from worldline.types import Array, PyTree

#: Bytes of a word.
_WORD = 4


class Message:
    """How a tree of these shapes and types is written into words, bit for bit.

    Keys travel as their words, and are of JAX's default kind.

    Args:
        like: arrays, or their shapes and types.
    """

    def __init__(self, like: PyTree) -> None:
        leaves, self._structure = jax.tree.flatten(like)
        self._leaves = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
        self._sizes = [_size(leaf) for leaf in self._leaves]
        #: The length of the vector.
        self.words = max(1, sum(self._sizes))
        #: From a tree to its words, `(words,)` uint32; compiled.
        self.pack = jax.jit(self._pack)
        #: From words to the tree; compiled.
        self.unpack = jax.jit(self._unpack)

    def _pack(self, tree: PyTree) -> Array:
        written = [_written(leaf) for leaf in jax.tree.leaves(tree)]
        return jnp.concatenate(written) if any(self._sizes) else jnp.zeros(1, jnp.uint32)

    def _unpack(self, words: Array) -> PyTree:
        leaves, at = [], 0
        for leaf, size in zip(self._leaves, self._sizes, strict=True):
            leaves.append(_read(words[at : at + size], leaf))
            at += size
        return jax.tree.unflatten(self._structure, leaves)


def _plain(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """The words of a key in its place."""
    return jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf


def _size(leaf: jax.ShapeDtypeStruct) -> int:
    """Words that an array takes."""
    plain = _plain(leaf)
    itemsize = 1 if plain.dtype == bool else plain.dtype.itemsize
    return math.ceil(math.prod(plain.shape) * itemsize / _WORD)


def _written(x: Array) -> Array:
    if is_key(x):
        x = jax.random.key_data(x)
    x = (x.astype(jnp.uint8) if x.dtype == bool else x).ravel()
    share = _WORD // x.dtype.itemsize  # of a word that an element takes
    if share > 1:
        x = jnp.pad(x, (0, -x.size % share)).reshape(-1, share)
    return jax.lax.bitcast_convert_type(x, jnp.uint32).ravel()


def _read(words: Array, leaf: jax.ShapeDtypeStruct) -> Array:
    plain = _plain(leaf)
    number = math.prod(plain.shape)
    dtype = jnp.dtype(jnp.uint8) if plain.dtype == bool else plain.dtype
    if dtype.itemsize > _WORD:
        words = words.reshape(-1, dtype.itemsize // _WORD)
    x = jax.lax.bitcast_convert_type(words, dtype).ravel()[:number].reshape(plain.shape)
    if is_key(leaf):
        return jax.random.wrap_key_data(x)
    return x.astype(plain.dtype)
