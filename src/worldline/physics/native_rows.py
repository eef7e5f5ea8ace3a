"""The batches in which simulations run: rows are written in, run, and copied out.

They are scratch memory. What a row held before never matters to what is copied out of it.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import mujoco
import numpy as np

from worldline.errors import ModelError
from worldline.mjlib import Batch
from worldline.model import Model
from worldline.physics.base import Reads
from worldline.physics.native_constants import LastDerived, RowConstants

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
MOVING = ("qpos", "qvel", "act")

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

_KEPT_BATCHES = 16

#: Up to so many rows start on the caller's thread alone, where no constants are to be derived: to
#: wake others would take longer.
_FEW_ROWS = 16


@dataclasses.dataclass(frozen=True)
class Job:
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


class Scratch:
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
        """To be held from a call of `rows` until its answer is read."""
        self._model, self._reads, self._num_threads = model, reads, num_threads
        self._compiled = options or model.mj
        self._after_step = bool(_after_step(reads))
        self._batches: collections.OrderedDict[_Batch, Rows] = collections.OrderedDict()
        self._last_derived: dict[tuple[str, ...], LastDerived] = {}

    def rows(self, rows: int, job: Job) -> Rows:
        """The batch in which a job of so many rows is done."""
        begins = job.kind == "start"
        brief = begins and rows <= _FEW_ROWS and not job.variation
        what = _Batch(
            rows,
            job.variation,
            threads=1 if brief else self._num_threads,
            persistent=not begins and self._after_step,
        )
        if what not in self._batches:
            self._batches[what] = self._make(what)
            if len(self._batches) > _KEPT_BATCHES:
                self._batches.popitem(last=False)
        self._batches.move_to_end(what)
        return self._batches[what]

    def _make(self, what: _Batch) -> Rows:
        last_derived = self._last_derived.setdefault(what.variation, LastDerived())
        try:
            batch = Batch(self._compiled, what.rows, what.threads, what.persistent)
            return Rows(batch, self._model, self._reads, what.variation, last_derived)
        except ValueError as error:
            raise ModelError(str(error)) from error


class _Batch(NamedTuple):
    """What batches are told apart by."""

    rows: int
    variation: tuple[str, ...]
    threads: int
    persistent: bool
    """Whether functions are called after a step, which are to find what it left. In a batch for
    starts none ever is: what they would compute stays as after `mj_resetData`."""


def _after_step(reads: Reads) -> tuple[str, ...]:
    """The functions to call after a step, each once."""
    named = (*reads.fields, *reads.changes)
    return tuple(dict.fromkeys(_AFTER_STEP[field] for field in named if field in _AFTER_STEP))


class Rows:
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
            for name in (*reads.fields, *reads.changes)
            if name not in _STATE
        }
        self.views = {name: batch.component(part) for name, part in _STATE.items()} | outputs
        self.fields, self.tracked = reads.fields, reads.changes
        self.tracked_sizes = [self.views[name].shape[1] for name in reads.changes]
        varied = {name: model.constant(name).dtype for name in variation}
        self.constants = RowConstants(batch, varied, last_derived)
        never = [name for name in _ZERO_UNTIL_GIVEN if name not in reads.inputs]
        held = np.ones(batch.state.shape[1], bool)
        for name in never:
            held[slice(*self._span(name))] = False
        #: The columns of the batch's state that a state holds, in the order of its numbers.
        self.held = np.flatnonzero(held)
        self._parts = _spans(self.held)
        batch.reset(np.zeros(1, np.int32))
        self.default = None if _RESET_READS & set(variation) else batch.state[0].copy()
        self.stage = mujoco.mjtStage.mjSTAGE_VEL if reads.refresh else mujoco.mjtStage.mjSTAGE_NONE

    def run(
        self,
        job: Job,
        operands: Sequence[NDArray],
        ids: NDArray | None,
        results: Sequence[NDArray],
    ) -> None:
        """Writes rows in, runs them, copies them out.

        Args:
            job: what to do.
            operands: `(rows, n)` each; a state is float64.
            ids: which rows, int32; None for all.
            results: `(rows, n)` each, in the order of `NativePhysics._layout`; a state is float64.
        """
        self._read(results, self.advance(job, operands, ids))

    def advance(self, job: Job, operands: Sequence[NDArray], ids: NDArray | None) -> NDArray | None:
        """Writes rows in and runs them; returns what the tracked fields were before a step."""
        at = slice(None) if ids is None else ids
        begin, inputs, constants = job.parts(operands)
        self.failed.fill(False)
        if constants:
            self.failed[self.constants.write(constants, ids)] = True
        self.batch.forget_warnings()
        if job.kind == "start":
            qpos, qvel = begin
            self._start({"qpos": qpos, "qvel": qvel, **inputs}, ids, at)
            return None
        (state,) = begin
        for here, there in self._parts:
            self.batch.state[at, there] = state[at, here]
        self._write(inputs, at)
        self._step(job.substeps, ids)
        return state[:, len(self.held) :]

    def columns(self, name: str) -> tuple[int, int]:
        """Where a part of the state that is held begins in its numbers, and its size."""
        start, end = self._span(name)
        return int(np.searchsorted(self.held, start)), end - start

    def _span(self, name: str) -> tuple[int, int]:
        """The columns of the batch's state that a part of it is."""
        part = self.views[name]
        start = (part.ctypes.data - self.batch.state.ctypes.data) // part.itemsize
        return (start, start + part.shape[1]) if part.size else (0, 0)

    def diverged(self) -> NDArray:
        """Which rows did not end where they should, `(rows,)` bool."""
        if not self.batch.any_warnings():
            return self.failed
        return self.failed | self.batch.warnings[:, _DIVERGED].any(axis=1)

    def numbers(self) -> list[NDArray]:
        """What has a derivative, in the order of `NativePhysics._layout`: live views."""
        names = (*MOVING, *self.fields, *self.tracked)
        return [view for view in (self.views[name] for name in names) if view.dtype.kind == "f"]

    def _write(self, values: Mapping[str, NDArray], at: Any) -> None:
        for name, value in values.items():
            self.views[name][at] = value[at]

    def _start(self, values: Mapping[str, NDArray], ids: NDArray | None, at: Any) -> None:
        if self.default is None:
            self._note(ids, self.batch.reset(ids))
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

    def _read(self, results: Sequence[NDArray], tracked_before: NDArray | None) -> None:
        """Copies every row out."""
        state, diverged, *values = results
        nstate = len(self.held)
        for here, there in self._parts:
            state[:, here] = self.batch.state[:, there]
        diverged[:, 0] = self.diverged()
        copied = ("time", *MOVING, *self.fields)
        for name, result in zip(copied, values[: len(copied)], strict=True):
            result[...] = self.views[name]
        at = 0
        changes = values[len(copied) :]
        for name, size, result in zip(self.tracked, self.tracked_sizes, changes, strict=True):
            after = state[:, nstate + at : nstate + at + size]
            after[...] = self.views[name]
            before = after if tracked_before is None else tracked_before[:, at : at + size]
            result[...] = after - before
            at += size


def _spans(columns: NDArray) -> list[tuple[slice, slice]]:
    """Ascending columns as runs without gaps: where each is among them, and which columns it is."""
    starts = [0, *(np.flatnonzero(np.diff(columns) > 1) + 1).tolist(), len(columns)]
    runs = [(start, end) for start, end in itertools.pairwise(starts) if end > start]
    return [(slice(a, b), slice(int(columns[a]), int(columns[b - 1]) + 1)) for a, b in runs]
