"""Random orders: each is a permutation, and none is likelier than another."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from worldline.learn.shuffle import _FEW_BITS, random_order, shuffled, taken


@given(st.integers(1, 3000), st.integers(0, 2**31))
def test_every_number_occurs_once(number, seed):
    order = random_order(jax.random.key(seed), number)
    assert order.dtype == np.int32
    np.testing.assert_array_equal(np.sort(order), np.arange(number))


@pytest.mark.parametrize("number", [1 << _FEW_BITS, (1 << _FEW_BITS) + 1])
def test_many_numbers_too(number):
    order = np.asarray(random_order(jax.random.key(0), number))
    np.testing.assert_array_equal(np.sort(order), np.arange(number))
    # Two that are neighbours meet in a minibatch as often as any two, and so do early numbers.
    minibatches = 32
    where = np.argsort(order) * minibatches // number
    together = (np.diff(where) == 0).mean()
    assert abs(together - 1 / minibatches) < 5 * np.sqrt(1 / minibatches / number)
    assert stats.chisquare(np.bincount(where[: number // 50])).pvalue > 1e-3


def test_orders_of_four_are_equally_likely():
    keys = jax.random.split(jax.random.key(0), 24_000)
    orders = np.asarray(jax.vmap(lambda key: random_order(key, 4))(keys))
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 1e-3


def test_a_number_may_come_to_every_place_and_beside_every_other():
    keys = jax.random.split(jax.random.key(1), 20_000)
    orders = np.asarray(jax.vmap(lambda key: random_order(key, 40))(keys))
    places = np.argsort(orders, axis=1)
    for number in (0, 17, 39):
        counts = np.bincount(places[:, number], minlength=40)
        assert stats.chisquare(counts).pvalue > 1e-3
    before = (places[:, 3] < places[:, 4]).mean()
    assert abs(before - 0.5) < 4 * 0.5 / np.sqrt(len(keys))


def test_all_parts_of_a_sample_stay_together_and_one_may_be_empty():
    """The state of a policy that sees images alone has no numbers."""
    numbers = np.arange(24, dtype=np.float32).reshape(4, 6)
    samples = {"none": np.zeros((4, 6, 0), np.float32), "one": numbers, "two": 2 * numbers}
    batches, rows = shuffled(samples, jax.random.key(0), 3)
    assert batches["none"].shape == (3, 8, 0)
    np.testing.assert_array_equal(2 * batches["one"], batches["two"])
    np.testing.assert_array_equal(np.sort(batches["one"], axis=None), np.arange(24))
    np.testing.assert_array_equal(taken(samples, rows[0])["one"], batches["one"][0])
