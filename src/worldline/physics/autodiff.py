"""Derivatives of an engine that runs on the host: its call becomes differentiable in both of JAX's
modes, by the finite differences of `differences`.

Nothing of it runs, and nothing is kept, where no derivative is asked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from worldline.errors import WorldlineError
from worldline.host.calls import Named, call_host
from worldline.physics.finite_differences import HostCall, NDArray, backwards, forwards
from worldline.types import Array

_tangent = Primitive("worldline_tangent")
_cotangent = Primitive("worldline_cotangent")


def differentiate(primitive: Primitive) -> None:
    """Gives a primitive with a `HostCall` as its `call` parameter both modes of differentiation."""
    ad.primitive_jvps[primitive] = functools.partial(_jvp, primitive)


def _jvp(
    primitive: Primitive, operands: Sequence[Any], tangents: Sequence[Any], *, call: HostCall
) -> tuple[list[Any], list[Any]]:
    """The results, and their tangents as a linear function of those that are not zero."""
    results = primitive.bind(*operands, call=call)
    moved = [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in results]
    wrt = tuple(
        i
        for i, tangent in enumerate(tangents)
        if not isinstance(tangent, ad.Zero) and tangent.dtype == np.float32 and tangent.size
    )
    if wrt:
        given = [tangents[i] for i in wrt]
        out = _tangent.bind(*operands[: call.reads], *given, call=call, wrt=wrt)
        for i, tangent in zip(call.differentiable, out, strict=True):
            moved[i] = tangent
    return results, moved


def _transpose(cotangents: Sequence[Any], *arguments: Any, call: HostCall, wrt: Any) -> list[Any]:
    of = tuple(i for i, ct in enumerate(cotangents) if not isinstance(ct, ad.Zero) and ct.size)
    none: list[Any] = [None] * call.reads
    if not of:
        return none + [ad.Zero(x.aval) if ad.is_undefined_primal(x) else None for x in arguments]
    given = [cotangents[i] for i in of]
    out = _cotangent.bind(*arguments[: call.reads], *given, call=call, wrt=wrt, of=of)
    return none + list(out)


def _tangent_avals(mask: Any, *_: Any, call: HostCall, wrt: Any) -> list[jax.core.ShapedArray]:
    shapes = call.result_shapes()
    return [
        jax.core.ShapedArray((*mask.shape, *shapes[i]), np.dtype(np.float32))
        for i in call.differentiable
    ]


def _cotangent_avals(
    mask: Any, *arrays: Any, call: HostCall, wrt: Any, of: Any
) -> list[jax.core.ShapedArray]:
    shapes = call.operand_shapes()
    given = arrays[call.reads - 1]
    own = len(call.result_shapes()[call.differentiable[of[0]]])
    lead = given.shape[: given.ndim - own]  # the worlds' axes, and those of several cotangents
    return [jax.core.ShapedArray((*lead, *shapes[i]), np.dtype(np.float32)) for i in wrt]


def _batch_tangent(
    operands: Sequence[Array], axes: Sequence[Any], *, call: HostCall, wrt: Any
) -> Any:
    results = _tangent.bind(*stack(operands, axes), call=call, wrt=wrt)
    return results, [0] * len(results)


def _batch_cotangent(
    operands: Sequence[Array], axes: Sequence[Any], *, call: HostCall, wrt: Any, of: Any
) -> Any:
    """Many cotangents of one simulation (`jacrev`) share its differences."""
    axis = 0
    if all(axis is None for axis in axes[: call.reads]):
        axis = operands[0].ndim
        given = stack(operands[call.reads :], axes[call.reads :])
        stacked = [*operands[: call.reads], *(jnp.moveaxis(x, 0, axis) for x in given)]
    else:
        stacked = stack(operands, axes)
    results = _cotangent.bind(*stacked, call=call, wrt=wrt, of=of)
    return results, [axis] * len(results)


def stack(operands: Sequence[Array], axes: Sequence[Any]) -> list[Array]:
    """Every operand with the mapped axis in front; those that have none are repeated."""
    size = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)
    return [
        jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(operands, axes, strict=True)
    ]


def _register(primitive: Primitive, host: Callable[..., list[NDArray]], avals: Any) -> None:
    """Makes a primitive of a function of the host, with the primitive's parameters in front."""
    primitive.multiple_results = True

    def evaluate(*operands: Array, **parameters: Any) -> list[Array]:
        return [jnp.asarray(x) for x in host(*map(np.asarray, operands), **parameters)]

    def lowering(ctx: Any, *operands: Any, **parameters: Any) -> Any:
        said = parameters | {"call": parameters["call"].name}
        named = Named(f"{host.__name__} {said}", functools.partial(host, **parameters))
        return call_host(ctx, named, operands)

    primitive.def_impl(evaluate)
    primitive.def_abstract_eval(avals)
    mlir.register_lowering(primitive, lowering)


def _tangent_jvp(
    arguments: Sequence[Any], tangents: Sequence[Any], *, call: HostCall, wrt: Any
) -> tuple[list[Any], list[Any]]:
    """A tangent is linear in those it comes from; not in where it is taken."""
    if not all(isinstance(t, ad.Zero) for t in tangents[: call.reads]):
        _no_second_derivative()
    results = _tangent.bind(*arguments, call=call, wrt=wrt)
    given = [ad.instantiate_zeros(t) for t in tangents[call.reads :]]
    moved = _tangent.bind(*arguments[: call.reads], *given, call=call, wrt=wrt)
    return results, moved


def _no_second_derivative(*_: Any, **__: Any) -> Any:
    raise WorldlineError(
        "finite differences give first derivatives only; for a second one, use physics='mjx'"
    )


_register(_tangent, forwards, _tangent_avals)
_register(_cotangent, backwards, _cotangent_avals)
batching.primitive_batchers[_tangent] = _batch_tangent
batching.primitive_batchers[_cotangent] = _batch_cotangent
ad.primitive_jvps[_tangent] = _tangent_jvp
ad.primitive_transposes[_tangent] = _transpose
ad.primitive_jvps[_cotangent] = _no_second_derivative
