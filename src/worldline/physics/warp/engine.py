"""MuJoCo Warp inside JAX: the engine for NVIDIA cards, and the same numbers on a CPU.

A JAX primitive carries each call to Warp, which reads and writes JAX's own memory on the device.
Any nesting of `vmap` reaches it as one call. On a card, a control step is one CUDA graph.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.interpreters import ad, mlir

from worldline.errors import ConfigError, MissingExtraError, ModelError
from worldline.host.calls import HostCall, Spec
from worldline.host.primitive import host_primitive
from worldline.model import Model
from worldline.physics.base import (
    HELD,
    NOTHING,
    Physics,
    PhysicsState,
    Reads,
    acceptable,
    picked,
    unless_failed,
)
from worldline.physics.warp.batches import (
    MOVING,
    OVERFLOW,
    Capacity,
    Operation,
    WarpBatch,
    derived_from,
    lost,
    operands_of,
    results_of,
)
from worldline.physics.warp.model import check_model, check_reads, check_variation
from worldline.types import Array, ArrayLike, Variation
from worldline.warp_library import installed, warp


class WarpState(NamedTuple):
    """What this engine keeps of a world between two steps."""

    qacc_warmstart: Array
    """Where the solver starts, `(nv,)`."""
    inputs: dict[str, Array]
    """What is held until it is given anew: `INPUTS` without `act`."""
    derived: dict[str, Array]
    """The constants that follow from the world's variation."""
    tracked: dict[str, Array]
    """What `Reads.changes` names, as it was."""


class WarpPhysics(Physics):
    """MuJoCo Warp: thousands of worlds at once on an NVIDIA card, in float32; without derivatives.

    It runs where JAX's programs do. On a CPU, on one thread, it is there to be tried: `native` is
    many times faster. Its kernels are compiled once a machine, which takes half a minute and more.

    Args:
        model: the model that all worlds share.
        reads: what comes back beside the state.
        nconmax: contacts to have memory for, of a world on average; None: enough for most states of
            the model. A world that needs more has diverged, and MuJoCo Warp prints how many.
        njmax: constraints to have memory for, of a world at most; likewise.
        deterministic: on a card, too, have sums in the same order in each run, which takes longer.

    Raises:
        MissingExtraError: MuJoCo Warp is not installed.
        ModelError: it lacks something that the model has, or a field that `reads` names.
    """

    name = "warp"

    def __init__(
        self,
        model: Model,
        reads: Reads = NOTHING,
        nconmax: int | None = None,
        njmax: int | None = None,
        deterministic: bool = False,
    ) -> None:
        super().__init__(model, reads)
        if not installed():
            raise MissingExtraError("the engine 'warp'", "warp")
        check_model(model.mj)
        check_reads(reads)
        self._named = reads.named
        self._held = tuple(name for name in HELD if name in reads.inputs)
        data = mujoco.MjData(model.mj)
        self._defaults = {
            name: np.asarray(getattr(data, name), np.float32) for name in (*self._held, "act")
        }
        self._memory = Capacity(nconmax, njmax), deterministic
        self._batches: dict[tuple[str, int, tuple[str, ...]], WarpBatch] = {}
        #: Operations as programs of their own, for calls that no other program makes.
        self.programs: dict[tuple[Operation, int], Callable[..., Any]] = {}

    def _begin(
        self,
        qpos: Array,
        qvel: Array,
        variation: dict[str, Array],
        inputs: dict[str, Array],
        mask: ArrayLike,
    ) -> PhysicsState:
        del mask  # computing for all is harmless
        given = self._defaults | {name: _real(value) for name, value in inputs.items()}
        act, held = jnp.asarray(given["act"]), {name: given[name] for name in self._held}
        state = {"qpos": _real(qpos), "qvel": _real(qvel), "act": act}
        results = self._run("start", 0, variation, {**state, **held, **variation})
        tracked = picked(self.reads.changes, results)
        return PhysicsState(
            **state,
            time=jnp.zeros(()),
            fields=picked(self.reads.fields, results),
            changes=jax.tree.map(jnp.zeros_like, tracked),
            variation=variation,
            diverged=~acceptable(results["qacc_warmstart"]),
            engine=WarpState(
                results["qacc_warmstart"],
                {name: jnp.asarray(value) for name, value in held.items()},
                {name: results[name] for name in derived_from(self.model.mj, variation)},
                tracked,
            ),
        )

    def _advance(
        self, state: PhysicsState, inputs: dict[str, Array], substeps: int, mask: ArrayLike
    ) -> PhysicsState:
        del mask
        engine: WarpState = state.engine
        given = {name: _real(value) for name, value in inputs.items()}
        act = given.pop("act", state.act)
        held = engine.inputs | given
        moving = (state.qpos, state.qvel, act, state.time, engine.qacc_warmstart)
        operands = dict(zip(MOVING, moving, strict=True))
        operands |= {**held, **state.variation, **engine.derived}
        results = self._run("step", substeps, state.variation, operands)
        before, after = engine.tracked, picked(self.reads.changes, results)
        stepped = PhysicsState(
            qpos=results["qpos"],
            qvel=results["qvel"],
            act=results["act"],
            time=results["time"],
            fields=picked(self.reads.fields, results),
            changes={name: after[name] - before[name] for name in after},
            variation=state.variation,
            diverged=jnp.asarray(False),
            engine=WarpState(results["qacc_warmstart"], held, engine.derived, after),
        )
        # Warp's clamps make a number of a control that is none.
        after_it = [results[name] for name in ("qpos", "qvel", "qacc_warmstart")]
        well = acceptable(*given.values(), *after_it) & ~lost(results[OVERFLOW])
        return unless_failed(stepped, state, ~well)

    def vary(self, state: PhysicsState, variation: Variation) -> PhysicsState:
        """The world with other constants from now on, and with what follows from them."""
        state = super().vary(state, variation)
        if not state.engine.derived:
            return state
        derived = self._run("vary", 0, state.variation, dict(state.variation))
        return dataclasses.replace(state, engine=state.engine._replace(derived=derived))

    def check_variation(self, variation: Variation) -> dict[str, Array]:
        """A variation as float32 arrays, after a check that Warp has its fields of each world."""
        checked = super().check_variation(variation)
        check_variation(checked)
        return checked

    def _run(
        self, kind: Any, substeps: int, variation: Variation, operands: Mapping[str, ArrayLike]
    ) -> dict[str, Array]:
        """Binds the primitive and names what it returns."""
        call = _WarpCall(Operation(kind, substeps, tuple(sorted(variation))), self)
        values = (_real(operands[name]) for name in call.operand_names)
        results = dict(zip(call.result_names, _warp.bind(*values, call=call, lead=0), strict=True))
        return results | {name: jnp.zeros(*call.spec(name)) for name in call.empty}

    def batch(self, variation: tuple[str, ...], count: int) -> WarpBatch:
        """Memory for so many worlds on the present device of Warp's."""
        key = (str(warp().get_device()), count, variation)
        if key not in self._batches:
            self._batches[key] = WarpBatch(
                self.model.mj, self.reads, self._held, variation, count, *self._memory
            )
        return self._batches[key]


@dataclasses.dataclass(frozen=True)
class _WarpCall(HostCall):
    """An operation of an engine on all worlds; arrays without numbers are no part of it."""

    operation: Operation
    physics: WarpPhysics

    @property
    def name(self) -> str:
        """The name of the call."""
        return f"{self.physics.model.digest} {self.operation}"

    @property
    def results(self) -> list[Spec]:
        """Shape and dtype of each result."""
        return [self.spec(name) for name in self.result_names]

    @functools.cached_property
    def _derived(self) -> tuple[str, ...]:
        return derived_from(self.physics.model.mj, self.operation.variation)

    @functools.cached_property
    def operand_names(self) -> tuple[str, ...]:
        """The operands that are not empty."""
        names = operands_of(self.operation, self.physics._held, self._derived)
        return tuple(name for name in names if math.prod(self.spec(name)[0]))

    @functools.cached_property
    def result_names(self) -> tuple[str, ...]:
        """The results that are not empty."""
        return tuple(name for name in self._all_results if math.prod(self.spec(name)[0]))

    @functools.cached_property
    def empty(self) -> tuple[str, ...]:
        """The names of results without numbers, as `act` often is."""
        return tuple(name for name in self._all_results if name not in self.result_names)

    @property
    def _all_results(self) -> tuple[str, ...]:
        return results_of(self.operation, self.physics._named, self._derived)

    def spec(self, name: str) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype of an operand or a result of one world."""
        model = self.physics.model
        if name in self.operation.variation:
            return model.constant(name).shape, np.float32
        if name in self._derived:
            return np.shape(getattr(model.mj, name)), np.float32
        if name in ("time", OVERFLOW):
            return (), np.float32 if name == "time" else np.int32
        shape, dtype = model.data_field(name)
        return shape, np.float32 if dtype.kind == "f" else dtype

    def callback(self, rows: int) -> Callable[..., Sequence[Array]]:
        """A function of JAX's arrays that runs the operation on `(rows, n)` of each operand."""
        wp, physics, operation = warp(), weakref.ref(self.physics), self.operation
        begins, gives = self.operand_names, self.result_names

        def run(*arrays: Any) -> None:
            owner = physics()
            if owner is None:
                raise RuntimeError("the program's physics is gone")
            operands = dict(zip(begins, arrays, strict=False))
            results = dict(zip(gives, arrays[len(begins) :], strict=True))
            owner.batch(operation.variation, rows).run(operation, operands, results)

        specs = {f"x{i}": self.spec(name) for i, name in enumerate((*begins, *gives))}
        dtypes = {x: wp.dtype_from_numpy(kind) for x, (_, kind) in specs.items()}
        _sign(run, {x: wp.array(dtype=dtype, ndim=2) for x, dtype in dtypes.items()})
        outputs = list(specs.items())[len(begins) :]
        return wp.jax_callable(
            run,
            num_outputs=len(gives),
            graph_mode=wp.JaxCallableGraphMode.NONE,  # `WarpBatch` has graphs of its own
            vmap_method=None,
            output_dims={x: (rows, math.prod(shape)) for x, (shape, _) in outputs},
        )


def _sign(function: Any, types: Mapping[str, Any]) -> None:
    """Gives a function the arguments of these types: Warp reads them from its signature."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(x, kind, annotation=type_) for x, type_ in types.items()]
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = dict(types)


def refusal(model: Model, reads: Reads = NOTHING) -> str:
    """Why this engine cannot run a model, in one line; empty where it can.

    Args:
        model: the model.
        reads: what would be read of it.
    """
    try:
        WarpPhysics(model, reads)
    except (ModelError, MissingExtraError) as error:
        return str(error)
    return ""


def _real(value: ArrayLike) -> Array:
    return jnp.asarray(value, jnp.float32)


def _evaluate(*operands: Array, call: _WarpCall, lead: int) -> list[Array]:
    programs, key = call.physics.programs, (call.operation, lead)
    if key not in programs:
        programs[key] = jax.jit(functools.partial(_warp.bind, call=call, lead=lead))
    return list(programs[key](*operands))


def _lower(ctx: Any, *operands: Any, call: _WarpCall, lead: int) -> Any:
    """The call with all leading axes as one."""
    rows = math.prod(ctx.avals_in[0].shape[:lead])
    run = call.callback(rows)
    ctx.module_context.add_keepalive(call.physics)

    def program(*arrays: Array) -> list[Array]:
        if not rows:
            return [jnp.zeros(a.shape, a.dtype) for a in ctx.avals_out]
        results = run(*(x.reshape(rows, -1) for x in arrays))
        return [x.reshape(a.shape) for x, a in zip(results, ctx.avals_out, strict=True)]

    return mlir.lower_fun(program, multiple_results=True)(ctx.replace(primitive=None), *operands)


def _no_derivative(*_: Any, **__: Any) -> Any:
    raise ConfigError("the engine 'warp' has no derivatives; use physics='native' or physics='mjx'")


_warp = host_primitive("worldline_warp", evaluate=_evaluate, lower=_lower)
ad.primitive_jvps[_warp] = _no_derivative
