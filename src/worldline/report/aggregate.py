"""Aggregate: what several seeds reached, as one number with an interval that says how sure it is.

Source: Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical
Precipice": the interquartile mean, and its stratified bootstrap interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

NDArray: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

#: How often seeds are drawn anew for an interval.
_RESAMPLES = 2000

#: The ends of the interval: it has the mean in 95% of repetitions.
_INTERVAL = (0.025, 0.975)


class Spread(NamedTuple):
    """The middle of several numbers, and half of them around it."""

    median: float
    low: float
    """A quarter of the numbers is below."""
    high: float
    """A quarter of the numbers is above."""


class Estimate(NamedTuple):
    """An interquartile mean, with its 95% bootstrap interval."""

    mean: float
    low: float
    high: float


def spread(values: NDArray) -> Spread:
    """Median and quartiles of numbers, `(n,)`."""
    return Spread(*(float(q) for q in np.quantile(values, (0.5, 0.25, 0.75))))


def interquartile_mean(values: NDArray) -> NDArray:
    """The mean of the middle half of numbers, `(..., n)` to `(...)`.

    A quarter of the numbers, rounded down, is left out at each end, so that one seed that failed or
    was lucky does not decide.
    """
    ordered = np.sort(values, axis=-1)
    count = ordered.shape[-1]
    mean: NDArray = ordered[..., count // 4 : count - count // 4].mean(axis=-1)
    return mean


def estimate(strata: Sequence[NDArray], seed: int = 0) -> Estimate:
    """The interquartile mean of all numbers, and its interval.

    For the interval the numbers of each stratum are drawn anew, with replacement, again and again.

    Args:
        strata: the numbers of each task, `(n,)` each.
        seed: of the draws.
    """
    random = np.random.default_rng(seed)
    drawn = [
        values[random.integers(0, len(values), (_RESAMPLES, len(values)))] for values in strata
    ]
    means = interquartile_mean(np.concatenate(drawn, axis=-1))
    low, high = np.quantile(means, _INTERVAL)
    return Estimate(float(interquartile_mean(np.concatenate(strata))), float(low), float(high))


def normalized(values: Sequence[NDArray]) -> list[NDArray]:
    """Returns of one task as scores: 0 for the lowest of all, 1 for the highest.

    Args:
        values: the returns of each setting, `(n,)` each.
    """
    every = np.concatenate(values)
    low, extent = every.min(), np.ptp(every) or 1.0
    return [(each - low) / extent for each in values]
