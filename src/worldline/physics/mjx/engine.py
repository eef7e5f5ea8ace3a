"""MJX: MuJoCo written in JAX. Differentiable as any other function; runs wherever JAX does.

The step is that of `mjx.step`; constants follow a variation by `mjx.constants`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from worldline.errors import VariationError
from worldline.model import Model
from worldline.physics.arrays import MOVING, ArrayPhysics, Arrays
from worldline.physics.base import (
    FORCES,
    INPUTS,
    NOTHING,
    OF_THE_STEP,
    VELOCITIES,
    Reads,
    acceptable,
    picked,
)
from worldline.physics.mjx.constants import DERIVED_FROM, derive
from worldline.physics.mjx.model import (
    ASKED,
    OVERLOOKED,
    PRIVATE,
    check_fields,
    converted,
    empty_data,
)
from worldline.physics.mjx.model import refusal as refusal
from worldline.physics.mjx.source import lenient, mjx
from worldline.physics.mjx.step import forward, refresh, step
from worldline.types import Array, Variation


class MjxPhysics(ArrayPhysics):
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
    by_xla = True

    def __init__(self, model: Model, reads: Reads = NOTHING) -> None:
        # It may be built within a function that is traced: it holds arrays all the same.
        with lenient(), jax.ensure_compile_time_eval():
            made = _strong((converted(model, ()), empty_data(model, ())))
            defaults = {n: np.asarray(getattr(made[1], n)) for n in (*MOVING, *INPUTS)}
        super().__init__(model, reads, defaults)
        self._models: dict[Any, tuple[mjx.Model, mjx.Data]] = {(frozenset(), model): made}
        check_fields(model, reads.named)

    def _compute_start(self, given: Arrays, variation: Variation) -> tuple[Arrays, Arrays, Array]:
        with lenient():
            model, data = self._varied(variation)
            data = forward(model, data.replace(**given))
            after = self._read(data) | _moving(data) | {"qacc_warmstart": data.qacc}
        return _strong(after), {}, acceptable(data.qacc)

    def _compute_steps(
        self, given: Arrays, variation: Variation, derived: Arrays, substeps: int
    ) -> tuple[Arrays, Array]:
        del derived  # each step derives them
        begin, held = picked(MOVING, given), picked(self._held, given)
        control_step = functools.partial(self._control_step, substeps)
        after, healthy = _where_healthy(control_step, begin, held, variation)
        return _strong(after), healthy

    def _control_step(
        self, substeps: int, begin: Arrays, held: Arrays, variation: Variation
    ) -> tuple[Arrays, Array]:
        """Where the physics steps lead, with the fields there, and whether all went well."""
        with lenient():
            model, data = self._varied(variation)
            carry, data = (begin, self._read(data)), data.replace(**held)
            advance = functools.partial(self._physics_step, model, data)
            (end, fields), _ = jax.lax.scan(
                lambda c, _: (advance(*c), None), carry, None, length=substeps
            )
            if self.reads.refresh:
                fields = self._refreshed(model, data.replace(**end), fields)
        healthy = acceptable(*picked(("qpos", "qvel", "qacc_warmstart"), end).values())
        return fields | end, healthy

    def _physics_step(
        self, model: mjx.Model, data: mjx.Data, begin: Arrays, fields: Arrays
    ) -> tuple[Arrays, Arrays]:
        """One physics step, and the fields as it leaves them."""
        data = step(model, data.replace(**begin))
        if FORCES.intersection(self.reads.named):
            data = mjx.rne_postconstraint(model, data)
        if VELOCITIES.intersection(self.reads.named):
            data = mjx.subtree_vel(model, data)
        end = _moving(data)
        # Where the solver starts has no part in where it ends.
        end["qacc_warmstart"] = _constant(end["qacc_warmstart"])
        return jax.tree.map(_like, (end, self._read(data)), (begin, fields))

    def _refreshed(self, model: mjx.Model, data: mjx.Data, fields: Arrays) -> Arrays:
        """The fields after a control step, those of positions and velocities computed anew."""
        late = set(fields) - OF_THE_STEP
        if "sensordata" in fields:  # sensors of accelerations stay as they are
            data = data.replace(sensordata=fields["sensordata"])
        data = refresh(model, data)
        if VELOCITIES & late:
            data = mjx.subtree_vel(model, data)
        return fields | picked(late, self._read(data))

    def _read(self, data: mjx.Data) -> Arrays:
        """The fields that the task names, in MuJoCo's shapes."""
        names = self.reads.named
        owner = {name: data._impl if name in PRIVATE else data for name in names}
        shapes = {name: self.model.data_field(name)[0] for name in names}
        return {name: getattr(owner[name], name).reshape(shapes[name]) for name in names}

    def _varied(self, variation: Variation) -> tuple[mjx.Model, mjx.Data]:
        """The model with a world's own constants and what follows from them, and empty data."""
        asked, compiled = ASKED.intersection(variation), self.model.varying(variation)
        if (asked, compiled) not in self._models:
            with jax.ensure_compile_time_eval():
                made = converted(compiled, asked), empty_data(compiled, asked)
                self._models[asked, compiled] = _strong(made)
        (model, data), constants = self._models[asked, compiled], {}
        for name, value in variation.items():
            _, option, field = name.rpartition("opt.")
            private = option and not hasattr(model.opt, field)
            path = f"opt._impl.{field}" if private else name
            held = functools.reduce(
                lambda owner, part: getattr(owner, part, None), path.split("."), model
            )
            if name in OVERLOOKED or not isinstance(held, jax.Array):
                raise VariationError(
                    f"the engine 'mjx' cannot vary {name!r}; use physics='native' for that"
                )
            constants[path] = _like(value, held).reshape(held.shape)
        model = model.tree_replace(constants) if constants else model
        if DERIVED_FROM.intersection(variation):
            model = derive(model, data)
        return model, data


@jax.custom_jvp
def _constant(value: Array) -> Array:
    """The value without its derivative, where `jax.lax.stop_gradient` may not be transposed."""
    return value


@_constant.defjvp
def _constant_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    del tangents
    return primals[0], jnp.zeros_like(primals[0])


def _moving(data: mjx.Data) -> Arrays:
    """The part of MJX's data that changes from step to step."""
    return {name: getattr(data, name) for name in MOVING}


def _like(value: Array, reference: Array) -> Array:
    """A value in the precision of another."""
    return jnp.asarray(value, reference.dtype)


def _strong(tree: Any) -> Any:
    """The same numbers, none of a weak type: a second call with them compiles nothing anew."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.asarray(x).dtype), tree)


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
