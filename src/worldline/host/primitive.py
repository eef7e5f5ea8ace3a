"""JAX primitives whose work is done by a function of this process: one maker for all of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Primitive
from jax.interpreters import batching, mlir

from worldline.host.calls import HostCall, call_host, call_now
from worldline.types import Array


def host_primitive(
    name: str,
    *,
    evaluate: Callable[..., Sequence[Array]] | None = None,
    lower: Callable[..., Sequence[Any]] | None = None,
    has_side_effect: bool = False,
) -> Primitive:
    """Makes a primitive with the static parameters `call`, a `HostCall`, and `lead`.

    `lead` is how many axes in front of each operand count worlds: 0 where the primitive is bound
    for one world. Each `vmap` adds one, and however many there are, the host is called once.

    Args:
        name: the primitive's name.
        evaluate: runs it on concrete arrays; by default in NumPy.
        lower: lowers it; by default to a call of the host.
        has_side_effect: whether it runs where nobody needs its results; `vmap` then refuses it.
    """
    primitive = _HostPrimitive(name)
    primitive.multiple_results = True

    def default(ctx: Any, *operands: Any, call: HostCall, lead: int) -> Sequence[Any]:
        return call_host(ctx, call, operands, lead=lead, has_side_effect=has_side_effect)

    def batch(operands: Any, axes: Any, *, call: HostCall, lead: int) -> Any:
        results = primitive.bind(*stack(operands, axes, call, lead), call=call, lead=lead + 1)
        return results, [0] * len(results)

    primitive.def_impl(rule(evaluate or _evaluate))
    primitive.def_abstract_eval(rule(_result_avals))
    mlir.register_lowering(primitive, rule(lower or default))
    if not has_side_effect:
        batching.primitive_batchers[primitive] = rule(batch)
    return primitive


class _HostPrimitive(Primitive):
    """A primitive whose calls go with the programs that they are part of.

    JAX remembers the static parameters of thousands of primitives that it has seen, and with them
    a call's engine and all its memory. But it forgets those with a jaxpr among them when that
    jaxpr is gone. So each equation gets one of its own, `life`.
    """

    def bind(self, *operands: Any, **static: Any) -> Any:
        return super().bind(*operands, **{"life": ClosedJaxpr(_nothing(), ()), **static})


@functools.cache
def _nothing() -> Any:
    """A jaxpr that does nothing."""
    return jax.make_jaxpr(lambda: ())().jaxpr


def rule(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a rule of a host primitive from a function of its operands, `call` and `lead`."""

    @functools.wraps(function)
    def of_all_parameters(*operands: Any, life: ClosedJaxpr, **static: Any) -> Any:
        return function(*operands, **static)

    return of_all_parameters


def stack(operands: Sequence[Array], axes: Sequence[Any], call: HostCall, lead: int) -> list[Array]:
    """Moves the mapped axis of every operand in front of its `lead` axes of worlds.

    An operand that is the same for all worlds gets axes of length 1 in front, if `call` allows it
    to be shared; otherwise it is repeated.
    """
    arrays = [
        x[None] if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(operands, axes, strict=True)
    ]
    worlds = np.broadcast_shapes(*(x.shape[: lead + 1] for x in arrays))

    def whole(index: int, x: Array) -> Array:
        if 0 < index < call.shareable and math.prod(x.shape[: lead + 1]) == 1:
            return x
        return jnp.broadcast_to(x, (*worlds, *x.shape[lead + 1 :]))

    return [whole(index, x) for index, x in enumerate(arrays)]


def _result_avals(first: Any, *_: Any, call: HostCall, lead: int) -> list[jax.core.ShapedArray]:
    worlds = first.shape[:lead]
    return [jax.core.ShapedArray((*worlds, *s), np.dtype(kind)) for s, kind in call.results]


def _evaluate(*operands: Array, call: HostCall, lead: int) -> list[Array]:
    return [jnp.asarray(x) for x in call_now(call, operands, lead)]
