"""Worlds as rows of words."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toys
import worldline
from worldline.bridges.packing import Packing

B = 3


def plain(leaf: Any) -> np.ndarray:
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def assert_same_bits(left: Any, right: Any) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert plain(a).tobytes() == plain(b).tobytes()


@pytest.mark.usefixtures("key_reuse_allowed")
def test_worlds_come_back_bit_for_bit() -> None:
    worlds = worldline.Worlds(worldline.Env(toys.Swing()), B)
    state = worlds.reset(jax.random.key(0), {"dof_damping": np.ones((B, 1), np.float32)})
    packing = Packing(state)
    rows = jax.jit(packing.pack)(state)
    assert rows.shape == (B, packing.words)
    assert rows.dtype == jnp.int32
    assert_same_bits(jax.jit(packing.unpack)(rows), state)


DTYPES = ["float32", "float16", "bfloat16", "int32", "uint32", "int8", "uint8", "int16", "bool"]
shapes = st.lists(st.integers(0, 3), max_size=3)


trees = st.lists(st.tuples(st.sampled_from(DTYPES), shapes), min_size=1, max_size=6)


def random_tree(specs: list[Any], seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    tree = {}
    for i, (dtype, shape) in enumerate(specs):
        dtype = jnp.dtype(dtype)
        if dtype.kind == "b":
            array = random.integers(0, 2, (B, *shape)).astype(bool)
        else:
            count = B * int(np.prod(shape)) * dtype.itemsize
            array = np.frombuffer(random.bytes(count), dtype).reshape(B, *shape)
            with np.errstate(invalid="ignore"):  # signalling NaNs among them
                array = array.astype(np.float64)
            array = np.nan_to_num(array, posinf=1, neginf=-1).astype(dtype)
        tree[str(i)] = jnp.asarray(array)
    return tree


@given(specs=trees, seed=st.integers(0, 9))
def test_any_tree_comes_back_bit_for_bit(specs: list[Any], seed: int) -> None:
    with jax.debug_nans(False):  # random bits may be any number, even none
        tree = random_tree(specs, seed)
        packing = Packing(tree)
        rows = packing.pack(tree)
        assert_same_bits(packing.unpack(rows), tree)
        read = packing.read(rows)
        assert_same_bits(read, tree)
        for array in read.values():  # the reader's own, to write in
            array[...] = 0
        assert_same_bits(packing.read(rows), tree)


def test_real_numbers_by_themselves() -> None:
    tree = {"a": jnp.arange(6.0).reshape(3, 2), "n": jnp.arange(3), "s": jnp.full(3, 9.0)}
    packing = Packing(tree)
    reals = packing.reals(tree)
    np.testing.assert_array_equal(reals, [[0, 1, 9], [2, 3, 9], [4, 5, 9]])
    other = packing.with_reals(tree, reals + 1)
    np.testing.assert_array_equal(other["a"], tree["a"] + 1)
    np.testing.assert_array_equal(other["s"], tree["s"] + 1)
    np.testing.assert_array_equal(other["n"], tree["n"])
