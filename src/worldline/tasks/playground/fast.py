"""A cheaper model of a robot with legs, in which to train: `fast=True`.

It touches the ground with its feet alone, and takes longer steps. Names, sizes and masses are those
of the full model, so its policy runs there unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import mujoco

#: Iterations of the solver, at least. With one alone, feet sink in where the steps are this long.
#: With fewer than the full model has, a G1 that had learned to walk back ran away there.
_ITERATIONS = 2
_LINE_SEARCH = 5


def make_fast(
    spec: mujoco.MjSpec, control_timestep: float, longer: float, feet: Collection[str] = ()
) -> None:
    """Makes a model cheaper, in place.

    Args:
        spec: the model.
        control_timestep: seconds between two actions, a multiple of the model's time step.
        longer: how many times as long a step of the model may become. It becomes the longest of
            which a whole number is a control step.
        feet: the geoms that may touch the ground and each other, by name; without any, all
            contacts stay.
    """
    option = spec.option
    steps = math.ceil(control_timestep / (longer * option.timestep) - 1e-9)
    option.timestep = control_timestep / steps
    option.solver = mujoco.mjtSolver.mjSOL_NEWTON
    option.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
    option.iterations = max(option.iterations, _ITERATIONS)
    option.ls_iterations = _LINE_SEARCH
    if feet:
        _touch_with_feet(spec, feet)


def _touch_with_feet(spec: mujoco.MjSpec, feet: Collection[str]) -> None:
    """Leaves only contacts of feet with each other and with what is fixed to the world."""
    ground = {geom.name for geom in spec.worldbody.geoms}
    for body in spec.bodies[1:]:
        for geom in body.geoms:
            if geom.name not in feet:
                geom.contype = geom.conaffinity = 0
    for pair in list(spec.pairs):
        ends = {pair.geomname1, pair.geomname2}
        if not (ends <= ground | set(feet) and ends & set(feet)):
            spec.delete(pair)
