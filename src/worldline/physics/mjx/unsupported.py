"""What of a model MJX would pass over in silence, and run something else."""

from __future__ import annotations

import mujoco
import numpy as np

#: Fields of MjModel that only its C engine acts on; all zero where a model leaves them out.
FIELDS = (
    "actuator_actearly",
    "actuator_armature",
    "actuator_damping",
    "actuator_dampingpoly",
    "actuator_delay",
    "dof_dampingpoly",
    "geom_adhesion",
    "geom_surfacevel",
    "jnt_springyield",
    "jnt_stiffnesspoly",
    "nplugin",
    "pair_adhesion",
    "sensor_delay",
    "sensor_interval",
    "tendon_dampingpoly",
    "tendon_springyield",
    "tendon_stiffnesspoly",
)
#: Fields that are one for each plain actuator.
_ONE_EACH = ("actuator_ctrlnum", "actuator_outnum")
_INTEGRATORS = (
    mujoco.mjtIntegrator.mjINT_EULER,
    mujoco.mjtIntegrator.mjINT_RK4,
    mujoco.mjtIntegrator.mjINT_IMPLICITFAST,
)


def ignored(model: mujoco.MjModel) -> str:
    """The first feature of a model that MJX ignores, by name; empty where there is none."""
    option = model.opt
    if option.noslip_iterations:
        return f"the no-slip solver (noslip_iterations={option.noslip_iterations})"
    if option.integrator not in _INTEGRATORS:
        name = mujoco.mjtIntegrator(option.integrator).name
        return f"the integrator {name.removeprefix('mjINT_').lower()}"
    if any(option.disableactuator >> group & 1 for group in set(model.actuator_group.tolist())):
        return "groups of actuators that are switched off (actuatorgroupdisable)"
    if (option.density or option.viscosity) and model.geom_fluid.any():
        return "the fluid forces of ellipsoids (fluidshape)"
    if any(np.any(getattr(model, name, 1) != 1) for name in _ONE_EACH):
        return "actuators of several inputs or outputs"
    for name in FIELDS:
        if np.any(getattr(model, name, 0)):  # one that this version of MuJoCo lacks is no matter
            return name
    return ""
