"""Distributions of a world's constants. A curriculum may change their parameters."""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.errors import VariationError
from worldline.types import Array, ArrayLike, Key

NDArray: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

#: A parameter: a number, or numbers.
Number: TypeAlias = ArrayLike | Sequence[float] | Sequence[Sequence[float]]


def _number(value: Number) -> Array:
    return jnp.asarray(value, jnp.float32)


class Distribution(eqx.Module):
    """A distribution of numbers, or of vectors with independent elements, as a pytree."""

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of one draw: `()` if the parameters are numbers."""

    @abc.abstractmethod
    def sample(self, key: Key, lead: tuple[int, ...] = ()) -> Array:
        """Independent draws, `(*lead, *shape)`."""

    @abc.abstractmethod
    def support(self) -> tuple[NDArray, NDArray]:
        """The lowest and the highest value, `shape` each, for concrete parameters."""

    def corners(self) -> Iterator[NDArray]:
        """Values at which every function that is affine in each element has its extremes."""
        low, high = self.support()
        for pick in itertools.product((False, True), repeat=low.size):
            yield np.where(np.reshape(pick, low.shape), high, low)


def text(value: ArrayLike) -> str:
    """A number, or an array of them, as text for an error."""
    array = np.asarray(value)
    if array.ndim == 0:
        return f"{float(array):g}"
    return f"[{', '.join(map(text, array))}]"


class _Between(Distribution):
    """A distribution between two bounds. Every parameter is a number, or a vector of them."""

    low: Array
    high: Array

    def __check_init__(self) -> None:
        finite = (np.isfinite(getattr(self, field.name)) for field in dataclasses.fields(self))
        if not (all(x.all() for x in finite) and (self.low <= self.high).all()):
            raise VariationError(
                f"{type(self).__name__} from {text(self.low)} to {text(self.high)}; give finite "
                "low <= high"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        parameters = (getattr(self, field.name) for field in dataclasses.fields(self))
        return np.broadcast_shapes(*(x.shape for x in parameters))

    def support(self) -> tuple[NDArray, NDArray]:
        low, high = (np.asarray(end, np.float64) for end in (self.low, self.high))
        return np.broadcast_to(low, self.shape), np.broadcast_to(high, self.shape)


class Uniform(_Between):
    """The uniform distribution from `low` to `high`.

    Args:
        low: the lowest value: a number, or a vector for vectors with independent elements.
        high: the highest value, likewise.

    Raises:
        VariationError: `low` is above `high`, or one is not finite.
    """

    def __init__(self, low: Number, high: Number) -> None:
        self.low, self.high = _number(low), _number(high)

    def sample(self, key: Key, lead: tuple[int, ...] = ()) -> Array:
        """Independent draws, `(*lead, *shape)`."""
        return jax.random.uniform(key, (*lead, *self.shape), jnp.float32, self.low, self.high)


class LogUniform(_Between):
    """Uniform in the logarithm: half of the draws lie below `sqrt(low * high)`.

    Args:
        low: the lowest value, above 0: a number, or a vector for vectors with independent elements.
        high: the highest value, likewise.

    Raises:
        VariationError: `low` is above `high` or not positive, or one is not finite.
    """

    def __init__(self, low: Number, high: Number) -> None:
        self.low, self.high = _number(low), _number(high)

    def __check_init__(self) -> None:
        if (self.low <= 0).any():
            raise VariationError(f"LogUniform from {text(self.low)}; give low above 0")

    def sample(self, key: Key, lead: tuple[int, ...] = ()) -> Array:
        """Independent draws, `(*lead, *shape)`."""
        low, high = jnp.log(self.low), jnp.log(self.high)
        drawn = jax.random.uniform(key, (*lead, *self.shape), jnp.float32, low, high)
        return jnp.clip(jnp.exp(drawn), self.low, self.high)


class TruncatedNormal(_Between):
    """A normal distribution, cut off below `low` and above `high`.

    Args:
        mean: mean of the normal distribution before it is cut off: a number, or a vector for
            vectors with independent elements. The other arguments have the same shape.
        std: its standard deviation, above 0.
        low: the lowest value.
        high: the highest value.

    Raises:
        VariationError: `low` is above `high`, `std` is not positive, or one is not finite.
    """

    mean: Array
    std: Array

    def __init__(self, mean: Number, std: Number, low: Number, high: Number) -> None:
        self.mean, self.std, self.low, self.high = map(_number, (mean, std, low, high))

    def __check_init__(self) -> None:
        if (self.std <= 0).any():
            raise VariationError(f"TruncatedNormal with std {text(self.std)}; give more than 0")

    def sample(self, key: Key, lead: tuple[int, ...] = ()) -> Array:
        """Independent draws, `(*lead, *shape)`."""
        low, high = ((end - self.mean) / self.std for end in (self.low, self.high))
        drawn = jax.random.truncated_normal(key, low, high, (*lead, *self.shape), jnp.float32)
        return jnp.clip(self.mean + self.std * drawn, self.low, self.high)


class Choice(Distribution):
    """One of several values.

    Args:
        values: `(n,)` numbers, or `(n, m)` for a choice among n vectors.
        weights: `(n,)`, proportional to the probability of each; None: all the same.

    Raises:
        VariationError: there is no value, a value is not finite, or a weight is negative.
    """

    values: Array
    weights: Array

    def __init__(self, values: Number, weights: Number | None = None) -> None:
        self.values = _number(values)
        if self.values.ndim == 0 or len(self.values) == 0:
            raise VariationError(f"Choice among {text(self.values)}; give a list of values")
        count = len(self.values)
        self.weights = jnp.ones(count, jnp.float32) if weights is None else _number(weights)
        if not np.isfinite(self.values).all():
            raise VariationError(f"Choice among {text(self.values)}; give finite values")
        if self.weights.shape != (count,) or (self.weights < 0).any() or self.weights.sum() <= 0:
            raise VariationError(
                f"Choice with weights {text(self.weights)} for {count} values; give as many, none "
                "negative, not all 0"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one draw: `()` if the values are numbers."""
        return self.values.shape[1:]

    def sample(self, key: Key, lead: tuple[int, ...] = ()) -> Array:
        """Independent draws, `(*lead, *shape)`."""
        share = self.weights / self.weights.sum()
        return self.values[jax.random.choice(key, len(self.values), lead, p=share)]

    def support(self) -> tuple[NDArray, NDArray]:
        """The lowest and the highest value, `shape` each."""
        values = np.asarray(self.values, np.float64)[np.asarray(self.weights) > 0]
        return values.min(axis=0), values.max(axis=0)

    def corners(self) -> Iterator[NDArray]:
        """The values themselves."""
        yield from np.asarray(self.values, np.float64)[np.asarray(self.weights) > 0]
