"""Terms: how far a robot is from its reference, and what that is worth.

The errors, kernels and limits of Liao et al. (2025), "BeyondMimic: from motion tracking to
versatile humanoid control via guided diffusion", as published with it and in mjlab's tracking task.
Where a robot stands and which way it faces counts for its anchor alone: the other bodies are
compared with those of a reference that is moved to the robot.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from worldline.tasks.playground.rotations import angle_between, inverse, matrix, product
from worldline.tasks.tracking.reference import Bodies
from worldline.types import Array

_products = jax.vmap(product, (None, 0))
_angles = jax.vmap(angle_between)


def rotated(quaternion: Array, vectors: Array) -> Array:
    """Vectors, `(n, 3)`, turned by a rotation, `(4,)`."""
    return vectors @ matrix(quaternion).T


def heading(quaternion: Array) -> Array:
    """The rotation about the vertical that is in a rotation, `(4,)` both."""
    w, x, y, z = quaternion
    yaw = jnp.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    zero = jnp.zeros_like(yaw)
    return jnp.stack([jnp.cos(yaw / 2), zero, zero, jnp.sin(yaw / 2)])


def moved_to(robot: Bodies, reference: Bodies, anchor: int) -> Bodies:
    """The bodies of the reference, moved horizontally and turned about the vertical so that their
    anchor is over the robot's and heads where it heads. Velocities stay.
    """
    turn = heading(product(robot.orientation[anchor], inverse(reference.orientation[anchor])))
    place = robot.position[anchor].at[2].set(reference.position[anchor, 2])
    from_anchor = reference.position - reference.position[anchor]
    return Bodies(
        place + rotated(turn, from_anchor),
        _products(turn, reference.orientation),
        reference.linear_velocity,
        reference.angular_velocity,
    )


def squared_errors(robot: Bodies, reference: Bodies, anchor: int) -> dict[str, Array]:
    """Squared errors of the anchor, and means over the bodies of theirs, `()` each.

    Positions in m^2, orientations in rad^2, velocities in (m/s)^2 and (rad/s)^2.
    """
    moved = moved_to(robot, reference, anchor)

    def mean(difference: Array) -> Array:
        return jnp.mean(jnp.sum(jnp.square(difference), axis=-1))

    angle = angle_between(reference.orientation[anchor], robot.orientation[anchor])
    return {
        "anchor_position": jnp.sum(jnp.square(reference.position[anchor] - robot.position[anchor])),
        "anchor_orientation": jnp.square(angle),
        "body_position": mean(moved.position - robot.position),
        "body_orientation": jnp.mean(jnp.square(_angles(moved.orientation, robot.orientation))),
        "body_linear_velocity": mean(reference.linear_velocity - robot.linear_velocity),
        "body_angular_velocity": mean(reference.angular_velocity - robot.angular_velocity),
    }


def kernels(errors: Mapping[str, Array], widths: Mapping[str, float]) -> dict[str, Array]:
    """What the squared errors are worth, each in (0, 1]: `exp(-error / width^2)`."""
    return {name: jnp.exp(-errors[name] / width**2) for name, width in widths.items()}


def anchor_errors(robot: Bodies, reference: Bodies, anchor: int) -> tuple[Array, Array]:
    """Where the reference's anchor is, as the robot's anchor sees it: position `(3,)`, m, and the
    first two columns of the rotation matrix, row by row, `(6,)`.
    """
    back = inverse(robot.orientation[anchor])
    way = reference.position[anchor] - robot.position[anchor]
    turn = matrix(product(back, reference.orientation[anchor]))
    return rotated(back, way[None])[0], turn[:, :2].reshape(6)


def seen_from_anchor(robot: Bodies, anchor: int) -> tuple[Array, Array]:
    """The robot's other bodies in the frame of its anchor: positions, `(3 (n - 1),)`, m, and the
    first two columns of rotation matrices, `(6 (n - 1),)`.
    """
    back, others = inverse(robot.orientation[anchor]), np.arange(len(robot.position)) != anchor
    position = rotated(back, robot.position[others] - robot.position[anchor])
    turns = jax.vmap(matrix)(_products(back, robot.orientation[others]))
    return position.reshape(-1), turns[:, :, :2].reshape(-1)


def tilt_error(robot: Bodies, reference: Bodies, anchor: int) -> Array:
    """How much the vertical parts of gravity, in the frames of both anchors, differ, `()`."""
    first, second = (matrix(b.orientation[anchor])[2, 2] for b in (robot, reference))
    return jnp.abs(first - second)


def beyond_limits(joints: Array, low: Array, high: Array) -> Array:
    """How far joints are beyond their limits, all together, `()`, rad."""
    return jnp.sum(jnp.maximum(low - joints, 0.0) + jnp.maximum(joints - high, 0.0))
