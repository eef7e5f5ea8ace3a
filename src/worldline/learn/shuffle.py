"""Minibatches: samples in random order."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from worldline.types import Array, Key, PyTree

#: A number of at most so many bits leaves enough bits of a word for a random number.
_FEW_BITS = 20


def random_order(key: Key, number: int) -> Array:
    """The integers below `number` in random order, `(number,)` int32.

    Each integer takes the low bits of a random word, and the words are sorted. Two integers whose
    random bits agree, by a chance of `2 ** (bits - 32)`, keep their order; this changes a minibatch
    only where they stand at its border. `jax.random.permutation` sorts pairs, and twice, which
    takes a CPU nine times as long.
    """
    bits = (number - 1).bit_length()
    if bits > _FEW_BITS:
        return jax.random.permutation(key, number)
    low = jnp.uint32((1 << bits) - 1)
    words = (jax.random.bits(key, (number,)) & ~low) | jnp.arange(number, dtype=jnp.uint32)
    return (jnp.sort(words) & low).astype(jnp.int32)


def shuffled(samples: PyTree, key: Key, minibatches: int) -> PyTree:
    """The samples in random order, split: `(n, ...)` to `(minibatches, n / minibatches, ...)`."""
    number = jax.tree.leaves(samples)[0].shape[0]
    order = random_order(key, number)
    size = number // minibatches
    return jax.tree.map(lambda x: x[order].reshape(minibatches, size, *x.shape[1:]), samples)
