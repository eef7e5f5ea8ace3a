"""Worlds in motion whose derivatives are known: plain MuJoCo's, by differences."""

import copy
import dataclasses
import functools
from typing import Any, NamedTuple

import derivatives
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import plain_mujoco

import toys
from worldline.model import Model
from worldline.physics.base import Physics, PhysicsState, Reads
from worldline.physics.native import NativePhysics
from worldline.tasks.gym.base import assets

READS = Reads(("sensordata", "xpos"), ("qpos", "xpos"))
CONSTANTS = ("body_mass", "geom_friction", "dof_damping")

#: Height of the root and steps before the derivative is taken, so that the feet are on the ground.
CASES: dict[str, tuple[str, float | None, int]] = {
    "pendulum": (toys.PENDULUM, None, 4),
    "cartpole": ("inverted_pendulum", None, 4),
    "double pendulum": ("inverted_double_pendulum", None, 4),
    "half-cheetah": ("half_cheetah", None, 40),
    "ant": ("ant", 0.5, 16),
    "ant by Euler": ("ant", 0.5, 16),
    "ant in the air": ("ant", 1.5, 2),
    "humanoid": ("humanoid", 1.3, 24),
    "boxes": (toys.BOXES, None, 24),
    "arm": (toys.ARM, None, 10),
    "mechanism": (toys.MECHANISM, None, 10),
}


class Case(NamedTuple):
    """A world in motion, in ours and in plain MuJoCo."""

    physics: Physics
    state: PhysicsState
    ctrl: Any
    model: mujoco.MjModel
    """With the constants as float32 gives them."""
    start: dict[str, np.ndarray]
    contacts: int


@functools.cache
def case(name: str, tolerance: float | None = None) -> Case:
    """A case by name.

    Args:
        name: one of `CASES`.
        tolerance: of the constraint solver; None: the model's own.
    """
    source, height, steps = CASES[name]
    model = Model(source if source.lstrip().startswith("<") else assets() / f"{source}.xml")
    if "Euler" in name:
        model.mj.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    if tolerance is not None:
        model.mj.opt.tolerance = tolerance
    physics = NativePhysics(model, READS)
    random = np.random.default_rng(2)
    qpos = model.qpos0 + 0.02 * random.uniform(-1, 1, model.nq)
    if height is not None:
        qpos[2] = height
    qvel, ctrl = random.normal(0, 0.3, model.nv), random.uniform(-0.3, 0.3, model.nu)
    qpos, qvel, ctrl = (jnp.asarray(x, jnp.float32) for x in (qpos, qvel, ctrl))
    variation = {field: jnp.asarray(model.constant(field), jnp.float32) for field in CONSTANTS}
    variation["dof_damping"] += 0.05
    state = physics.start(qpos, qvel, variation, {"ctrl": ctrl})
    for _ in range(steps):
        state = physics.step(state, {}, 5)
    plain = copy.copy(model.mj)
    for field in CONSTANTS:
        getattr(plain, field)[:] = variation[field]
    # Its own solver stops where a difference over 2e-6 is still wrong.
    plain.opt.tolerance = 1e-14
    mujoco.mj_setConst(plain, mujoco.MjData(plain))
    data = mujoco.MjData(plain)
    mujoco.mj_setState(plain, data, physics.integration_state(state), plain_mujoco.INTEGRATION)
    names = ("qpos", "qvel", "act", "ctrl", "qacc_warmstart", "mocap_pos", "mocap_quat")
    start = {field: np.array(getattr(data, field)) for field in names}
    mujoco.mj_forward(plain, data)
    return Case(physics, state, ctrl, plain, start, data.ncon)


def assert_close(ours: np.ndarray, theirs: np.ndarray, relative: float, what: Any) -> None:
    """Equal up to `relative` times the largest entry."""
    assert ours.shape == theirs.shape, what
    error = np.abs(ours - theirs).max(initial=0)
    assert error <= relative * np.abs(theirs).max(initial=1e-12), (what, error)


def outputs(
    physics: Physics, state: PhysicsState, substeps: int, qpos, qvel, ctrl, variation
) -> dict[str, Any]:
    moved = dataclasses.replace(state, qpos=qpos, qvel=qvel, variation=variation)
    after = physics.step(moved, {"ctrl": ctrl}, substeps)
    return {"qpos": after.qpos, "qvel": after.qvel, "sensordata": after.fields["sensordata"]}


def jacobian(one: Case, substeps: int) -> derivatives.Jacobian:
    """The engine's, in the shapes of `derivatives.jacobian`."""
    function = functools.partial(outputs, one.physics, one.state, substeps)
    arguments = (one.state.qpos, one.state.qvel, one.ctrl, one.state.variation)
    ours = jax.jit(jax.jacrev(function, argnums=(0, 1, 2, 3)))(*arguments)
    spread, result = derivatives.spread(one.model, one.start["qpos"]), {}
    for output, (qpos, qvel, ctrl, constants) in ours.items():
        result[output, "qpos"] = np.asarray(qpos, float) @ spread
        result[output, "qvel"], result[output, "ctrl"] = np.asarray(qvel), np.asarray(ctrl)
        for field, value in constants.items():
            result[output, field] = np.asarray(value).reshape(
                len(value), one.state.variation[field].size
            )
    return result
