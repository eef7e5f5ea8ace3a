"""How MuJoCo's coordinates, constants and controls move where a step is differentiated."""

from __future__ import annotations

import copy

import mujoco
import numpy as np

from worldline.physics.finite_differences import Axis
from worldline.types import NDArray


def quaternions(model: mujoco.MjModel) -> list[int]:
    """Where the quaternions begin in `qpos`."""
    kinds = {int(mujoco.mjtJoint.mjJNT_FREE): 3, int(mujoco.mjtJoint.mjJNT_BALL): 0}
    joints = zip(model.jnt_type, model.jnt_qposadr, strict=True)
    return [int(address) + kinds[kind] for kind, address in joints if kind in kinds]


#: Forces are linear in these, and a body at rest hardly feels them: moved a hundred times as far,
#: their derivative loses less in the last digits and nothing to curvature.
_LINEAR = frozenset(("dof_damping", "tendon_damping"))


def constant_axis(axis: Axis, name: str, values: NDArray) -> Axis:
    """A model constant moves relative to its size. One that is zero only grows: there is no
    negative mass or friction.
    """
    size = np.abs(values)
    largest = size.max(axis=1, keepdims=True, initial=0.0)
    size = np.where(size > 0, size, np.where(largest > 0, largest, 1.0))
    size = size * (100.0 if name in _LINEAR else 1.0)
    return axis._replace(scale=size, below=np.where(values == 0, 0.0, axis.below))


def control_axis(axis: Axis, values: NDArray, model: mujoco.MjModel) -> Axis:
    """A control on its limit moves inwards: MuJoCo clamps what is beyond.

    A float32 limit may lie a rounding error beyond; `values` are put on the limit itself.
    """
    if model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CLAMPCTRL:
        return axis
    limited = np.asarray(model.actuator_ctrllimited, bool)
    low, high = (
        np.where(limited, x, s)
        for x, s in zip(model.actuator_ctrlrange.T, (-np.inf, np.inf), strict=True)
    )
    for limit in (low, high):
        near = np.abs(values - limit) < 1e-6 * np.abs(limit)
        values[near] = np.broadcast_to(limit, values.shape)[near]
    return axis._replace(
        below=np.where(values >= low, low - values, -np.inf),
        above=np.where(values <= high, high - values, np.inf),
    )


def converging(model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy whose constraint solver stops later: a difference over 2e-6 is half a million times as
    wrong as its ends, and MuJoCo's usual tolerance leaves a light body's turning wrong by 1e-6.
    """
    model = copy.copy(model)
    model.opt.tolerance = min(model.opt.tolerance, 1e-14)
    return model
