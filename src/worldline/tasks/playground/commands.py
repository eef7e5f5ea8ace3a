"""Commands of a joystick: velocities forward and to the left, m/s, and turning left, rad/s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp

from worldline.types import Array, Key

#: A number for each component of a command.
Numbers: TypeAlias = Sequence[float]


class Command(eqx.Module):
    """A command, and when the next one comes."""

    velocity: Array
    """Velocities to follow: forward and left, m/s, and turning left, rad/s; `(3,)`."""
    steps: Array
    """Control steps that it still lasts, `()` int32."""

    def next(self, velocity: Array, steps: Array) -> Command:
        """The command of the next control step: this one, or a new one when its time is over.

        Args:
            velocity: of the new one, `(3,)`.
            steps: that the new one lasts, `()` int32, 1 or more.
        """
        over = self.steps <= 0
        return Command(
            velocity=jnp.where(over, velocity, self.velocity),
            steps=jnp.where(over, steps, self.steps) - 1,
        )


def within(key: Key, low: Numbers, high: Numbers, zero_probability: float = 0.0) -> Array:
    """A command between `low` and `high`, `(3,)` each, or now and then one to stand still."""
    share = jax.random.uniform(key, (4,), jnp.float32)
    command = _array(low) + (_array(high) - _array(low)) * share[:3]
    return jnp.where(share[3] < zero_probability, 0.0, command)


def changed(key: Key, command: Array, largest: Numbers, keep: Numbers) -> Array:
    """The next command, in which each component changes with a probability of one half.

    Args:
        key: decides the draws.
        command: the command before, `(3,)`.
        largest: bounds of the sizes of new components, `(3,)`.
        keep: the probability that a new component is not 0, `(3,)`.
    """
    change, kept, share = jax.random.uniform(key, (3, 3), jnp.float32)
    fresh = jnp.where(kept < _array(keep), _array(largest) * (2 * share - 1), 0.0)
    return jnp.where(change < 0.5, fresh, command)


def moving(command: Array) -> Array:
    """Whether the command is to move at all, `()` float32: faster than 0.01."""
    return (jnp.sum(jnp.square(command)) > 0.01**2).astype(jnp.float32)


def exponential_steps(key: Key, mean: float) -> Array:
    """A waiting time with this mean, in whole control steps, `()` int32, at least 1."""
    steps = jnp.round(mean * jax.random.exponential(key, (), jnp.float32))
    return jnp.maximum(steps, 1.0).astype(jnp.int32)


def _array(numbers: Numbers) -> Array:
    return jnp.array(numbers, jnp.float32)
