"""Rotations as unit quaternions, `(4,)` with the real part first."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from worldline.tasks.playground.costs import length
from worldline.types import Array, ArrayLike, Key

#: The rotation by nothing.
IDENTITY = np.array([1.0, 0.0, 0.0, 0.0], np.float32)


def about(axis: ArrayLike, angle: ArrayLike) -> Array:
    """The rotation about an axis of length 1, `(3,)`, by an angle, `()`, rad."""
    half = jnp.asarray(angle, jnp.float32) / 2
    return jnp.concatenate([jnp.cos(half)[None], jnp.sin(half) * jnp.asarray(axis, jnp.float32)])


def product(second: Array, first: Array) -> Array:
    """One rotation after another: both are along the same axes."""
    a, b, c, d = second
    w, x, y, z = first
    return jnp.stack(
        [
            a * w - b * x - c * y - d * z,
            a * x + b * w + c * z - d * y,
            a * y - b * z + c * w + d * x,
            a * z + b * y - c * x + d * w,
        ]
    )


def inverse(quaternion: Array) -> Array:
    """The rotation back."""
    return quaternion * np.array([1.0, -1.0, -1.0, -1.0], np.float32)


def normalised(vector: Array) -> Array:
    """A vector of length 1 along another one; zeros stay zeros."""
    size = length(vector)
    return vector / jnp.where(size > 0, size, 1.0)


def matrix(quaternion: Array) -> Array:
    """The rotated axes as columns, `(3, 3)`."""
    w, x, y, z = quaternion
    return jnp.stack(
        [
            jnp.stack([w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)]),
            jnp.stack([2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)]),
            jnp.stack([2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z]),
        ]
    )


def angle_between(one: Array, other: Array) -> Array:
    """The angle of the rotation from one orientation to another, `()` in [0, pi], rad."""
    turn = product(one, inverse(other))
    return 2 * jnp.arctan2(length(turn[1:]), jnp.abs(turn[0]))


def turned(quaternion: Array, velocity: Array, time: float) -> Array:
    """An orientation after a time at an angular velocity in its own frame, `(3,)`, rad/s."""
    return normalised(product(quaternion, about(normalised(velocity), time * length(velocity))))


def anywhere(key: Key) -> Array:
    """Any orientation, uniform over all of them.

    After Shoemake (1992), "Uniform random rotations".
    """
    share, first, second = jax.random.uniform(key, (3,), jnp.float32)
    angles = 2 * jnp.pi * jnp.stack([first, second])
    small, large = jnp.sqrt(1 - share), jnp.sqrt(share)
    sine, cosine = jnp.sin(angles), jnp.cos(angles)
    return jnp.stack([small * sine[0], small * cosine[0], large * sine[1], large * cosine[1]])
