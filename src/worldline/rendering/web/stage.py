"""Stage: the bodies of many worlds in a viser scene, moved frame by frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np

from worldline.rendering.scene import NDArray
from worldline.rendering.web.poses import Poses, grid, root_bodies
from worldline.rendering.web.shapes import Floor, floors_of, shapes_of

#: Frame above everything, which moves against the robot that is followed.
_ROOT = "/worlds"

#: How much of the colour of the chosen world's bodies is blue.
_TINT = 0.45

_RED, _BLUE, _ORANGE = (215, 50, 40), (40, 90, 200), (240, 130, 30)


class Stage:
    """Shows worlds side by side, each at its place in a grid.

    Every body and colour is one mesh, drawn once for each world; a frame sends the poses of those
    that have moved.

    Args:
        server: the viser server.
        model: the model.
        num_worlds: B.
        spacing: metres between two worlds.
    """

    def __init__(self, server: Any, model: mujoco.MjModel, num_worlds: int, spacing: float) -> None:
        self._server, self._count = server, num_worlds
        self._roots = root_bodies(model)
        self._size = max(float(model.stat.meansize), 0.01)
        self.names = [shape.name for shape in shapes_of(model)]
        self._bodies: list[tuple[int, Any]] = []
        self._colours: list[tuple[Any, NDArray, NDArray]] = []
        self._marked = -1
        self.frame = server.scene.add_frame(_ROOT, show_axes=False)
        self.place(spacing)
        for floor in floors_of(model):
            self._add_floor(floor)
        wxyz, position = np.tile([1.0, 0, 0, 0], (num_worlds, 1)), np.zeros((num_worlds, 3))
        for shape in shapes_of(model):
            rgb = np.multiply(shape.rgba[:3], 255)
            handle = server.scene.add_batched_meshes_simple(
                f"{_ROOT}/{shape.name}",
                shape.vertices,
                shape.faces,
                wxyz,
                position,
                batched_colors=np.tile(np.uint8(rgb.round()), (num_worlds, 1)),
                opacity=None if shape.rgba[3] >= 1 else shape.rgba[3],
                lod="off",
                side="double",
            )
            self._bodies.append((shape.body, handle))
            if num_worlds > 1 and shape.body > 0:
                marked = (1 - _TINT) * rgb + _TINT * np.array(_BLUE)
                self._colours.append((handle, rgb.astype(np.uint8), marked.astype(np.uint8)))
        self._contacts = self._points("contacts", _RED, 0.35 * self._size)
        self._com = self._points("centre-of-mass", _BLUE, 0.6 * self._size)
        self._label = server.scene.add_label(f"{_ROOT}/chosen", "world 0")
        self._pull: Any = None

    def place(self, spacing: float) -> None:
        """Puts the worlds at other places; 0 lays them over each other."""
        self.spacing, self.offsets = spacing, grid(self._count, spacing)

    def on_body(self, click: Callable[[int, Any], None], drag: Callable[[int, Any], None]) -> None:
        """Calls functions with a body's number and viser's event when it is clicked or dragged."""
        for body, handle in self._bodies:
            if body > 0:
                handle.on_click(lambda event, body=body: click(body, event))
                handle.on_drag("left")(lambda event, body=body: drag(body, event))

    def show(
        self, poses: Poses, chosen: int, *, follow: bool, contacts: bool, centre: bool, text: str
    ) -> None:
        """Moves everything to where it is now.

        Args:
            poses: of all worlds.
            chosen: the world with the label, whose bodies are bluish.
            follow: whether the view goes along with the chosen world, which stays at its place.
            contacts: whether to show points that touch.
            centre: whether to show centres of mass.
            text: the label of the chosen world.
        """
        placed = poses.position + self.offsets[:, None]
        base = placed[chosen, self._roots[0]] if self._roots else self.offsets[chosen]
        away = base - self.offsets[chosen]
        with self._server.atomic():
            self._mark(chosen)
            _assign(self.frame, "position", np.array([-away[0], -away[1], 0.0]) * follow)
            for body, handle in self._bodies:
                _assign(handle, "batched_positions", placed[:, body])
                _assign(handle, "batched_wxyzs", poses.wxyz[:, body])
            places = poses.contacts + self.offsets[poses.touching]
            self._put_points(self._contacts, places, contacts)
            com = (poses.centre_of_mass + self.offsets[:, None])[:, self._roots].reshape(-1, 3)
            self._put_points(self._com, com, centre)
            _assign(self._label, "text", text)
            _assign(self._label, "position", base + np.array([0, 0, 1.5 * self._size]))

    def _mark(self, chosen: int) -> None:
        if chosen != self._marked:
            self._marked = chosen
            for handle, rgb, marked in self._colours:
                colours = np.tile(rgb, (self._count, 1))
                colours[chosen] = marked
                handle.batched_colors = colours

    def show_pull(self, start: NDArray | None, end: NDArray | None = None) -> None:
        """Draws the line along which a body is pulled; None: nothing is pulled."""
        if self._pull is not None:
            self._pull.remove()
            self._pull = None
        if start is not None and end is not None:
            points = np.stack([start, end])[None]
            self._pull = self._server.scene.add_line_segments(
                f"{_ROOT}/pull", points, colors=_ORANGE, thickness=4.0
            )

    def world_of(self, event: Any, body: int, poses: Poses) -> int:
        """Which world's body a pointer event is about."""
        if event.instance_index is not None:
            return int(event.instance_index)
        places = poses.position[:, body] + self.offsets + self.frame.position
        along = np.asarray(event.ray_direction)
        away = places - np.asarray(event.ray_origin)
        across = away - (away @ along)[:, None] * along
        return int(np.linalg.norm(across, axis=1).argmin())

    def _points(self, name: str, rgb: tuple[int, int, int], size: float) -> Any:
        return self._server.scene.add_point_cloud(
            f"{_ROOT}/{name}",
            np.zeros((1, 3), np.float32),
            colors=rgb,
            point_size=size,
            point_shape="circle",
            visible=False,
        )

    def _put_points(self, handle: Any, points: NDArray, visible: bool) -> None:
        shown = visible and len(points) > 0
        if shown:
            _assign(handle, "points", points.astype(np.float32))
        if handle.visible != shown:
            handle.visible = shown

    def _add_floor(self, floor: Floor) -> None:
        light = np.clip(0.55 + 0.45 * np.array(floor.rgb), 0, 1)
        plane = tuple(int(255 * x) for x in light)
        lines = tuple(int(255 * x) for x in 0.82 * light)
        self._server.scene.add_grid(
            f"{_ROOT}/floor",
            plane="xy",
            infinite_grid=True,
            cell_size=0.5,
            section_size=1.0,
            cell_color=lines,
            section_color=lines,
            plane_color=plane,
            plane_opacity=1.0,
            fade_distance=60.0,
            position=floor.position - [0, 0, 1e-3],
            wxyz=floor.wxyz,
        )


def spacing_of(model: mujoco.MjModel) -> float:
    """Metres between two worlds: room for the largest thing in the model that can move."""
    data = mujoco.MjData(model)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_forward(model, data)
    moving = model.body_weldid[model.geom_bodyid] > 0
    if not moving.any():
        return 2.0
    reach = np.abs(data.geom_xpos[moving, :2]) + np.minimum(model.geom_rbound[moving, None], 5.0)
    return float(np.clip(3.2 * reach.max(), 0.4, 6.0))


def _assign(handle: Any, name: str, value: Any) -> None:
    """Sets a property of a viser handle if it differs: setting one sends a message."""
    if not np.array_equal(getattr(handle, name), value):
        setattr(handle, name, value)
