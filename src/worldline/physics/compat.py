"""A model as the engines MJX and MuJoCo Warp take it, with the same trajectories."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import mujoco

from worldline.errors import ModelError

#: Options that make no difference where a fluid has neither density nor viscosity.
FLUID = frozenset(("opt.density", "opt.viscosity", "opt.wind"))


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
        ModelError: groups of actuators are switched off, which both engines overlook.
    """
    if any(model.opt.disableactuator >> group & 1 for group in set(model.actuator_group.tolist())):
        raise lacks(engine, "groups of actuators that are switched off (actuatorgroupdisable)")
    model, varied = copy.copy(model), frozenset(varied)
    if model.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
        model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    model.opt.enableflags &= ~harmless
    for name in varied & asked:
        value = getattr(model, name)
        value[value == 0] = 1.0
    if varied & FLUID:
        model.opt.density = model.opt.density or 1.0
    return model
