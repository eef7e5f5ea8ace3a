"""MJX's step with a constraint solver that runs to convergence and is differentiated implicitly.

MJX iterates its solver in a `while` loop, through which JAX cannot differentiate backwards. But
its result is a root, whatever way it was found: with `J` the constraints' Jacobian and `f` their
forces, the acceleration satisfies

    r(qacc) = M qacc - qfrc_smooth - J^T f(J qacc - aref) = 0.

So its derivative is that of the root (the implicit function theorem): one dense symmetric solve
with the Jacobian of `r`, which costs the same however many iterations there were, and keeps none of
them.

All the rest is MJX's own code. Where one of its functions must call ours instead of another of its
own, it is bound anew to globals of ours; MJX itself stays as it is for everyone else.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from worldline.types import Array

with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    from mujoco import mjx as mjx  # says which optional parts are absent
    from mujoco.mjx._src import collision_driver as mjx_collision
    from mujoco.mjx._src import forward as mjx_forward
    from mujoco.mjx._src import math as mjx_math
    from mujoco.mjx._src import solver as mjx_solver
    from mujoco.mjx._src.types import DataJAX as DataJAX


def _rebound(function: Callable[..., Any], **names: Any) -> Callable[..., Any]:
    """A function of MJX that sees other things than its module's under some global names."""
    plain: Any = inspect.unwrap(function)
    missing = names.keys() - plain.__globals__.keys()
    if missing:
        raise ImportError(f"this version of mujoco-mjx has no {sorted(missing)[0]}; use 3.17")
    return types.FunctionType(
        plain.__code__, {**plain.__globals__, **names}, plain.__name__, plain.__defaults__
    )


def _while_loop(
    condition: Callable[[Any], Array], body: Callable[[Any], Any], start: Any, most: int
) -> Any:
    """MJX's line search runs a fixed number of rounds to be differentiable; this one stops."""
    del most  # the condition counts too
    return jax.lax.while_loop(condition, body, start)


def _scan(body: Callable[[Any, Any], Any], start: Any, xs: Any, unroll: int) -> Any:
    """MJX writes out each stage of RK4; this one compiles the forward pass once for all of them."""
    del unroll
    return jax.lax.scan(body, start, xs)


_line_search = _rebound(mjx_solver._linesearch, _while_loop_scan=_while_loop)
_optimum = _rebound(mjx_solver.solve, _linesearch=_line_search)


def solve(model: mjx.Model, data: mjx.Data) -> mjx.Data:
    """The acceleration and forces that satisfy the constraints; differentiable in both modes."""
    if data._impl.efc_J.size == 0:
        return data.replace(qacc=data.qacc_smooth)

    def forces_at(qacc: Array) -> Any:
        return mjx_solver.Context.create(model, data.replace(qacc=qacc), grad=False)

    def residual(qacc: Array) -> Array:
        context = forces_at(qacc)
        return context.Ma - data.qfrc_smooth - context.qfrc_constraint

    def optimum(_: Any, qacc: Array) -> Array:
        del qacc  # the solver chooses between the last acceleration and the unconstrained one
        return _polished(model, data, _optimum(model, data).qacc)

    qacc = jax.lax.custom_root(residual, data.qacc_smooth, optimum, _symmetric_solve)
    context = forces_at(qacc)
    return data.tree_replace(
        {
            "qacc": qacc,
            "qfrc_constraint": context.qfrc_constraint,
            "_impl.efc_force": context.efc_force,
        }
    )


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


def forward(model: mjx.Model, data: mjx.Data) -> mjx.Data:
    """`mj_forward`: all that follows from the state and the inputs."""
    data = refresh(model, data)
    data = mjx.fwd_actuation(model, data)
    data = mjx.fwd_acceleration(model, data)
    return mjx.sensor_acc(model, solve(model, data))


_PLANE_CAPSULE = (mjx.GeomType.PLANE, mjx.GeomType.CAPSULE)
_plane_capsule = mjx_collision._COLLISION_FUNC[_PLANE_CAPSULE]


def _capsule_on_plane(
    model: mjx.Model, data: mjx.Data, key: Any, geom: Array
) -> tuple[Array, Array, Array]:
    """The two contacts of each capsule with a plane, their friction along the capsule, as MuJoCo's.

    MJX turns the friction of a capsule within 30 degrees of upright to the world's axes. A pyramid
    of friction is not round: the shin of an ant then slides otherwise.
    """
    dist, pos, _ = _plane_capsule(model, data, key, geom)
    normal, along = (data.geom_xmat[of][:, :, 2] for of in geom.T)
    along -= normal * jnp.sum(normal * along, axis=1, keepdims=True)
    squared = jnp.sum(along**2, axis=1, keepdims=True)
    upright = squared < jnp.finfo(along.dtype).tiny  # then along the first axis, as mju_normalize3
    along = jnp.where(upright, jnp.eye(3)[0], along / jnp.sqrt(jnp.where(upright, 1.0, squared)))
    frame = jnp.stack([normal, along, jnp.cross(normal, along)], axis=1)
    return dist, pos, jnp.repeat(frame, _plane_capsule.ncon, axis=0)


_capsule_on_plane.ncon = _plane_capsule.ncon  # type: ignore[attr-defined] # MJX asks for it
_COLLIDERS = {**mjx_collision._COLLISION_FUNC, _PLANE_CAPSULE: _capsule_on_plane}
_collision = _rebound(mjx_collision.collision, _COLLISION_FUNC=_COLLIDERS)
_fwd_position = _rebound(
    mjx_forward.fwd_position, collision_driver=types.SimpleNamespace(collision=_collision)
)


def refresh(model: mjx.Model, data: mjx.Data) -> mjx.Data:
    """`mj_step1`, without the controls: positions, velocities and their sensors."""
    data = mjx.sensor_pos(model, _fwd_position(model, data))
    return mjx.sensor_vel(model, mjx.fwd_velocity(model, data))


def _turned(quaternion: Array, velocity: Array, dt: Array) -> Array:
    """An orientation after a time at an angular velocity, `(4,)`.

    MJX's own goes by axis and angle: at rest there is no axis, and its derivative is zero there.
    """
    half = 0.5 * dt * velocity
    squared = jnp.sum(half**2)
    small = squared < 1e-8
    angle = jnp.sqrt(jnp.where(small, 1.0, squared))
    sine = jnp.where(small, 1.0 - squared / 6.0, jnp.sin(angle) / angle)
    cosine = jnp.where(small, 1.0 - squared / 2.0, jnp.cos(angle))
    turn = jnp.concatenate([cosine[None], sine * half])
    return mjx_math.normalize(mjx_math.quat_mul(quaternion, turn))


_math = types.SimpleNamespace(**{**vars(mjx_math), "quat_integrate": _turned})
_integrate = _rebound(mjx_forward._integrate_pos, math=_math)
_advance = _rebound(mjx_forward._advance, _integrate_pos=_integrate)
_euler = _rebound(mjx_forward.euler, _advance=_advance)
_implicit = _rebound(mjx_forward.implicit, _advance=_advance)
#: What of JAX MJX's `rungekutta4` uses.
_jax = types.SimpleNamespace(tree_util=jax.tree_util, lax=types.SimpleNamespace(scan=_scan))
_runge_kutta = _rebound(
    mjx_forward.rungekutta4,
    forward=forward,
    jax=_jax,
    _integrate_pos=_integrate,
    _advance=_advance,
)

#: `mj_step`: the world one time step later.
step: Callable[[mjx.Model, mjx.Data], mjx.Data] = _rebound(
    mjx_forward.step,
    forward=forward,
    euler=_euler,
    implicit=_implicit,
    rungekutta4=_runge_kutta,
)
