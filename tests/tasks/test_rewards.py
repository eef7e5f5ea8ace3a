"""Rewards in [0, 1], against dm_control's own values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_control.utils import rewards as theirs
from hypothesis import given
from hypothesis import strategies as st

from worldline.errors import ConfigError
from worldline.tasks.rewards import _REACH_ZERO, _SIGMOIDS, tolerance

sigmoids = st.sampled_from(sorted(_SIGMOIDS))
#: XLA takes subnormal numbers for zero, which is within bounds where they are not.
numbers = st.floats(-5, 5, width=32, allow_subnormal=False)
edges = st.one_of(numbers, st.sampled_from([-np.inf, np.inf]))


@st.composite
def settings(draw):
    """Bounds, margin, sigmoid and value at the margin, as dm_control allows them."""
    low, high = sorted((draw(edges), draw(edges)))
    if np.isinf(low) and low == high:
        low, high = -np.inf, np.inf
    sigmoid = draw(sigmoids)
    values = st.floats(0.01, 0.99)
    if sigmoid in _REACH_ZERO:
        values = st.one_of(values, st.just(0.0))
    margin = draw(st.one_of(st.just(0.0), st.floats(0.1, 5)))
    return {
        "bounds": (low, high),
        "margin": margin,
        "sigmoid": sigmoid,
        "value_at_margin": draw(values),
    }


@given(x=st.lists(numbers, min_size=1, max_size=20), settings=settings())
def test_values_are_dm_controls(x, settings):
    x = np.array(x, np.float32)
    wanted = theirs.tolerance(x.astype(np.float64), **settings)
    np.testing.assert_allclose(tolerance(x, **settings), wanted, rtol=2e-5, atol=2e-6)


@given(x=numbers, settings=settings())
def test_values_are_between_zero_and_one_and_have_a_slope(x, settings):
    value, slope = jax.value_and_grad(lambda x: tolerance(x, **settings))(jnp.float32(x))
    assert 0 <= value <= 1
    assert np.isfinite(slope)


@pytest.mark.parametrize("sigmoid", sorted(_SIGMOIDS))
def test_the_value_at_the_margin_is_the_one_asked_for(sigmoid):
    assert tolerance(3.5, (1.0, 2.0), 1.5, sigmoid, 0.25) == pytest.approx(0.25, abs=1e-6)
    assert tolerance(-0.5, (1.0, 2.0), 1.5, sigmoid, 0.25) == pytest.approx(0.25, abs=1e-6)
    assert tolerance(1.5, (1.0, 2.0), 1.5, sigmoid, 0.25) == 1.0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"bounds": (1.0, 0.0)}, "bounds are (1.0, 0.0)"),
        ({"margin": -1.0}, "margin is -1.0"),
        ({"sigmoid": "gausian"}, "did you mean 'gaussian'"),
        ({"value_at_margin": 0.0}, "strictly between 0 and 1"),
        ({"sigmoid": "linear", "value_at_margin": 1.0}, "in [0, 1)"),
    ],
)
def test_errors_name_the_mend(settings, says):
    with pytest.raises(ConfigError) as caught:
        tolerance(0.0, **settings)
    assert says in str(caught.value)
