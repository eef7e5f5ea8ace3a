"""Where people look from: the camera of a video, frame by frame."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np

from worldline.errors import TaskError, did_you_mean
from worldline.model import Model
from worldline.rendering.scene import NDArray

#: What `Task.camera` may hold: attributes of `mujoco.MjvCamera`, or the name of a camera.
_ATTRIBUTES = ("name", "type", "distance", "azimuth", "elevation", "lookat", "trackbodyid")
_SMOOTHING_S = 0.5
_MARGIN = 1.05


@dataclasses.dataclass(frozen=True)
class CameraPath:
    """A camera for `T` frames: one of the model's own, or a free one that looks at a point."""

    fixedcamid: int
    """The camera of the model; -1 for the free camera that the other fields describe."""
    lookat: NDArray
    """What the camera looks at, `(T, 3)`; m."""
    distance: float
    """How far it stands from there; m."""
    azimuth: float
    """Its heading; degrees, 90 looks along +y."""
    elevation: float
    """Its pitch; degrees, negative looks down."""

    def views(self) -> NDArray:
        """The free camera of each frame, `(T, 6)`, as `scene.VIEW` holds it."""
        angles = np.array([self.distance, self.azimuth, self.elevation])
        return np.concatenate([self.lookat, np.tile(angles, (len(self.lookat), 1))], axis=1)


def camera_path(
    model: Model, camera: Mapping[str, Any], qpos: NDArray, timestep: float
) -> CameraPath:
    """The camera that `Task.camera` describes, along a trajectory.

    `trackbodyid` (an index or a name) makes the camera follow that body's subtree, gently; without
    it and without `lookat`, it follows the robot if that can go anywhere. A `lookat` beside a
    tracked body gives the height to look at. Without `distance`, all that moves is in sight.

    Args:
        model: the model.
        camera: attributes of `mujoco.MjvCamera`, or `{"name": ...}` for a camera of the model.
        qpos: `(T, nq)`.
        timestep: seconds between two rows of `qpos`.

    Raises:
        TaskError: an attribute that a camera does not have.
        ModelError: a camera or a body that the model does not have.
    """
    for attribute in camera:
        if attribute not in _ATTRIBUTES:
            hint = did_you_mean(attribute, _ATTRIBUTES)
            raise TaskError(f"a camera has no attribute {attribute!r}{hint}")
    if "name" in camera:
        index = model.id("camera", camera["name"])
        return CameraPath(index, np.zeros((len(qpos), 3)), 0.0, 0.0, 0.0)
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
    return CameraPath(
        fixedcamid=-1,
        lookat=lookat,
        distance=float(camera.get("distance", fitting)),
        azimuth=float(camera.get("azimuth", 90.0)),
        elevation=float(camera.get("elevation", -15.0)),
    )


def _tracked_body(model: Model, camera: Mapping[str, Any]) -> int:
    """The body that the camera follows; 0 for none."""
    if camera.get("type") in ("free", mujoco.mjtCamera.mjCAMERA_FREE):
        return 0
    if "trackbodyid" in camera:
        body = camera["trackbodyid"]
        index = model.id("body", body) if isinstance(body, str) else int(body)
        if index >= model.mj.nbody:
            raise TaskError(f"no body {index} to track; the model has {model.mj.nbody} bodies")
        return max(index, 0)
    return 0 if "lookat" in camera else _roaming_body(model)


def _roaming_body(model: Model) -> int:
    """The first body that can go as far as it likes: on a free joint, or a slide without limits."""
    kind, limited = model.mj.jnt_type, np.asarray(model.mj.jnt_limited, bool)
    free = kind == mujoco.mjtJoint.mjJNT_FREE
    roams = free | ((kind == mujoco.mjtJoint.mjJNT_SLIDE) & ~limited)
    return int(model.mj.jnt_bodyid[roams][0]) if roams.any() else 0


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
    if half < 1:
        return path.copy()
    padded = np.pad(path, ((half, half), (0, 0)), mode="reflect", reflect_type="odd")
    kernel = np.full(2 * half + 1, 1 / (2 * half + 1))
    return np.stack([np.convolve(axis, kernel, mode="valid") for axis in padded.T], axis=1)
