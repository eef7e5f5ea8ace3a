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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.extend.mlir.dialects import stablehlo

from worldline.errors import ModelError
from worldline.host.calls import Spec, call_host
from worldline.host.primitive import host_primitive
from worldline.model import Model
from worldline.parallel.cores import usable_cores
from worldline.physics.autodiff import differentiate
from worldline.physics.base import NOTHING, Physics, PhysicsState, Reads
from worldline.physics.finite_differences import (
    CENTRED,
    Axis,
    Chart,
    DifferentiableCall,
    FiniteDifferences,
    Simulations,
)
from worldline.physics.native.batches import MOVING, BatchPool, Operation
from worldline.physics.native.perturbations import (
    constant_axis,
    control_axis,
    converging,
    quaternions,
)
from worldline.types import Array, ArrayLike, NDArray, Variation

#: Memory of MuJoCo's solvers: not every call writes it, so it may hold another world's numbers.
_SCRATCH = frozenset(("qDeriv", "qH", "qHDiagInv", "qLU", "solver_niter", "solver_nnz"))

#: Options of a model with which a step depends on more than the integration state.
_OUTSIDE_STATE = (mujoco.mjtEnableBit.mjENBL_SLEEP, mujoco.mjtEnableBit.mjENBL_IPC)

#: The rows of the batch in which the moved worlds of a derivative run.
_GRADIENT_ROWS = 256


class NativeState(NamedTuple):
    """What this engine keeps of a world between two steps."""

    words: Array
    """MuJoCo's integration state without the inputs that are never given, and the fields of
    `Reads.changes` that are not part of it: float64 numbers as uint32, two words each, `(n,)`."""
    tracked: dict[str, Array]
    """An array for each of `Reads.changes` but `qpos`. Its tangent is that of the field at the end
    of the step, from which that of the next change is taken; its value means nothing."""


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
    on_cpu = True

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
        self.num_threads = num_threads or len(usable_cores())
        for field in _SCRATCH.intersection(reads.named):
            raise ModelError(
                f"{field!r} is internal memory of MuJoCo's solvers; remove it from the task's "
                "fields"
            )
        for flag in _OUTSIDE_STATE:
            if model.mj.opt.enableflags & flag:
                name = flag.name.removeprefix("mjENBL_").lower()
                raise ModelError(
                    f"the model enables {name!r}, which keeps a memory outside of MuJoCo's state; "
                    f"remove {name} from the model's <flag>"
                )
        kind = f"{type(self).__module__}.{type(self).__qualname__}"  # a subclass may do otherwise
        self.digest = f"{kind} {model.digest} {reads} {self.num_threads} {gradient}"
        self._pools: dict[tuple[int, int], BatchPool] = {}
        self._moved = BatchPool(model, reads, self.num_threads, converging)
        #: The parts of `NativeState.words`, as float64.
        self._numbers = self._pool().batch(1, Operation("step", 1, (), ())).numbers
        self._results = _result_specs(model, reads, 2 * self._numbers.size)
        self._qpos_chart = Chart(model.nq, quaternions(model.mj))

    def _begin(
        self,
        qpos: Array,
        qvel: Array,
        variation: dict[str, Array],
        inputs: dict[str, Array],
        mask: ArrayLike,
    ) -> PhysicsState:
        operation = Operation("start", 0, tuple(sorted(inputs)), tuple(variation))
        return self._bind(operation, (qpos, qvel), inputs, variation, mask)

    def _advance(
        self, state: PhysicsState, inputs: dict[str, Array], substeps: int, mask: ArrayLike
    ) -> PhysicsState:
        varied = tuple(sorted(state.variation))
        operation = Operation("step", substeps, tuple(sorted(inputs)), varied)
        words, moving = (state.engine.words,), (state.qpos, state.qvel, state.act)
        after = self._bind(operation, words, inputs, state.variation, mask, moving)
        changes = {
            name: _since(change, *(_moved_by(name, it) for it in (after, state)))
            for name, change in after.changes.items()
        }
        return dataclasses.replace(after, changes=changes)

    def _bind(
        self,
        operation: Operation,
        begin: Sequence[Array],
        inputs: Mapping[str, Array],
        variation: Variation,
        mask: ArrayLike,
        moving: Sequence[Array] = (),
    ) -> PhysicsState:
        """Binds the primitive and names what it returns.

        Args:
            operation: what to do.
            begin: where it begins: the words of a state, or `qpos` and `qvel`.
            inputs: the inputs to write.
            variation: the world's own constants.
            mask: whether to run the world, `()` bool.
            moving: `MOVING` of the state. The words hold them already, so that the host does not
                read them; but words, being integers, have no tangents, and these have.
        """
        operands = [jnp.asarray(mask, bool), *begin]
        operands += [jnp.asarray(inputs[name], jnp.float32) for name in operation.inputs]
        operands += [variation[name] for name in operation.variation]
        call = _NativeCall(operation, self)
        values = _native.bind(*operands, *moving, call=call, lead=0)
        results = dict(zip(self._results, values, strict=True))
        changes = {name: results["change", name] for name in self.reads.changes}
        tracked = {name: change for name, change in changes.items() if name != "qpos"}
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
        held = self._numbers.held
        numbers = words.view(np.float64)[..., : len(held)]
        size = mujoco.mj_stateSize(self.model.mj, mujoco.mjtState.mjSTATE_INTEGRATION)
        whole = np.zeros((*numbers.shape[:-1], size))
        whole[..., held] = numbers
        return whole

    def _pool(self, device: int = 0, devices: int = 1) -> BatchPool:
        """The batches of one device of this process; the devices share its cores."""
        key = (device, devices)
        if key not in self._pools:  # of two made at once, by two threads, one stays
            num_threads = max(1, self.num_threads // devices)
            self._pools.setdefault(key, BatchPool(self.model, self.reads, num_threads))
        return self._pools[key]


def _result_specs(model: Model, reads: Reads, words: int) -> dict[str | tuple[str, str], Spec]:
    """The shape and dtype of each result of one world, by name and in order.

    Args:
        model: what is simulated.
        reads: what is read of it.
        words: the length of `NativeState.words`.
    """
    real = np.dtype(np.float32)
    specs: dict[str | tuple[str, str], Spec] = {
        "words": ((words,), np.dtype(np.uint32)),
        "diverged": ((), np.dtype(bool)),
        "time": ((), real),
        "qpos": ((model.nq,), real),
        "qvel": ((model.nv,), real),
        "act": ((model.na,), real),
    }
    for name in reads.fields:
        shape, dtype = model.data_field(name)
        specs["field", name] = (shape, real if dtype.kind == "f" else dtype)
    for name in reads.changes:
        specs["change", name] = (model.data_field(name)[0], real)
    return specs


@dataclasses.dataclass(frozen=True)
class _NativeCall(DifferentiableCall):
    """An operation of an engine on all worlds.

    Its operands are the mask of the worlds to run; where they begin: `words`, or `qpos` and
    `qvel`; the inputs and the constants of the operation; and `MOVING`, which only carry tangents.
    With several devices, the number of the device comes last.
    """

    operation: Operation
    physics: NativePhysics
    devices: int = 1
    """How many devices of this process run the program side by side."""

    @functools.cached_property
    def name(self) -> str:
        """The name of the call."""
        return f"{self.physics.digest} {self.operation} {self.devices}"

    @functools.cached_property
    def _read(self) -> dict[str, tuple[int, ...]]:
        """The shape of each operand that the host reads, in order, without the mask."""
        physics, operation = self.physics, self.operation
        begin = ("words",) if operation.kind == "step" else MOVING[:2]
        shapes = {name: physics._results[name][0] for name in begin}
        shapes |= {name: physics.input_shape(name) for name in operation.inputs}
        return shapes | {name: physics.model.constant(name).shape for name in operation.variation}

    @property
    def shareable(self) -> int:
        """How many operands the host reads."""
        return 1 + len(self._read)

    @property
    def results(self) -> list[Spec]:
        """Shape and dtype of each result."""
        return list(self.physics._results.values())

    @property
    def settings(self) -> FiniteDifferences:
        """How to differentiate."""
        return self.physics.gradient

    @property
    def differentiable(self) -> tuple[int, ...]:
        """The numbers of the real results, but for the time, whose derivative is zero, and the
        change of `qpos`, whose derivative follows from that of `qpos`.
        """
        none, specs = ("time", ("change", "qpos")), enumerate(self.physics._results.items())
        return tuple(i for i, (name, (_, kind)) in specs if kind == np.float32 and name not in none)

    @property
    def operand_shapes(self) -> list[tuple[int, ...]]:
        """The shape of every operand of one world."""
        moving = (self.physics._results[name][0] for name in MOVING)
        return [(), *self._read.values(), *moving]

    def simulations(self, operands: Sequence[NDArray]) -> Simulations:
        """The simulations of operands `(W, n)`, all of which are to be run."""
        numbers = [_numbers(np.ascontiguousarray(x)).astype(np.float64) for x in operands]
        return Simulations(numbers, self._simulate, _GRADIENT_ROWS)

    def axes(self, wrt: Sequence[int], simulations: Simulations) -> list[Axis]:
        """How the operands of these numbers move."""
        return [self._axis(number - 1, simulations.operands) for number in wrt]

    def _axis(self, index: int, operands: Sequence[NDArray]) -> Axis:
        """How an operand moves; the mask is not counted."""
        physics, names, rows = self.physics, (*self._read, *MOVING), len(operands[0])
        name = names[index]
        if index >= len(self._read):  # part of the words
            columns = physics._numbers.columns[name]
            plain = Chart(columns.stop - columns.start)
            chart = physics._qpos_chart if name == "qpos" else plain
            return Axis.free(0, columns.start, chart, rows)
        if name == "qpos":
            return Axis.free(0, 0, physics._qpos_chart, rows)
        values = operands[index]
        axis = Axis.free(index, 0, Chart(values.shape[1]), rows)
        if name in self.operation.variation:
            return constant_axis(axis, name, values)
        return control_axis(axis, values, physics.model.mj) if name == "ctrl" else axis

    def _simulate(self, operands: list[NDArray]) -> tuple[list[NDArray], NDArray]:
        """What `Simulations.simulate` does: runs rows of operands, at most `_GRADIENT_ROWS`."""
        number = len(operands[0])
        ids = None if number == _GRADIENT_ROWS else np.arange(number, dtype=np.int32)
        if ids is not None:
            padded = np.minimum(np.arange(_GRADIENT_ROWS), number - 1)
            operands = [x[padded] for x in operands]
        pool = self.physics._moved
        with pool.lock:
            batch = pool.batch(_GRADIENT_ROWS, self.operation)
            batch.advance(self.operation, operands, ids)
            outputs = [x[:number].astype(np.float64) for x in batch.differentiable]
            return outputs, ~batch.diverged()[:number]

    def bind(self, operands: list[NDArray], results: list[NDArray]) -> Callable[[], None]:
        """Returns a function that runs the worlds in the mask and fills the results."""
        if self.devices == 1:
            return self._bound(self.physics._pool(), operands, results)
        *operands, device = operands

        def run() -> None:
            pool = self.physics._pool(int(device[0]), self.devices)
            self._bound(pool, operands, results)()

        return run

    def _bound(
        self, pool: BatchPool, operands: Sequence[NDArray], results: Sequence[NDArray]
    ) -> Callable[[], None]:
        """The function of `bind`, which runs in the batches of one device."""
        mask, operation = operands[0], self.operation
        numbers, filled = map(_numbers, operands[1 : self.shareable]), map(_numbers, results)
        read, written = list(numbers), list(filled)
        portions = [
            (mask[rows], [x if len(x) == 1 else x[rows] for x in read], [x[rows] for x in written])
            for rows in pool.portions(len(mask), operation)
        ]

        def run() -> None:
            for chosen, given, wanted in portions:
                # NumPy counts in less time than `all` takes to begin.
                number, ids = np.count_nonzero(chosen), None
                if not number:
                    for result in wanted:
                        result[...] = 0
                    continue
                if number < len(chosen):
                    ids = np.flatnonzero(chosen).astype(np.int32)
                with pool.lock:
                    pool.batch(len(chosen), operation).run(operation, given, ids, wanted)

        return run


def _numbers(array: NDArray) -> NDArray:
    """An array `(rows, ...)` as `(rows, n)`; words become the float64 numbers that they hold."""
    flat = array.reshape(len(array), math.prod(array.shape[1:]))
    return flat.view(np.float64) if flat.dtype == np.uint32 else flat


def _lower(ctx: Any, *operands: Any, call: _NativeCall, lead: int) -> Sequence[Any]:
    """Calls the host, with the operands that it reads.

    Within `jax.shard_map` over several devices of this process, it also gets the device's number.
    """
    read, avals = list(operands[: call.shareable]), ctx.avals_in[: call.shareable]
    mesh = getattr(ctx.module_context.axis_context, "mesh", None)
    devices = 1 if mesh is None else mesh.local_mesh.size
    if devices > 1:
        call = dataclasses.replace(call, devices=devices)
        read.append(stablehlo.partition_id())
        avals = [*avals, jax.core.ShapedArray((), np.uint32)]
    return call_host(ctx.replace(avals_in=avals), call, read, lead=lead)


@jax.custom_jvp
def _since(change: Array, after: Array, before: Array) -> Array:
    """The change of a field; its tangent is the difference of the tangents after and before."""
    del after, before
    return change


@_since.defjvp
def _since_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    return primals[0], tangents[1] - tangents[2]


def _moved_by(field: str, state: PhysicsState) -> Array:
    """The array whose tangent is that of a field of `Reads.changes`."""
    return state.qpos if field == "qpos" else state.engine.tracked[field]


_native = host_primitive("worldline_native", lower=_lower)
differentiate(_native)
