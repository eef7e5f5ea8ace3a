"""MJX's constraint solver, run to convergence and differentiated implicitly.

MJX iterates its solver in a `while` loop, through which JAX cannot differentiate backwards. But
its result is a root, whatever way it was found: with `J` the constraints' Jacobian and `f` their
forces, the acceleration satisfies

    r(qacc) = M qacc - qfrc_smooth - J^T f(J qacc - aref) = 0.

So its derivative is that of the root (the implicit function theorem): one dense symmetric solve
with the Jacobian of `r`, which costs the same however many iterations there were, and keeps none of
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from worldline.physics.mjx.source import mjx, mjx_solver, with_globals
from worldline.types import Array


def _while_loop(
    condition: Callable[[Any], Array], body: Callable[[Any], Any], start: Any, most: int
) -> Any:
    """MJX's line search runs a fixed number of rounds to be differentiable; this one stops."""
    del most  # the condition counts too
    return jax.lax.while_loop(condition, body, start)


#: The name of what the solver finds, for `jax.checkpoint`: to keep it is to solve once.
SOLUTION = "qacc"

_line_search = with_globals(mjx_solver._linesearch, _while_loop_scan=_while_loop)
_optimum = with_globals(mjx_solver.solve, _linesearch=_line_search)


def solve(model: mjx.Model, data: mjx.Data) -> mjx.Data:
    """The acceleration and forces that satisfy the constraints; differentiable in both modes."""
    if data._impl.efc_J.size == 0:
        return data.replace(qacc=data.qacc_smooth)

    def forces_at(qacc: Array) -> Any:
        return mjx_solver.Context.create(model, data.replace(qacc=qacc), grad=False)

    def residual(qacc: Array) -> Array:
        context = forces_at(qacc)
        return context.Ma - data.qfrc_smooth - context.qfrc_constraint

    found = checkpoint_name(_found(model, data), SOLUTION)
    qacc = jax.lax.custom_root(residual, found, lambda _, root: root, _symmetric_solve)
    context = forces_at(qacc)
    return data.tree_replace(
        {
            "qacc": qacc,
            "qfrc_constraint": context.qfrc_constraint,
            "_impl.efc_force": context.efc_force,
        }
    )


@jax.custom_jvp
def _found(model: mjx.Model, data: mjx.Data) -> Array:
    """The acceleration as the solver finds it; without a derivative, which is that of the root."""
    return _polished(model, data, _optimum(model, data).qacc)


@_found.defjvp
def _found_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    del tangents
    qacc = _found(*primals)
    return qacc, jnp.zeros_like(qacc)


def _polished(model: mjx.Model, data: mjx.Data, qacc: Array) -> Array:
    """The acceleration after one more step of Newton's method, where that makes the residual less.

    MJX stops when the cost no longer falls. Near its minimum the cost is flat: in float32 it stands
    still where accelerations are still wrong in the third digit, and so are the velocities of a
    robot at rest, and all derivatives that are proportional to them. The residual goes to zero
    linearly.
    """
    model = model.tree_replace({"opt.solver": mjx_solver.SolverType.NEWTON})
    before = mjx_solver.Context.create(model, data.replace(qacc=qacc))
    moved = qacc - before.Mgrad
    after = mjx_solver.Context.create(model, data.replace(qacc=moved), grad=False)
    residual = after.Ma - data.qfrc_smooth - after.qfrc_constraint
    better = jnp.sum(residual**2) < jnp.sum(before.grad**2)
    return jnp.where(better, moved, qacc)


def _symmetric_solve(linear: Callable[[Array], Array], y: Array) -> Array:
    """`x` with `linear(x) = y`, for a symmetric positive definite map of vectors."""
    matrix = jax.vmap(linear)(jnp.eye(y.size, dtype=y.dtype))
    factor = jax.scipy.linalg.cho_factor(0.5 * (matrix + matrix.T))
    return jax.scipy.linalg.cho_solve(factor, y)
