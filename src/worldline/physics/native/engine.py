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

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.extend.core import Primitive
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import batching, mlir

from worldline.errors import ModelError
from worldline.host.calls import call_host
from worldline.host.ffi import View
from worldline.model import Model
from worldline.physics.autodiff import differentiate, stack
from worldline.physics.base import NOTHING, Physics, PhysicsState, Reads
from worldline.physics.finite_differences import CENTRED, Axis, Chart, FiniteDifferences, Rows
from worldline.physics.native.layout import MOVING, Layout, Spec
from worldline.physics.native.perturbations import (
    constant_axis,
    control_axis,
    converging,
    quaternions,
)
from worldline.physics.native.rows import Job, Scratch
from worldline.types import Array, ArrayLike, Variation

NDArray: TypeAlias = np.ndarray[Any, Any]

#: Memory of MuJoCo's solvers: not every call writes it, so it may hold another world's numbers.
_SCRATCH = frozenset(("qDeriv", "qH", "qHDiagInv", "qLU", "solver_niter", "solver_nnz"))

#: Options of a model with which a step depends on more than the integration state.
_OUTSIDE_STATE = (mujoco.mjtEnableBit.mjENBL_SLEEP, mujoco.mjtEnableBit.mjENBL_IPC)

#: Rows of a batch that runs the moved worlds of a derivative.
_GRADIENT_ROWS = 256


class NativeState(NamedTuple):
    """What this engine keeps of a world between two steps."""

    words: Array
    """MuJoCo's integration state, without inputs that are never given, and those fields of
    `Reads.changes` that are not part of it: float64, as `(n,)` uint32."""
    tracked: dict[str, Array]
    """For each of `Reads.changes` but `MOVING` an array whose tangent is the field's; its value
    says nothing. The next step's change begins here."""


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
        for field in _SCRATCH.intersection(reads.named):
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
        kind = f"{type(self).__module__}.{type(self).__qualname__}"  # a subclass may do otherwise
        self.digest = f"{kind} {model.digest} {reads} {self.num_threads} {gradient}"
        self._scratches: dict[tuple[int, int], Scratch] = {}
        self._moved = Scratch(model, reads, self.num_threads, converging(model.mj))
        numbers = self._scratch().rows(1, Job("step", 1, (), ())).numbers
        self._held, self._columns = numbers.held, numbers.columns
        self._layout = Layout(model, reads, 2 * numbers.size)
        self._qpos_chart = Chart(model.nq, quaternions(model.mj))

    def _begin(
        self,
        qpos: Array,
        qvel: Array,
        variation: dict[str, Array],
        inputs: dict[str, Array],
        mask: ArrayLike,
    ) -> PhysicsState:
        call = _Call("start", 0, tuple(sorted(inputs)), tuple(variation), self)
        return self._run(call, {"qpos": qpos, "qvel": qvel}, inputs, variation, mask)

    def _advance(
        self, state: PhysicsState, inputs: dict[str, Array], substeps: int, mask: ArrayLike
    ) -> PhysicsState:
        call = _Call("step", substeps, tuple(sorted(inputs)), tuple(sorted(state.variation)), self)
        words = {"words": state.engine.words}
        moving = (state.qpos, state.qvel, state.act)
        after = self._run(call, words, inputs, state.variation, mask, moving)
        changes = {
            name: _since(change, *(_moved_by(name, it) for it in (after, state)))
            for name, change in after.changes.items()
        }
        return dataclasses.replace(after, changes=changes)

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
            operands.append(jnp.asarray(inputs[name], jnp.float32))
        operands += [variation[name] for name in call.variation]
        operands += moving
        layout = self._layout.results
        results = dict(zip(layout, _native.bind(*operands, call=call), strict=True))
        changes = {name: results["change", name] for name in self.reads.changes}
        tracked = {name: change for name, change in changes.items() if name not in MOVING}
        return PhysicsState(
            qpos=results["qpos"],
            qvel=results["qvel"],
            act=results["act"],
            time=results["time"],
            fields={name: results["field", name] for name in self.reads.fields},
            changes=changes,
            variation=dict(variation),
            diverged=results["diverged"],
            engine=NativeState(results["words"], tracked),
        )

    def integration_state(self, state: PhysicsState) -> NDArray:
        """MuJoCo's `mjSTATE_INTEGRATION` vector of concrete worlds, `(..., nstate)` float64."""
        words = np.ascontiguousarray(np.asarray(state.engine.words))
        numbers = words.view(np.float64)[..., : len(self._held)]
        size = mujoco.mj_stateSize(self.model.mj, mujoco.mjtState.mjSTATE_INTEGRATION)
        whole = np.zeros((*numbers.shape[:-1], size))
        whole[..., self._held] = numbers
        return whole

    def _scratch(self, device: int = 0, devices: int = 1) -> Scratch:
        """What the calls of a device run in, where so many devices of this process share its
        cores.
        """
        key = (device, devices)
        if key not in self._scratches:  # of two made at once, by two threads, one stays
            num_threads = max(1, self.num_threads // devices)
            self._scratches.setdefault(key, Scratch(self.model, self.reads, num_threads))
        return self._scratches[key]


@dataclasses.dataclass(frozen=True)
class _Call(Job):
    """The static part of a call: which engine does what, and how to read the operands."""

    physics: NativePhysics

    @property
    def names(self) -> tuple[str, ...]:
        """Of the operands that the host reads, without the mask."""
        state = ("words",) if self.kind == "step" else MOVING[:2]
        return (*state, *self.inputs, *self.variation)

    @property
    def reads(self) -> int:
        """See `HostCall`; what follows are `MOVING`."""
        return 1 + len(self.names)

    @property
    def settings(self) -> FiniteDifferences:
        """See `HostCall`."""
        return self.physics.gradient

    @property
    def differentiable(self) -> tuple[int, ...]:
        """See `HostCall`."""
        return self.physics._layout.differentiable

    def operand_shapes(self) -> list[tuple[int, ...]]:
        """See `HostCall`."""
        model, constants = self.physics.model, len(self.variation)
        results = self.physics._layout.results
        state = len(self.names) - len(self.inputs) - constants
        shapes: list[tuple[int, ...]] = [()]
        shapes += [results[name][0] for name in self.names[:state]]
        shapes += [self.physics.input_shape(name) for name in self.inputs]
        shapes += [model.constant(name).shape for name in self.variation]
        return shapes + [results[name][0] for name in MOVING]

    def result_shapes(self) -> list[tuple[int, ...]]:
        """See `HostCall`."""
        return [shape for shape, _ in self.physics._layout.results.values()]

    def rows(self, operands: Sequence[NDArray]) -> Rows:
        """See `HostCall`."""
        words = self.kind == "step"
        numbers = [
            _words_as_state(np.ascontiguousarray(x)) if words and i == 0 else x.astype(np.float64)
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
            name = MOVING[number - self.reads] if carried else self.names[index]
            if carried:
                columns = physics._columns[name]
                size = columns.stop - columns.start
                chart = physics._qpos_chart if name == "qpos" else Chart(size)
                axes.append(Axis.free(0, columns.start, chart, len(rows.operands[0])))
            elif self.kind == "start" and index == 0:
                axes.append(Axis.free(0, 0, physics._qpos_chart, len(rows.operands[0])))
            else:
                values = rows.operands[index]
                axis = Axis.free(index, 0, Chart(values.shape[1]), len(values))
                if index >= constants:
                    axis = constant_axis(axis, name, values)
                elif name == "ctrl":
                    axis = control_axis(axis, values, physics.model.mj)
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
        with scratch.lock:
            batch = scratch.rows(_GRADIENT_ROWS, self)
            batch.advance(self, operands, ids)
            outputs = [x[:number].astype(np.float64) for x in batch.derived]
            return outputs, ~batch.diverged()[:number]

    @functools.cached_property
    def name(self) -> str:
        """See `HostCall`."""
        what = (self.kind, self.substeps, self.inputs, self.variation)
        return f"{self.physics.digest} {what}"

    def bind(
        self, scratch: Scratch, operands: Sequence[NDArray], results: Sequence[NDArray]
    ) -> Callable[[], None]:
        """What fills results from operands, both as `_as_rows` has them. Calls no JAX."""
        mask, *rest = operands
        calls = [
            functools.partial(
                self._run, scratch, mask[rows], [x[rows] for x in rest], [x[rows] for x in results]
            )
            for rows in scratch.portions(len(mask), self)
        ]

        def run() -> None:
            for call in calls:
                call()

        return run

    def _run(
        self,
        scratch: Scratch,
        mask: NDArray,
        operands: Sequence[NDArray],
        results: Sequence[NDArray],
    ) -> None:
        """Runs the rows in `mask`, `(rows,)`, of operands and results `(rows, n)`."""
        # NumPy counts in less time than `mask.all()` takes to begin.
        ids = None if np.count_nonzero(mask) == len(mask) else np.flatnonzero(mask).astype(np.int32)
        if ids is not None and not len(ids):
            for result in results:
                result[...] = 0
            return
        with scratch.lock:
            scratch.rows(len(mask), self).run(self, operands, ids, results)


def _words_as_state(array: NDArray) -> NDArray:
    """The state that words are, float64; all else as it is."""
    return array.view(np.float64) if array.dtype == np.uint32 else array


def _as_rows(mask: View, others: list[View]) -> tuple[View, list[View]]:
    """Views in which all leading axes are one, `(rows,)` the mask and `(rows, n)` the others, and
    words are the state that they are. They may be written in: to forbid it would cost more.
    """
    rows = math.prod(mask.shape)

    def flat(view: View) -> View:
        size, dtype = math.prod(view.shape) // max(1, rows), view.dtype
        if dtype == np.uint32:
            size, dtype = size // 2, np.dtype(np.float64)
        return View(view.memory, (rows, size), dtype, writeable=True)

    return mask._replace(shape=(rows,), writeable=True), [flat(view) for view in others]


@dataclasses.dataclass(frozen=True)
class _Everywhere:
    """The host's side of a call, in a program on one device."""

    call: _Call

    @property
    def name(self) -> str:
        """See `Host`."""
        return self.call.name

    def views(self, operands: list[View], results: list[View]) -> tuple[list[View], list[View]]:
        """See `Host`."""
        mask, rest = _as_rows(operands[0], operands[1:])
        return [mask, *rest], _as_rows(operands[0], results)[1]

    def bind(self, operands: list[NDArray], results: list[NDArray]) -> Callable[[], None]:
        """See `Host`."""
        return self.call.bind(self.call.physics._scratch(), operands, results)


@dataclasses.dataclass(frozen=True)
class _OnDevices:
    """The same on several devices of this process, whose calls come side by side."""

    call: _Call
    devices: int

    @property
    def name(self) -> str:
        """See `Host`."""
        return f"{self.call.name} of {self.devices}"

    def views(self, operands: list[View], results: list[View]) -> tuple[list[View], list[View]]:
        """See `Host`; the first operand is the device's number."""
        device, *rest = operands
        rest, results = _Everywhere(self.call).views(rest, results)
        return [device, *rest], results

    def bind(self, operands: list[NDArray], results: list[NDArray]) -> Callable[[], None]:
        """See `Host`; the first operand is the device's number."""
        device, *rest = operands
        scratch = functools.partial(self.call.physics._scratch, devices=self.devices)
        return lambda: self.call.bind(scratch(int(device)), rest, results)()


def _usable_cores() -> int:
    """The number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


_native = Primitive("worldline_native")
_native.multiple_results = True


@_native.def_impl
def _evaluate(*operands: Array, call: _Call) -> list[Array]:
    arrays = [np.asarray(x) for x in operands[: call.reads]]
    mask, *rest = arrays
    layout = call.physics._layout
    results = [np.empty(mask.shape + shape, dtype) for shape, dtype in layout.host]
    if mask.size:
        rows, out = (
            [_words_as_state(x.reshape(mask.size, -1)) for x in them] for them in (rest, results)
        )
        call.bind(call.physics._scratch(), [mask.reshape(-1), *rows], out)()
    return [jnp.asarray(x) for x in layout.of_host(*results)]


@_native.def_abstract_eval
def _shapes(mask: Any, *_: Any, call: _Call) -> list[jax.core.ShapedArray]:
    return _avals(mask.shape, call.physics._layout.results.values())


def _avals(lead: tuple[int, ...], specs: Iterable[Spec]) -> list[jax.core.ShapedArray]:
    return [jax.core.ShapedArray(lead + shape, np.dtype(dtype)) for shape, dtype in specs]


def _batch(operands: Sequence[Array], axes: Sequence[Any], *, call: _Call) -> Any:
    """Any nesting of `vmap` stacks axes in front: it reaches the host as one call."""
    results = _native.bind(*stack(operands, axes), call=call)
    return results, [0] * len(results)


def _lower(ctx: Any, *operands: Any, call: _Call) -> Any:
    """A call of the host, and what follows from what it gives.

    Within `jax.shard_map` over several devices of this process, the host is told which calls.
    """
    layout, avals = call.physics._layout, ctx.avals_in[: call.reads]
    given = _avals(avals[0].shape, layout.host)
    operands = operands[: call.reads]
    mesh = getattr(ctx.module_context.axis_context, "mesh", None)
    devices = 1 if mesh is None else mesh.local_mesh.size
    if devices == 1:
        hosts = ctx.replace(avals_in=avals, avals_out=given)
        results = call_host(hosts, _Everywhere(call), operands)
    else:
        told = [jax.core.ShapedArray((), np.uint32), *avals]
        hosts = ctx.replace(avals_in=told, avals_out=given)
        numbered = [stablehlo.partition_id(), *operands]
        results = call_host(hosts, _OnDevices(call, devices), numbered)
    with jax.enable_x64(True):
        finish = mlir.lower_fun(layout.of_host, multiple_results=True)
        return finish(ctx.replace(primitive=None, avals_in=given), *results)


@jax.custom_jvp
def _since(change: Array, after: Array, before: Array) -> Array:
    """A change as it is; its tangent, that of the field after, less that of the field before."""
    del after, before
    return change


@_since.defjvp
def _since_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    return primals[0], tangents[1] - tangents[2]


def _moved_by(field: str, state: PhysicsState) -> Array:
    """Of a field of `Reads.changes`, what has its tangent."""
    return getattr(state, field) if field in MOVING else state.engine.tracked[field]


batching.primitive_batchers[_native] = _batch
mlir.register_lowering(_native, _lower)
differentiate(_native)
