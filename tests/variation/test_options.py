"""Contexts in the words of a command line."""

import numpy as np
import pytest

from worldline.errors import ConfigError
from worldline.variation.distributions import Choice, Uniform
from worldline.variation.options import read_draws, read_grid


def test_what_features_are_drawn_from():
    draws = read_draws(["gravity=-12:-8", "friction=0.5,1.0", "viscosity=1e-2"])
    assert isinstance(draws["gravity"], Uniform)
    assert [end.item() for end in draws["gravity"].support()] == [-12, -8]
    for name, values in (("friction", [0.5, 1.0]), ("viscosity", [1e-2])):
        assert isinstance(draws[name], Choice)
        np.testing.assert_allclose(draws[name].values, values)


def test_a_grid_of_values():
    grid = read_grid(["gravity=-5:-15:11", "friction=0.5,2"])
    np.testing.assert_allclose(grid["gravity"], np.arange(-5, -16, -1))
    np.testing.assert_allclose(grid["friction"], [0.5, 2])


@pytest.mark.parametrize(
    ("read", "options", "complaint"),
    [
        (read_draws, ["gravity"], "'gravity' is not a context; give a feature and values"),
        (read_draws, ["=1"], "is not a context"),
        (read_draws, ["gravity=low:high"], "is not a number"),
        (read_draws, ["gravity=1:2:3"], "is not a range; give gravity=low:high"),
        (read_draws, ["gravity=1:2", "gravity=3"], "given twice"),
        (read_draws, ["gravity=nan"], "not finite"),
        (read_grid, ["gravity=1:2"], "no number of values; give gravity=first:last:count"),
        (read_grid, ["gravity=1:2:2.5"], "no number of values"),
        (read_grid, ["gravity=1:2:0"], "no number of values"),
    ],
)
def test_what_is_no_context(read, options, complaint):
    with pytest.raises(ConfigError, match=complaint):
        read(options)
