"""Worlds in MuJoCo Warp's own memory, on one device: written in, run, and copied out.

Nothing of a world stays here: an answer depends on what was written alone. On an NVIDIA card the
kernels of an operation are recorded once, as a CUDA graph, and played from then on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import mujoco
import numpy as np

from worldline.physics.base import FORCES, OF_THE_STEP, VELOCITIES, Reads
from worldline.physics.warp.model import stored
from worldline.warp_library import mujoco_warp, warp

#: The parts of a state, beside the inputs that are held, that a step begins from.
MOVING = ("qpos", "qvel", "act", "time", "qacc_warmstart")

#: Which memory was too small, as bits of MuJoCo Warp's `OverflowType`, `()` int32.
OVERFLOW = "overflow"

#: What `mj_setConst` derives from constants, and Warp has of each world: sizes of geoms apart.
_DERIVED = (
    "actuator_acc0", "body_invweight0", "body_subtreemass", "cam_mat0", "cam_pos0", "cam_poscom0",
    "dof_invweight0", "eq_data", "light_dir0", "light_pos0", "light_poscom0", "tendon_invweight0",
    "tendon_length0",
)  # fmt: skip
_DERIVED_FROM_SIZES = ("geom_aabb", "geom_rbound")

#: The constants that something is derived from.
_SOURCES = frozenset((
    "actuator_armature", "actuator_gear", "body_inertia", "body_ipos", "body_iquat", "body_mass",
    "body_pos", "body_quat", "cam_pos", "cam_quat", "dof_armature", "eq_data", "geom_pos",
    "geom_quat", "geom_size", "jnt_axis", "jnt_pos", "light_dir", "light_pos", "qpos0", "site_pos",
    "site_quat", "tendon_armature",
))  # fmt: skip

#: The contacts that many geoms get memory for, a world, where nobody says otherwise.
_CONTACTS = 64


class Capacity(NamedTuple):
    """How much memory there is; None: enough for most states of the model."""

    nconmax: int | None = None
    """Contacts, of a world on average."""
    njmax: int | None = None
    """Constraints, of a world at most."""


@dataclasses.dataclass(frozen=True)
class Operation:
    """What to do with worlds."""

    kind: Literal["start", "vary", "step"]
    """Begin, derive constants alone, or step."""
    substeps: int
    variation: tuple[str, ...]
    """The constants of each world's own, sorted."""


def derived_from(model: mujoco.MjModel, variation: Iterable[str]) -> tuple[str, ...]:
    """The constants that follow from a variation of these."""
    varied = frozenset(variation)
    if not varied & _SOURCES:
        return ()
    names = _DERIVED + (_DERIVED_FROM_SIZES if "geom_size" in varied else ())
    return tuple(name for name in names if np.size(getattr(model, name)))


def lost(overflow: Any) -> Any:
    """Whether contacts or constraints were left out, by the bits of `OVERFLOW`."""
    kinds = mujoco_warp().OverflowType
    harmless = kinds.ITERATIONS | kinds.LS_ITERATIONS
    return (overflow & int(kinds.ALL & ~harmless)) != 0


def _sizes(model: mujoco.MjModel, pairs: int, capacity: Capacity) -> Capacity:
    """What memory to have: as was said, else MuJoCo Warp's guess, or more where geoms are many.

    Its own has no eye for them: 13 capsules on a floor may need twice what it has.

    Args:
        model: the model.
        pairs: how many pairs of geoms may touch.
        capacity: what was said.
    """
    guess = mujoco_warp().make_data(model, 1)
    contacts = max(guess.naconmax, min(4 * pairs, _CONTACTS))
    dim = int(model.geom_condim.max(initial=1))
    pyramidal = model.opt.cone == mujoco.mjtCone.mjCONE_PYRAMIDAL
    each = max(1, 2 * (dim - 1)) if pyramidal else dim
    others = 6 * model.neq + model.nv + model.njnt + 3 * model.ntendon
    constraints = max(guess.njmax, others + each * contacts)
    return Capacity(
        contacts if capacity.nconmax is None else capacity.nconmax,
        constraints if capacity.njmax is None else capacity.njmax,
    )


class WarpBatch:
    """Memory for a number of worlds on the present device of Warp's, and what runs there.

    Args:
        model: the model.
        reads: what is read of it.
        held: the inputs that a state holds.
        variation: the constants of each world's own.
        rows: worlds.
        capacity: for contacts and constraints.
        deterministic: whether sums come out the same in each run on an NVIDIA card too.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        reads: Reads,
        held: Sequence[str],
        variation: Sequence[str],
        rows: int,
        capacity: Capacity,
        deterministic: bool,
    ) -> None:
        self._wp, self._mjw = warp(), mujoco_warp()
        self._named, self._refresh = reads.named, reads.refresh
        self._derived = derived_from(model, variation)
        options = [name for name in variation if name.startswith("opt.")]
        own = {name: rows for name in (*variation, *self._derived) if name not in options}
        model, self._model = stored(model, variation, own)
        for name in options:
            like = getattr(self._model.opt, name[4:])
            setattr(self._model.opt, name[4:], self._wp.zeros(rows, dtype=like.dtype))
        self._model.opt.deterministic = deterministic
        overflow = self._mjw.OverflowType
        self._model.opt.warn_overflow = overflow.NEFC | overflow.BROADPHASE | overflow.NARROWPHASE
        memory = _sizes(model, len(self._model.nxn_geom_pair_filtered), capacity)
        self._data = self._mjw.make_data(model, rows, **memory._asdict())
        self._held, self._variation = tuple(held), tuple(variation)
        early = OF_THE_STEP.intersection(self._named) if self._refresh else ()
        self._kept = {name: self._wp.empty_like(self._array(name)) for name in sorted(early)}
        self._graphs: dict[Operation, Any] = {}

    def run(
        self, operation: Operation, operands: Mapping[str, Any], results: Mapping[str, Any]
    ) -> None:
        """Does a operation.

        Args:
            operation: what to do.
            operands: what it begins from, by name: arrays of Warp's, `(rows, n)`.
            results: likewise, where to write what it gives.
        """
        self._data.overflow.zero_()
        for name, given in operands.items():
            self._wp.copy(self._numbers(self._array(name), given.dtype), given.flatten())
        self._do(operation)
        for name, result in results.items():
            array = self._kept[name] if name in self._kept else self._array(name)
            self._wp.copy(result.flatten(), self._numbers(array, result.dtype))

    def _do(self, operation: Operation) -> None:
        """The kernels of an operation; on an NVIDIA card as a graph."""
        kernels = {"start": self._start, "vary": self._vary, "step": self._step}[operation.kind]
        if not self._wp.get_device().is_cuda:
            kernels(operation)
            return
        if operation not in self._graphs:
            kernels(operation)  # loads the kernels, which no graph may
            with self._wp.ScopedCapture() as capture:
                kernels(operation)
            self._graphs[operation] = capture.graph
            return
        self._wp.capture_launch(self._graphs[operation])

    def _vary(self, operation: Operation) -> None:
        del operation
        if self._derived:
            self._mjw.set_const(self._model, self._data, restore=False)

    def _start(self, operation: Operation) -> None:
        self._data.time.zero_()
        self._data.qacc_warmstart.zero_()
        for name in (FORCES | VELOCITIES).intersection(self._named):
            getattr(self._data, name).zero_()  # as MuJoCo leaves them where no sensor needs them
        self._vary(operation)
        self._mjw.forward(self._model, self._data)
        self._wp.copy(self._data.qacc_warmstart, self._data.qacc)
        self._keep()

    def _step(self, operation: Operation) -> None:
        for _ in range(operation.substeps):
            self._mjw.step(self._model, self._data)
        self._finish()

    def _finish(self) -> None:
        """The fields that no step computes, or not at the state that it leads to."""
        model, data = self._model, self._data
        if FORCES.intersection(self._named):
            self._mjw.rne_postconstraint(model, data)
        self._keep()
        if self._refresh:
            self._mjw.fwd_position(model, data)
            self._mjw.sensor_pos(model, data)
            self._mjw.fwd_velocity(model, data)
            self._mjw.sensor_vel(model, data)
        if VELOCITIES.intersection(self._named):
            self._mjw.subtree_vel(model, data)

    def _keep(self) -> None:
        """Keeps the fields of the last physics step, where others are computed anew."""
        for name, kept in self._kept.items():
            self._wp.copy(kept, self._array(name))

    def _array(self, name: str) -> Any:
        """Warp's array of a field of the model, if it is each world's own, or of the data."""
        if name.startswith("opt."):
            return getattr(self._model.opt, name[4:])
        own = name in self._variation or name in self._derived
        return getattr(self._model if own else self._data, name)

    def _numbers(self, array: Any, dtype: Any) -> Any:
        """The numbers of 32 bits in an array of vectors or matrices, one after the other."""
        size = array.capacity // 4
        return self._wp.array(ptr=array.ptr, dtype=dtype, shape=(size,), device=array.device)


def operands_of(
    operation: Operation, held: Sequence[str], derived: Sequence[str]
) -> tuple[str, ...]:
    """What an operation begins from, each once."""
    begins = {"vary": (), "start": ("qpos", "qvel", "act", *held), "step": (*MOVING, *held)}
    follows = derived if operation.kind == "step" else ()
    return tuple(dict.fromkeys((*begins[operation.kind], *operation.variation, *follows)))


def results_of(
    operation: Operation, fields: Sequence[str], derived: Sequence[str]
) -> tuple[str, ...]:
    """What an operation gives, each once."""
    gives = {
        "vary": tuple(derived),
        "start": ("qacc_warmstart", *fields, *derived),
        "step": (*MOVING, OVERFLOW, *fields),
    }
    return tuple(dict.fromkeys(gives[operation.kind]))
