"""The batches in which simulations run: rows are written in, run, and copied out.

They are scratch memory. What a row held before never matters to what is copied out of it.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import mujoco
import numpy as np

from worldline.errors import ModelError
from worldline.model import Model
from worldline.mujoco_c import Batch
from worldline.physics.base import KEPT_BATCHES, Reads
from worldline.physics.native.constants import LastDerived, RowConstants
from worldline.types import NDArray

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
    "eq_active": mujoco.mjtState.mjSTATE_EQ_ACTIVE,
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

#: Inputs that are zero until they are given, and that no call changes. A state does not hold those
#: of them that are never given.
_ZERO_UNTIL_GIVEN = ("ctrl", "qfrc_applied", "xfrc_applied", "userdata")

#: Model fields that a default state comes from, the rest of springs that yield included. Where none
#: of them varies, a reset is a copy of one row.
_RESET_READS = {"qpos0", "body_pos", "body_quat", "qpos_spring", "tendon_lengthspring"}

#: Those from which the times of samples come in the memory of delays and intervals.
_HISTORY_READS = {"opt.timestep", "sensor_interval"}

#: The warnings with which MuJoCo resets a simulation, or sets its controls to zero.
_DIVERGED = [
    int(mujoco.mjtWarning.mjWARN_BADQPOS),
    int(mujoco.mjtWarning.mjWARN_BADQVEL),
    int(mujoco.mjtWarning.mjWARN_BADQACC),
    int(mujoco.mjtWarning.mjWARN_BADCTRL),
]

#: The fields that tell which islands MuJoCo found.
_ISLANDS = {"nisland", "nidof"}

#: The most rows a thread in a batch that keeps an MjData for each row. Such a row takes a quarter
#: of a megabyte (an ant, a humanoid), and more rows do not fit into a processor's caches.
_ROWS_A_THREAD = 128

#: Up to this many rows start on the caller's thread alone, where no constants are to be derived: to
#: wake other threads would take longer. One pendulum, which starts often, gains a third of its
#: time.
_FEW_ROWS = 16


@dataclasses.dataclass(frozen=True)
class Operation:
    """What a call does with rows."""

    kind: Literal["start", "step"]
    substeps: int
    inputs: tuple[str, ...]
    """The fields of MjData that are written first."""
    variation: tuple[str, ...]
    """The fields of MjModel of which each row has its own."""


class BatchPool:
    """The batches in which the calls of one device run, one call at a time.

    Each device has a pool of its own. A row remembers its constants, and they are written, and what
    follows from them derived, only where they change; worlds of another device would change them.

    Args:
        model: what is simulated.
        reads: what is read of it.
        num_threads: how many threads a batch runs on.
        options: gives a compiled model other options, with which it is simulated.
    """

    def __init__(
        self,
        model: Model,
        reads: Reads,
        num_threads: int,
        options: Callable[[mujoco.MjModel], mujoco.MjModel] = lambda model: model,
    ) -> None:
        self.lock = threading.Lock()
        """Whoever calls `batch` holds it until he has read the results."""
        self._num_threads = num_threads
        self._after_step = bool(_after_step(reads))
        derived: collections.defaultdict[Any, LastDerived] = collections.defaultdict(LastDerived)

        @functools.lru_cache(KEPT_BATCHES)
        def make(
            rows: int, variation: tuple[str, ...], threads: int, persistent: bool
        ) -> SimulationBatch:
            compiled = _solved_at_once(options(model.varying(variation).mj), reads)
            last = derived[variation]
            return SimulationBatch(
                compiled, model, reads, last, rows, variation, threads, persistent
            )

        self._batches = make

    def portions(self, rows: int, operation: Operation) -> list[slice]:
        """Splits the rows of an operation into portions, which run one after another in one batch.

        Where each row has its own constants, all rows are one portion: a second portion in the same
        batch would write other constants over them at each call.
        """
        most = rows
        if self._persistent(operation) and not operation.variation:
            most = _ROWS_A_THREAD * self._num_threads
        number = -(-rows // most) if rows else 0
        ends = (rows * i // number for i in range(number + 1))
        return [slice(*pair) for pair in itertools.pairwise(ends)]

    def batch(self, rows: int, operation: Operation) -> SimulationBatch:
        """The batch in which an operation on `rows` rows runs."""
        brief = operation.kind == "start" and rows <= _FEW_ROWS and not operation.variation
        threads = 1 if brief else self._num_threads
        return self._batches(rows, operation.variation, threads, self._persistent(operation))

    def _persistent(self, operation: Operation) -> bool:
        """Whether the batch of an operation keeps an MjData for each row.

        Functions that are called after a step find there what the step left. At a start none is
        called: what they would compute stays as `mj_resetData` leaves it.
        """
        return operation.kind == "step" and self._after_step


def _solved_at_once(model: mujoco.MjModel, reads: Reads) -> mujoco.MjModel:
    """The model without MuJoCo's search for islands, where it can have no more than one.

    MuJoCo solves islands, trees of bodies that do not touch each other, one by one. A lone robot is
    one tree: the search for islands, and the copies to and fro, take up to a tenth of its step and
    change no bit of it. (So it is from MuJoCo 3.17 on, where a solver's tolerance is relative to
    the same inertia with islands and without.)
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
    """A batch of simulations as scratch memory, and the views through which it is read.

    Args:
        compiled: what runs.
        model: the same model, as its user compiled it, by which fields are described.
        reads: what is read of it.
        derived: what MuJoCo derived last; shared by batches of one model and one variation.
        rows: the number of simulations.
        variation: the fields of MjModel that each row has its own of.
        threads: the number of threads.
        persistent: whether each row keeps an MjData.

    Raises:
        ModelError: MuJoCo cannot batch the model, or give a field of `reads`.
    """

    def __init__(
        self,
        compiled: mujoco.MjModel,
        model: Model,
        reads: Reads,
        derived: LastDerived,
        rows: int,
        variation: tuple[str, ...],
        threads: int,
        persistent: bool,
    ) -> None:
        named = {name: model.data_field(name)[1] for name in reads.named if name not in _STATE}
        varied = {name: model.constant(name).dtype for name in variation}
        try:
            batch = Batch(compiled, rows, threads, persistent)
            outputs = {name: batch.output(name, dtype) for name, dtype in named.items()}
            self.constants = RowConstants(batch, compiled, varied, derived)
        except ValueError as error:
            raise ModelError(str(error)) from error
        self.batch = batch
        self.failed = np.zeros(rows, bool)
        self.after_step = _after_step(reads)
        self.views = {name: batch.component(part) for name, part in _STATE.items()} | outputs
        self.numbers = StateNumbers(batch.state, self.views, reads)
        moving, fields = ([self.views[name] for name in them] for them in (MOVING, reads.fields))
        self._read = [self.views["time"], *moving, *fields]
        self._changing = [(self.views[n], self.numbers.columns[n]) for n in reads.changes]
        real = [view for view in fields if view.dtype.kind == "f"]
        #: What has a derivative, in the order of the results: live views.
        self.differentiable = [*moving, *real, *self.numbers.tracked]
        batch.reset(np.zeros(1, np.int32))
        reads_of_reset = _RESET_READS | (_HISTORY_READS if compiled.nhistory else set())
        self.default = None if reads_of_reset & set(variation) else batch.state[0].copy()
        self.stage = mujoco.mjtStage.mjSTAGE_VEL if reads.refresh else mujoco.mjtStage.mjSTAGE_NONE

    def run(
        self,
        operation: Operation,
        operands: Sequence[NDArray],
        ids: NDArray | None,
        results: Sequence[NDArray],
    ) -> None:
        """Writes worlds into rows, runs them and copies the results out.

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
        """Writes worlds into rows and runs them; `self` then holds the results."""
        at = slice(None) if ids is None else ids
        first = 1 if operation.kind == "step" else 2
        last = first + len(operation.inputs)
        begin, constants = operands[:first], operands[last:]
        inputs = dict(zip(operation.inputs, operands[first:last], strict=True))
        self.failed.fill(False)
        if constants:
            self.constants.write(constants, ids)
        self.batch.forget_warnings()
        if operation.kind == "start":
            qpos, qvel = begin
            self._start({"qpos": qpos, "qvel": qvel, **inputs}, ids, at)
            return
        self.numbers.put(begin[0], at)
        self._write(inputs, at)
        self._step(operation.substeps, ids)

    def diverged(self) -> NDArray:
        """Which rows failed in the last call, or were warned of, `(rows,)` bool."""
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
    """Where the float64 numbers of a world's state come from in a batch.

    First come the columns of `Batch.state` (`mjSTATE_INTEGRATION`), without those of inputs that
    are never given; then the fields of `Reads.changes` that are not among them.

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
        #: The columns of the batch's state that are among the numbers, in order.
        self.held = np.flatnonzero(held)
        self._parts = _runs(self.held)
        tracked = [name for name in reads.changes if name != "qpos"]
        #: The fields that follow them, as live views `(rows, n)`.
        self.tracked = [views[name] for name in tracked]
        ends = np.cumsum([len(self.held), *(view.shape[1] for view in self.tracked)]).tolist()
        self.size = ends[-1]
        #: Which numbers are the time, `MOVING` and the fields of `Reads.changes`.
        self.columns = {name: self._place(spans[name]) for name in ("time", *MOVING)}
        self._after = [slice(*pair) for pair in itertools.pairwise(ends)]
        self.columns |= dict(zip(tracked, self._after, strict=True))

    def put(self, numbers: NDArray, at: Any) -> None:
        """Writes the numbers of worlds, `(rows, n)`, into the rows `at`."""
        for here, there in self._parts:
            self._state[at, there] = _rows(numbers, at)[:, here]

    def take(self, numbers: NDArray) -> None:
        """Copies the numbers of all rows out, into `(rows, n)`."""
        for here, there in self._parts:
            numbers[:, here] = self._state[:, there]
        for here, view in zip(self._after, self.tracked, strict=True):
            numbers[:, here] = view

    def _place(self, span: slice) -> slice:
        """The columns of the numbers that hold these columns of the state."""
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
