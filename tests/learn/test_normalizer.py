"""Running statistics against NumPy's over all at once."""

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
from hypothesis import given

from worldline.learn.normalizer import RunningStatistics


@given(
    st.integers(0, 2**31),
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.floats(-100, 100),
    st.floats(0.1, 50),
)
def test_parts_merge_to_the_whole(
    seed: int, sizes: list[int], centre: float, spread: float
) -> None:
    random = np.random.default_rng(seed)
    parts = [(centre + spread * random.normal(size=(n, 2, 3))).astype(np.float32) for n in sizes]
    statistics = RunningStatistics.zero((3,))
    for part in parts:
        statistics = statistics.update(jnp.asarray(part))
    everything = np.concatenate(parts).reshape(-1, 3).astype(np.float64)
    scale = abs(centre) + spread
    np.testing.assert_allclose(statistics.mean, everything.mean(0), atol=1e-4 * scale)
    np.testing.assert_allclose(
        statistics.variance, everything.var(0), rtol=2e-3, atol=1e-4 * scale**2
    )
    assert statistics.count == len(everything)


def test_normalises_to_mean_zero_and_variance_one() -> None:
    values = jnp.asarray(np.random.default_rng(0).normal(5, 3, (1000, 2)), jnp.float32)
    normal = RunningStatistics.zero((2,)).update(values).normalize(values)
    np.testing.assert_allclose(normal.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(normal.std(0), 1, atol=1e-3)


def test_before_anything_was_seen_values_pass_unchanged() -> None:
    values = jnp.array([-3.0, 0.5])
    np.testing.assert_array_equal(RunningStatistics.zero((2,)).normalize(values), values)


def test_a_constant_is_not_blown_up() -> None:
    statistics = RunningStatistics.zero((1,)).update(jnp.full((50, 1), 7.0, jnp.float32))
    np.testing.assert_allclose(statistics.normalize(jnp.array([7.001])), [0.1], atol=0.01)
    np.testing.assert_allclose(statistics.normalize(jnp.array([1000.0])), [10.0])


def test_statistics_of_scalars() -> None:
    statistics = RunningStatistics.zero(()).update(jnp.array([[1.0, 2.0], [3.0, 6.0]]))
    assert (statistics.mean, statistics.variance, statistics.count) == (3.0, 3.5, 4.0)
