"""MJX's step as MuJoCo's own, with a solver that is differentiated implicitly.

All of it is MJX's code, but for the parts whose result or derivative differs from MuJoCo's:
contacts (`mjx.contact`), constraints (`mjx.constraint`), inertia (`mjx.inertia`), passive forces
(`mjx.passive`), the solver (`mjx.solver`), and here the integrators. The differences are those that
`tests/physics/test_mjx_step.py` and `tests/physics/test_every_field.py` show.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.physics.mjx.constraint import make_constraint
from worldline.physics.mjx.contact import collision
from worldline.physics.mjx.inertia import coupled, tendon_armature
from worldline.physics.mjx.motion import displaced, integrate
from worldline.physics.mjx.passive import passive
from worldline.physics.mjx.solver import SOLUTION, solve
from worldline.physics.mjx.source import (
    mjx,
    mjx_collision,
    mjx_constraint,
    mjx_derivative,
    mjx_forward,
    mjx_passive,
    mjx_smooth,
    mjx_support,
    with_globals,
    with_names,
)
from worldline.types import Array

#: MuJoCo's RK4 turns bodies at fourth order since version 4.
_TURNS_AT_FOURTH_ORDER = mujoco.mj_version() >= 4_000_000
#: Since version 4, actuators that a joint's or a tendon's limit holds do not brake implicitly.
_LIMITS_OF_JOINTS_HOLD = _TURNS_AT_FOURTH_ORDER


_fwd_position = with_globals(
    mjx_forward.fwd_position,
    collision_driver=with_names(mjx_collision, collision=collision),
    constraint=with_names(mjx_constraint, make_constraint=make_constraint),
    smooth=with_names(mjx_smooth, tendon_armature=tendon_armature),
)
_fwd_velocity = with_globals(
    mjx_forward.fwd_velocity, passive=with_names(mjx_passive, passive=passive)
)
_advance = with_globals(mjx_forward._advance, _integrate_pos=integrate)


def forward(model: mjx.Model, data: mjx.Data) -> mjx.Data:
    """`mj_forward`: all that follows from the state and the inputs."""
    data = refresh(model, data)
    data = mjx.fwd_actuation(model, data)
    data = mjx.fwd_acceleration(model, data)
    return mjx.sensor_acc(model, solve(model, data))


def refresh(model: mjx.Model, data: mjx.Data) -> mjx.Data:
    """`mj_step1` without controls: what follows from positions and velocities, with sensors."""
    data = mjx.sensor_pos(model, _fwd_position(model, data))
    return mjx.sensor_vel(model, _fwd_velocity(model, data))


def _implicit(model: mjx.Model, data: mjx.Data) -> mjx.Data:
    """`implicitfast`: the velocity at which smooth forces are those of the step's end."""
    h = model.opt.timestep
    mass = mjx.full_m(model, data)
    force = data.qfrc_smooth + data.qfrc_constraint
    matrix = mass - h * _damping(model, data)
    alone = _bodies_alone(model)
    if alone.size:
        qacc = jnp.linalg.solve(matrix + h * _gyroscopic(model, data, alone), force)
    else:
        qacc = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix), force)
    return _advance(model, data, data.act_dot, qacc)


def _damping(model: mjx.Model, data: mjx.Data) -> Array:
    """How actuators, joints and tendons brake: `d qfrc_smooth / d qvel`, `(nv, nv)`.

    MuJoCo differs from MJX in three ways. The force of an actuator at a limit has no derivative;
    that of a muscle has one. Entries that couple joints on different branches of a tree, as a
    tendon of two fingers does, are left out.
    """
    gives_way = ~_at_limits(model, data)[:, None]
    free = model.replace(
        actuator_gainprm=jnp.where(gives_way, model.actuator_gainprm, 0.0),
        actuator_biasprm=jnp.where(gives_way, model.actuator_biasprm, 0.0),
    )
    derivative = mjx_derivative.deriv_smooth_vel(free, data)
    if derivative is None:  # both actuators and dampers are switched off
        return jnp.zeros((model.nv, model.nv))
    if not model.opt.disableflags & mjx.DisableBit.ACTUATION:
        derivative += _of_muscles(free, data)
    kept = coupled(model)
    for dofs in _dofs(model, _bodies_alone(model)):
        kept[np.ix_(dofs, dofs)] = True  # of simple bodies, the inertia has no products
    return jnp.where(kept, derivative, 0.0)


def _of_muscles(model: mjx.Model, data: mjx.Data) -> Array:
    """Of `d qfrc_smooth / d qvel` the part of muscles, which pull less as they shorten."""
    muscles = np.flatnonzero(model.actuator_gaintype == mjx.GainType.MUSCLE)
    if not muscles.size:
        return jnp.zeros((model.nv, model.nv))
    slope = jax.vmap(jax.grad(mjx_support.muscle_gain, argnums=1))(
        data.actuator_length[muscles],
        data.actuator_velocity[muscles],
        model.actuator_lengthrange[muscles],
        model.actuator_acc0[muscles],
        model.actuator_gainprm[muscles],
    )
    drive = data.ctrl.at[model.actuator_dyntype != mjx.DynType.NONE].set(data.act)[muscles]
    moment = data._impl.actuator_moment[muscles]
    return moment.T @ ((slope * drive)[:, None] * moment)


def _at_limits(model: mjx.Model, data: mjx.Data) -> Array:
    """Which actuators push as much as they may, `(nu,)` bool.

    By their own limit or, since MuJoCo 4, by that of their joint or tendon.
    """
    force, kind = data.actuator_force, model.actuator_trntype
    held = model.actuator_forcelimited & _reaches(force, model.actuator_forcerange)
    if not _LIMITS_OF_JOINTS_HOLD:
        return held
    target = model.actuator_trnid[:, 0]
    at_joint = np.isin(kind, (mjx.TrnType.JOINT, mjx.TrnType.JOINTINPARENT))
    if np.any(at_joint) and np.any(model.jnt_actfrclimited):
        joint = np.where(at_joint, target, 0)
        torque = data.qfrc_actuator[model.jnt_dofadr[joint]]
        reached = _reaches(torque, model.jnt_actfrcrange[joint])
        held |= at_joint & model.jnt_actfrclimited[joint] & reached
    at_tendon = kind == mjx.TrnType.TENDON
    if np.any(at_tendon) and np.any(model.tendon_actfrclimited):
        tendon = np.where(at_tendon, target, 0)
        total = (at_tendon & (tendon[:, None] == tendon)) @ force  # of all at the same tendon
        reached = _reaches(total, model.tendon_actfrcrange[tendon], 1e-5)
        held |= at_tendon & model.tendon_actfrclimited[tendon] & reached
    return held


def _reaches(force: Array, limits: Array, tolerance: float = 0.0) -> Array:
    """Whether forces, `(n,)`, are at their limits, `(n, 2)`, or within a share of them."""
    low, high = limits.T
    less, more = low + tolerance * jnp.abs(low), high - tolerance * jnp.abs(high)
    return (force <= less) | (force >= more)


def _bodies_alone(model: mjx.Model) -> np.ndarray:
    """The bodies that have a free joint and no child, by number."""
    floating = model.jnt_bodyid[model.jnt_type == mjx.JointType.FREE]
    return np.setdiff1d(floating, model.body_parentid)


def _dofs(model: mjx.Model, bodies: np.ndarray) -> np.ndarray:
    """The degrees of freedom of floating bodies, `(n, 6)`."""
    first = model.jnt_dofadr[model.body_jntadr[bodies]]
    return np.asarray(first[:, None] + np.arange(6))


def _gyroscopic(model: mjx.Model, data: mjx.Data, bodies: np.ndarray) -> Array:
    """The derivative of the bias force of floating bodies without children by `qvel`, `(nv, nv)`.

    MuJoCo keeps this part in `implicitfast`, so that a spinning body gains no energy; MJX does not.
    """
    dofs = _dofs(model, bodies)

    def bias(spin: Array, body: Array) -> Array:
        turn, axes = data.xmat[body], data.ximat[body]
        arm, w = data.xipos[body] - data.xpos[body], turn @ spin
        force = model.body_mass[body] * jnp.cross(w, jnp.cross(w, arm))
        momentum = axes @ (model.body_inertia[body] * (axes.T @ w))
        torque = jnp.cross(arm, force) + jnp.cross(w, momentum)
        return jnp.concatenate([force, turn.T @ torque])

    blocks = jax.vmap(jax.jacfwd(bias))(data.qvel[dofs[:, 3:]], jnp.asarray(bodies))
    zero = jnp.zeros((model.nv, model.nv))
    return zero.at[dofs[:, :, None], dofs[:, None, 3:]].set(blocks)


#: The backward pass computes the function again, all but the solver's result: to keep the hundreds
#: of small arrays that it needs takes longer and far more memory.
_computed_again = functools.partial(
    jax.checkpoint,
    policy=jax.checkpoint_policies.save_only_these_names(SOLUTION),
    prevent_cse=False,
)


def _runge_kutta(model: mjx.Model, start: mjx.Data) -> mjx.Data:
    """Classical Runge-Kutta of order 4.

    MJX writes out each stage; here the forward pass is compiled once for all of them.
    """
    h = model.opt.timestep

    @_computed_again
    def stage(carry: Any, weights: Array) -> tuple[Any, Array]:
        _, rates, total = carry
        ahead, share = weights
        moved, faster, act = jax.tree.map(lambda rate: ahead * h * rate, rates)
        # Where nothing moves, an orientation is not rounded.
        qpos = jnp.where(ahead == 0, start.qpos, displaced(model, start.qpos, moved))
        data = start.replace(
            qpos=qpos,
            qvel=start.qvel + faster,
            act=start.act + act,
            time=start.time + ahead * h,
        )
        # In float64, MJX gives some of its integers, as of what a tendon wraps, more bits.
        data = jax.tree.map(lambda new, old: new.astype(old.dtype), forward(model, data), start)
        rates = (_rate_of(model, moved, data.qvel), data.qacc, data.act_dot)
        total = jax.tree.map(lambda t, rate: t + share * rate, total, rates)
        return (data, rates, total), data.sensordata

    none = jax.tree.map(jnp.zeros_like, (start.qvel, start.qacc, start.act_dot))
    tableau = jnp.array([[0.0, 1 / 6], [0.5, 1 / 3], [0.5, 1 / 3], [1.0, 1 / 6]])
    (last, _, total), sensordata = jax.lax.scan(stage, (start, none, none), tableau)
    qvel, qacc, act_dot = total
    # As in MuJoCo, sensors are those of the step's start.
    kept = {name: getattr(start, name) for name in ("qpos", "qvel", "act", "time")}
    last = last.replace(**kept, sensordata=sensordata[0])
    return _advance(model, last, act_dot, qacc, qvel)


def _rate_of(model: mjx.Model, moved: Array, qvel: Array) -> Array:
    """How fast a displacement from where the step began grows, both `(nv,)`.

    For a rotation `u` (rad) at an angular velocity `w` (rad/s) it is not `w` but, by the inverse of
    the exponential's differential (Munthe-Kaas, "High order Runge-Kutta methods on manifolds",
    1999), `w + u x w / 2 + c(|u|) u x (u x w)` with `c(t) = (1 - t/2 cot(t/2)) / t^2`.
    """
    ball, free = (model.jnt_type == kind for kind in (mjx.JointType.BALL, mjx.JointType.FREE))
    first = np.concatenate([model.jnt_dofadr[ball], model.jnt_dofadr[free] + 3])
    if not (first.size and _TURNS_AT_FOURTH_ORDER):
        return qvel
    dofs = first[:, None] + np.arange(3)
    u, w = moved[dofs], qvel[dofs]
    squared = jnp.sum(u**2, axis=1, keepdims=True)
    small = squared < 1e-2
    t = jnp.sqrt(jnp.where(small, 1.0, squared))
    series = 1 / 12 + squared / 720 + squared**2 / 30240
    c = jnp.where(small, series, (1 - 0.5 * t / jnp.tan(0.5 * t)) / t**2)
    across = jnp.cross(u, w)
    return qvel.at[dofs].set(w + 0.5 * across + c * jnp.cross(u, across))


def _euler(model: mjx.Model, data: mjx.Data) -> mjx.Data:
    """Semi-implicit Euler. MJX dampens implicitly even where dampers are switched off."""
    flags = model.opt.disableflags
    if flags & mjx.DisableBit.DAMPER:
        flags |= mjx.DisableBit.EULERDAMP
        model = model.replace(opt=model.opt.replace(disableflags=flags))
    return _mjx_euler(model, data)


_mjx_euler = with_globals(mjx_forward.euler, _advance=_advance)
_one_pass = with_globals(mjx_forward.step, forward=forward, euler=_euler, implicit=_implicit)


def step(model: mjx.Model, data: mjx.Data) -> mjx.Data:
    """`mj_step`: the world one time step later."""
    if model.opt.integrator == mjx.IntegratorType.RK4:
        return _runge_kutta(model, data)
    advanced: mjx.Data = _computed_again(functools.partial(_one_pass, model))(data)
    return advanced
