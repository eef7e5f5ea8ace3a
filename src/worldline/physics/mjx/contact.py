"""MJX's collisions, with capsules and boxes on planes as MuJoCo has them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from worldline.physics.mjx.source import mjx, mjx_collision, mjx_math, with_globals
from worldline.types import Array

_PLANE_CAPSULE = (mjx.GeomType.PLANE, mjx.GeomType.CAPSULE)
_PLANE_BOX = (mjx.GeomType.PLANE, mjx.GeomType.BOX)
_plane_capsule = mjx_collision._COLLISION_FUNC[_PLANE_CAPSULE]

#: A corner of a box, in half sizes, of each pair that lies opposite.
_CORNERS = np.array([[x, y, 1.0] for x in (-1.0, 1.0) for y in (-1.0, 1.0)])


def _capsule_on_plane(
    model: mjx.Model, data: mjx.Data, key: Any, geom: Array
) -> tuple[Array, Array, Array]:
    """The two contacts of each capsule with a plane; as in MuJoCo, friction lies along the capsule.

    MJX aligns the friction of a capsule within 30 degrees of upright with the world's axes. As the
    pyramid of friction is not round, the shin of an ant would slide in another direction.
    """
    dist, pos, _ = _plane_capsule(model, data, key, geom)
    normal, along = (data.geom_xmat[of][:, :, 2] for of in geom.T)
    along -= normal * jnp.sum(normal * along, axis=1, keepdims=True)
    squared = jnp.sum(along**2, axis=1, keepdims=True)
    upright = squared < jnp.finfo(along.dtype).eps ** 2  # along x then, as mju_normalize3 has it
    along = jnp.where(upright, jnp.eye(3)[0], along / jnp.sqrt(jnp.where(upright, 1.0, squared)))
    frame = jnp.stack([normal, along, jnp.cross(normal, along)], axis=1)
    return dist, pos, jnp.repeat(frame, _plane_capsule.ncon, axis=0)


def _box_on_plane(
    model: mjx.Model, data: mjx.Data, key: Any, geom: Array
) -> tuple[Array, Array, Array]:
    """The contacts of each box's four lower corners with a plane, as MuJoCo's.

    MJX keeps the corners within a millimetre of the lowest: a tipped box would stand on one.
    """
    del key
    plane, box = geom.T
    normal = data.geom_xmat[plane][:, None, :, 2]
    half = _CORNERS * model.geom_size[box][:, None]
    corner = jnp.sum(data.geom_xmat[box][:, None] * half[:, :, None], axis=-1)
    height = jnp.sum(corner * normal, axis=-1, keepdims=True)
    corner = data.geom_xpos[box][:, None] + jnp.where(height < 0, corner, -corner)
    dist = jnp.sum((corner - data.geom_xpos[plane][:, None]) * normal, axis=-1, keepdims=True)
    frame = jax.vmap(mjx_math.make_frame)(normal[:, 0])
    position = corner - 0.5 * dist * normal
    return dist.ravel(), position.reshape(-1, 3), jnp.repeat(frame, len(_CORNERS), axis=0)


_capsule_on_plane.ncon = _plane_capsule.ncon  # type: ignore[attr-defined] # MJX asks for it
_box_on_plane.ncon = len(_CORNERS)  # type: ignore[attr-defined]
_COLLIDERS = {
    **mjx_collision._COLLISION_FUNC,
    _PLANE_CAPSULE: _capsule_on_plane,
    _PLANE_BOX: _box_on_plane,
}
#: MJX's collisions, with these colliders.
collision = with_globals(mjx_collision.collision, _COLLISION_FUNC=_COLLIDERS)
