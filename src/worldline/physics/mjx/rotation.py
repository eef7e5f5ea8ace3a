"""Turns and small products as MJX has them, in a form whose backward pass is short.

MJX takes quaternions and matrices apart number by number. Backwards each number that was taken out
is an array of zeros around it and a sum: a third of all that the gradient of a step ran. Here a
quaternion is split at once, which backwards is one concatenation.
"""

from __future__ import annotations

import jax.numpy as jnp

from worldline.physics.mjx.source import mjx_math, mjx_smooth, mjx_support, rebound, rebound_module
from worldline.types import Array


def quat_mul(u: Array, v: Array) -> Array:
    """The product of two quaternions, `(4,)` each."""
    uw, ux, uy, uz = jnp.split(u, 4)
    vw, vx, vy, vz = jnp.split(v, 4)
    return jnp.concatenate(
        [
            uw * vw - ux * vx - uy * vy - uz * vz,
            uw * vx + ux * vw + uy * vz - uz * vy,
            uw * vy - ux * vz + uy * vw + uz * vx,
            uw * vz + ux * vy - uy * vx + uz * vw,
        ]
    )


def quat_to_mat(quaternion: Array) -> Array:
    """The matrix of a quaternion's turn, `(3, 3)`."""
    w, x, y, z = jnp.split(quaternion, 4)
    ww, xx, yy, zz = w * w, x * x, y * y, z * z
    wx, wy, wz, xy, xz, yz = w * x, w * y, w * z, x * y, x * z, y * z
    rows = [
        *(ww + xx - yy - zz, 2 * (xy - wz), 2 * (xz + wy)),
        *(2 * (xy + wz), ww - xx + yy - zz, 2 * (yz - wx)),
        *(2 * (xz - wy), 2 * (yz + wx), ww - xx - yy + zz),
    ]
    return jnp.concatenate(rows).reshape(3, 3)


def _product(a: Array, b: Array) -> Array:
    """The product of two matrices, in full precision on every device."""
    return jnp.sum(a[:, :, None] * b[None], axis=1)


_math = rebound_module(mjx_math, matmul_unroll=_product, quat_mul=quat_mul, quat_to_mat=quat_to_mat)
_support = rebound_module(
    mjx_support, local_to_global=rebound(mjx_support.local_to_global, math=_math)
)
#: MJX's module of what follows from positions and velocities alone.
smooth = rebound_module(
    mjx_smooth,
    com_pos=rebound(mjx_smooth.com_pos, math=_math),
    kinematics=rebound(mjx_smooth.kinematics, math=_math, support=_support),
)
