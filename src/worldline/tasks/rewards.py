"""Rewards between 0 and 1: how well a number is where it should be.

The soft indicator of the DeepMind Control Suite (Tassa et al. 2018, "DeepMind Control Suite",
section 2.2, "Reward"): 1 within bounds, and from there down to 0 along a sigmoid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import jax.numpy as jnp
import numpy as np

from worldline.errors import ConfigError, did_you_mean
from worldline.types import Array, ArrayLike

Sigmoid: TypeAlias = Literal[
    "cosine",
    "gaussian",
    "hyperbolic",
    "linear",
    "long_tail",
    "quadratic",
    "reciprocal",
    "tanh_squared",
]


#: From a distance `x`, in units of the margin and not negative, and the value `v` at distance 1, to
#: a value that is 1 at distance 0.
_SIGMOIDS: dict[str, Callable[[Array, float], Array]] = {
    "cosine": lambda x, v: (
        (1 + jnp.cos(np.pi * jnp.minimum(x * (np.arccos(2 * v - 1) / np.pi), 1.0))) / 2
    ),
    "gaussian": lambda x, v: jnp.exp(np.log(v) * x**2),
    "hyperbolic": lambda x, v: _sech(x * np.arccosh(1 / v)),
    "linear": lambda x, v: jnp.maximum(1 - x * (1 - v), 0.0),
    "long_tail": lambda x, v: 1 / ((1 / v - 1) * x**2 + 1),
    "quadratic": lambda x, v: jnp.maximum(1 - (1 - v) * x**2, 0.0),
    "reciprocal": lambda x, v: 1 / ((1 / v - 1) * x + 1),
    "tanh_squared": lambda x, v: 1 - jnp.tanh(x * np.arctanh(np.sqrt(1 - v))) ** 2,
}

#: These reach zero, so that the value at the margin may be zero.
_REACH_ZERO = ("cosine", "linear", "quadratic")


def tolerance(
    x: ArrayLike,
    bounds: tuple[float, float] = (0.0, 0.0),
    margin: float = 0.0,
    sigmoid: Sigmoid = "gaussian",
    value_at_margin: float = 0.1,
) -> Array:
    """1 where `x` is within bounds, less and less of it outside.

    Args:
        x: any shape.
        bounds: the lowest and the highest value that are worth 1; either may be infinite.
        margin: distance from the bounds at which `value_at_margin` is left; 0: nothing outside.
        sigmoid: the form of the way down.
        value_at_margin: from 0, which only `cosine`, `linear` and `quadratic` can reach, to 1.

    Returns:
        Values in [0, 1], of the shape of `x`.

    Raises:
        ConfigError: bounds in the wrong order, a negative margin, an unknown sigmoid, or a value at
            the margin that it cannot have.
    """
    low, high = bounds
    if low > high:
        raise ConfigError(f"bounds are {bounds}; the lower must come first")
    if margin < 0:
        raise ConfigError(f"margin is {margin}; it must not be negative")
    if sigmoid not in _SIGMOIDS:
        raise ConfigError(f"no sigmoid is called {sigmoid!r}{did_you_mean(sigmoid, _SIGMOIDS)}")
    lowest_is_zero = sigmoid in _REACH_ZERO
    if not (0 < value_at_margin < 1 or (lowest_is_zero and value_at_margin == 0)):
        allowed = "in [0, 1)" if lowest_is_zero else "strictly between 0 and 1"
        raise ConfigError(
            f"value_at_margin is {value_at_margin}; for {sigmoid} it must be {allowed}"
        )
    x = jnp.asarray(x, jnp.float32)
    distance = jnp.maximum(jnp.maximum(low - x, x - high), 0.0)
    if margin == 0:
        return jnp.where(distance > 0, 0.0, 1.0)
    return _SIGMOIDS[sigmoid](distance / margin, float(value_at_margin))


def _sech(x: Array) -> Array:
    """`1 / cosh(x)`, without its overflow."""
    return 2 * jnp.exp(-x) / (1 + jnp.exp(-2 * x))
