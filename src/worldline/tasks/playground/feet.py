"""Feet: contact, time in the air, and how high they swing."""

from __future__ import annotations

import math

import equinox as eqx
import jax.numpy as jnp

from worldline.tasks.playground.costs import length
from worldline.types import Array


class Feet(eqx.Module):
    """What n feet have done until the last control step, as it was when that step was observed.

    What a contact ends, time in the air and the peak of a swing, is forgotten with the next step.
    """

    contact: Array
    """Whether each foot touches the ground now, `(n,)` bool; False at a start."""
    last_contact: Array
    """Whether it did one control step before, `(n,)` bool."""
    air_time: Array
    """How long it has been in the air, `(n,)`, s."""
    swing_peak: Array
    """How high it was at most since it left the ground, `(n,)`, m."""

    @classmethod
    def at_start(cls, number: int) -> Feet:
        """Feet that have done nothing."""
        nothing, zero = jnp.zeros(number, bool), jnp.zeros(number, jnp.float32)
        return cls(contact=nothing, last_contact=nothing, air_time=zero, swing_peak=zero)

    def step(self, contact: Array, height: Array, seconds: float) -> tuple[Feet, Array]:
        """The feet after a control step, and which of them land in it, `(n,)` bool.

        Args:
            contact: whether each foot touches the ground, `(n,)` bool.
            height: of each foot, `(n,)`, m.
            seconds: the length of the step.
        """
        air_time = jnp.where(self.contact, 0.0, self.air_time)
        peak = jnp.where(self.contact, 0.0, self.swing_peak)
        landed = (air_time > 0) & (contact | self.contact)
        following = Feet(
            contact=contact,
            last_contact=self.contact,
            air_time=air_time + seconds,
            swing_peak=jnp.maximum(peak, height),
        )
        return following, landed

    def mean_peak(self) -> Array:
        """The mean height of the swings that go on, `()`, m."""
        return jnp.mean(jnp.where(self.contact, 0.0, self.swing_peak))


def slip(velocity: Array, contact: Array) -> Array:
    """The squared horizontal speeds of feet on the ground, `()`; velocities are `(n, 3)`, m/s."""
    return jnp.sum(jnp.where(contact, jnp.sum(jnp.square(velocity[:, :2]), axis=-1), 0.0))


def clearance(velocity: Array, height: Array, wanted: float) -> Array:
    """How far feet that move are from the height of a swing, `()`.

    Args:
        velocity: `(n, 3)`, m/s; each foot counts with the square root of its horizontal speed.
        height: `(n,)`, m.
        wanted: height of a swing, m.
    """
    return jnp.sum(jnp.abs(height - wanted) * root_speed(velocity))


def root_speed(velocity: Array) -> Array:
    """The square root of each horizontal speed, `(n,)`, with a derivative of 0 at rest."""
    speed = length(velocity[:, :2])
    root = jnp.sqrt(jnp.where(speed > 0, speed, 1.0))
    return jnp.where(speed > 0, root, 0.0)


def swing_height(peak: Array, landed: Array, wanted: float) -> Array:
    """The squared relative errors of the peaks of swings that end now, `()`."""
    return jnp.sum(jnp.where(landed, jnp.square(peak / wanted - 1.0), 0.0))


def air_time(seconds: Array, landed: Array, least: float, most: float = math.inf) -> Array:
    """The time in the air beyond the least one, of feet that land now, `()`, s.

    Args:
        seconds: in the air, `(n,)`.
        landed: which feet land now, `(n,)` bool.
        least: what a swing has to last, s.
        most: how long a swing counts, s.
    """
    return jnp.sum(jnp.where(landed, jnp.minimum(seconds, most) - least, 0.0))
