"""A model as the engines MJX and MuJoCo Warp take it, with the same trajectories."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import mujoco
import numpy as np

from worldline.errors import ModelError

#: Options that make no difference where a fluid has neither density nor viscosity.
FLUID = frozenset(("opt.density", "opt.viscosity", "opt.wind"))

#: What MuJoCo notes of constants that are not zero everywhere: whether there are any, and of which
#: actuator a joint or tendon has damping or inertia.
_NOTES = ("flg_adhesion", "flg_gravcomp", "flg_surfacevel", "jnt_actuatorid", "tendon_actuatorid")


def lacks(engine: str, what: str) -> ModelError:
    """The error for something that an engine does not have."""
    return ModelError(f"the engine {engine!r} lacks {what}; use physics='native'")


def accepted(
    model: mujoco.MjModel,
    engine: str,
    harmless: int,
    asked: frozenset[str],
    varied: Iterable[str],
) -> mujoco.MjModel:
    """A copy of a model without what an engine refuses though no trajectory depends on it.

    The solver PGS becomes Newton's method, another way to the same optimum. Where a constant is
    zero everywhere, an engine may leave out what it is for; so a constant that varies is nowhere
    zero in the copy.

    Args:
        model: the model.
        engine: the engine's name.
        harmless: the flags (`mjtEnableBit`) to switch off.
        asked: the constants of which the engine asks whether they are zero everywhere.
        varied: the constants of each world's own.

    Raises:
        ModelError: groups of actuators are switched off, or a joint can be at both of its limits
            at once, which both engines overlook.
    """
    if any(model.opt.disableactuator >> group & 1 for group in set(model.actuator_group.tolist())):
        raise lacks(engine, "groups of actuators that are switched off (actuatorgroupdisable)")
    wide = model.jnt_range[:, 1] - model.jnt_range[:, 0] < 2 * model.jnt_margin
    if (wide & (model.jnt_limited != 0)).any():
        raise lacks(engine, "joints whose margin is over half of their range")
    model, varied = copy.copy(model), frozenset(varied)
    if model.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
        model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    model.opt.enableflags &= ~harmless
    for name in varied & asked:
        value = getattr(model, name)
        value[value == 0] = 1.0
    if varied & asked:
        noted = copy.copy(model)
        mujoco.mj_setConst(noted, mujoco.MjData(noted))
        for name in _NOTES:
            _write(model, name, getattr(noted, name))
    for name in ("density", "viscosity"):
        if f"opt.{name}" in varied:
            setattr(model.opt, name, getattr(model.opt, name) or 1.0)
    return model


def has_actuator(model: mujoco.MjModel, kind: str) -> bool:
    """Whether a model has an actuator of a kind that came with MuJoCo 4: `dcmotor` or `pid`."""
    gain = getattr(mujoco.mjtGain, f"mjGAIN_{kind.upper()}", None)
    return gain is not None and bool((model.actuator_gaintype == int(gain)).any())


def _write(model: mujoco.MjModel, name: str, value: Any) -> None:
    """Writes a field of a model, be it an array or a number."""
    if np.ndim(value):
        getattr(model, name)[:] = value
    else:
        setattr(model, name, value)
