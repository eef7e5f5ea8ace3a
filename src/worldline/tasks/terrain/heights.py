"""HeightField: the heights, normals and clearances of a model's height field, in JAX.

They follow from MuJoCo's own triangles, so that they are what `mj_ray` finds from above, on any
engine and without rays.
"""

from __future__ import annotations

import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.errors import TaskError
from worldline.model import Model
from worldline.types import Array, ArrayLike


class HeightField:
    """The surface of an upright height field: pure functions of places.

    Each cell has two triangles, which share the diagonal from its lowest x and y to its highest.
    Beyond the field, the surface goes on as it is at its border.

    Args:
        model: has the height field.
        geom: the name of its geom.

    Raises:
        TaskError: the geom is no height field, or it is turned, or on a body that moves.
        ModelError: the model has no such geom.
    """

    def __init__(self, model: Model, geom: str) -> None:
        mj, index = model.mj, model.id("geom", geom)
        if mj.geom_type[index] != mujoco.mjtGeom.mjGEOM_HFIELD:
            raise TaskError(f"the geom {geom!r} is no height field; name one that is")
        fixed = mj.body_weldid[mj.geom_bodyid[index]] == 0
        data = mujoco.MjData(mj)
        mujoco.mj_kinematics(mj, data)
        if not fixed or not np.allclose(data.geom_xmat[index], np.eye(3).ravel(), atol=1e-9):
            raise TaskError(f"the height field {geom!r} is turned or moves; leave it as it is")
        field = mj.geom_dataid[index]
        rows, columns = int(mj.hfield_nrow[field]), int(mj.hfield_ncol[field])
        start, (half_x, half_y, top, _) = mj.hfield_adr[field], mj.hfield_size[field]
        x, y, z = data.geom_xpos[index]
        stored = mj.hfield_data[start : start + rows * columns].astype(np.float64)
        #: The heights, `(rows, columns)` float32, m: rows along y, columns along x.
        self.heights = (z + top * stored).astype(np.float32).reshape(rows, columns)
        #: The sides of a cell along x and y, m.
        self.cell = (2 * half_x / (columns - 1), 2 * half_y / (rows - 1))
        #: The place of the first height, m.
        self.corner = (x - half_x, y - half_y)

    def height(self, places: ArrayLike) -> Array:
        """The height of the surface, `(...)`, m, at places `(..., 2)`, or `(..., 3)`, m."""
        low, middle, high, near, far, _ = self._triangle(jnp.asarray(places, jnp.float32))
        return low * (1 - far) + middle * (far - near) + high * near

    def clearance(self, points: ArrayLike) -> Array:
        """How far points `(..., 3)` are above the surface beneath them, `(...)`, m."""
        points = jnp.asarray(points, jnp.float32)
        return points[..., 2] - self.height(points)

    def normal(self, places: ArrayLike) -> Array:
        """The upward unit normal of the surface, `(..., 3)`, at places `(..., 2)` or `(..., 3)`."""
        low, middle, high, _, _, along = self._triangle(jnp.asarray(places, jnp.float32))
        first, second = middle - low, high - middle  # along the axis that is farther, and the other
        x = jnp.where(along, first, second) / jnp.float32(self.cell[0])
        y = jnp.where(along, second, first) / jnp.float32(self.cell[1])
        outside = self._outside(jnp.asarray(places, jnp.float32))
        normal = jnp.stack([*jnp.where(outside, 0.0, jnp.stack([-x, -y])), jnp.ones_like(x)], -1)
        return normal / jnp.linalg.norm(normal, axis=-1, keepdims=True)

    def _triangle(self, places: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
        """The triangle beneath places.

        Returns:
            The heights of its three corners: that of lowest x and y, that of the right angle, and
            that of highest x and y. How far the place is into the cell along the axis along which
            it is nearer, and along the other, in [0, 1]; and whether the other is x.
        """
        rows, columns = self.heights.shape
        shares, cells = [], []
        for axis, count in enumerate((columns, rows)):
            way = (places[..., axis] - jnp.float32(self.corner[axis])) / jnp.float32(
                self.cell[axis]
            )
            cell = jnp.clip(jnp.floor(way), 0, count - 2)
            cells.append(cell.astype(jnp.int32))
            shares.append(jnp.clip(way - cell, 0.0, 1.0))
        along = shares[0] >= shares[1]
        first = cells[1] * columns + cells[0]
        heights = jnp.asarray(self.heights).ravel()
        low, middle, high = (
            heights[index]
            for index in (first, first + jnp.where(along, 1, columns), first + columns + 1)
        )
        near, far = jnp.minimum(*shares), jnp.maximum(*shares)
        return low, middle, high, near, far, along

    def _outside(self, places: Array) -> Array:
        """Whether places, `(..., 2)`, are beyond the field, `(...)` bool."""
        corner, cell = (jnp.array(pair, jnp.float32) for pair in (self.corner, self.cell))
        size = jnp.array([self.heights.shape[1] - 1, self.heights.shape[0] - 1], jnp.float32)
        way = (places[..., :2] - corner) / cell
        return ((way < 0) | (way > size)).any(-1)
