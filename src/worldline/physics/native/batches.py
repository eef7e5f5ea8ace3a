"""The batches in which simulations run: rows are written in, run, and copied out.

They are scratch memory. What a row held before never matters to what is copied out of it.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import itertools
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import mujoco
import numpy as np

from worldline.errors import ModelError
from worldline.model import Model
from worldline.mujoco_c import Batch
from worldline.physics.base import Reads
from worldline.physics.native.constants import LastDerived, RowConstants

NDArray: TypeAlias = np.ndarray[Any, Any]

#: The parts of a state that are real numbers and travel on their own, beside the words.
MOVING = ("qpos", "qvel", "act")

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

#: Inputs that are zero until they are given. No call changes them; so a state does not hold those
#: that never are.
_ZERO_UNTIL_GIVEN = ("ctrl", "qfrc_applied", "xfrc_applied", "userdata")

#: Model fields that a default state comes from. Where none of them varies, a reset is a copy of
#: one row.
_RESET_READS = {"qpos0", "body_pos", "body_quat", "eq_active0"}

#: Warnings after which MuJoCo has reset a simulation, or dropped its controls, in silence.
_DIVERGED = [
    int(mujoco.mjtWarning.mjWARN_BADQPOS),
    int(mujoco.mjtWarning.mjWARN_BADQVEL),
    int(mujoco.mjtWarning.mjWARN_BADQACC),
    int(mujoco.mjtWarning.mjWARN_BADCTRL),
]

#: What MuJoCo says of the islands that it found.
_ISLANDS = {"nisland", "nidof"}

_KEPT_BATCHES = 16

#: Rows of a thread in a batch that keeps an MjData for each row. Such a row takes a quarter of a
#: megabyte (an ant, a humanoid), and more of them do not stay in a processor's caches.
_ROWS_A_THREAD = 128

#: Up to so many rows start on the caller's thread alone, where no constants are to be derived: to
#: wake others would take longer.
_FEW_ROWS = 16


@dataclasses.dataclass(frozen=True)
class Operation:
    """What a call does with rows."""

    kind: Literal["start", "step"]
    substeps: int
    inputs: tuple[str, ...]
    """Fields of MjData that are written before."""
    variation: tuple[str, ...]
    """Fields of MjModel that each row has its own of."""

    def parts(
        self, operands: Sequence[NDArray]
    ) -> tuple[Sequence[NDArray], dict[str, NDArray], Sequence[NDArray]]:
        """Of operands, in their order: where it begins, its inputs by name, and its constants."""
        first = 1 if self.kind == "step" else 2
        last = first + len(self.inputs)
        inputs = dict(zip(self.inputs, operands[first:last], strict=True))
        return operands[:first], inputs, operands[last:]


class BatchPool:
    """The batches in which the calls of one device run, one call at a time.

    A device has its own since a row's constants are written, and what follows from them derived,
    only where they are not those that the row holds: another device's worlds would have other ones.

    Args:
        model: what is simulated.
        reads: what is read of it.
        num_threads: how many threads a batch runs on.
        options: a compiled model with other options, to be simulated in place of `model`'s.
    """

    def __init__(
        self,
        model: Model,
        reads: Reads,
        num_threads: int,
        options: mujoco.MjModel | None = None,
    ) -> None:
        self.lock = threading.Lock()
        """To be held from a call of `batch` until its answer is read."""
        self._model, self._reads, self._num_threads = model, reads, num_threads
        self._compiled = _solved_at_once(options or model.mj, reads)
        self._after_step = bool(_after_step(reads))
        self._batches: collections.OrderedDict[_BatchKey, SimulationBatch] = (
            collections.OrderedDict()
        )
        self._last_derived: dict[tuple[str, ...], LastDerived] = {}

    def portions(self, rows: int, operation: Operation) -> list[slice]:
        """The rows of an operation in portions, each to be run in one batch, one after another.

        Rows that hold constants are one portion: others would write theirs over them each time.
        """
        most = rows
        if self._persistent(operation) and not operation.variation:
            most = _ROWS_A_THREAD * self._num_threads
        number = -(-rows // most) if rows else 0
        ends = (rows * i // number for i in range(number + 1))
        return [slice(*pair) for pair in itertools.pairwise(ends)]

    def batch(self, rows: int, operation: Operation) -> SimulationBatch:
        """The batch in which an operation on so many rows is done."""
        begins = operation.kind == "start"
        brief = begins and rows <= _FEW_ROWS and not operation.variation
        key = _BatchKey(
            rows,
            operation.variation,
            threads=1 if brief else self._num_threads,
            persistent=self._persistent(operation),
        )
        if key not in self._batches:
            self._batches[key] = self._make(key)
            if len(self._batches) > _KEPT_BATCHES:
                self._batches.popitem(last=False)
        self._batches.move_to_end(key)
        return self._batches[key]

    def _persistent(self, operation: Operation) -> bool:
        """Whether the batch of an operation keeps an MjData for each row."""
        return operation.kind == "step" and self._after_step

    def _make(self, key: _BatchKey) -> SimulationBatch:
        last_derived = self._last_derived.setdefault(key.variation, LastDerived())
        try:
            batch = Batch(self._compiled, key.rows, key.threads, key.persistent)
            return SimulationBatch(batch, self._model, self._reads, key.variation, last_derived)
        except ValueError as error:
            raise ModelError(str(error)) from error


class _BatchKey(NamedTuple):
    """What batches are told apart by."""

    rows: int
    variation: tuple[str, ...]
    threads: int
    persistent: bool
    """Whether functions are called after a step, which are to find what it left. In a batch for
    starts none ever is: what they would compute stays as after `mj_resetData`."""


def _solved_at_once(model: mujoco.MjModel, reads: Reads) -> mujoco.MjModel:
    """The model without a search for islands, where it can have no more than one.

    MuJoCo solves the constraints of trees that do not touch each other apart. A robot alone is one
    tree: to find that out, and to copy it to where islands are solved and back, takes up to a tenth
    of a step and changes no bit of it. (From MuJoCo 3.17 on, where a solver's tolerance is relative
    to the same inertia with islands and without.)
    """
    if model.ntree != 1 or _ISLANDS.intersection(reads.named):
        return model
    model = copy.copy(model)
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ISLAND
    return model


def _after_step(reads: Reads) -> tuple[str, ...]:
    """The functions to call after a step, each once."""
    read = (field for field in reads.named if field in _AFTER_STEP)
    return tuple(dict.fromkeys(_AFTER_STEP[field] for field in read))


class SimulationBatch:
    """A batch of simulations as scratch memory, and the views through which it is read."""

    def __init__(
        self,
        batch: Batch,
        model: Model,
        reads: Reads,
        variation: tuple[str, ...],
        last_derived: LastDerived,
    ) -> None:
        self.batch = batch
        self.failed = np.zeros(batch.rows, bool)
        self.after_step = _after_step(reads)
        outputs = {
            name: batch.output(name, model.data_field(name)[1])
            for name in reads.named
            if name not in _STATE
        }
        self.views = {name: batch.component(part) for name, part in _STATE.items()} | outputs
        varied = {name: model.constant(name).dtype for name in variation}
        self.constants = RowConstants(batch, varied, last_derived)
        self.numbers = StateNumbers(batch.state, self.views, reads)
        moving, fields = ([self.views[name] for name in them] for them in (MOVING, reads.fields))
        self._read = [self.views["time"], *moving, *fields]
        self._changing = [(self.views[n], self.numbers.columns[n]) for n in reads.changes]
        real = [view for view in fields if view.dtype.kind == "f"]
        #: What has a derivative, in the order of the results: live views.
        self.differentiable = [*moving, *real, *self.numbers.tracked]
        batch.reset(np.zeros(1, np.int32))
        self.default = None if _RESET_READS & set(variation) else batch.state[0].copy()
        self.stage = mujoco.mjtStage.mjSTAGE_VEL if reads.refresh else mujoco.mjtStage.mjSTAGE_NONE

    def run(
        self,
        operation: Operation,
        operands: Sequence[NDArray],
        ids: NDArray | None,
        results: Sequence[NDArray],
    ) -> None:
        """Writes rows in, runs them, copies them out.

        Args:
            operation: what to do.
            operands: `(rows, n)` each, or `(1, n)` where all rows have the same; a state is
                float64.
            ids: which rows, int32; None for all.
            results: `(rows, n)` each: state, divergence, time, `MOVING`, fields and changes.
        """
        self.advance(operation, operands, ids)
        state, diverged, *others = results
        self.numbers.take(state)
        diverged[:, 0] = self.diverged()
        for result, view in zip(others, self._read, strict=False):
            result[...] = view
        before = operands[0] if operation.kind == "step" else state
        changes = others[len(self._read) :]
        for result, (view, columns) in zip(changes, self._changing, strict=True):
            np.subtract(view, before[:, columns], out=result, casting="same_kind")

    def advance(
        self, operation: Operation, operands: Sequence[NDArray], ids: NDArray | None
    ) -> None:
        """Writes rows in and runs them."""
        at = slice(None) if ids is None else ids
        begin, inputs, constants = operation.parts(operands)
        self.failed.fill(False)
        if constants:
            self.failed[self.constants.write(constants, ids)] = True
        self.batch.forget_warnings()
        if operation.kind == "start":
            qpos, qvel = begin
            self._start({"qpos": qpos, "qvel": qvel, **inputs}, ids, at)
            return
        self.numbers.put(begin[0], at)
        self._write(inputs, at)
        self._step(operation.substeps, ids)

    def diverged(self) -> NDArray:
        """Which rows did not end where they should, `(rows,)` bool."""
        return self.failed | self.batch.warned(_DIVERGED)

    def _write(self, values: Mapping[str, NDArray], at: Any) -> None:
        for name, value in values.items():
            self.views[name][at] = _rows(value, at)

    def _start(self, values: Mapping[str, NDArray], ids: NDArray | None, at: Any) -> None:
        if self.default is None:
            self._note(ids, self.batch.reset(ids))
            self.batch.forget_warnings()  # a reset sets their counters to 0
        else:
            self.batch.state[at] = self.default
        self._write(values, at)
        self._note(ids, self.batch.forward(ids, mujoco.mjtStage.mjSTAGE_ACC))

    def _step(self, substeps: int, ids: NDArray | None) -> None:
        none = mujoco.mjtStage.mjSTAGE_NONE
        forces, velocities = (name in self.after_step for name in (_FORCES, _VELOCITIES))
        # Forces are those at the contacts of the last physics step; a refresh finds new contacts.
        self._note(ids, self.batch.step(ids, substeps, none if forces else self.stage))
        if forces:
            self._note(ids, self.batch.apply(ids, _FORCES))
            self._note(ids, self.batch.forward(ids, self.stage))
        if velocities:
            self._note(ids, self.batch.apply(ids, _VELOCITIES))
            # Computes nothing, but copies the outputs.
            self._note(ids, self.batch.forward(ids, none))

    def _note(self, ids: NDArray | None, failures: int) -> None:
        """Remembers the rows in which the last call failed; the next call forgets them."""
        if failures:
            at = slice(None) if ids is None else ids
            self.failed[at] |= self.batch.status[at] != 0


class StateNumbers:
    """The float64 numbers that a state is: the columns of a batch's rows without those of inputs
    that are never given, and after them what `Reads.changes` names beside them.

    Args:
        state: a batch's state.
        views: its parts, and outputs, by name.
        reads: what is read of a batch.
    """

    def __init__(self, state: NDArray, views: Mapping[str, NDArray], reads: Reads) -> None:
        self._state = state
        spans = {name: _columns(views[name], state) for name in _STATE}
        held = np.ones(state.shape[1], bool)
        for name in _ZERO_UNTIL_GIVEN:
            held[spans[name]] = name in reads.inputs
        #: The columns of a batch's state, in the order of the numbers.
        self.held = np.flatnonzero(held)
        self._parts = _runs(self.held)
        tracked = [name for name in reads.changes if name != "qpos"]
        #: Live views of what follows.
        self.tracked = [views[name] for name in tracked]
        ends = np.cumsum([len(self.held), *(view.shape[1] for view in self.tracked)]).tolist()
        self.size = ends[-1]
        #: Where the time, what is `MOVING` and what changes are among the numbers.
        self.columns = {name: self._place(spans[name]) for name in ("time", *MOVING)}
        self._after = [slice(*pair) for pair in itertools.pairwise(ends)]
        self.columns |= dict(zip(tracked, self._after, strict=True))

    def put(self, numbers: NDArray, at: Any) -> None:
        """Writes states, `(rows, n)`, to the rows `at`."""
        for here, there in self._parts:
            self._state[at, there] = _rows(numbers, at)[:, here]

    def take(self, numbers: NDArray) -> None:
        """Copies the states of all rows out."""
        for here, there in self._parts:
            numbers[:, here] = self._state[:, there]
        for here, view in zip(self._after, self.tracked, strict=True):
            numbers[:, here] = view

    def _place(self, span: slice) -> slice:
        """Where columns that are held are among the numbers."""
        start = int(np.searchsorted(self.held, span.start))
        return slice(start, start + span.stop - span.start)


def _rows(values: NDArray, at: Any) -> NDArray:
    """Some rows of values; where all rows have the same, the one that there is."""
    return values if len(values) == 1 else values[at]


def _columns(part: NDArray, whole: NDArray) -> slice:
    """The columns of an array that a view of some of them is."""
    start = (part.ctypes.data - whole.ctypes.data) // part.itemsize if part.size else 0
    return slice(start, start + part.shape[1])


def _runs(columns: NDArray) -> list[tuple[slice, slice]]:
    """Ascending columns as runs without gaps: where each is among them, and which columns it is."""
    starts = [0, *(np.flatnonzero(np.diff(columns) > 1) + 1).tolist(), len(columns)]
    runs = [(start, end) for start, end in itertools.pairwise(starts) if end > start]
    return [(slice(a, b), slice(int(columns[a]), int(columns[b - 1]) + 1)) for a, b in runs]
