"""MuJoCo's own CPU engine inside JAX: a batch of simulations as one pure function of arrays.

A JAX primitive carries each call to the host, where a `mujoco` batch runs it on a thread pool. All
that a world is travels through JAX: its integration state (`mjSTATE_INTEGRATION`) as uint32 words,
so that no bit is lost to float32, and its variation. The batches that live here are scratch memory:
rows are written in, run, and copied out, so that an answer depends on the arguments alone.

A primitive of our own, and not `jax.pure_callback`, because that puts its arguments back on the
device before it calls Python, and reading them there needs a thread of the very pool that runs the
program: two programs in flight on two cores wait for each other for good.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.extend.core import Primitive
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import batching, mlir

from worldline.errors import ModelError
from worldline.mjlib import Batch, quiet
from worldline.model import Model
from worldline.physics.base import NOTHING, Physics, PhysicsState, Reads
from worldline.physics.differences import CENTRED, Axis, Chart, FiniteDifferences, Rows
from worldline.physics.gradient import differentiate, stack
from worldline.physics.host import call_host
from worldline.types import Array, ArrayLike, Variation

NDArray: TypeAlias = np.ndarray[Any, Any]

#: MjData fields that live in the integration state.
_STATE = {
    "time": mujoco.mjtState.mjSTATE_TIME,
    "qpos": mujoco.mjtState.mjSTATE_QPOS,
    "qvel": mujoco.mjtState.mjSTATE_QVEL,
    "act": mujoco.mjtState.mjSTATE_ACT,
    "qacc_warmstart": mujoco.mjtState.mjSTATE_WARMSTART,
    "ctrl": mujoco.mjtState.mjSTATE_CTRL,
    "qfrc_applied": mujoco.mjtState.mjSTATE_QFRC_APPLIED,
    "xfrc_applied": mujoco.mjtState.mjSTATE_XFRC_APPLIED,
    "mocap_pos": mujoco.mjtState.mjSTATE_MOCAP_POS,
    "mocap_quat": mujoco.mjtState.mjSTATE_MOCAP_QUAT,
    "userdata": mujoco.mjtState.mjSTATE_USERDATA,
}

#: The parts of a state that are real numbers and travel on their own, beside the words.
_MOVING = ("qpos", "qvel", "act")

#: Fields that `mj_step` leaves out, and the function that computes them after it. Gymnasium's
#: `MujocoEnv` makes the same call at the same moment, so that `cfrc_ext` agrees bit for bit.
_FORCES, _VELOCITIES = "mj_rnePostConstraint", "mj_subtreeVel"
_AFTER_STEP = {
    "cacc": _FORCES,
    "cfrc_int": _FORCES,
    "cfrc_ext": _FORCES,
    "subtree_linvel": _VELOCITIES,
    "subtree_angmom": _VELOCITIES,
}

#: Memory of MuJoCo's solvers: not every call writes it, so it may hold another world's numbers.
_SCRATCH = frozenset(("qDeriv", "qH", "qHDiagInv", "qLU", "solver_niter", "solver_nnz"))

#: Model fields that a default state comes from. Where none of them varies, and no field is left
#: over from an earlier call, a reset is a copy of one row.
_RESET_READS = {"qpos0", "body_pos", "body_quat", "eq_active0"}

#: Warnings after which MuJoCo has reset a simulation, or dropped its controls, in silence.
_DIVERGED = [
    int(mujoco.mjtWarning.mjWARN_BADQPOS),
    int(mujoco.mjtWarning.mjWARN_BADQVEL),
    int(mujoco.mjtWarning.mjWARN_BADQACC),
    int(mujoco.mjtWarning.mjWARN_BADCTRL),
]

#: Options of a model with which a step depends on more than the integration state.
_OUTSIDE_STATE = (mujoco.mjtEnableBit.mjENBL_SLEEP, mujoco.mjtEnableBit.mjENBL_IPC)

_KEPT_BATCHES = 16

#: Up to so many rows start on the caller's thread alone, where no constants are to be derived: to
#: wake others would take longer.
_FEW_ROWS = 16

#: Rows of a batch that runs the moved worlds of a derivative.
_GRADIENT_ROWS = 256


class NativeState(NamedTuple):
    """What this engine keeps of a world between two steps."""

    words: Array
    """MuJoCo's integration state and the fields of `Reads.changes`, float64, as `(n,)` uint32."""
    tracked: dict[str, Array]
    """For each of `Reads.changes` an array whose tangent is the field's; its value says nothing.
    The next step's change begins here."""


class NativePhysics(Physics):
    """MuJoCo on the CPU's cores; the default. Bit for bit what a loop over `mj_step` gives.

    Args:
        model: the model that all worlds share.
        reads: what comes back beside the state.
        num_threads: threads a batch runs on; 0 for one per core that this process may use.
        gradient: how derivatives are taken.

    Raises:
        ModelError: MuJoCo cannot batch the model, or `reads` names a field that it cannot give.
    """

    name = "native"
    differentiable = True

    def __init__(
        self,
        model: Model,
        reads: Reads = NOTHING,
        num_threads: int = 0,
        gradient: FiniteDifferences = CENTRED,
    ) -> None:
        super().__init__(model, reads)
        self.gradient = gradient
        if num_threads < 0:
            raise ModelError(f"num_threads is {num_threads}; give 0 for all cores, or more")
        self.num_threads = num_threads or _usable_cores()
        for field in _SCRATCH.intersection((*reads.fields, *reads.changes)):
            raise ModelError(
                f"{field!r} is memory of MuJoCo's solvers, not a quantity of a world; take it out "
                "of the task's fields"
            )
        for flag in _OUTSIDE_STATE:
            if model.mj.opt.enableflags & flag:
                name = flag.name.removeprefix("mjENBL_").lower()
                raise ModelError(
                    f"the model enables {name!r}, which keeps a memory outside MuJoCo's state; "
                    f"take {name} out of the model's <flag>"
                )
        self.digest = f"{model.digest} {reads} {self.num_threads} {gradient}"
        self._scratches: dict[tuple[int, int], _Scratch] = {}
        self._moved = _Scratch(self, self.num_threads, _converging(model.mj))
        one_row = _Rows(self, 1, (), self.num_threads, model.mj)
        words = 2 * (one_row.batch.state.shape[1] + sum(one_row.tracked_sizes))
        self._layout = _layout(model, reads, words)
        self._columns = {name: one_row.columns(name) for name in _MOVING}
        self._qpos_chart = Chart(model.nq, _quaternions(model.mj))

    def start(
        self,
        qpos: Array,
        qvel: Array,
        variation: Variation,
        inputs: Mapping[str, Array],
        mask: ArrayLike = True,
    ) -> PhysicsState:
        """See `Physics.start`."""
        variation = self.check_variation(variation)
        call = _Call(self, "start", 0, tuple(sorted(inputs)), tuple(variation))
        state = {"qpos": jnp.asarray(qpos), "qvel": jnp.asarray(qvel)}
        return self._run(call, state, inputs, variation, mask)

    def step(
        self,
        state: PhysicsState,
        inputs: Mapping[str, Array],
        substeps: int,
        mask: ArrayLike = True,
    ) -> PhysicsState:
        """See `Physics.step`."""
        call = _Call(self, "step", substeps, tuple(sorted(inputs)), tuple(sorted(state.variation)))
        words = {"words": state.engine.words}
        moving = (state.qpos, state.qvel, state.act)
        after = self._run(call, words, inputs, state.variation, mask, moving)
        before = state.engine.tracked
        changes = {name: _since(x, before[name]) for name, x in after.changes.items()}
        after = dataclasses.replace(after, changes=changes)
        if mask is True:
            return after
        return jax.tree.map(lambda new, old: jnp.where(mask, new, old), after, state)

    def _run(
        self,
        call: _Call,
        state: Mapping[str, Array],
        inputs: Mapping[str, Array],
        variation: Variation,
        mask: ArrayLike,
        moving: Sequence[Array] = (),
    ) -> PhysicsState:
        """Binds the primitive and names what it returns.

        The `moving` are what `words` hold already: the host does not read them, but words have no
        tangents, and these have.
        """
        operands = [jnp.asarray(mask, bool), *state.values()]
        for name in call.inputs:
            value = jnp.asarray(inputs[name], jnp.float32)
            operands.append(value.reshape(self.input_shape(name)))
        operands += [variation[name] for name in call.variation]
        operands += moving
        results = dict(zip(self._layout, _native.bind(*operands, call=call), strict=True))
        changes = {name: results["change", name] for name in self.reads.changes}
        return PhysicsState(
            qpos=results["qpos"],
            qvel=results["qvel"],
            act=results["act"],
            time=results["time"],
            fields={name: results["field", name] for name in self.reads.fields},
            changes=changes,
            variation=dict(variation),
            diverged=results["diverged"],
            engine=NativeState(results["words"], changes),
        )

    def integration_state(self, state: PhysicsState) -> NDArray:
        """MuJoCo's `mjSTATE_INTEGRATION` vector of concrete worlds, `(..., nstate)` float64."""
        words = np.ascontiguousarray(np.asarray(state.engine.words))
        return words.view(np.float64)[..., : mujoco.mj_stateSize(self.model.mj, _INTEGRATION)]

    def _scratch(self, device: int = 0, devices: int = 1) -> _Scratch:
        """What the calls of a device run in, where so many devices of this process share its
        cores.
        """
        key = (device, devices)
        if key not in self._scratches:  # of two made at once, by two threads, one stays
            num_threads = max(1, self.num_threads // devices)
            self._scratches.setdefault(key, _Scratch(self, num_threads, self.model.mj))
        return self._scratches[key]


def _layout(
    model: Model, reads: Reads, words: int
) -> dict[str | tuple[str, str], tuple[tuple[int, ...], Any]]:
    """What a call returns of one world, in order: name to shape and dtype."""
    layout: dict[str | tuple[str, str], tuple[tuple[int, ...], Any]] = {
        "words": ((words,), np.uint32),
        "diverged": ((), np.bool_),
        "time": ((), np.float32),
        "qpos": ((model.nq,), np.float32),
        "qvel": ((model.nv,), np.float32),
        "act": ((model.na,), np.float32),
    }
    for name in reads.fields:
        shape, dtype = model.data_field(name)
        layout["field", name] = (shape, np.float32 if dtype.kind == "f" else dtype)
    for name in reads.changes:
        layout["change", name] = (model.data_field(name)[0], np.float32)
    return layout


_INTEGRATION = mujoco.mjtState.mjSTATE_INTEGRATION


@dataclasses.dataclass(frozen=True)
class _Call:
    """The static part of a call: which engine does what, and how to read the operands."""

    physics: NativePhysics
    kind: Literal["start", "step"]
    substeps: int
    inputs: tuple[str, ...]
    variation: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the operands that the host reads, without the mask."""
        state = ("words",) if self.kind == "step" else _MOVING[:2]
        return (*state, *self.inputs, *self.variation)

    @property
    def reads(self) -> int:
        """See `HostCall`; what follows are `_MOVING`."""
        return 1 + len(self.names)

    @property
    def settings(self) -> FiniteDifferences:
        """See `HostCall`."""
        return self.physics.gradient

    @property
    def differentiable(self) -> tuple[int, ...]:
        """See `HostCall`: real numbers but the time, which moves with nothing."""
        layout = enumerate(self.physics._layout.items())
        return tuple(i for i, (name, (_, kind)) in layout if kind == np.float32 and name != "time")

    def operand_shapes(self) -> list[tuple[int, ...]]:
        """See `HostCall`."""
        model, constants = self.physics.model, len(self.variation)
        state = len(self.names) - len(self.inputs) - constants
        shapes: list[tuple[int, ...]] = [()]
        shapes += [self.physics._layout[name][0] for name in self.names[:state]]
        shapes += [self.physics.input_shape(name) for name in self.inputs]
        shapes += [model.constant(name).shape for name in self.variation]
        return shapes + [self.physics._layout[name][0] for name in _MOVING]

    def result_shapes(self) -> list[tuple[int, ...]]:
        """See `HostCall`."""
        return [shape for shape, _ in self.physics._layout.values()]

    def rows(self, operands: Sequence[NDArray]) -> Rows:
        """See `HostCall`."""
        words = self.kind == "step"
        numbers = [
            np.ascontiguousarray(x).view(np.float64) if words and i == 0 else x.astype(np.float64)
            for i, x in enumerate(operands)
        ]
        return Rows(numbers, self._simulate, _GRADIENT_ROWS)

    def axes(self, wrt: Sequence[int], rows: Rows) -> list[Axis]:
        """See `HostCall`."""
        physics, axes = self.physics, []
        constants = len(self.names) - len(self.variation)
        for number in wrt:
            index = number - 1
            carried = self.reads <= number
            name = _MOVING[number - self.reads] if carried else self.names[index]
            if carried:
                start, size = self.physics._columns[name]
                chart = physics._qpos_chart if name == "qpos" else Chart(size)
                axes.append(Axis.free(0, start, chart, len(rows.operands[0])))
            elif self.kind == "start" and index == 0:
                axes.append(Axis.free(0, 0, physics._qpos_chart, len(rows.operands[0])))
            else:
                values = rows.operands[index]
                axis = Axis.free(index, 0, Chart(values.shape[1]), len(values))
                if index >= constants:
                    axis = _constant_axis(axis, values)
                elif name == "ctrl":
                    axis = _control_axis(axis, values, physics.model.mj)
                axes.append(axis)
        return axes

    def _simulate(self, operands: list[NDArray]) -> tuple[list[NDArray], NDArray]:
        """See `Rows.simulate`."""
        number = len(operands[0])
        ids = None if number == _GRADIENT_ROWS else np.arange(number, dtype=np.int32)
        if ids is not None:
            padded = np.minimum(np.arange(_GRADIENT_ROWS), number - 1)
            operands = [x[padded] for x in operands]
        scratch = self.physics._moved
        with scratch.lock, quiet():
            batch = scratch.rows(_GRADIENT_ROWS, self.variation)
            batch.advance(self, operands, ids)
            outputs = [x[:number].astype(np.float64) for x in batch.numbers()]
            return outputs, ~batch.diverged()[:number]

    @functools.cached_property
    def name(self) -> str:
        """See `HostCall`."""
        what = (self.kind, self.substeps, self.inputs, self.variation)
        return f"{self.physics.digest} {what}"

    def run(self, scratch: _Scratch, operands: Sequence[NDArray], out: Sequence[NDArray]) -> None:
        """Fills results, whose leading axes are the operands'. Calls no JAX."""
        mask, *rest = operands
        rows = int(mask.size)
        ids = None if mask.all() else np.flatnonzero(mask).astype(np.int32)
        own = mask.ndim
        results = [x.reshape(rows, *x.shape[own:]) for x in out]
        if ids is not None:
            for result in results:
                result[...] = 0
        if rows and (ids is None or len(ids)):
            flat = [np.reshape(x, (rows, -1)) for x in rest]
            brief = self.kind == "start" and rows <= _FEW_ROWS and not self.variation
            with scratch.lock, quiet():
                scratch.rows(rows, self.variation, brief).run(self, flat, ids, results)


@dataclasses.dataclass(frozen=True)
class _Everywhere:
    """The host's side of a call, in a program on one device."""

    call: _Call

    @property
    def name(self) -> str:
        """See `Host`."""
        return self.call.name

    def __call__(self, operands: list[NDArray], results: list[NDArray]) -> None:
        """See `Host`."""
        self.call.run(self.call.physics._scratch(), operands, results)


@dataclasses.dataclass(frozen=True)
class _OnDevices:
    """The same on several devices of this process, whose calls come side by side."""

    call: _Call
    devices: int

    @property
    def name(self) -> str:
        """See `Host`."""
        return f"{self.call.name} of {self.devices}"

    def __call__(self, operands: list[NDArray], results: list[NDArray]) -> None:
        """See `Host`; the first operand is the device's number."""
        device, *rest = operands
        self.call.run(self.call.physics._scratch(int(device), self.devices), rest, results)


def _quaternions(model: mujoco.MjModel) -> list[int]:
    """Where the quaternions begin in `qpos`."""
    kinds = {int(mujoco.mjtJoint.mjJNT_FREE): 3, int(mujoco.mjtJoint.mjJNT_BALL): 0}
    joints = zip(model.jnt_type, model.jnt_qposadr, strict=True)
    return [int(address) + kinds[kind] for kind, address in joints if kind in kinds]


def _constant_axis(axis: Axis, values: NDArray) -> Axis:
    """A model constant moves relative to its size. One that is zero only grows: there is no
    negative mass or friction.
    """
    size = np.abs(values)
    largest = size.max(axis=1, keepdims=True, initial=0.0)
    size = np.where(size > 0, size, np.where(largest > 0, largest, 1.0))
    return axis._replace(scale=size, below=np.where(values == 0, 0.0, axis.below))


def _control_axis(axis: Axis, values: NDArray, model: mujoco.MjModel) -> Axis:
    """A control on its limit moves inwards: MuJoCo clamps what is beyond.

    A float32 limit may lie a rounding error beyond; `values` are put on the limit itself.
    """
    if model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CLAMPCTRL:
        return axis
    limited = np.asarray(model.actuator_ctrllimited, bool)
    low, high = (
        np.where(limited, x, s)
        for x, s in zip(model.actuator_ctrlrange.T, (-np.inf, np.inf), strict=True)
    )
    for limit in (low, high):
        near = np.abs(values - limit) < 1e-6 * np.abs(limit)
        values[near] = np.broadcast_to(limit, values.shape)[near]
    return axis._replace(
        below=np.where(values >= low, low - values, -np.inf),
        above=np.where(values <= high, high - values, np.inf),
    )


def _converging(model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy whose constraint solver stops later: a difference over 2e-6 is half a million times as
    wrong as its ends, and MuJoCo's usual tolerance leaves a light body's turning wrong by 1e-6.
    """
    model = copy.copy(model)
    model.opt.tolerance = min(model.opt.tolerance, 1e-14)
    return model


class _Scratch:
    """The batches in which the calls of one device run, one call at a time.

    A device has its own since a row's constants are written, and what follows from them derived,
    only where they are not those that the row holds: another device's worlds would have other ones.
    """

    def __init__(self, physics: NativePhysics, num_threads: int, model: mujoco.MjModel) -> None:
        self.lock = threading.Lock()
        """To be held from a call of `rows` until its answer is read."""
        self._physics, self._num_threads, self._model = physics, num_threads, model
        self._batches: collections.OrderedDict[tuple[int, tuple[str, ...], int], _Rows] = (
            collections.OrderedDict()
        )

    def rows(self, rows: int, variation: tuple[str, ...], brief: bool = False) -> _Rows:
        """The batch for a number of rows and the fields that vary among them.

        One for a brief call has the caller's thread only.
        """
        threads = 1 if brief else self._num_threads
        key = (rows, variation, threads)
        if key not in self._batches:
            self._batches[key] = _Rows(self._physics, rows, variation, threads, self._model)
            if len(self._batches) > _KEPT_BATCHES:
                self._batches.popitem(last=False)
        self._batches.move_to_end(key)
        return self._batches[key]


class _Rows:
    """A batch of simulations as scratch memory, and the views through which it is read."""

    def __init__(
        self,
        physics: NativePhysics,
        rows: int,
        variation: tuple[str, ...],
        num_threads: int,
        compiled: mujoco.MjModel,
    ) -> None:
        reads, model = physics.reads, physics.model
        named = tuple(dict.fromkeys((*reads.fields, *reads.changes)))
        self.after_step = tuple(dict.fromkeys(_AFTER_STEP[f] for f in named if f in _AFTER_STEP))
        try:
            batch = Batch(compiled, rows, num_threads, persistent=bool(self.after_step))
            outputs = {
                name: batch.output(name, model.data_field(name)[1])
                for name in named
                if name not in _STATE
            }
            self.expanded = {
                name: batch.expand(name, model.constant(name).dtype) for name in variation
            }
        except ValueError as error:
            raise ModelError(str(error)) from error
        self.batch = batch
        self.failed = np.zeros(rows, bool)
        self.views = {name: batch.component(part) for name, part in _STATE.items()} | outputs
        self.fields, self.tracked = reads.fields, reads.changes
        self.tracked_sizes = [self.views[name].shape[1] for name in reads.changes]
        self.held = {name: np.full(value.shape, np.nan) for name, value in self.expanded.items()}
        batch.reset(np.zeros(1, np.int32))
        self.default = None
        if not (self.after_step or _RESET_READS & set(variation)):
            self.default = batch.state[0].copy()
        self.stage = mujoco.mjtStage.mjSTAGE_VEL if reads.refresh else mujoco.mjtStage.mjSTAGE_NONE

    def run(
        self, call: _Call, operands: list[NDArray], ids: NDArray | None, results: list[NDArray]
    ) -> None:
        """Writes rows in, runs them, copies them out: flat operands `(rows, n)` to `results`."""
        self._read(results, self.advance(call, operands, ids))

    def advance(self, call: _Call, operands: list[NDArray], ids: NDArray | None) -> NDArray | None:
        """Writes rows in and runs them; returns what the tracked fields were before a step."""
        at = slice(None) if ids is None else ids
        state = operands[: 1 if call.kind == "step" else 2]
        inputs = operands[len(state) : len(state) + len(call.inputs)]
        self.failed[:] = False
        self._write_variation(operands[len(state) + len(inputs) :], at)
        self.batch.warnings[:] = 0
        if call.kind == "start":
            tracked_before = None
            self._start(state, dict(zip(call.inputs, inputs, strict=True)), ids, at)
        else:
            row = state[0].view(np.float64)
            nstate = self.batch.state.shape[1]
            tracked_before = row[:, nstate:]
            self.batch.state[at] = row[at, :nstate]
            self._write_inputs(dict(zip(call.inputs, inputs, strict=True)), at)
            self._step(call.substeps, ids)
        return tracked_before

    def columns(self, name: str) -> tuple[int, int]:
        """Where a part of the state begins in a row, and its size."""
        part = self.views[name]
        start = (part.ctypes.data - self.batch.state.ctypes.data) // part.itemsize
        return (start if part.size else 0), part.shape[1]

    def diverged(self) -> NDArray:
        """Which rows did not end where they should, `(rows,)` bool."""
        return self.failed | self.batch.warnings[:, _DIVERGED].any(axis=1)

    def numbers(self) -> list[NDArray]:
        """What has a derivative, in the order of `NativePhysics._layout`: live views."""
        names = (*_MOVING, *self.fields, *self.tracked)
        return [view for view in (self.views[name] for name in names) if view.dtype.kind == "f"]

    def _write_variation(self, values: Sequence[NDArray], at: Any) -> None:
        """Puts each row's constants in place, and derives what follows from those that changed."""
        changed = np.zeros(self.batch.rows, bool)
        for name, value in zip(self.expanded, values, strict=True):
            differs = np.zeros_like(changed)
            differs[at] = (self.held[name][at] != value[at]).any(axis=1)
            self.expanded[name][differs] = self.held[name][differs] = value[differs]
            changed |= differs
        if changed.any():
            ids = np.flatnonzero(changed).astype(np.int32)
            self.batch.set_const(ids)
            self._note_failures(ids)
            for held in self.held.values():
                held[self.failed] = np.nan  # to be tried again

    def _write_inputs(self, inputs: Mapping[str, NDArray], at: Any) -> None:
        for name, value in inputs.items():
            self.views[name][at] = value[at]

    def _start(
        self,
        state: Sequence[NDArray],
        inputs: Mapping[str, NDArray],
        ids: NDArray | None,
        at: Any,
    ) -> None:
        if self.default is None:
            self.batch.reset(ids)
            self._note_failures(ids)
        else:
            self.batch.state[at] = self.default
        self._write_inputs({"qpos": state[0], "qvel": state[1], **inputs}, at)
        self.batch.forward(ids, mujoco.mjtStage.mjSTAGE_ACC)
        self._note_failures(ids)

    def _step(self, substeps: int, ids: NDArray | None) -> None:
        none = mujoco.mjtStage.mjSTAGE_NONE
        forces, velocities = (name in self.after_step for name in (_FORCES, _VELOCITIES))
        # Forces are those at the contacts of the last physics step; a refresh finds new contacts.
        self.batch.step(ids, substeps, none if forces else self.stage)
        self._note_failures(ids)
        if forces:
            self.batch.apply(ids, _FORCES)
            self.batch.forward(ids, self.stage)
        if velocities:
            self.batch.apply(ids, _VELOCITIES)
            self.batch.forward(ids, none)  # computes nothing, but copies the outputs
        self._note_failures(ids)

    def _note_failures(self, ids: NDArray | None) -> None:
        """Remembers the rows whose last call failed; the next call forgets them."""
        at = slice(None) if ids is None else ids
        self.failed[at] |= self.batch.status[at] != 0

    def _read(self, results: list[NDArray], tracked_before: NDArray | None) -> None:
        """Copies every row out, in the order of `NativePhysics._layout`."""
        words, diverged, time, qpos, qvel, act, *rest = results
        nstate = self.batch.state.shape[1]
        row = words.view(np.float64)
        row[:, :nstate] = self.batch.state
        diverged[:] = self.diverged()
        time[:] = self.views["time"][:, 0]
        qpos[:], qvel[:], act[:] = self.views["qpos"], self.views["qvel"], self.views["act"]
        fields, changes = rest[: len(self.fields)], rest[len(self.fields) :]
        for name, result in zip(self.fields, fields, strict=True):
            result[:] = self.views[name].reshape(result.shape)
        start = nstate
        for name, size, result in zip(self.tracked, self.tracked_sizes, changes, strict=True):
            after = row[:, start : start + size] = self.views[name]
            before = after
            if tracked_before is not None:
                before = tracked_before[:, start - nstate : start - nstate + size]
            result[:] = (after - before).reshape(result.shape)
            start += size


def _usable_cores() -> int:
    """The number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


_native = Primitive("worldline_native")
_native.multiple_results = True


@_native.def_impl
def _evaluate(*operands: Array, call: _Call) -> list[Array]:
    arrays = [np.asarray(x) for x in operands[: call.reads]]
    results = [
        np.empty(arrays[0].shape + shape, dtype) for shape, dtype in call.physics._layout.values()
    ]
    call.run(call.physics._scratch(), arrays, results)
    return [jnp.asarray(x) for x in results]


@_native.def_abstract_eval
def _shapes(mask: Any, *_: Any, call: _Call) -> list[jax.core.ShapedArray]:
    return [
        jax.core.ShapedArray(mask.shape + shape, np.dtype(dtype))
        for shape, dtype in call.physics._layout.values()
    ]


def _batch(operands: Sequence[Array], axes: Sequence[Any], *, call: _Call) -> Any:
    """Any nesting of `vmap` stacks axes in front: it reaches the host as one call."""
    results = _native.bind(*stack(operands, axes), call=call)
    return results, [0] * len(results)


def _lower(ctx: Any, *operands: Any, call: _Call) -> Any:
    """Within `jax.shard_map` over several devices of this process, the host is told which calls."""
    operands = operands[: call.reads]
    mesh = getattr(ctx.module_context.axis_context, "mesh", None)
    devices = 1 if mesh is None else mesh.local_mesh.size
    avals = ctx.avals_in[: call.reads]
    if devices == 1:
        return call_host(ctx.replace(avals_in=avals), _Everywhere(call), operands)
    ctx = ctx.replace(avals_in=[jax.core.ShapedArray((), np.uint32), *avals])
    return call_host(ctx, _OnDevices(call, devices), [stablehlo.partition_id(), *operands])


@jax.custom_jvp
def _since(change: Array, before: Array) -> Array:
    """A change as it is; its tangent, that of the field after, less that of the field before."""
    del before
    return change


@_since.defjvp
def _since_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    return primals[0], tangents[0] - tangents[1]


batching.primitive_batchers[_native] = _batch
mlir.register_lowering(_native, _lower)
differentiate(_native)
