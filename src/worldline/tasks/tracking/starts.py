"""Starts near a frame of the reference, changed at random by as much as published."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from worldline.tasks.playground.rotations import matrix, product
from worldline.tasks.tracking.motion import NDArray
from worldline.tasks.tracking.reference import Reference
from worldline.types import Array, Key

#: Largest change of the root's place, m on a G1, and of its roll, pitch and yaw, rad.
_PLACE, _TURN = (0.05, 0.05, 0.01), (0.1, 0.1, 0.2)
#: Largest change of its velocities along and about the world's axes, m/s and rad/s.
_VELOCITY, _SPIN = (0.5, 0.5, 0.2), (0.52, 0.52, 0.78)
#: Largest change of the joints, rad.
_JOINT = 0.1


def near(
    key: Key, reference: Reference, level: float, length: float, limits: tuple[NDArray, NDArray]
) -> tuple[Array, Array]:
    """A configuration `(nq,)` and a velocity `(nv,)` near those of a frame.

    Args:
        key: decides the changes.
        reference: the frame.
        level: a factor of all changes.
        length: a factor of lengths.
        limits: lowest and highest joint angles, which no change leads beyond, rad.
    """
    qpos, qvel = reference.qpos, reference.qvel
    near_by = length * np.array(_PLACE)
    sizes = np.concatenate([near_by, _TURN, _VELOCITY, _SPIN, np.full(len(qpos) - 7, _JOINT)])
    drawn = jax.random.uniform(key, sizes.shape, jnp.float32, -1.0)
    changes = jnp.float32(level * sizes) * drawn
    place, turn, velocity, spin, joints = jnp.split(changes, (3, 6, 9, 12))
    orientation = product(_from_angles(turn), qpos[3:7])
    # MuJoCo's angular velocity is in the frame of the root, which turns.
    spin = (matrix(qpos[3:7]) @ qvel[3:6] + spin) @ matrix(orientation)
    low, high = (jnp.asarray(limit, jnp.float32) for limit in limits)
    angles = qpos[7:]
    moved = jnp.clip(angles + joints, jnp.minimum(low, angles), jnp.maximum(high, angles))
    return (
        jnp.concatenate([qpos[:3] + place, orientation, moved]),
        jnp.concatenate([qvel[:3] + velocity, spin, qvel[6:]]),
    )


def _from_angles(angles: Array) -> Array:
    """The rotation by roll, then pitch, then yaw, about the world's axes; `(3,)` rad to `(4,)`."""
    (cr, cp, cy), (sr, sp, sy) = jnp.cos(angles / 2), jnp.sin(angles / 2)
    return jnp.stack(
        [
            cr * cp * cy + sr * sp * sy,
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
        ]
    )
