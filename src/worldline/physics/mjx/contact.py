"""MJX's collisions, with capsules, cylinders and boxes on planes as MuJoCo has them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from worldline.physics.mjx.source import (
    mjx,
    mjx_collision,
    mjx_io,
    mjx_math,
    with_globals,
    with_names,
)
from worldline.types import Array

_PLANE_CAPSULE = (mjx.GeomType.PLANE, mjx.GeomType.CAPSULE)
_PLANE_CYLINDER = (mjx.GeomType.PLANE, mjx.GeomType.CYLINDER)
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


def _cylinder_on_plane(
    model: mjx.Model, data: mjx.Data, key: Any, geom: Array
) -> tuple[Array, Array, Array]:
    """The contacts of each cylinder with a plane, as MuJoCo's: the lowest point of each end, and
    two more of the edge of the lower end.

    MJX leaves out the lowest point of the higher end of a cylinder that is tilted, however deep.
    """
    del key
    plane, cylinder = geom.T
    normal = data.geom_xmat[plane][:, :, 2]
    points = jax.vmap(_on_edges)(normal, data.geom_xmat[cylinder], model.geom_size[cylinder])
    points += data.geom_xpos[cylinder][:, None]
    above = points - data.geom_xpos[plane][:, None]
    dist = jnp.sum(above * normal[:, None], axis=-1, keepdims=True)
    position = points - 0.5 * dist * normal[:, None]
    frame = jax.vmap(mjx_math.make_frame)(normal)
    return dist.ravel(), position.reshape(-1, 3), jnp.repeat(frame, 4, axis=0)


def _on_edges(normal: Array, turn: Array, size: Array) -> Array:
    """Those four points of a cylinder, from its middle, `(4, 3)`, m."""
    axis = turn[:, 2]
    down = jnp.dot(axis, normal)
    axis, down = jnp.where(down > 0, -axis, axis), -jnp.abs(down)  # towards the plane
    lowest, length = mjx_math.normalize_with_norm(axis * down - normal)
    lowest = size[0] * jnp.where(length < 1e-12, turn[:, 0], lowest)  # upright: any will do
    end = size[1] * axis
    side = size[0] * np.sqrt(0.75) * mjx_math.normalize(jnp.cross(lowest, end))
    between = end - 0.5 * lowest
    return jnp.stack([end + lowest, lowest - end, between + side, between - side])


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
_cylinder_on_plane.ncon = 4  # type: ignore[attr-defined]
_box_on_plane.ncon = len(_CORNERS)  # type: ignore[attr-defined]
_COLLIDERS = {
    **mjx_collision._COLLISION_FUNC,
    _PLANE_CAPSULE: _capsule_on_plane,
    _PLANE_CYLINDER: _cylinder_on_plane,
    _PLANE_BOX: _box_on_plane,
}
#: MJX's collisions, with these colliders.
collision = with_globals(mjx_collision.collision, _COLLISION_FUNC=_COLLIDERS)
#: The dimensions of all contacts that these may find in a model.
make_condim = with_globals(mjx_collision.make_condim, _COLLISION_FUNC=_COLLIDERS)
#: MJX's data of a model, with room for them.
make_data = with_globals(
    mjx_io._make_data_jax, collision_driver=with_names(mjx_collision, make_condim=make_condim)
)
