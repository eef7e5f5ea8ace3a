"""MJX beside the native engine in Gymnasium's tasks, and some of the suite's.

Two measures over 100 control steps of the same scene under the same random controls, each world
with constants of its own. *Step by step* both engines begin every step in native's state: how far
one step of MJX's float32 is from MuJoCo's float64. *Free* each goes its own way: how long the two
stay together, which in a chaotic body is not for good.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mjx_worlds import in_mjx

from worldline.env.env import Env
from worldline.physics.base import PhysicsState
from worldline.physics.mjx import MjxPhysics
from worldline.tasks.registry import load_task

STEPS, WORLDS = 100, 2


class Bound(NamedTuple):
    """How far apart the engines may be, relative to 1 + the size of a number."""

    step: float
    """In positions and velocities, after one control step from the same state."""
    free: float
    """In positions, left alone."""
    together: int = STEPS
    """Control steps for which that holds."""


#: About five times what was measured.
BOUNDS = {
    "gym/half-cheetah": Bound(2e-4, 3e-4, together=25),
    "gym/hopper": Bound(2e-4, 1e-5),
    "gym/inverted-pendulum": Bound(1e-5, 2e-6),
    "gym/reacher": Bound(2e-5, 1e-5),
    "gym/swimmer": Bound(2e-5, 2e-5),
    "suite/reacher-easy": Bound(5e-6, 1e-6),
}
#: The others take half a minute of compilation and more.
QUICK = {"gym/inverted-pendulum"}


def recording(env: Env, controls: jax.Array, substeps: int) -> list[PhysicsState]:
    """Native's worlds before each control step, and after the last."""
    starts = jax.vmap(env.task.start)(jax.random.split(jax.random.key(0), WORLDS))
    scale = np.random.default_rng(1).uniform(0.8, 1.2, (WORLDS, 1, 1))
    variation = {}
    for field in ("body_mass", "body_inertia", "geom_friction", "dof_damping"):
        value = np.asarray(env.model.constant(field))
        variation[field] = jnp.float32(value * scale.reshape(-1, *[1] * value.ndim))
    start = jax.vmap(lambda one, own: env.physics.start(one.qpos, one.qvel, own, one.inputs))
    step = jax.jit(jax.vmap(lambda s, u: env.physics.step(s, {"ctrl": u}, substeps)))
    states = [start(starts, variation)]
    for ctrl in controls:
        states.append(step(states[-1], ctrl))
    return states


def distance(ours: PhysicsState, theirs: PhysicsState, *names: str) -> float:
    pairs = [(np.asarray(getattr(ours, n)), np.asarray(getattr(theirs, n))) for n in names]
    return max(float(np.max(np.abs(x - y) / (1 + np.abs(y)))) for x, y in pairs)


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.exhaustive) for n in BOUNDS],
)
def test_a_hundred_steps_of_a_task_agree(name: str) -> None:
    env, bound = Env(load_task(name), "native"), BOUNDS[name]
    substeps = round(env.task.control_timestep / env.model.timestep)
    low, high = np.clip(env.model.ctrlrange, -1, 1).T
    random = np.random.default_rng(2)
    controls = jnp.float32(random.uniform(low, high, (STEPS, WORLDS, len(low))))
    states = recording(env, controls, substeps)
    physics = MjxPhysics(env.model)
    step = jax.jit(jax.vmap(lambda s, u: physics.step(s, {"ctrl": u}, substeps)))
    free = in_mjx(physics, env.physics, states[0])
    for number, ctrl in enumerate(controls):
        before, after = states[number : number + 2]
        one = step(in_mjx(physics, env.physics, before), ctrl)
        assert distance(one, after, "qpos", "qvel") < bound.step, number
        free = step(free, ctrl)
        assert number >= bound.together or distance(free, after, "qpos") < bound.free, number
    assert step._cache_size() == 1
