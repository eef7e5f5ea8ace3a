"""Pictures for people: a world seen from beside its robot, in videos and by `render()`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np

from worldline.errors import TaskError, did_you_mean
from worldline.model import Model
from worldline.rendering import opengl
from worldline.rendering.base import View
from worldline.rendering.pool import RAYS, open_pool
from worldline.rendering.scene import CONSTANTS, VIEW, NDArray, World

#: The most renderers that draw one video, or one batch of worlds.
MOST = 16

#: What `Task.camera` may hold: attributes of `mujoco.MjvCamera`, or the name of a camera.
_ATTRIBUTES = ("name", "type", "distance", "azimuth", "elevation", "lookat", "trackbodyid")
_SMOOTHING_S = 0.5
_MARGIN = 1.05


class FrameRenderer:
    """Draws worlds of one model in this process, each by a camera that follows its robot.

    Args:
        model: the model.
        camera: where to look from, as in `Task.camera`.
        size: height and width of a picture, in pixels.
        worlds: how many are drawn at a time, at most.
    """

    def __init__(
        self, model: Model, camera: Mapping[str, Any], size: tuple[int, int], worlds: int = 1
    ) -> None:
        self._model, self._camera = model, camera
        ways, views = [*opengl.backends(), RAYS], [View(camera_index(model, camera), *size)]
        most = min(worlds, MOST)
        self._pool, _ = open_pool(ways, model.mj, views, for_people=True, most=most)

    def draw(self, qpos: NDArray, variation: World, inputs: World) -> NDArray:
        """A picture of each of n worlds, `(n, height, width, 3)` uint8.

        Args:
            qpos: `(n, nq)`.
            variation: the worlds' own constants, `(n, ...)` each.
            inputs: further MjData fields to show, such as `mocap_pos`, `(n, ...)` each.
        """
        worlds = []
        for row in range(len(qpos)):
            states = {"qpos": qpos, **inputs}
            states = {name: values[row : row + 1] for name, values in states.items()}
            constants = {name: values[row] for name, values in variation.items()}
            worlds.append(filmed(self._model, self._camera, states, constants))
            # The camera keeps the distance of the first picture, so that it does not go to and fro.
            self._camera = {**self._camera, "distance": worlds[0][VIEW][0, 3]}
        together = {name: np.concatenate([w[name] for w in worlds]) for name in worlds[0]}
        ((colours, _),) = self._pool.draw(together)
        assert colours is not None
        return colours

    def close(self) -> None:
        """Gives the graphics contexts back."""
        self._pool.close()


def filmed(
    model: Model,
    camera: Mapping[str, Any],
    states: World,
    constants: Mapping[str, Any],
    timestep: float = 1.0,
) -> dict[str, NDArray]:
    """One world at T moments, each with its camera, to be drawn as a batch of worlds.

    Args:
        model: the model.
        camera: where to look from, as in `Task.camera`.
        states: `qpos` and other MjData fields to show, `(T, ...)` each.
        constants: the world's own constants; those that cannot be seen are left out.
        timestep: seconds between two moments.
    """
    views = camera_path(model, camera, states["qpos"], timestep)
    seen = {name: np.asarray(x) for name, x in constants.items() if name in CONSTANTS}
    seen |= _endless_floors(model.mj, seen, views)
    rows = {name: np.broadcast_to(x, (len(views), *np.shape(x))) for name, x in seen.items()}
    return {**states, **rows, VIEW: views}


def camera_index(model: Model, camera: Mapping[str, Any]) -> int:
    """The camera of the model that `Task.camera` names; -1 for a free one.

    Raises:
        ModelError: the model has no such camera.
    """
    return model.id("camera", camera["name"]) if "name" in camera else -1


def camera_path(model: Model, camera: Mapping[str, Any], qpos: NDArray, timestep: float) -> NDArray:
    """The free camera that `Task.camera` describes, along a trajectory.

    `trackbodyid` (an index or a name) makes the camera follow that body's subtree, gently; without
    it and without `lookat`, it follows the robot if that can go anywhere. A `lookat` beside a
    tracked body gives the height to look at. Without `distance`, all that moves is in sight.

    Args:
        model: the model.
        camera: attributes of `mujoco.MjvCamera`, or `{"name": ...}` for a camera of the model.
        qpos: `(T, nq)`.
        timestep: seconds between two rows of `qpos`.

    Returns:
        `(T, 6)`, as in `scene.VIEW`; zeros for a camera of the model.

    Raises:
        TaskError: an attribute that a camera does not have.
        ModelError: a camera or a body that the model does not have.
    """
    for attribute in camera:
        if attribute not in _ATTRIBUTES:
            hint = did_you_mean(attribute, _ATTRIBUTES)
            raise TaskError(f"a camera has no attribute {attribute!r}{hint}")
    if camera_index(model, camera) >= 0:
        return np.zeros((len(qpos), 6))
    body = _tracked_body(model, camera)
    geoms, masses = _positions(model, qpos)
    moving = _moving_geoms(model, body)
    radii = model.mj.geom_rbound[moving]
    if body > 0:
        lookat = _smooth(masses[:, body], round(_SMOOTHING_S / timestep))
        if "lookat" in camera:
            lookat[:, 2] = camera["lookat"][2]
    else:
        low = (geoms[:, moving] - radii[:, None]).min(axis=(0, 1))
        high = (geoms[:, moving] + radii[:, None]).max(axis=(0, 1))
        lookat = np.tile(camera.get("lookat", (low + high) / 2), (len(qpos), 1))
    reach = np.linalg.norm(geoms[:, moving] - lookat[:, None], axis=2) + radii
    fovy = math.radians(float(model.mj.vis.global_.fovy))
    fitting = _MARGIN * float(np.quantile(reach.max(axis=1), 0.9)) / math.sin(fovy / 2)
    distance = camera.get("distance", fitting)
    angles = camera.get("azimuth", 90.0), camera.get("elevation", -15.0)
    return np.column_stack([lookat, np.tile((distance, *angles), (len(qpos), 1))])


def _tracked_body(model: Model, camera: Mapping[str, Any]) -> int:
    """The body that the camera follows; 0 for none.

    By default it is the first that can go as far as it likes: on a free joint, or on a slide
    without limits.
    """
    if camera.get("type") in ("free", mujoco.mjtCamera.mjCAMERA_FREE):
        return 0
    if "trackbodyid" in camera:
        body = camera["trackbodyid"]
        index = model.id("body", body) if isinstance(body, str) else int(body)
        if index >= model.mj.nbody:
            raise TaskError(f"no body {index} to track; the model has {model.mj.nbody} bodies")
        return max(index, 0)
    kind, limited = model.mj.jnt_type, np.asarray(model.mj.jnt_limited, bool)
    slides = (kind == mujoco.mjtJoint.mjJNT_SLIDE) & ~limited
    roams = (kind == mujoco.mjtJoint.mjJNT_FREE) | slides
    return 0 if "lookat" in camera or not roams.any() else int(model.mj.jnt_bodyid[roams][0])


def _moving_geoms(model: Model, body: int) -> NDArray:
    """The geoms to keep in sight: those of the tracked subtree, or all that move; all, if none."""
    mj = model.mj
    tree = mj.body_rootid[mj.geom_bodyid] == mj.body_rootid[body]
    moving = tree if body else mj.body_weldid[mj.geom_bodyid] > 0
    moving &= mj.geom_type != mujoco.mjtGeom.mjGEOM_PLANE
    chosen = np.flatnonzero(moving)
    return chosen if len(chosen) else np.arange(mj.ngeom)


def _positions(model: Model, qpos: NDArray) -> tuple[NDArray, NDArray]:
    """Positions of the geoms `(T, ngeom, 3)` and subtree centres of mass `(T, nbody, 3)`."""
    data = mujoco.MjData(model.mj)
    geoms, masses = [], []
    for row in qpos:
        data.qpos[:] = row
        mujoco.mj_kinematics(model.mj, data)
        mujoco.mj_comPos(model.mj, data)
        geoms.append(data.geom_xpos.copy())
        masses.append(data.subtree_com.copy())
    return np.stack(geoms), np.stack(masses)


def _smooth(path: NDArray, window: int) -> NDArray:
    """A moving average over `window` rows, straight lines unchanged up to their ends, `(T, 3)`."""
    half = min(window // 2, len(path) - 1)
    padded = np.pad(path, ((half, half), (0, 0)), mode="reflect", reflect_type="odd")
    kernel = np.full(2 * half + 1, 1 / (2 * half + 1))
    return np.stack([np.convolve(axis, kernel, mode="valid") for axis in padded.T], axis=1)


def _endless_floors(model: mujoco.MjModel, constants: World, views: NDArray) -> dict[str, NDArray]:
    """Constants of a world in which no floor has an edge that the camera comes near.

    For physics a plane has no edges, but a robot that ran far would seem to hang in the air. The
    views are the free camera of each frame, `(T, 6)`, as in `scene.VIEW`.
    """
    names = ("geom_size", "mat_texrepeat", "mat_texuniform")
    size, repeat, uniform = (np.array(constants.get(n, getattr(model, n))) for n in names)
    places = np.reshape(constants.get("geom_pos", model.geom_pos), (-1, 3))
    floors = (model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE) & (size[:, :2] > 0).all(axis=1)
    floors &= model.body_weldid[model.geom_bodyid] == 0
    for floor in np.flatnonzero(floors):
        away = np.abs(views[:, :2] - places[floor, :2]).max()
        if away > 0.5 * size[floor, :2].min() > views[0, 3]:
            material = model.geom_matid[floor]
            if material >= 0 and not uniform[material]:
                repeat[material] /= 2 * size[floor, :2]
                uniform[material] = True
            size[floor, :2] = 0
    return dict(zip(names, (size, repeat, uniform), strict=True))
