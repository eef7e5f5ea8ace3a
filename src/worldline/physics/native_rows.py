"""The batches in which simulations run: rows are written in, run, and copied out.

They are scratch memory. What a row held before never matters to what is copied out of it.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

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

_KEPT_BATCHES = 16


@dataclasses.dataclass(frozen=True)
class Job:
    """What a call does with rows."""

    kind: Literal["start", "step"]
    substeps: int
    inputs: tuple[str, ...]
    """Fields of MjData that are written before."""
    variation: tuple[str, ...]
    """Fields of MjModel that each row has its own of."""


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
        self._batches: collections.OrderedDict[tuple[int, tuple[str, ...], int], Rows] = (
            collections.OrderedDict()
        )
        self._last_derived: dict[tuple[str, ...], LastDerived] = {}

    def rows(self, rows: int, variation: tuple[str, ...], brief: bool = False) -> Rows:
        """The batch for a number of rows and the fields that vary among them.

        One for a brief call has the caller's thread only.
        """
        threads = 1 if brief else self._num_threads
        key = (rows, variation, threads)
        if key not in self._batches:
            self._batches[key] = self._make(*key)
            if len(self._batches) > _KEPT_BATCHES:
                self._batches.popitem(last=False)
        self._batches.move_to_end(key)
        return self._batches[key]

    def _make(self, rows: int, variation: tuple[str, ...], threads: int) -> Rows:
        last_derived = self._last_derived.setdefault(variation, LastDerived())
        persistent = bool(_after_step(self._reads))
        try:
            batch = Batch(self._compiled, rows, threads, persistent)
            return Rows(batch, self._model, self._reads, variation, last_derived)
        except ValueError as error:
            raise ModelError(str(error)) from error


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
        batch.reset(np.zeros(1, np.int32))
        self.default = None
        if not (self.after_step or _RESET_READS & set(variation)):
            self.default = batch.state[0].copy()
        self.stage = mujoco.mjtStage.mjSTAGE_VEL if reads.refresh else mujoco.mjtStage.mjSTAGE_NONE

    def run(
        self, job: Job, operands: list[NDArray], ids: NDArray | None, results: list[NDArray]
    ) -> None:
        """Writes rows in, runs them, copies them out: flat operands `(rows, n)` to `results`."""
        self._read(results, self.advance(job, operands, ids))

    def advance(self, job: Job, operands: list[NDArray], ids: NDArray | None) -> NDArray | None:
        """Writes rows in and runs them; returns what the tracked fields were before a step."""
        at = slice(None) if ids is None else ids
        state = operands[: 1 if job.kind == "step" else 2]
        inputs = operands[len(state) : len(state) + len(job.inputs)]
        self.failed[:] = False
        if constants := operands[len(state) + len(inputs) :]:
            self.failed[self.constants.write(constants, ids)] = True
        self.batch.warnings[:] = 0
        if job.kind == "start":
            tracked_before = None
            self._start(state, dict(zip(job.inputs, inputs, strict=True)), ids, at)
        else:
            row = state[0].view(np.float64)
            nstate = self.batch.state.shape[1]
            tracked_before = row[:, nstate:]
            self.batch.state[at] = row[at, :nstate]
            self._write_inputs(dict(zip(job.inputs, inputs, strict=True)), at)
            self._step(job.substeps, ids)
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
        names = (*MOVING, *self.fields, *self.tracked)
        return [view for view in (self.views[name] for name in names) if view.dtype.kind == "f"]

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
