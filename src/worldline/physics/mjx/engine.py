"""MJX: MuJoCo written in JAX. Differentiable as any other function; runs wherever JAX does.

A world between two steps is its state, its inputs and the last acceleration (to start the solver
from); everything else MJX computes anew. The step is `mjx_step`'s, constants follow a variation by
`mjx_constants`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
from jax.custom_derivatives import SymbolicZero

from worldline.errors import ModelError, VariationError
from worldline.model import Model
from worldline.physics.base import (
    FORCES,
    HELD,
    NOTHING,
    OF_THE_STEP,
    VELOCITIES,
    Physics,
    PhysicsState,
    Reads,
    acceptable,
    picked,
    unless_failed,
)
from worldline.physics.compat import accepted
from worldline.physics.mjx.constants import DERIVED_FROM, derive
from worldline.physics.mjx.source import DataJAX, mjx
from worldline.physics.mjx.step import forward, refresh, step
from worldline.physics.mjx.unsupported import FIELDS, ignored
from worldline.types import Array, ArrayLike, Variation

#: Fields of MJX that no step computes, or that it keeps in another form than MuJoCo.
_NOT_COMPUTED = frozenset(("qfrc_inverse", "plugin_state", "history", "solver_niter"))
_PRIVATE = frozenset(("cinert", "crb", "ten_velocity", "actuator_velocity")) | FORCES | VELOCITIES

#: Switches that MJX refuses and that change no trajectory: records of energy, checks of inverse
#: dynamics.
_HARMLESS = int(mujoco.mjtEnableBit.mjENBL_ENERGY | mujoco.mjtEnableBit.mjENBL_FWDINV)

#: Constants of which MJX asks, when it takes a model, whether they are zero everywhere.
_ASKED_IF_ZERO = frozenset(("body_gravcomp", "dof_frictionloss", "tendon_frictionloss"))
_ASKED_IF_FLUID = frozenset(("opt.density", "opt.viscosity", "opt.wind"))


class MjxState(NamedTuple):
    """What this engine keeps of a world between two steps."""

    qacc_warmstart: Array
    """Where the solver starts, `(nv,)`."""
    inputs: dict[str, Array]
    """What is held until it is given anew: `INPUTS` without `act`."""
    tracked: dict[str, Array]
    """What `Reads.changes` names, as it was."""


class _Parts(NamedTuple):
    """What goes from one physics step to the next."""

    qpos: Array
    qvel: Array
    act: Array
    time: Array
    qacc_warmstart: Array
    fields: dict[str, Array]


class MjxPhysics(Physics):
    """MuJoCo's XLA implementation. Derivatives are exact, the solver's by the implicit theorem.

    In float32, or in float64 under `jax_enable_x64`. Of the model it changes what MJX refuses and
    no trajectory depends on: PGS becomes Newton's method (another way to the same optimum), and
    records of energy are off.

    Args:
        model: the model that all worlds share.
        reads: what comes back beside the state.

    Raises:
        ModelError: MJX lacks something that the model has, or a field that `reads` names.
    """

    name = "mjx"
    differentiable = True

    def __init__(self, model: Model, reads: Reads = NOTHING) -> None:
        super().__init__(model, reads)
        self._named = reads.named
        self._models: dict[frozenset[str], mjx.Model] = {}
        # It may be built within a function that is traced: it holds arrays all the same.
        with _lenient(), jax.ensure_compile_time_eval():
            self._model_for(frozenset())
            self._data = _strong(_no_data(model))
        _check_fields(model, self._named)

    def _begin(
        self,
        qpos: Array,
        qvel: Array,
        variation: dict[str, Array],
        inputs: dict[str, Array],
        mask: ArrayLike,
    ) -> PhysicsState:
        del mask  # computing for all is harmless
        given = {name: self._input(name, value) for name, value in inputs.items()}
        with _lenient():
            model = self._varied(variation)
            held = (name for name in HELD if name in self.reads.inputs)
            kept = {name: given.get(name, getattr(self._data, name)) for name in held}
            data = self._data.replace(
                qpos=_like(qpos, self._data.qpos),
                qvel=_like(qvel, self._data.qvel),
                act=given.get("act", self._data.act),
                **kept,
            )
            data = forward(model, data)
            fields = self._read(data)
        tracked = picked(self.reads.changes, fields)
        state = PhysicsState(
            qpos=data.qpos,
            qvel=data.qvel,
            act=data.act,
            time=data.time,
            fields=picked(self.reads.fields, fields),
            changes=jax.tree.map(jnp.zeros_like, tracked),
            variation=variation,
            diverged=~acceptable(data.qacc),
            engine=MjxState(data.qacc, kept, tracked),
        )
        return _strong(state)

    def _advance(
        self, state: PhysicsState, inputs: dict[str, Array], substeps: int, mask: ArrayLike
    ) -> PhysicsState:
        del mask
        engine: MjxState = state.engine
        given = {name: self._input(name, value) for name, value in inputs.items()}
        act = given.pop("act", state.act)
        held = engine.inputs | given
        parts = _Parts(
            *(state.qpos, state.qvel, act, state.time, engine.qacc_warmstart),
            fields=self._read(self._data),
        )
        control_step = functools.partial(self._control_step, substeps)
        (parts, fields), healthy = _where_healthy(control_step, parts, held, state.variation)
        before, after = engine.tracked, picked(self.reads.changes, fields)
        stepped = PhysicsState(
            qpos=parts.qpos,
            qvel=parts.qvel,
            act=parts.act,
            time=parts.time,
            fields=picked(self.reads.fields, fields),
            changes={name: after[name] - before[name] for name in after},
            variation=state.variation,
            diverged=jnp.asarray(False),
            engine=MjxState(parts.qacc_warmstart, held, after),
        )
        return _strong(unless_failed(stepped, state, ~healthy))

    def _control_step(
        self, substeps: int, parts: _Parts, held: dict[str, Array], variation: Variation
    ) -> tuple[tuple[_Parts, dict[str, Array]], Array]:
        """Where the physics steps lead, the fields there, and whether all went well."""
        with _lenient():
            model, data = self._varied(variation), self._data.replace(**held)
            advance = functools.partial(self._physics_step, model, data)
            parts, _ = jax.lax.scan(lambda p, _: (advance(p), None), parts, None, length=substeps)
            fields = self._after(model, _put(data, parts), parts.fields)
        return (parts, fields), acceptable(parts.qpos, parts.qvel, parts.qacc_warmstart)

    def _physics_step(self, model: mjx.Model, data: mjx.Data, parts: _Parts) -> _Parts:
        """One physics step."""
        data = step(model, _put(data, parts))
        if FORCES.intersection(self._named):
            data = mjx.rne_postconstraint(model, data)
        if VELOCITIES.intersection(self._named):
            data = mjx.subtree_vel(model, data)
        # Where the solver starts is no part of where it ends.
        warmstart = _constant(data.qacc_warmstart)
        after = _Parts(data.qpos, data.qvel, data.act, data.time, warmstart, self._read(data))
        return jax.tree.map(_like, after, parts)

    def _after(
        self, model: mjx.Model, data: mjx.Data, fields: dict[str, Array]
    ) -> dict[str, Array]:
        """The fields at the end of a control step."""
        if not self.reads.refresh:
            return fields
        late = set(self._named) - OF_THE_STEP
        if "sensordata" in fields:  # sensors of accelerations stay as they are
            data = data.replace(sensordata=fields["sensordata"])
        data = refresh(model, data)
        if VELOCITIES & late:
            data = mjx.subtree_vel(model, data)
        fresh = self._read(data)
        return {name: fresh[name] if name in late else fields[name] for name in fields}

    def _read(self, data: mjx.Data) -> dict[str, Array]:
        """The fields that the task names, in MuJoCo's shapes."""
        owner = {name: data._impl if name in _PRIVATE else data for name in self._named}
        shapes = {name: self.model.data_field(name)[0] for name in self._named}
        return {name: getattr(owner[name], name).reshape(shapes[name]) for name in self._named}

    def _input(self, name: str, value: ArrayLike) -> Array:
        """An input in MuJoCo's shape and the engine's precision."""
        return _like(value, getattr(self._data, name))

    def _model_for(self, asked: frozenset[str]) -> mjx.Model:
        """MJX's form of the model, where the constants `asked` need not be zero."""
        if asked not in self._models:
            with jax.ensure_compile_time_eval():
                self._models[asked] = _strong(_converted(self.model, asked))
        return self._models[asked]

    def _varied(self, variation: Variation) -> mjx.Model:
        """The model with a world's own constants, and what follows from them."""
        if not variation:
            return self._model_for(frozenset())
        asked = (_ASKED_IF_ZERO | _ASKED_IF_FLUID).intersection(variation)
        model = self._model_for(asked)
        constants = {}
        for name, value in variation.items():
            path = (
                name if hasattr(model.opt, name[4:]) or "." not in name else f"opt._impl{name[3:]}"
            )
            held = functools.reduce(
                lambda owner, part: getattr(owner, part, None), path.split("."), model
            )
            if name in FIELDS or not isinstance(held, jax.Array):
                raise VariationError(
                    f"the engine 'mjx' cannot vary {name!r}; use physics='native' for that"
                )
            constants[path] = _like(value, held).reshape(held.shape)
        model = model.tree_replace(constants)
        return derive(model, self._data) if DERIVED_FROM.intersection(variation) else model


@jax.custom_jvp
def _constant(value: Array) -> Array:
    """The value without its derivative, where `jax.lax.stop_gradient` may not be transposed."""
    return value


@_constant.defjvp
def _constant_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    del tangents
    return primals[0], jnp.zeros_like(primals[0])


def refusal(model: Model, reads: Reads = NOTHING) -> str:
    """Why this engine cannot run a model, in one line; empty where it can. Builds no engine.

    Args:
        model: the model.
        reads: what would be read of it.
    """
    try:
        with _lenient():
            jax.eval_shape(lambda: (_converted(model, frozenset()), _no_data(model)))
        _check_fields(model, reads.named)
    except ModelError as error:
        return str(error)
    return ""


def _converted(model: Model, asked: frozenset[str]) -> mjx.Model:
    """MJX's form of a model, where the constants `asked` need not be zero."""
    feature = ignored(model.mj)
    if feature:
        raise _lacks(feature)
    with _refusing():
        return mjx.put_model(accepted(model.mj, _HARMLESS, _ASKED_IF_ZERO, asked))


def _no_data(model: Model) -> mjx.Data:
    """MJX's data of a model, before anything is computed."""
    with _refusing():
        return mjx.make_data(accepted(model.mj, _HARMLESS, _ASKED_IF_ZERO, ()))


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """MJX's refusals as ours."""
    try:
        yield
    except NotImplementedError as error:
        what = re.sub(r"\bmjt\w+\.|( not implemented)?\.?$", "", str(error))
        raise _lacks(what) from error


def _check_fields(model: Model, names: Iterable[str]) -> None:
    """Refuses fields that MJX does not compute."""
    for name in names:
        model.data_field(name)
        owner = DataJAX if name in _PRIVATE else mjx.Data
        held = {field.name for field in dataclasses.fields(owner)}
        if name not in held - _NOT_COMPUTED:
            raise _lacks(f"the MjData field {name!r}")


def _lacks(what: str) -> ModelError:
    return ModelError(f"the engine 'mjx' lacks {what}; use physics='native'")


def _lenient() -> contextlib.AbstractContextManager[Any]:
    """MJX relies on JAX's usual promotion of types, whatever its user has chosen."""
    return jax.numpy_dtype_promotion("standard")


def _like(value: ArrayLike, reference: Array) -> Array:
    """A value in the precision of another."""
    return jnp.asarray(value, reference.dtype)


def _strong(tree: Any) -> Any:
    """The same numbers, none of a weak type: a second call with them compiles nothing anew."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.asarray(x).dtype), tree)


def _put(data: mjx.Data, parts: _Parts) -> mjx.Data:
    """Data at a state."""
    state = {name: value for name, value in parts._asdict().items() if name != "fields"}
    return data.replace(**state)


def _where_healthy(function: Callable[..., tuple[Any, Array]], *arguments: Any) -> Any:
    """What `function` gives, with a derivative of zero where it says that it failed.

    A failed simulation is full of NaN, and NaN times a cotangent of zero is NaN: it would reach the
    gradients of all that this world shares with others.
    """
    leaves, structure = jax.tree.flatten(arguments)

    @jax.custom_jvp
    def flat(*leaves: Array) -> Any:
        return function(*jax.tree.unflatten(structure, leaves))

    def rule(primals: Any, tangents: Any) -> tuple[Any, Any]:
        moving = [i for i, t in enumerate(tangents) if not isinstance(t, SymbolicZero)]

        def of_moving(*values: Array) -> Any:
            at = dict(zip(moving, values, strict=True))
            return function(
                *jax.tree.unflatten(structure, [at.get(i, x) for i, x in enumerate(primals)])
            )

        result, push = jax.linearize(of_moving, *(primals[i] for i in moving))
        healthy = result[1]

        def sound(tangent: Array) -> Array:
            if tangent.dtype == jax.dtypes.float0:
                return tangent
            return jnp.where(healthy, tangent, jnp.zeros_like(tangent))

        return result, jax.tree.map(sound, push(*(sound(tangents[i]) for i in moving)))

    flat.defjvp(rule, symbolic_zeros=True)
    return flat(*leaves)
