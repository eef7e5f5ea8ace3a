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


#: Constants in which forces are linear, and of which a body at rest feels little. They move a
#: hundred times as far: that loses fewer digits, and the curvature is zero.
_LINEAR = frozenset(("dof_damping", "tendon_damping"))


def constant_axis(axis: Axis, name: str, values: NDArray) -> Axis:
    """How a model constant `(W, n)` moves: relative to its size.

    A constant that is zero only grows, since no mass and no friction is negative.
    """
    size = np.abs(values)
    largest = size.max(axis=1, keepdims=True, initial=0.0)
    size = np.where(size > 0, size, np.where(largest > 0, largest, 1.0))
    size = size * (100.0 if name in _LINEAR else 1.0)
    return axis._replace(scale=size, below=np.where(values == 0, 0.0, axis.below))


def control_axis(axis: Axis, values: NDArray, model: mujoco.MjModel) -> Axis:
    """How controls `(W, nu)` move: one on its limit only inwards, since MuJoCo clamps it.

    In float32 a control may lie a rounding error beyond its limit; it is set to the limit.
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
    """A copy of the model whose constraint solver iterates for longer.

    A difference over a step of 2e-6 multiplies the errors of its ends by half a million, and with
    MuJoCo's usual tolerance a light body's rotation is wrong by 1e-6.
    """
    model = copy.copy(model)
    model.opt.tolerance = min(model.opt.tolerance, 1e-14)
    return model
