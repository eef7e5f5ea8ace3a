"""Derivatives of an engine that runs on the host, in both of JAX's modes.

`finite_differences` differentiates its calls. Where no derivative is asked for, nothing of this
runs, and nothing is kept for it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching

from worldline.errors import WorldlineError
from worldline.host.calls import HostCall, Spec
from worldline.host.primitive import host_primitive, rule, stack
from worldline.physics.finite_differences import (
    DifferentiableCall,
    backwards,
    forwards,
)
from worldline.types import Array, NDArray


@dataclasses.dataclass(frozen=True)
class _Tangent(HostCall):
    """Pushes tangents of some operands forwards to the results that have a derivative."""

    of: DifferentiableCall
    wrt: tuple[int, ...]
    """The operands that have a tangent, by number."""

    @property
    def name(self) -> str:
        """The name of the call."""
        return f"tangent {self.wrt} {self.of.name}"

    @property
    def results(self) -> list[Spec]:
        """A tangent of each result that has one."""
        return [(self.of.results[i][0], np.float32) for i in self.of.differentiable]

    @property
    def shareable(self) -> int:
        """The operands where the derivative is taken."""
        return self.of.shareable

    def run(self, *operands: NDArray) -> list[NDArray]:
        """Takes the differences."""
        return forwards(*operands, call=self.of, wrt=self.wrt)


@dataclasses.dataclass(frozen=True)
class _Cotangent(HostCall):
    """Pulls cotangents of some results back to some operands."""

    tangent: _Tangent
    outputs: tuple[int, ...]
    """The results that have a cotangent, numbered within those of `tangent`."""
    several: tuple[int, ...] = ()
    """The lengths of axes in front of a cotangent's own, along which several cotangents come."""

    @property
    def name(self) -> str:
        """The name of the call."""
        return f"cotangent {self.outputs} {self.several} {self.tangent.name}"

    @property
    def results(self) -> list[Spec]:
        """A cotangent of each operand that had a tangent."""
        shapes = self.tangent.of.operand_shapes
        return [((*self.several, *shapes[i]), np.float32) for i in self.tangent.wrt]

    @property
    def shareable(self) -> int:
        """The operands where the derivative is taken."""
        return self.tangent.shareable

    def run(self, *operands: NDArray) -> list[NDArray]:
        """Takes the differences."""
        call, wrt, several = self.tangent.of, self.tangent.wrt, math.prod(self.several)
        results = backwards(*operands, call=call, wrt=wrt, of=self.outputs, several=several)
        return [
            x.reshape(len(x), *shape) for x, (shape, _) in zip(results, self.results, strict=True)
        ]


_tangent = host_primitive("worldline_tangent")
_cotangent = host_primitive("worldline_cotangent")


def differentiate(primitive: Primitive) -> None:
    """Gives a primitive of `DifferentiableCall`s both modes of differentiation."""
    ad.primitive_jvps[primitive] = rule(functools.partial(_jvp, primitive))


def _jvp(
    primitive: Primitive,
    operands: Sequence[Any],
    tangents: Sequence[Any],
    *,
    call: DifferentiableCall,
    lead: int,
) -> tuple[list[Any], list[Any]]:
    """The results, and their tangents as a linear function of those that are not zero."""
    results = primitive.bind(*operands, call=call, lead=lead)
    moved = [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in results]
    wrt = tuple(
        i
        for i, tangent in enumerate(tangents)
        if not isinstance(tangent, ad.Zero) and tangent.dtype == np.float32 and tangent.size
    )
    if wrt:
        worlds = operands[0].shape[:lead]
        given = [jnp.broadcast_to(tangents[i], (*worlds, *tangents[i].shape[lead:])) for i in wrt]
        tangent = _Tangent(call, wrt)
        out = _tangent.bind(*operands[: call.shareable], *given, call=tangent, lead=lead)
        for i, out_tangent in zip(call.differentiable, out, strict=True):
            moved[i] = out_tangent
    return results, moved


def _tangent_jvp(
    arguments: Sequence[Any], tangents: Sequence[Any], *, call: _Tangent, lead: int
) -> tuple[list[Any], list[Any]]:
    """The result is linear in the tangents, and not in the operands where it is taken."""
    reads = call.shareable
    if not all(isinstance(t, ad.Zero) for t in tangents[:reads]):
        _no_second_derivative()
    results = _tangent.bind(*arguments, call=call, lead=lead)
    given = [ad.instantiate_zeros(t) for t in tangents[reads:]]
    return results, _tangent.bind(*arguments[:reads], *given, call=call, lead=lead)


def _transpose(cotangents: Sequence[Any], *arguments: Any, call: _Tangent, lead: int) -> list[Any]:
    outputs = tuple(i for i, ct in enumerate(cotangents) if not isinstance(ct, ad.Zero) and ct.size)
    none: list[Any] = [None] * call.shareable
    if not outputs:
        return none + [ad.Zero(x.aval) if ad.is_undefined_primal(x) else None for x in arguments]
    operands = [*arguments[: call.shareable], *(cotangents[i] for i in outputs)]
    return none + list(_cotangent.bind(*operands, call=_Cotangent(call, outputs), lead=lead))


def _batch_cotangent(
    operands: Sequence[Array], axes: Sequence[Any], *, call: _Cotangent, lead: int
) -> Any:
    """Batches cotangents: many of one simulation (`jacrev`) share its differences."""
    reads = call.shareable
    if any(axis is not None for axis in axes[:reads]):
        stacked = stack(operands, axes, call, lead)
        results = _cotangent.bind(*stacked, call=call, lead=lead + 1)
        return results, [0] * len(results)
    size = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)
    given = [
        jnp.broadcast_to(jnp.expand_dims(x, lead), (*x.shape[:lead], size, *x.shape[lead:]))
        if axis is None
        else jnp.moveaxis(x, axis, lead)
        for x, axis in zip(operands[reads:], axes[reads:], strict=True)
    ]
    several = dataclasses.replace(call, several=(size, *call.several))
    results = _cotangent.bind(*operands[:reads], *given, call=several, lead=lead)
    return results, [lead] * len(results)


def _no_second_derivative(*_: Any, **__: Any) -> Any:
    raise WorldlineError(
        "finite differences give first derivatives only; for a second one, use physics='mjx'"
    )


batching.primitive_batchers[_cotangent] = rule(_batch_cotangent)
ad.primitive_jvps[_tangent] = rule(_tangent_jvp)
ad.primitive_transposes[_tangent] = rule(_transpose)
ad.primitive_jvps[_cotangent] = _no_second_derivative
