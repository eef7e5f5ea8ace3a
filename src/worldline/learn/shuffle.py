"""Minibatches: samples in random order."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from worldline.parallel.mesh import BY_WORLD, STEPS_BY_WORLD, shared
from worldline.types import Array, Key, PyTree

#: A number of at most so many bits leaves enough bits of a word for a random number.
_FEW_BITS = 20


def random_order(key: Key, number: int) -> Array:
    """The integers below `number` in random order, `(number,)` int32.

    Each integer replaces the low bits of a random word, and the words are sorted. Two integers with
    equal random bits (probability `2 ** (bits - 32)`) keep their order; this changes a minibatch
    only at its border. `jax.random.permutation` sorts pairs twice, which takes nine times as long
    on a CPU.
    """
    bits = (number - 1).bit_length()
    if bits > _FEW_BITS:
        return jax.random.permutation(key, number)
    low = jnp.uint32((1 << bits) - 1)
    words = (jax.random.bits(key, (number,)) & ~low) | jnp.arange(number, dtype=jnp.uint32)
    return (jnp.sort(words) & low).astype(jnp.int32)


def shuffled(
    samples: PyTree, key: Key, minibatches: int, groups: int = 1, mesh: Mesh | None = None
) -> tuple[PyTree, Array]:
    """Minibatches of samples in random order.

    Samples are shuffled within groups of worlds, and a minibatch has the same number of samples
    from each group. So devices that share the groups exchange no samples, and the content of a
    minibatch does not depend on the number of devices.

    Args:
        samples: leaves `(T, B, ...)`, or of B whole worlds `(1, B, ...)`.
        key: decides the order.
        minibatches: M; divides the samples of a group.
        groups: G, of neighbouring worlds; the devices of the mesh divide it.
        mesh: the devices that have a share of the worlds each; None: one device.

    Returns:
        The minibatches, `(M, T * B / M, ...)`, and the row of each of their samples, as `taken`
        reads it.
    """
    length, worlds, *_ = jax.tree.leaves(samples)[0].shape
    number = length * worlds // groups
    keys = key[None] if groups == 1 else jax.random.split(key, groups)

    def draw(samples: PyTree, keys: Key) -> tuple[PyTree, Array]:
        here, worlds = len(keys), jax.tree.leaves(samples)[0].shape[1]
        order = jax.vmap(functools.partial(random_order, number=number))(keys)
        step, world = jnp.divmod(order, worlds // here)
        row = step * worlds + jnp.arange(here)[:, None] * (worlds // here) + world
        rows = row.reshape(here, minibatches, -1).swapaxes(0, 1).reshape(minibatches, -1)
        return _rows(samples, rows), rows

    takes, gives = (STEPS_BY_WORLD, BY_WORLD), (STEPS_BY_WORLD, STEPS_BY_WORLD)
    return shared(mesh, draw, takes, gives)(samples, keys)


def taken(samples: PyTree, rows: Array, mesh: Mesh | None = None) -> PyTree:
    """The samples of a minibatch: leaves `(n, ...)` of `(T, B, ...)`.

    Args:
        samples: as those that were `shuffled`.
        rows: of the minibatch, as `shuffled` gives them, `(n,)`: of T * B on each device.
        mesh: as of `shuffled`.
    """
    return shared(mesh, _rows, (STEPS_BY_WORLD, BY_WORLD), BY_WORLD)(samples, rows)


def _rows(samples: PyTree, rows: Array) -> PyTree:
    """Rows of the samples of one device: steps and worlds count as one axis."""
    # By their number, since a leaf may be empty, as the state of a policy that sees images alone.
    return jax.tree.map(lambda x: x.reshape(math.prod(x.shape[:2]), *x.shape[2:])[rows], samples)
