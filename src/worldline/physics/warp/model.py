"""A model as MuJoCo Warp takes it; and what Warp lacks, told by name before anything runs."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import mujoco
import numpy as np

from worldline.errors import VariationError
from worldline.physics.base import Reads
from worldline.physics.compat import accepted, has_actuator, lacks
from worldline.warp_library import mujoco_warp, warp

#: Constants without which, where they are zero everywhere, Warp leaves kernels out.
_ASKED_IF_ZERO = frozenset((
    "actuator_armature", "actuator_damping", "actuator_dampingpoly", "body_gravcomp",
    "dof_armature", "dof_frictionloss", "geom_adhesion", "geom_surfacevel", "pair_adhesion",
    "tendon_armature", "tendon_damping", "tendon_dampingpoly", "tendon_frictionloss",
    "tendon_stiffness", "tendon_stiffnesspoly",
))  # fmt: skip

#: A check of inverse dynamics, which Warp refuses and no trajectory depends on.
_HARMLESS = int(mujoco.mjtEnableBit.mjENBL_FWDINV)

#: Where one of the two is switched off, Warp's implicit integrators leave out both.
_ACTUATION = int(mujoco.mjtDisableBit.mjDSBL_ACTUATION)
_DAMPER = int(mujoco.mjtDisableBit.mjDSBL_DAMPER)
_IMPLICIT = (mujoco.mjtIntegrator.mjINT_IMPLICIT, mujoco.mjtIntegrator.mjINT_IMPLICITFAST)

#: Fields of MuJoCo Warp's data that no step computes, or that hold another thing than MuJoCo's.
_NOT_COMPUTED = frozenset((
    "body_awake_ind", "dof_awake_ind", "energy", "history", "nidof", "nisland", "plastic", "qH",
    "qHDiagInv", "qLD", "qLDiagInv", "qLU", "qfrc_inverse", "solver_niter",
))  # fmt: skip


def check_variation(names: Iterable[str]) -> None:
    """Refuses constants of which MuJoCo Warp has one value for all worlds.

    Raises:
        VariationError: one of them.
    """
    mjw = mujoco_warp()
    for name in names:
        owner = mjw.Option if name.startswith("opt.") else mjw.Model
        if _first_axis(owner, name.removeprefix("opt.")) != "*":
            raise VariationError(
                f"the engine 'warp' cannot vary {name!r}; use physics='native' for that"
            )


def check_reads(reads: Reads) -> None:
    """Refuses fields that MuJoCo Warp does not compute as MuJoCo does.

    Raises:
        ModelError: one of them.
    """
    wp, data = warp(), mujoco_warp().Data
    for name in reads.named:
        known = name not in _NOT_COMPUTED and _first_axis(data, name) == "nworld"
        dtype = _types(data)[name].dtype if known else None
        if getattr(dtype, "_wp_scalar_type_", dtype) not in (wp.float32, wp.int32, float, int):
            raise lacks("warp", f"the MjData field {name!r}")


def _types(owner: Any) -> dict[str, Any]:
    """The types of the fields of one of MuJoCo Warp's classes."""
    return {field.name: field.type for field in dataclasses.fields(owner)}


def _first_axis(owner: Any, name: str) -> Any:
    """What a field's type says of its first axis: `"*"`, `"nworld"`, ...; None without axes."""
    shape = getattr(_types(owner).get(name), "shape", None) or (None,)
    return shape[0]


def converted(
    model: mujoco.MjModel, variation: Iterable[str], batch_sizes: Mapping[str, int]
) -> tuple[mujoco.MjModel, Any]:
    """A model as Warp takes it, and Warp's form of it, on Warp's present device.

    Args:
        model: the model.
        variation: the constants of each world's own.
        batch_sizes: how many values to have of a constant, where not one for all worlds.

    Raises:
        ModelError: the model has something that Warp lacks.
    """
    variation = frozenset(variation)
    if any(getattr(model, size, 0) for size in ("nhistory", "nplastic")):
        raise lacks("warp", "the memory of delays, intervals and springs that yield")
    if has_actuator(model, "pid"):
        raise lacks("warp", "the actuator <pid>")
    if model.opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP:
        raise lacks("warp", "sleeping bodies, which have a memory outside of the state")
    if holds_bodies(model) and model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
        raise lacks("warp", "<connect> and <weld> under RK4")
    off = model.opt.disableflags & (_ACTUATION | _DAMPER)
    if off in (_ACTUATION, _DAMPER) and model.opt.integrator in _IMPLICIT:
        raise lacks("warp", "one of the flags actuation and damper under implicit integrators")
    model = accepted(model, "warp", _HARMLESS, _ASKED_IF_ZERO, variation)
    try:
        with warnings.catch_warnings():  # it warns of friction that is all but none
            warnings.simplefilter("ignore", UserWarning)
            return model, mujoco_warp().put_model(model, dict(batch_sizes))
    except (NotImplementedError, ValueError) as error:
        raise lacks("warp", f"a feature of the model: {error}".rstrip(".")) from error


def holds_bodies(model: mujoco.MjModel) -> bool:
    """Whether the model has equality constraints of bodies: `<connect>` or `<weld>`."""
    kinds = (mujoco.mjtEq.mjEQ_CONNECT, mujoco.mjtEq.mjEQ_WELD)
    return bool(np.isin(model.eq_type, kinds).any())
