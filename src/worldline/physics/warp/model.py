"""A model as MuJoCo Warp takes it; and what it lacks, told by name before anything runs."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import mujoco

from worldline.errors import ModelError, VariationError
from worldline.physics.base import Reads
from worldline.physics.compat import accepted
from worldline.warp_library import mujoco_warp, warp

#: Constants without which, where they are zero everywhere, Warp leaves kernels out.
_ASKED_IF_ZERO = frozenset((
    "actuator_armature", "actuator_damping", "dof_armature", "dof_frictionloss",
    "tendon_armature", "tendon_damping", "tendon_frictionloss", "tendon_stiffness",
))  # fmt: skip

#: A check of inverse dynamics, which Warp refuses and no trajectory depends on.
_HARMLESS = int(mujoco.mjtEnableBit.mjENBL_FWDINV)

#: Fields of MuJoCo Warp's that no step computes, or that hold another thing than MuJoCo's.
_NOT_COMPUTED = frozenset((
    "body_awake_ind", "dof_awake_ind", "energy", "history", "nidof", "nisland", "plastic", "qH",
    "qHDiagInv", "qLD", "qLDiagInv", "qLU", "qfrc_inverse", "solver_niter",
))  # fmt: skip


def check_model(model: mujoco.MjModel) -> None:
    """Refuses a model that MuJoCo Warp does not run as MuJoCo does.

    Raises:
        ModelError: it has something that Warp lacks.
    """
    with warp().ScopedDevice("cpu"):
        stored(model, (), {})


def check_variation(names: Iterable[str]) -> None:
    """Refuses constants that MuJoCo Warp does not have of each world.

    Raises:
        VariationError: one of them.
    """
    mjw = mujoco_warp()
    for name in names:
        owner = mjw.Option if name.startswith("opt.") else mjw.Model
        if _axis(owner, name.removeprefix("opt.")) != "*":
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
        if name in _NOT_COMPUTED or _axis(data, name) != "nworld":
            raise lacks(f"the MjData field {name!r}")
        dtype = _kinds(data)[name].dtype
        if getattr(dtype, "_wp_scalar_type_", dtype) not in (wp.float32, wp.int32, float, int):
            raise lacks(f"the MjData field {name!r}")


def _kinds(owner: Any) -> dict[str, Any]:
    """The types of the fields of one of MuJoCo Warp's classes."""
    return {it.name: it.type for it in dataclasses.fields(owner)}


def _axis(owner: Any, name: str) -> Any:
    """What the first axis of a field is, by the field's type: `"*"`, `"nworld"`; None without."""
    shape = getattr(_kinds(owner).get(name), "shape", None) or (None,)
    return shape[0]


def lacks(what: str) -> ModelError:
    """The error for something that MuJoCo Warp does not have."""
    return ModelError(f"the engine 'warp' lacks {what}; use physics='native'")


def stored(
    model: mujoco.MjModel, variation: Iterable[str], batch_sizes: Mapping[str, int]
) -> tuple[mujoco.MjModel, Any]:
    """A model as Warp takes it, and Warp's form of it, on the present device.

    Args:
        model: the model.
        variation: the constants of each world's own.
        batch_sizes: how many values to have of a constant, where not one for all worlds.

    Raises:
        ModelError: it has something that Warp lacks.
    """
    if any(model.opt.disableactuator >> group & 1 for group in set(model.actuator_group.tolist())):
        raise lacks("groups of actuators that are switched off (actuatorgroupdisable)")
    if any(getattr(model, size, 0) for size in ("nhistory", "nplastic")):
        raise lacks("the memory of delays, intervals and springs that yield")
    if model.opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP:
        raise lacks("sleeping bodies, whose memory is outside a state")
    model = accepted(model, _HARMLESS, _ASKED_IF_ZERO, variation)
    try:
        with warnings.catch_warnings():  # of friction that is all but none
            warnings.simplefilter("ignore", UserWarning)
            return model, mujoco_warp().put_model(model, dict(batch_sizes))
    except (NotImplementedError, ValueError) as error:
        raise lacks(f"something that the model has: {error}".rstrip(".")) from error
