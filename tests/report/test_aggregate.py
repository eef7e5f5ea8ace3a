"""Numbers of several seeds: by hand, and against SciPy's trimmed mean."""

import numpy as np
import pytest
from scipy import stats

from worldline.report.aggregate import estimate, interquartile_mean, normalized, spread


def test_the_interquartile_mean_is_scipys_trimmed_mean():
    random = np.random.default_rng(0)
    for count in range(1, 12):
        values = random.normal(size=(3, count))
        expected = [stats.trim_mean(row, 0.25) for row in values]
        np.testing.assert_allclose(interquartile_mean(values), expected)


def test_median_and_quartiles_by_hand():
    assert spread(np.array([4.0, 0, 1, 2, 3])) == (2, 1, 3)


def test_an_interval_has_the_mean_and_shrinks_with_more_seeds():
    random = np.random.default_rng(1)
    few, many = (estimate([random.normal(10, 1, count)]) for count in (8, 512))
    for each in (few, many):
        assert each.low < each.mean < each.high
        assert abs(each.mean - 10) < 1
    assert many.high - many.low < 0.25 * (few.high - few.low)
    # Of a normal distribution the interquartile mean of n numbers has a standard error of about
    # 1.09 / sqrt(n): the asymptotic efficiency of a mean trimmed by a quarter is 0.84.
    assert many.high - many.low == pytest.approx(2 * 1.96 * 1.09 / np.sqrt(512), rel=0.15)


def test_seeds_are_drawn_within_their_task():
    sure = estimate([np.full(4, 1.0), np.full(4, 2.0)])
    assert sure == (1.5, 1.5, 1.5)


def test_scores_are_between_the_extremes_of_a_task():
    first, second = normalized([np.array([10.0, 20]), np.array([30.0])])
    np.testing.assert_allclose([*first, *second], [0, 0.5, 1])
    assert normalized([np.array([7.0])]) == [0]
