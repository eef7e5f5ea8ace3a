"""Positions after a displacement, as MuJoCo has them and as they can be differentiated at rest."""

from __future__ import annotations

import functools

import jax.numpy as jnp

from worldline.physics.mjx.source import (
    mjx,
    mjx_forward,
    mjx_math,
    mjx_scan,
    with_globals,
    with_names,
)
from worldline.types import Array


def _turned(quaternion: Array, velocity: Array, dt: Array) -> Array:
    """An orientation, `(4,)`, after a time (s) at an angular velocity, `(3,)` rad/s.

    MJX computes it by axis and angle: at rest there is no axis, and its derivative there is zero.
    """
    half = 0.5 * dt * velocity
    squared = jnp.sum(half**2)
    small = squared < 1e-8
    angle = jnp.sqrt(jnp.where(small, 1.0, squared))
    sine = jnp.where(small, 1.0 - squared / 6.0, jnp.sin(angle) / angle)
    cosine = jnp.where(small, 1.0 - squared / 2.0, jnp.cos(angle))
    turn = jnp.concatenate([cosine[None], sine * half])
    return mjx_math.normalize(mjx_math.quat_mul(quaternion, turn))


#: MJX's function of types of joints, positions, velocities and a time.
integrate = with_globals(
    mjx_forward._integrate_pos, math=with_names(mjx_math, quat_integrate=_turned)
)


def displaced(model: mjx.Model, qpos: Array, moved: Array) -> Array:
    """Positions `(nq,)` after a displacement `(nv,)`."""
    by_one = functools.partial(integrate, dt=1.0)
    positions: Array = mjx_scan.flat(model, by_one, "jqv", "q", model.jnt_type, qpos, moved)
    return positions
