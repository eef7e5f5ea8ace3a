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
import dataclasses
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from worldline.errors import ModelError, WorldlineError
from worldline.mjlib import Batch, quiet
from worldline.model import Model
from worldline.physics.base import NOTHING, Physics, PhysicsState, Reads
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


class NativePhysics(Physics):
    """MuJoCo on the CPU's cores; the default. Bit for bit what a loop over `mj_step` gives.

    Args:
        model: the model that all worlds share.
        reads: what comes back beside the state.
        num_threads: threads a batch runs on; 0 for one per core that this process may use.

    Raises:
        ModelError: MuJoCo cannot batch the model, or `reads` names a field that it cannot give.
    """

    name = "native"

    def __init__(self, model: Model, reads: Reads = NOTHING, num_threads: int = 0) -> None:
        super().__init__(model, reads)
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
        self._lock = threading.Lock()
        self._batches: collections.OrderedDict[_BatchKey, _Rows] = collections.OrderedDict()
        one_row = _Rows(self, 1, ())
        words = 2 * (one_row.batch.state.shape[1] + sum(one_row.tracked_sizes))
        self._layout = _layout(model, reads, words)

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
        after = self._run(call, {"words": state.engine}, inputs, state.variation, mask)
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
    ) -> PhysicsState:
        """Binds the primitive and names what it returns."""
        operands = [jnp.asarray(mask, bool), *state.values()]
        for name in call.inputs:
            value = jnp.asarray(inputs[name], jnp.float32)
            operands.append(value.reshape(self.input_shape(name)))
        operands += [variation[name] for name in call.variation]
        results = dict(zip(self._layout, _native.bind(*operands, call=call), strict=True))
        return PhysicsState(
            qpos=results["qpos"],
            qvel=results["qvel"],
            act=results["act"],
            time=results["time"],
            fields={name: results["field", name] for name in self.reads.fields},
            changes={name: results["change", name] for name in self.reads.changes},
            variation=dict(variation),
            diverged=results["diverged"],
            engine=results["words"],
        )

    def integration_state(self, state: PhysicsState) -> NDArray:
        """MuJoCo's `mjSTATE_INTEGRATION` vector of concrete worlds, `(..., nstate)` float64."""
        words = np.ascontiguousarray(np.asarray(state.engine))
        return words.view(np.float64)[..., : mujoco.mj_stateSize(self.model.mj, _INTEGRATION)]

    def _rows(self, rows: int, variation: tuple[str, ...]) -> _Rows:
        """The scratch batch for a number of rows and the fields that vary among them."""
        key = (rows, variation)
        if key not in self._batches:
            self._batches[key] = _Rows(self, rows, variation)
            if len(self._batches) > _KEPT_BATCHES:
                self._batches.popitem(last=False)
        self._batches.move_to_end(key)
        return self._batches[key]


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


_BatchKey: TypeAlias = tuple[int, tuple[str, ...]]
_INTEGRATION = mujoco.mjtState.mjSTATE_INTEGRATION


@dataclasses.dataclass(frozen=True)
class _Call:
    """The static part of a call: which engine does what, and how to read the operands."""

    physics: NativePhysics
    kind: Literal["start", "step"]
    substeps: int
    inputs: tuple[str, ...]
    variation: tuple[str, ...]

    def __call__(self, *operands: NDArray) -> list[NDArray]:
        """Runs on the host; calls no JAX. Operands and results have the same leading axes."""
        mask, *rest = operands
        lead, rows = mask.shape, int(mask.size)
        ids = None if mask.all() else np.flatnonzero(mask).astype(np.int32)
        make = np.empty if ids is None else np.zeros
        layout = self.physics._layout.values()
        results = [make((rows, *shape), dtype) for shape, dtype in layout]
        if rows and (ids is None or len(ids)):
            flat = [np.reshape(x, (rows, -1)) for x in rest]
            with self.physics._lock, quiet():
                scratch = self.physics._rows(rows, self.variation)
                scratch.run(self, flat, ids, results)
        return [result.reshape(lead + result.shape[1:]) for result in results]


class _Rows:
    """A batch of simulations as scratch memory, and the views through which it is read."""

    def __init__(self, physics: NativePhysics, rows: int, variation: tuple[str, ...]) -> None:
        reads, model = physics.reads, physics.model
        named = tuple(dict.fromkeys((*reads.fields, *reads.changes)))
        self.after_step = tuple(dict.fromkeys(_AFTER_STEP[f] for f in named if f in _AFTER_STEP))
        try:
            batch = Batch(model.mj, rows, physics.num_threads, persistent=bool(self.after_step))
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
        self._read(results, tracked_before)

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
        diverged[:] = self.failed | self.batch.warnings[:, _DIVERGED].any(axis=1)
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
    return [jnp.asarray(x) for x in call(*(np.asarray(x) for x in operands))]


@_native.def_abstract_eval
def _shapes(mask: Any, *_: Any, call: _Call) -> list[jax.core.ShapedArray]:
    return [
        jax.core.ShapedArray(mask.shape + shape, np.dtype(dtype))
        for shape, dtype in call.physics._layout.values()
    ]


def _batch(operands: Sequence[Array], axes: Sequence[Any], *, call: _Call) -> Any:
    """Any nesting of `vmap` stacks axes in front: it reaches the host as one call."""
    size = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)
    stacked = [
        jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(operands, axes, strict=True)
    ]
    results = _native.bind(*stacked, call=call)
    return results, [0] * len(results)


def _lower(ctx: Any, *operands: Any, call: _Call) -> Any:
    results, _, _ = mlir.emit_python_callback(
        ctx, call, None, operands, ctx.avals_in, ctx.avals_out, has_side_effect=False
    )
    return results


def _no_gradient(*_: Any, **__: Any) -> Any:
    raise WorldlineError(
        "the native engine has no derivatives; put jax.lax.stop_gradient around what enters it"
    )


batching.primitive_batchers[_native] = _batch
mlir.register_lowering(_native, _lower)
ad.primitive_jvps[_native] = _no_gradient
