"""Worlds in MuJoCo Warp's own memory, on one device: written in, run, and copied out.

Nothing of a world stays here: an answer depends on what was written alone. On an NVIDIA card the
kernels of an operation are recorded once, as a CUDA graph, and played from then on.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import mujoco
import numpy as np

from worldline.model import Model
from worldline.physics.arrays import MOVING
from worldline.physics.base import FORCES, KEPT_BATCHES, OF_THE_STEP, VELOCITIES, Reads
from worldline.physics.warp.free_bodies import FreeBodies, has_braked
from worldline.physics.warp.model import converted, holds_bodies
from worldline.warp_library import mujoco_warp, warp

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

#: The constants by which geoms that are fixed to the world are placed.
_PLACES = frozenset(("body_pos", "body_quat", "geom_pos", "geom_quat"))

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
    """What to do with worlds, and the names of the arrays that come in and go out."""

    kind: Literal["start", "vary", "step"]
    """Begin, derive constants, or step."""
    substeps: int
    held: tuple[str, ...]
    """The inputs that a state holds."""
    variation: tuple[str, ...]
    """The constants of each world's own, sorted."""
    derived: tuple[str, ...]
    """The constants that follow from those."""
    fields: tuple[str, ...]
    """The fields that are read."""

    @property
    def operands(self) -> tuple[str, ...]:
        """What the operation begins from, each name once."""
        begins = {
            "start": ("qpos", "qvel", "act", *self.held, *self.variation, *self.derived),
            "vary": self.variation,
            "step": (*MOVING, *self.held, *self.variation, *self.derived),
        }
        return tuple(dict.fromkeys(begins[self.kind]))

    @property
    def results(self) -> tuple[str, ...]:
        """What the operation gives, each name once."""
        gives = {
            "start": ("qacc_warmstart", *self.fields),
            "vary": self.derived,
            "step": (*MOVING, OVERFLOW, *self.fields),
        }
        return tuple(dict.fromkeys(gives[self.kind]))


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


class BatchPool:
    """The memory in which the operations of an engine run, one at a time.

    Args:
        model: the model.
        reads: what is read of it.
        capacity: for contacts and constraints.
        deterministic: whether sums come out the same in each run on an NVIDIA card too.
    """

    def __init__(self, model: Model, reads: Reads, capacity: Capacity, deterministic: bool) -> None:
        make = functools.partial(WarpBatch, model, reads, capacity, deterministic)
        self._lock = threading.Lock()
        self._batch = functools.lru_cache(KEPT_BATCHES)(make)

    def run(
        self,
        operation: Operation,
        rows: int,
        operands: Mapping[str, Any],
        results: Mapping[str, Any],
    ) -> None:
        """Runs an operation on Warp's present device; see `WarpBatch.run`."""
        with self._lock:
            batch = self._batch(str(warp().get_device()), operation.variation, rows)
            batch.run(operation, operands, results)


class WarpBatch:
    """Memory for worlds on one of Warp's devices, and what runs there.

    Args:
        model: the model.
        reads: what is read of it.
        capacity: for contacts and constraints.
        deterministic: whether sums come out the same in each run on an NVIDIA card too.
        device: the device.
        variation: the constants of each world's own.
        rows: the number of worlds.
    """

    def __init__(
        self,
        model: Model,
        reads: Reads,
        capacity: Capacity,
        deterministic: bool,
        device: str,
        variation: tuple[str, ...],
        rows: int,
    ) -> None:
        self._wp, self._mjw = warp(), mujoco_warp()
        if self._wp.get_device(device).is_cuda:  # batches that this one takes the place of may run
            self._wp.synchronize_device(device)
        self._named, self._refresh, self._rows = reads.named, reads.refresh, rows
        self._derived = derived_from(model.mj, variation)
        options = [name for name in variation if name.startswith("opt.")]
        own = {name: rows for name in (*variation, *self._derived) if name not in options}
        compiled, self._model = converted(model.varying(variation).mj, variation, own)
        for name in options:
            like = getattr(self._model.opt, name[4:])
            setattr(self._model.opt, name[4:], self._wp.zeros(rows, dtype=like.dtype))
        self._model.opt.deterministic = deterministic
        overflow = self._mjw.OverflowType
        self._model.opt.warn_overflow = overflow.NEFC | overflow.BROADPHASE | overflow.NARROWPHASE
        memory = _sizes(compiled, len(self._model.nxn_geom_pair_filtered), capacity)
        self._data = self._mjw.make_data(compiled, rows, **memory._asdict())
        self._own = frozenset(own)
        self._holds = holds_bodies(compiled)
        braked = has_braked(compiled, variation)
        self._free_bodies = FreeBodies(self._model, self._data) if braked else None
        #: The model with no body that is fixed to the world: Warp places geoms of such bodies once.
        self._loose: Any = None
        if _PLACES.intersection(variation):
            free = self._wp.ones_like(self._model.body_weldid)
            self._loose = dataclasses.replace(self._model, body_weldid=free)
        early = OF_THE_STEP.intersection(self._named) if self._refresh else ()
        self._kept = {name: self._wp.empty_like(self._array(name)) for name in sorted(early)}
        self._graphs: dict[Operation, Any] = {}

    def run(
        self, operation: Operation, operands: Mapping[str, Any], results: Mapping[str, Any]
    ) -> None:
        """Runs an operation.

        Args:
            operation: what to do.
            operands: what it begins from, by name: arrays of Warp's, `(rows, n)`, or `(1, n)` where
                all worlds have the same.
            results: likewise, where to write what it gives, `(rows, n)`.
        """
        self._data.overflow.zero_()
        for name, given in operands.items():
            if len(given) != self._rows:  # every row is the same memory
                given = self._wp.array(
                    ptr=given.ptr,
                    dtype=given.dtype,
                    shape=(self._rows, given.shape[1]),
                    strides=(0, given.strides[1]),
                    device=given.device,
                )
            self._wp.copy(self._numbers(self._array(name), given.dtype), given)
        self._do(operation)
        for name, result in results.items():
            array = self._kept[name] if name in self._kept else self._array(name)
            self._wp.copy(result, self._numbers(array, result.dtype))

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
        if operation.derived:
            self._mjw.set_const(self._model, self._data, restore=False)

    def _start(self, operation: Operation) -> None:
        self._data.time.zero_()
        self._data.qacc_warmstart.zero_()
        for name in (FORCES | VELOCITIES).intersection(self._named):
            getattr(self._data, name).zero_()  # as MuJoCo leaves them where no sensor needs them
        self._place()
        self._move()
        self._mjw.forward(self._model, self._data)
        self._wp.copy(self._data.qacc_warmstart, self._data.qacc)
        self._keep()

    def _place(self) -> None:
        """Places the geoms that are fixed to the world, each world's own."""
        if self._loose is not None:
            self._mjw.kinematics(self._loose, self._data)

    def _move(self) -> None:
        """Computes the velocities of bodies, with which `<connect>` and `<weld>` begin.

        MuJoCo Warp takes those of the step before, which here may be another world's.
        """
        if self._holds:
            self._mjw.kinematics(self._model, self._data)
            self._mjw.com_pos(self._model, self._data)
            self._mjw.com_vel(self._model, self._data)

    def _step(self, operation: Operation) -> None:
        self._place()
        for _ in range(operation.substeps):
            self._move()
            if self._free_bodies is None:
                self._mjw.step(self._model, self._data)
                continue
            self._mjw.forward(self._model, self._data)
            self._free_bodies.prepare()
            self._mjw.implicit(self._model, self._data)
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
        return getattr(self._model if name in self._own else self._data, name)

    def _numbers(self, array: Any, dtype: Any) -> Any:
        """The numbers of a type in an array of vectors or matrices, `(rows, n)`."""
        size = np.dtype(self._wp.dtype_to_numpy(dtype)).itemsize
        shape = (self._rows, array.capacity // size // self._rows)
        return self._wp.array(ptr=array.ptr, dtype=dtype, shape=shape, device=array.device)
