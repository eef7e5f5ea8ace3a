"""A model as other engines than MuJoCo's own take it, with the same trajectories."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import mujoco

#: Options without which a fluid is nowhere.
_OF_FLUIDS = frozenset(("opt.density", "opt.viscosity", "opt.wind"))


def accepted(
    model: mujoco.MjModel, harmless: int, asked: frozenset[str], varied: Iterable[str]
) -> mujoco.MjModel:
    """A copy without what an engine refuses and nothing depends on.

    PGS becomes Newton's method, another way to the same optimum. Where a constant is zero
    everywhere an engine may leave out what it is for; so one that varies is not zero here.

    Args:
        model: the model.
        harmless: flags (`mjtEnableBit`) to take out.
        asked: the constants of which the engine asks whether they are zero.
        varied: the constants of each world's own.
    """
    model, varied = copy.copy(model), frozenset(varied)
    if model.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
        model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    model.opt.enableflags &= ~harmless
    for name in varied & asked:
        value = getattr(model, name)
        value[value == 0] = 1.0
    if varied & _OF_FLUIDS:
        model.opt.density = model.opt.density or 1.0
    return model
