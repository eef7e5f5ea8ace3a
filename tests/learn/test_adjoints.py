"""Each world's gradient on its way back through a step, bounded by what is usual among them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toys
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.learn.shac.adjoints import BoundedAdjoints, bounded

B = 5


class BatchedEnv(NamedTuple):
    """A state with two leaves of the worlds' own, and two that are not."""

    x: Any
    v: Any
    shared: Any
    count: Any


def place() -> BatchedEnv:
    return BatchedEnv(jnp.zeros((B, 2)), jnp.zeros(B), jnp.float32(3.0), jnp.arange(B))


def came_back(adjoint_x: Any, adjoint_v: Any, times: float) -> BatchedEnv:
    """What a gradient is after the bound."""

    def total(x: Any, v: Any, shared: Any) -> Any:
        state = bounded(BatchedEnv(x, v, shared, jnp.arange(B)), jnp.float32(times), B)
        return (state.x * adjoint_x).sum() + (state.v * adjoint_v).sum() + 7.0 * state.shared

    gradient = jax.grad(total, argnums=(0, 1, 2))(*place()[:3])
    return BatchedEnv(*gradient, None)


def test_by_hand() -> None:
    """Norms 5, 1, 2, 0 and 3000: the median of those that are not 0 is the lower middle, 2."""
    adjoint_x = np.float32([[3.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, 0.0], [1800.0, 0.0]])
    adjoint_v = np.float32([4.0, 0.0, 0.0, 0.0, 2400.0])
    gradient = came_back(adjoint_x, adjoint_v, times=2.0)
    scale = np.array([4 / 5, 1.0, 1.0, 1.0, 4 / 3000])
    np.testing.assert_allclose(gradient.x, adjoint_x * scale[:, None], rtol=1e-6)
    np.testing.assert_allclose(gradient.v, adjoint_v * scale, rtol=1e-6)
    assert gradient.shared == 7.0


#: 0, or a number whose square is one too.
NUMBERS = st.just(0.0) | st.floats(1e-6, 1e6) | st.floats(-1e6, -1e-6)


@given(st.lists(NUMBERS, min_size=B, max_size=B), st.floats(1.0, 10.0))
def test_only_outliers_move_and_only_in_length(adjoint_v: list[float], times: float) -> None:
    theirs = np.float32(adjoint_v)
    ours = np.asarray(came_back(np.zeros((B, 2), np.float32), theirs, times).v)
    norm = np.abs(theirs).astype(float)
    having = np.sort(norm[norm > 0])
    limit = times * having[(len(having) - 1) // 2] if len(having) else 0.0
    expected = np.where(norm > limit, np.sign(theirs) * limit, theirs)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-30)


def test_a_gradient_beyond_numbers_takes_no_part_or_is_seen(nans_allowed: None) -> None:
    """One whose square is no number any more is left out; one that is none itself stays."""
    zero = np.zeros((B, 2), np.float32)
    huge = came_back(zero, np.float32([1.0, 2.0, 3.0, 4.0, 1e30]), times=3.0)
    np.testing.assert_array_equal(huge.v, np.float32([1.0, 2.0, 3.0, 4.0, 0.0]))
    for broken in (np.nan, np.inf):
        gradient = came_back(zero, np.float32([1.0, 2.0, 3.0, 4.0, broken]), times=3.0)
        assert not np.isfinite(gradient.v[4])


@pytest.mark.parametrize("times", [0.1, 1e9])
def test_worlds_step_as_they_did(times: float) -> None:
    worlds = Worlds(Env(toys.Puck(episode_length=4), "fake"), B)
    state = worlds.reset(jax.random.key(0))
    action = jnp.ones((B, 2)) * 0.3
    ours = jax.jit(BoundedAdjoints(worlds, times).step)(state, action)
    for mine, theirs in zip(
        jax.tree.leaves(ours), jax.tree.leaves(worlds.step(state, action)), strict=True
    ):
        if jnp.issubdtype(mine.dtype, jax.dtypes.prng_key):
            mine, theirs = jax.random.key_data(mine), jax.random.key_data(theirs)
        np.testing.assert_array_equal(mine, theirs)


def test_one_world_that_explodes_does_not_drown_the_others() -> None:
    """Twenty steps of x' = a x + u, of which one world has a = 60, not 0.9."""
    growth = jnp.float32([0.9, 0.9, 0.9, 0.9, 60.0])

    class Growing:
        num_worlds = B

        def step(self, x: Any, u: Any) -> Any:
            return growth * x + u, None

    def final(worlds: Any, u: Any) -> Any:
        x = jnp.zeros(B)
        for _ in range(20):
            x, _ = worlds.step(x, u)
        return x.sum()

    free = jax.grad(lambda u: final(Growing(), u))(jnp.zeros(B))
    held = jax.grad(lambda u: final(BoundedAdjoints(Growing(), 3.0), u))(jnp.zeros(B))
    assert free[4] > 1e30
    np.testing.assert_allclose(held[:4], free[:4], rtol=1e-5)
    assert 0 < held[4] < 20 * 3.0
