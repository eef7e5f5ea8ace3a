"""Terms of rewards that legged robots share, without their weights: `()` each."""

from __future__ import annotations

import jax.numpy as jnp

from worldline.types import Array, ArrayLike


def length(vector: Array) -> Array:
    """The Euclidean norm along the last axis, with a derivative of 0 at 0."""
    square = jnp.sum(jnp.square(vector), axis=-1)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def squared(*values: ArrayLike) -> Array:
    """The sum of the squares of all values."""
    return jnp.sum(jnp.stack([jnp.sum(jnp.square(value)) for value in values]))


def linear_tracking(command: Array, velocity: Array, sigma: float) -> Array:
    """How well a horizontal velocity is the one commanded, in (0, 1].

    Args:
        command: forward and left, m/s, and turning, rad/s, `(3,)`.
        velocity: in the robot's frame, `(3,)`, m/s.
        sigma: squared error at which `exp(-1)` is left.
    """
    return jnp.exp(-squared(command[:2] - velocity[:2]) / sigma)


def angular_tracking(command: Array, spin: Array, sigma: float) -> Array:
    """How well the robot turns as commanded, in (0, 1]; `spin` is in its frame, `(3,)`, rad/s."""
    return jnp.exp(-jnp.square(command[2] - spin[2]) / sigma)


def torques(force: Array) -> Array:
    """The norm of the motors' forces plus the sum of their sizes, N m; forces are `(nu,)`."""
    return length(force) + jnp.sum(jnp.abs(force))


def energy(velocity: Array, force: Array) -> Array:
    """The power that the motors give and take, W; rad/s and N m, `(nu,)` each."""
    return jnp.sum(jnp.abs(velocity) * jnp.abs(force))


def action_rate(action: Array, last: Array) -> Array:
    """The squared change of the action."""
    return squared(action - last)


def action_smoothness(action: Array, last: Array, before: Array) -> Array:
    """The squares of the first and second differences of the last three actions."""
    return squared(action - last, action - 2 * last + before)


def beyond_limits(angles: Array, low: ArrayLike, high: ArrayLike) -> Array:
    """How far joints are out of their limits, rad, summed; all are `(n,)`."""
    return jnp.sum(jnp.maximum(low - angles, 0.0) + jnp.maximum(angles - high, 0.0))


def upright(vertical: Array, wanted: ArrayLike) -> Array:
    """How well a direction is the one wanted, in (0, 1]; both are `(3,)` and of length 1."""
    return jnp.exp(-2.0 * squared(wanted - vertical))


def closeness(values: Array, wanted: ArrayLike, sharpness: ArrayLike) -> Array:
    """`exp` of less the squared errors, each times its sharpness, in (0, 1]."""
    return jnp.exp(-jnp.sum(sharpness * jnp.square(values - wanted)))
