"""A model as MJX takes it; and what MJX lacks, told by name before anything runs."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator

import jax
import mujoco
import numpy as np

from worldline.errors import ModelError
from worldline.model import Model
from worldline.physics.base import FORCES, NOTHING, VELOCITIES, Reads
from worldline.physics.compat import FLUID, accepted, has_actuator, lacks
from worldline.physics.mjx.contact import make_condim, make_data
from worldline.physics.mjx.source import DataJAX, lenient, mjx

#: Fields of MjModel on which MuJoCo acts and MJX does not; zero in a model that does without them.
OVERLOOKED = (
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

#: Constants of which MJX asks, when it takes a model, whether they are zero everywhere.
_ASKED_IF_ZERO = frozenset(("body_gravcomp", "dof_frictionloss", "tendon_frictionloss"))

#: Constants with which MJX takes a model in another form if they vary.
ASKED = _ASKED_IF_ZERO | FLUID

#: Switches that MJX refuses and that change no trajectory: records of energy, checks of inverse
#: dynamics.
_HARMLESS = int(mujoco.mjtEnableBit.mjENBL_ENERGY | mujoco.mjtEnableBit.mjENBL_FWDINV)

#: Sensors that read zero where nothing can touch.
_OF_CONTACTS = (mujoco.mjtSensor.mjSENS_TOUCH, mujoco.mjtSensor.mjSENS_CONTACT)

#: Fields of MJX's data that are private to its JAX implementation.
PRIVATE = frozenset(("cinert", "crb", "ten_velocity", "actuator_velocity")) | FORCES | VELOCITIES

#: Fields of MJX's data that no step computes, or that hold another thing than MuJoCo's.
_NOT_COMPUTED = frozenset(("qfrc_inverse", "plugin_state", "history", "solver_niter"))


def converted(model: Model, varied: Iterable[str]) -> mjx.Model:
    """MJX's form of a model, where the constants `varied` need not be zero.

    Raises:
        ModelError: the model has something that MJX lacks.
    """
    feature = _overlooked(model.mj)
    if feature:
        raise lacks("mjx", feature)
    with _refusals():
        taken = accepted(model.mj, "mjx", _HARMLESS, _ASKED_IF_ZERO, varied)
        made = mjx.put_model(taken)
        dims = make_condim(taken)
        if (dims > 1).any():
            return made
        if not dims.size:  # MJX's sensors of contacts fail; those of other types it leaves at zero
            silent = np.isin(taken.sensor_type, _OF_CONTACTS)
            types = np.where(silent, int(mujoco.mjtSensor.mjSENS_USER), taken.sensor_type)
            made = made.replace(sensor_type=types)
        # Without friction in contacts all cones are the same; MJX's elliptic ones fail.
        return made.tree_replace({"opt.cone": mjx.ConeType.PYRAMIDAL})


def empty_data(model: Model, varied: Iterable[str]) -> mjx.Data:
    """MJX's data of a model, before anything is computed; the arguments are those of `converted`.

    Raises:
        ModelError: the model has something that MJX lacks.
    """
    with _refusals():
        return make_data(accepted(model.mj, "mjx", _HARMLESS, _ASKED_IF_ZERO, varied))


def check_fields(model: Model, names: Iterable[str]) -> None:
    """Refuses fields that MJX does not compute as MuJoCo does.

    Raises:
        ModelError: one of them, or a field that MjData does not have.
    """
    for name in names:
        model.data_field(name)
        owner = DataJAX if name in PRIVATE else mjx.Data
        if name in _NOT_COMPUTED or name not in {field.name for field in dataclasses.fields(owner)}:
            raise lacks("mjx", f"the MjData field {name!r}")


def refusal(model: Model, reads: Reads = NOTHING) -> str:
    """Why MJX cannot run a model, in one line; empty where it can. Builds no engine.

    Args:
        model: the model.
        reads: what would be read of it.
    """
    try:
        with lenient():
            jax.eval_shape(lambda: (converted(model, ()), empty_data(model, ())))
        check_fields(model, reads.named)
    except ModelError as error:
        return str(error)
    return ""


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Turns MJX's refusals into a `ModelError`."""
    try:
        yield
    except NotImplementedError as error:
        what = re.sub(r"\bmjt\w+\.|( not implemented)?\.?$", "", str(error))
        raise lacks("mjx", what) from error


def _overlooked(model: mujoco.MjModel) -> str:
    """The first feature of a model that MJX would run as though it were not there, or empty."""
    option, kinds = model.opt, mujoco.mjtIntegrator
    if option.noslip_iterations:
        return f"the no-slip solver (noslip_iterations={option.noslip_iterations})"
    if option.integrator not in (kinds.mjINT_EULER, kinds.mjINT_RK4, kinds.mjINT_IMPLICITFAST):
        name = kinds(option.integrator).name
        return f"the integrator {name.removeprefix('mjINT_').lower()}"
    if (option.density or option.viscosity) and model.geom_fluid.any():
        return "the fluid forces of ellipsoids (fluidshape)"
    for kind in ("dcmotor", "pid"):
        if has_actuator(model, kind):
            return f"the actuator <{kind}>"
    if any(np.any(getattr(model, n, 1) != 1) for n in ("actuator_ctrlnum", "actuator_outnum")):
        return "actuators of several inputs or outputs"
    # A field that this version of MuJoCo does not have is zero.
    return next((name for name in OVERLOOKED if np.any(getattr(model, name, 0))), "")
