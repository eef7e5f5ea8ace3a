"""The option `gradual` of humanoids, a curriculum: episodes become harder while few robots fall.

A robot that is thrown at its start needs a step to stay on its feet. Before it can stand, nothing
that it does makes it fall much later, so it learns nothing. So training begins without throws.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from worldline.types import Array
from worldline.variation.domain import Ranges

#: How hard episodes are, from 0 to 1: a share of the throw at the start, the pushes and the noise.
LEVEL = "episode_level"
#: Falls per control step and world, a moving average.
FALLS = "falls"

#: Control steps without many falls from the easiest to the hardest episodes.
_STEPS = 3000
#: The weight of the last control step in the moving average.
_RATE = 0.01
#: Episodes become harder while there are fewer falls than the first, and easier above the second.
_FEW, _MANY = 1 / 600, 1 / 300


def begin() -> Ranges:
    """The easiest episodes, before anything is known of falls."""
    return {LEVEL: np.float32(0.0), FALLS: np.float32(10 * _MANY)}


def counted(fell: Array) -> tuple[Array, Array]:
    """Whether a robot fell in a step, and that it made one: `()` int32 each."""
    return fell.astype(jnp.int32), jnp.int32(1)


def adapted(ranges: Ranges, total: tuple[Array, Array]) -> Ranges:
    """The level and the falls after a step of all worlds, of which `total` is the sum."""
    falls, worlds = total
    rate = ranges[FALLS] + _RATE * (falls / worlds - ranges[FALLS])
    step = jnp.where(rate < _FEW, 1.0, jnp.where(rate > _MANY, -1.0, 0.0)) / _STEPS
    level = jnp.clip(ranges[LEVEL] + step, 0.0, 1.0)
    return {LEVEL: level.astype(jnp.float32), FALLS: rate.astype(jnp.float32)}
