"""MJX's collisions, with contacts' frames as MuJoCo has them."""

from __future__ import annotations

import types
from typing import Any

import jax.numpy as jnp

from worldline.physics.mjx_source import mjx, mjx_collision, mjx_forward, rebound
from worldline.types import Array

_PLANE_CAPSULE = (mjx.GeomType.PLANE, mjx.GeomType.CAPSULE)
_plane_capsule = mjx_collision._COLLISION_FUNC[_PLANE_CAPSULE]


def _capsule_on_plane(
    model: mjx.Model, data: mjx.Data, key: Any, geom: Array
) -> tuple[Array, Array, Array]:
    """The two contacts of each capsule with a plane, their friction along the capsule, as MuJoCo's.

    MJX turns the friction of a capsule within 30 degrees of upright to the world's axes. A pyramid
    of friction is not round: the shin of an ant then slides otherwise.
    """
    dist, pos, _ = _plane_capsule(model, data, key, geom)
    normal, along = (data.geom_xmat[of][:, :, 2] for of in geom.T)
    along -= normal * jnp.sum(normal * along, axis=1, keepdims=True)
    squared = jnp.sum(along**2, axis=1, keepdims=True)
    upright = squared < jnp.finfo(along.dtype).eps ** 2  # along x then, as mju_normalize3 has it
    along = jnp.where(upright, jnp.eye(3)[0], along / jnp.sqrt(jnp.where(upright, 1.0, squared)))
    frame = jnp.stack([normal, along, jnp.cross(normal, along)], axis=1)
    return dist, pos, jnp.repeat(frame, _plane_capsule.ncon, axis=0)


_capsule_on_plane.ncon = _plane_capsule.ncon  # type: ignore[attr-defined] # MJX asks for it
_COLLIDERS = {**mjx_collision._COLLISION_FUNC, _PLANE_CAPSULE: _capsule_on_plane}
_collision = rebound(mjx_collision.collision, _COLLISION_FUNC=_COLLIDERS)
#: `mj_fwdPosition`.
fwd_position = rebound(
    mjx_forward.fwd_position, collision_driver=types.SimpleNamespace(collision=_collision)
)
