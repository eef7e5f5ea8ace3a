"""A renderer for people that needs no graphics library: it casts rays with MuJoCo's `mj_multiRay`.

It draws the geoms, meshes and height fields included, in their plain colours, with one sun, its
shadows and a pale chequered floor; no textures, tendons, sites or skins.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import ClassVar

import mujoco
import numpy as np

from worldline.rendering.base import Picture, Renderer, View
from worldline.rendering.scene import NDArray, World


def _rgb(*channels: float) -> NDArray:
    return np.array(channels, np.float32)


_SKY_TOP, _SKY_HORIZON = _rgb(0.60, 0.74, 0.90), _rgb(0.93, 0.95, 0.97)
_FLOOR_LIGHT, _FLOOR_DARK = _rgb(0.86, 0.88, 0.90), _rgb(0.70, 0.73, 0.77)
_SUN = _rgb(-0.365, -0.446, 0.817)
_AMBIENT, _DIFFUSE, _SPECULAR = 0.5, 0.6, 0.25
#: The geom groups that MuJoCo shows by default; the others hold collision geoms.
_GROUPS = np.array([1, 1, 1, 0, 0, 0], np.uint8)
#: Where in a pixel the rays of a smoothed edge go, in pixels from its middle.
_SUBPIXELS = ((-0.25, -0.375), (0.375, -0.25), (0.25, 0.375), (-0.375, 0.25))


class RayRenderer(Renderer):
    """Draws colours by casting rays; every pixel is made on the CPU, by NumPy.

    Args:
        model: the model.
        views: what to draw of each world, without distances.
    """

    most: ClassVar[int] = 1

    def __init__(self, model: mujoco.MjModel, views: Sequence[View]) -> None:
        super().__init__(model, views)
        self._mjv = mujoco.MjvScene(model, maxgeom=1)
        self._planes = model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
        self._changes = -1

    def draw(self, worlds: Sequence[World]) -> list[Picture]:
        """Draws one world."""
        (world,) = worlds
        self.scene.put(world)
        if self._changes != self.scene.changes:
            self._changes = self.scene.changes
            self._model = _without_bounds(self.scene.model)
            self._colours = _geom_colours(self.scene.model)
        return [(self._draw_view(view)[None], None) for view in self.views]

    def _draw_view(self, view: View) -> NDArray:
        """One image, `(height, width, 3)` uint8."""
        data, camera = self.scene.data, self.scene.camera(view.camera)
        mujoco.mjv_updateCamera(self._model, data, camera, self._mjv)
        eyes = self._mjv.camera
        origin = np.stack([eye.pos for eye in eyes]).astype(np.float64).mean(axis=0)
        forward, up = np.float64(eyes[0].forward), np.float64(eyes[0].up)
        size = (view.height, view.width)
        y, x = np.mgrid[: view.height, : view.width]
        pixels = np.stack([x - (view.width - 1) / 2, (view.height - 1) / 2 - y], -1).reshape(-1, 2)
        pixel = eyes[0].frustum_top / eyes[0].frustum_near / (view.height / 2)
        plane = np.stack([np.cross(forward, up), up]) * pixel
        cell = 2.0 ** round(np.log2(max(camera.distance, 0.1) / 4))

        def look(pixels: NDArray) -> tuple[NDArray, NDArray]:
            return self._shade(data, origin, _unit(pixels @ plane + forward), cell, pixel)

        image, marks = look(pixels)
        edges = _edges(marks.reshape(size)).ravel()
        rough = pixels[edges]
        image[edges] = sum(look(rough + shift)[0] for shift in _SUBPIXELS) / len(_SUBPIXELS)
        return (image.clip(0, 1) * 255 + 0.5).astype(np.uint8).reshape(*size, 3)

    def _shade(
        self, data: mujoco.MjData, origin: NDArray, rays: NDArray, cell: float, pixel: float
    ) -> tuple[NDArray, NDArray]:
        """The colour that each ray from `origin` sees, and a mark of what it hits.

        Args:
            data: the state.
            origin: the eye, `(3,)`.
            rays: directions of length one, `(n, 3)`.
            cell: a side of the floor's squares; m.
            pixel: the angle between two rays.

        Returns:
            Colours `(n, 3)` float32; and marks `(n,)` that differ between geoms, and between sun
            and shadow.
        """
        geom, distance, normal = self._cast(data, origin, rays)
        height = rays[:, 2:].astype(np.float32)
        colour: NDArray = _SKY_HORIZON + (_SKY_TOP - _SKY_HORIZON) * np.sqrt(height.clip(0, 1))
        hit = np.flatnonzero(geom >= 0)
        point = origin + distance[hit, None] * rays[hit]
        normal = normal[hit].astype(np.float32)
        floor = self._planes[geom[hit]] & (normal[:, 2] > 0.9)
        lit = (normal @ _SUN).clip(0)
        near = np.flatnonzero((lit > 0) & (~floor | (distance[hit] < 16 * cell)))
        lit[near] *= self._sunlit(data, point[near], cell)
        base = self._colours[geom[hit]]
        spread = (pixel / cell) * distance[hit[floor]]
        base[floor] = _chequer(point[floor, :2] / cell, spread, rays[hit[floor]])
        shaded = base * (_AMBIENT * (0.8 + 0.2 * normal[:, 2]) + _DIFFUSE * lit)[:, None]
        glossy = np.flatnonzero((lit > 0) & ~floor)
        half = _unit(_SUN - rays[hit[glossy]].astype(np.float32))
        shine = np.einsum("ij,ij->i", normal[glossy], half).clip(0) ** 32
        shaded[glossy] += _SPECULAR * shine[:, None]
        haze = np.exp(-((distance[hit] / (60 * cell)) ** 2)).astype(np.float32)
        colour[hit] = _SKY_HORIZON + (shaded - _SKY_HORIZON) * haze[:, None]
        marks = 2 * geom
        marks[hit] += lit > 0
        return colour, marks

    def _sunlit(self, data: mujoco.MjData, point: NDArray, cell: float) -> NDArray:
        """Whether each point sees the sun, a lamp so far away that its rays are parallel."""
        if not len(point):
            return np.zeros(0, bool)
        lamp = _SUN * 1000 * cell + point.mean(axis=0)
        rays = point - lamp
        length = np.linalg.norm(rays, axis=1)
        _, distance, _ = self._cast(data, lamp, rays / length[:, None])
        return distance > length - 0.005 * cell

    def _cast(
        self, data: mujoco.MjData, origin: NDArray, rays: NDArray
    ) -> tuple[NDArray, NDArray, NDArray]:
        """Geom (-1 for none), distance and surface normal where each ray ends."""
        count = len(rays)
        geom, distance = np.empty(count, np.int32), np.empty(count)
        normal = np.empty(3 * count)
        if count:
            mujoco.mj_multiRay(
                self._model, data, origin, rays.ravel(), _GROUPS, True, -1,
                geom, distance, normal, count, mujoco.mjMAXVAL,
            )  # fmt: skip
        return geom, distance, normal.reshape(-1, 3)


def _without_bounds(model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy of the model with which each ray is tested against every geom.

    `mj_multiRay` (MuJoCo 3.17 to 4.0) first tests a ray against bounds of bodies and geoms, and so
    misses some geoms of a body that has several. Meshes keep the bounds of their parts.
    """
    model = copy.copy(model)
    model.geom_rbound[:] = 0.0
    for start, count in zip(model.body_bvhadr, model.body_bvhnum, strict=True):
        model.bvh_aabb[start : start + count, :3] = 0.0
        model.bvh_aabb[start : start + count, 3:] = 1e3 * max(1.0, float(model.stat.extent))
    return model


def _chequer(point: NDArray, spread: NDArray, rays: NDArray) -> NDArray:
    """The floor's colour: squares with sides of one, averaged over what each pixel covers.

    Args:
        point: where the pixel's middle lies on the floor, in squares, `(n, 2)`.
        spread: the pixel's width there, across the ray, `(n,)`.
        rays: directions of length one, `(n, 3)`.

    Returns:
        Colours, `(n, 3)` float32.
    """
    slant = 1 / np.abs(rays[:, 2:]).clip(1e-3) - 1
    width = (spread[:, None] * (1 + np.abs(rays[:, :2]) * slant)).clip(1e-6)
    stripes = (
        _integral_of_stripes(point + width / 2) - _integral_of_stripes(point - width / 2)
    ) / width
    share = (0.5 + 0.5 * stripes[:, :1] * stripes[:, 1:]).astype(np.float32)
    return _FLOOR_DARK + (_FLOOR_LIGHT - _FLOOR_DARK) * share


def _integral_of_stripes(x: NDArray) -> NDArray:
    """The integral from 0 to `x` of stripes of width one that alternate between 1 and -1."""
    return 1 - np.abs(np.mod(x, 2) - 1)


def _geom_colours(model: mujoco.MjModel) -> NDArray:
    """The colour of each geom as MuJoCo picks it: the material's, unless the geom has its own."""
    colours = model.geom_rgba[:, :3].copy()
    plain = (model.geom_rgba == (0.5, 0.5, 0.5, 1)).all(axis=1) & (model.geom_matid >= 0)
    colours[plain] = model.mat_rgba[model.geom_matid[plain], :3]
    return colours.astype(np.float32)


def _edges(marks: NDArray) -> NDArray:
    """The pixels beside one with another mark, `(height, width)` bool."""
    edges = np.zeros(marks.shape, bool)
    across, down = marks[:, 1:] != marks[:, :-1], marks[1:] != marks[:-1]
    edges[:, 1:] |= across
    edges[:, :-1] |= across
    edges[1:] |= down
    edges[:-1] |= down
    return edges


def _unit(vectors: NDArray) -> NDArray:
    """The vectors `(n, 3)` at length one."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
