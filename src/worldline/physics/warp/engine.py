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
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.interpreters import ad, mlir

from worldline.errors import ConfigError, MissingExtraError, ModelError
from worldline.host.calls import HostCall, Spec
from worldline.host.primitive import host_primitive
from worldline.model import Model
from worldline.physics.arrays import MOVING, ArrayPhysics, Arrays
from worldline.physics.base import INPUTS, NOTHING, PhysicsState, Reads, acceptable, picked
from worldline.physics.warp.batches import (
    OVERFLOW,
    BatchPool,
    Capacity,
    Operation,
    derived_from,
    lost,
)
from worldline.physics.warp.model import check_reads, check_variation, converted
from worldline.types import Array, Variation
from worldline.warp_library import installed, warp

#: `body_simple` of bodies that do not turn.
_SLIDING = 2

#: The inputs that are no real numbers, and their type in Warp.
_SWITCHES = {"eq_active": np.bool_}


class WarpPhysics(ArrayPhysics):
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
        data = mujoco.MjData(model.mj)
        fields = {name: getattr(data, name) for name in (*MOVING, *INPUTS)}
        defaults = {
            name: np.asarray(x, _SWITCHES.get(name, np.float32)) for name, x in fields.items()
        }
        super().__init__(model, reads, defaults)
        if not installed():
            raise MissingExtraError("the engine 'warp'", "warp")
        with warp().ScopedDevice("cpu"):
            converted(model.mj, (), {})
        check_reads(reads)
        self.on_cpu = jax.default_backend() != "gpu"
        self.pool = BatchPool(model, reads, Capacity(nconmax, njmax), deterministic)
        """The memory of its calls."""
        self.programs: dict[tuple[Operation, int], Callable[..., Any]] = {}
        """Programs of one operation each, for calls that no other program makes."""

    def _compute_start(self, given: Arrays, variation: Variation) -> tuple[Arrays, Arrays, Array]:
        derived = self._derive(variation)
        operation = self._operation("start", variation)
        results = self._run(operation, {**given, **variation, **derived})
        return given | results, derived, acceptable(results["qacc_warmstart"])

    def _compute_steps(
        self, given: Arrays, variation: Variation, derived: Arrays, substeps: int
    ) -> tuple[Arrays, Array]:
        operation = self._operation("step", variation, substeps)
        results = self._run(operation, {**given, **variation, **derived})
        # The inputs too: Warp's clamps make a number of a control that is none.
        inputs = [given[name] for name in self._held if name not in _SWITCHES]
        moved = picked(("qpos", "qvel", "qacc_warmstart"), results).values()
        return results, acceptable(*inputs, *moved) & ~lost(results[OVERFLOW])

    def vary(self, state: PhysicsState, variation: Variation) -> PhysicsState:
        """The world with other constants from now on, and with what follows from them."""
        state = super().vary(state, variation)
        derived = self._derive(state.variation)
        return dataclasses.replace(state, engine=state.engine._replace(derived=derived))

    def check_variation(self, variation: Variation) -> dict[str, Array]:
        """A variation as float32 arrays, after a check that Warp has its fields of each world."""
        checked = super().check_variation(variation)
        check_variation(checked)
        return checked

    def _derive(self, variation: Variation) -> Arrays:
        """The constants that follow from a variation, as `mj_setConst` computes them.

        MuJoCo takes a simple body that does not turn as a point; MuJoCo Warp does not.
        """
        if not derived_from(self.model.mj, variation):
            return {}
        derived = self._run(self._operation("vary", variation), variation)
        mj = self.model.varying(variation).mj
        bodies = np.flatnonzero(mj.body_simple == _SLIDING)
        mass = variation.get("body_mass", jnp.asarray(mj.body_mass, jnp.float32))
        moves = 1 / mass[bodies]
        moves_alone = jnp.stack([moves, jnp.zeros_like(moves)], axis=-1)
        joints = np.flatnonzero(mj.body_simple[mj.dof_bodyid] == _SLIDING)
        derived["body_invweight0"] = derived["body_invweight0"].at[bodies].set(moves_alone)
        weights = 1 / mass[mj.dof_bodyid[joints]]
        if joints.size:
            derived["dof_invweight0"] = derived["dof_invweight0"].at[joints].set(weights)
        return derived

    def _operation(self, kind: Any, variation: Variation, substeps: int = 0) -> Operation:
        return Operation(
            kind,
            substeps,
            held=self._held,
            variation=tuple(sorted(variation)),
            derived=derived_from(self.model.mj, variation),
            fields=self.reads.named,
        )

    def _run(self, operation: Operation, operands: Variation) -> Arrays:
        """Binds the primitive and names what it returns."""
        call = _WarpCall(operation, self)
        values = (jnp.asarray(operands[name], call.spec(name)[1]) for name in operation.operands)
        return dict(zip(operation.results, _warp.bind(*values, call=call, lead=0), strict=True))


@dataclasses.dataclass(frozen=True)
class _WarpCall(HostCall):
    """An operation of an engine on all worlds."""

    operation: Operation
    physics: WarpPhysics

    @property
    def name(self) -> str:
        """The name of the call."""
        return f"{self.physics.model.digest} {self.operation}"

    @functools.cached_property
    def results(self) -> list[Spec]:
        """Shape and dtype of each result."""
        return [self.spec(name) for name in self.operation.results]

    @property
    def shareable(self) -> int:
        """All operands."""
        return len(self.operation.operands)

    def spec(self, name: str) -> Spec:
        """Shape and dtype of an operand or a result of one world."""
        model, operation = self.physics.model, self.operation
        if name in operation.variation:
            return model.constant(name).shape, np.float32
        if name in operation.derived:
            return np.shape(getattr(model.mj, name)), np.float32
        if name in ("time", OVERFLOW):
            return (), np.float32 if name == "time" else np.int32
        shape, dtype = model.data_field(name)
        return shape, np.float32 if dtype.kind == "f" else _SWITCHES.get(name, dtype)

    def callback(self, rows: int) -> Callable[..., Sequence[Array]]:
        """A function of JAX's arrays that runs the operation.

        It takes the operands that are not empty, `(rows, n)` each, or `(1, n)` where all worlds
        have the same, and returns the results that are not, `(rows, n)` each.
        """
        wp, pool, operation = warp(), weakref.ref(self.physics.pool), self.operation
        operands, results = (
            {name: spec for name in names if math.prod((spec := self.spec(name))[0])}
            for names in (operation.operands, operation.results)
        )

        def run(*arrays: Any) -> None:
            owner = pool()
            if owner is None:
                raise RuntimeError("the program's physics is gone")
            given = dict(zip(operands, arrays, strict=False))
            wanted = dict(zip(results, arrays[len(operands) :], strict=True))
            owner.run(operation, rows, given, wanted)

        specs = [*operands.values(), *results.values()]
        types = {f"x{i}": wp.dtype_from_numpy(kind) for i, (_, kind) in enumerate(specs)}
        _sign(run, {name: wp.array(dtype=dtype, ndim=2) for name, dtype in types.items()})
        sizes = [math.prod(shape) for shape, _ in results.values()]
        return wp.jax_callable(
            run,
            num_outputs=len(results),
            graph_mode=wp.JaxCallableGraphMode.NONE,  # `WarpBatch` has graphs of its own
            vmap_method=None,
            output_dims={
                name: (rows, size)
                for name, size in zip(list(types)[len(operands) :], sizes, strict=True)
            },
        )


def _sign(function: Any, types: dict[str, Any]) -> None:
    """Gives a function the arguments of these types: Warp reads them from its signature."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(x, kind, annotation=type_) for x, type_ in types.items()]
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = types


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


def _evaluate(*operands: Array, call: _WarpCall, lead: int) -> list[Array]:
    programs, key = call.physics.programs, (call.operation, lead)
    if key not in programs:
        programs[key] = jax.jit(functools.partial(_warp.bind, call=call, lead=lead))
    return list(programs[key](*operands))


def _lower(ctx: Any, *operands: Any, call: _WarpCall, lead: int) -> Any:
    """Calls Warp with all leading axes as one, and without arrays that have no numbers."""
    rows = math.prod(ctx.avals_in[0].shape[:lead])
    run = call.callback(rows)
    ctx.module_context.add_keepalive(call.physics)

    def program(*arrays: Array) -> list[Array]:
        given = [x.reshape(math.prod(x.shape[:lead]), -1) for x in arrays if x.size]
        computed = iter(run(*given) if rows else ())
        return [
            next(computed).reshape(a.shape) if a.size else jnp.zeros(a.shape, a.dtype)
            for a in ctx.avals_out
        ]

    return mlir.lower_fun(program, multiple_results=True)(ctx.replace(primitive=None), *operands)


def _no_derivative(*_: Any, **__: Any) -> Any:
    raise ConfigError("the engine 'warp' has no derivatives; use physics='native' or physics='mjx'")


_warp = host_primitive("worldline_warp", evaluate=_evaluate, lower=_lower)
ad.primitive_jvps[_warp] = _no_derivative
