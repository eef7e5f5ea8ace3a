"""Distributions against SciPy's, by the Kolmogorov-Smirnov test."""

import jax
import numpy as np
import pytest
from scipy import stats

from worldline.errors import VariationError
from worldline.variation import Choice, LogUniform, TruncatedNormal, Uniform

CONTINUOUS = [
    (Uniform(0.8, 1.2), stats.uniform(0.8, 0.4)),
    (Uniform(-3.0, -1.0), stats.uniform(-3.0, 2.0)),
    (LogUniform(0.1, 10.0), stats.loguniform(0.1, 10.0)),
    (TruncatedNormal(1.0, 0.5, 0.8, 2.5), stats.truncnorm(-0.4, 3.0, 1.0, 0.5)),
]


@pytest.mark.parametrize(("distribution", "reference"), CONTINUOUS)
def test_draws_follow_the_distribution(distribution, reference):
    drawn = np.asarray(distribution.sample(jax.random.key(0), (10_000,)), np.float64)
    assert stats.kstest(drawn, reference.cdf).pvalue > 0.001
    low, high = distribution.support()
    assert ((drawn >= low) & (drawn <= high)).all()
    np.testing.assert_allclose((low, high), reference.support(), rtol=1e-6)


def test_a_choice_is_as_frequent_as_its_weight():
    drawn = Choice([1.0, 2.0, 5.0], [1.0, 3.0, 0.0]).sample(jax.random.key(1), (10_000,))
    counts = [(np.asarray(drawn) == value).sum() for value in (1.0, 2.0, 5.0)]
    assert sum(counts) == 10_000
    assert counts[2] == 0
    assert stats.chisquare(counts[:2], [2500, 7500]).pvalue > 0.001


def test_a_vector_of_parameters_draws_independent_numbers():
    distribution = Uniform([0.0, 10.0], [1.0, 20.0])
    drawn = np.asarray(distribution.sample(jax.random.key(2), (5_000,)))
    assert drawn.shape == (5_000, 2)
    assert stats.kstest(drawn[:, 0], stats.uniform(0, 1).cdf).pvalue > 0.001
    assert stats.kstest(drawn[:, 1], stats.uniform(10, 10).cdf).pvalue > 0.001
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.05


def test_the_parameters_are_data():
    traces = []

    @jax.jit
    def draw(distribution, key):
        traces.append(1)
        return distribution.sample(key)

    for high in (1.0, 2.0, 3.0):
        draw(Uniform(0.5, high), jax.random.key(0))
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: Uniform(2.0, 1.0), r"Uniform from 2 to 1; give finite low <= high"),
        (lambda: Uniform(0.0, np.inf), "give finite low <= high"),
        (lambda: LogUniform(0.0, 1.0), "give low above 0"),
        (lambda: TruncatedNormal(0.0, 0.0, -1.0, 1.0), "with std 0; give more than 0"),
        (lambda: Choice([]), "give a list of values"),
        (lambda: Choice([1.0, np.nan]), "give finite values"),
        (lambda: Choice([1.0, 2.0], [1.0]), "for 2 values"),
        (lambda: Choice([1.0], [-1.0]), "none negative"),
    ],
)
def test_parameters_that_make_no_distribution_are_refused(build, complaint):
    with pytest.raises(VariationError, match=complaint):
        build()
