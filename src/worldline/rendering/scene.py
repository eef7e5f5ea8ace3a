"""Scene: a model and a state, into which one world after the other is put to be drawn."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeAlias

import mujoco
import numpy as np

NDArray: TypeAlias = np.ndarray[Any, Any]

#: A world to draw, as arrays by name: `qpos`, any of `MOVED` and `CONSTANTS`, and `VIEW`.
World: TypeAlias = Mapping[str, NDArray]

#: MjData fields, beside `qpos`, on which a picture depends.
MOVED = ("mocap_pos", "mocap_quat")

#: The world's free camera, `(6,)`: the point that it looks at and its distance from there, m;
#: azimuth and elevation, degrees.
VIEW = "view"

#: MjModel fields on which a picture depends: where things are, and what they look like.
CONSTANTS = frozenset((
    "qpos0", "body_pos", "body_quat", "body_ipos", "body_iquat", "body_mass", "jnt_pos", "jnt_axis",
    "geom_pos", "geom_quat", "geom_size", "geom_rgba",
    "site_pos", "site_quat", "site_size", "site_rgba", "tendon_width", "tendon_rgba", "flex_rgba",
    "cam_pos", "cam_quat", "cam_fovy", "cam_sensorsize", "cam_intrinsic",
    "light_pos", "light_dir", "light_ambient", "light_diffuse", "light_specular",
    "light_attenuation", "light_cutoff", "light_exponent",
    "mat_rgba", "mat_emission", "mat_specular", "mat_shininess", "mat_texrepeat", "mat_texuniform",
))  # fmt: skip

#: Beginnings of the names of constants from which `mj_setConst` derives the places of cameras and
#: lights that track a body.
_TRACKING = ("qpos0", "body_", "jnt_", "cam_pos", "cam_quat", "light_pos", "light_dir")


class Scene:
    """Holds one world at a time: its constants in `model`, its pose in `data`.

    Args:
        model: the model that all worlds share; it stays as it is.
    """

    def __init__(self, model: mujoco.MjModel) -> None:
        self.model = copy.copy(model)
        self.data = mujoco.MjData(self.model)
        self.changes = 0
        """How often the constants in `model` have changed."""
        self._view = np.zeros(6)
        self._stored = {name: np.copy(getattr(model, name)) for name in CONSTANTS}
        self._varied: set[str] = set()
        fixed = mujoco.mjtCamLight.mjCAMLIGHT_FIXED
        self._tracks = bool((model.cam_mode != fixed).any() or (model.light_mode != fixed).any())

    def put(self, world: World) -> None:
        """Replaces the world in the scene; the one before leaves no trace."""
        self._write_constants(world)
        mujoco.mj_resetData(self.model, self.data)
        for name in world.keys() - CONSTANTS - {VIEW}:
            field = getattr(self.data, name)
            field[:] = np.reshape(world[name], field.shape)
        self._view = world.get(VIEW, self._view)
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)
        mujoco.mj_flex(self.model, self.data)
        mujoco.mj_tendon(self.model, self.data)

    def camera(self, index: int) -> mujoco.MjvCamera:
        """A camera of the model, or at -1 the world's own free one."""
        camera = mujoco.MjvCamera()
        if index >= 0:
            camera.type, camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, index
            return camera
        camera.type = mujoco.mjtCamera.mjCAMERA_FREE
        camera.lookat[:] = self._view[:3]
        camera.distance, camera.azimuth, camera.elevation = self._view[3:]
        return camera

    def _write_constants(self, world: World) -> None:
        """Writes the world's own constants, and the stored ones in place of the last world's."""
        own = CONSTANTS.intersection(world)
        changed = set()
        for name in own | self._varied:
            field = getattr(self.model, name)
            value = np.reshape(world.get(name, self._stored[name]), field.shape)
            if (field != value).any():
                field[...] = value
                changed.add(name)
        self._varied = set(own)
        self.changes += bool(changed)
        if self._tracks and any(name.startswith(_TRACKING) for name in changed):
            extent, centre = self.model.stat.extent, self.model.stat.center.copy()
            mujoco.mj_setConst(self.model, self.data)
            self.model.stat.extent, self.model.stat.center[:] = extent, centre
