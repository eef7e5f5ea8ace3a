"""Stage: one model and one state of it, into which worlds are put to be looked at."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeAlias

import mujoco
import numpy as np

NDArray: TypeAlias = np.ndarray[Any, Any]

#: MjData fields that a world may set, beside `qpos`.
MOVED = ("mocap_pos", "mocap_quat")

#: Model fields that a picture depends on: where things are, and what they look like.
SEEN = frozenset((
    "qpos0", "body_pos", "body_quat", "body_ipos", "body_iquat", "body_mass", "jnt_pos", "jnt_axis",
    "geom_pos", "geom_quat", "geom_size", "geom_rgba",
    "site_pos", "site_quat", "site_size", "site_rgba", "tendon_width", "tendon_rgba", "flex_rgba",
    "cam_pos", "cam_quat", "cam_fovy", "cam_sensorsize", "cam_intrinsic",
    "light_pos", "light_dir", "light_ambient", "light_diffuse", "light_specular",
    "light_attenuation", "light_cutoff", "light_exponent",
    "mat_rgba", "mat_emission", "mat_specular", "mat_shininess", "mat_texrepeat",
))  # fmt: skip

#: Those from which `mj_setConst` derives where a camera or a light that tracks a body stands.
_DERIVED_FROM = frozenset((
    "qpos0", "body_pos", "body_quat", "body_ipos", "body_iquat", "body_mass", "jnt_pos", "jnt_axis",
    "cam_pos", "cam_quat", "light_pos", "light_dir",
))  # fmt: skip


class Stage:
    """Shows one world after the other: its constants in `model`, its pose in `data`.

    Args:
        model: the model that all worlds share; it stays as it is.
    """

    def __init__(self, model: mujoco.MjModel) -> None:
        self.model = copy.copy(model)
        self.data = mujoco.MjData(self.model)
        self._stored = {name: np.copy(getattr(model, name)) for name in SEEN}
        self._varied: set[str] = set()
        fixed = mujoco.mjtCamLight.mjCAMLIGHT_FIXED
        self._tracks = bool((model.cam_mode != fixed).any() or (model.light_mode != fixed).any())

    def put(self, world: Mapping[str, NDArray]) -> None:
        """Puts a world on the stage: what was there before leaves no trace.

        Args:
            world: `qpos`, and any of `MOVED` and `SEEN`; flat arrays.
        """
        self._write_constants(world)
        mujoco.mj_resetData(self.model, self.data)
        for name in ("qpos", *MOVED):
            if name in world:
                part = getattr(self.data, name)
                part[:] = np.reshape(world[name], part.shape)
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)
        mujoco.mj_flex(self.model, self.data)
        mujoco.mj_tendon(self.model, self.data)

    def _write_constants(self, world: Mapping[str, NDArray]) -> None:
        """The world's own constants, and the stored model's where the last world had its own."""
        own = SEEN.intersection(world)
        derive = False
        for name in own | self._varied:
            field = getattr(self.model, name)
            value = np.reshape(world.get(name, self._stored[name]), field.shape)
            if (field != value).any():
                field[...] = value
                derive |= name in _DERIVED_FROM
        self._varied = set(own)
        if derive and self._tracks:
            extent, centre = self.model.stat.extent, self.model.stat.center.copy()
            mujoco.mj_setConst(self.model, self.data)
            self.model.stat.extent, self.model.stat.center[:] = extent, centre
