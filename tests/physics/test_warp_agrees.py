"""MuJoCo Warp beside the native engine in every task: one control step from the same state.

Under the same random controls, each world with constants of its own; see `test_mjx_agrees`.
"""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from native_worlds import in_warp
from test_mjx_agrees import TASKS, distance, recording

from worldline.env.env import Env
from worldline.env.task import reads_of
from worldline.physics.warp import WarpPhysics
from worldline.tasks.registry import load_task

STEPS = 25
#: Positions and velocities, relative to 1 + their size, after one control step.
WITHIN = 3e-4
#: Swimmers of many links turn fast.
WIDER = {"suite/swimmer-swimmer15": 5e-3, "suite/swimmer-swimmer6": 1e-3}
#: Warp has other axes of friction for a steep capsule on a plane. A pyramid is then another one; to
#: an elliptic cone it is all one.
STEEP_CAPSULES = {"gym/ant"}
#: The others take minutes.
QUICK = {"gym/inverted-pendulum"}


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.exhaustive) for n in TASKS],
)
def test_steps_of_a_task_agree(name: str) -> None:
    task = load_task(name)
    if name in STEEP_CAPSULES:
        task.model.mj.opt.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    env = Env(task, "native")
    substeps = round(task.control_timestep / env.model.timestep)
    low, high = np.clip(env.model.ctrlrange, -1, 1).T
    random = np.random.default_rng(2)
    # Two worlds; after the first step, in which what is set down touches the floor or not.
    controls = jnp.float32(random.uniform(low, high, (1 + STEPS, 2, len(low))))
    states, controls = recording(env, controls, substeps)[1:], controls[1:]
    physics = WarpPhysics(env.model, reads_of(task))
    step = jax.jit(jax.vmap(lambda s, u: physics.step(s, {"ctrl": u}, substeps)))
    for before, ctrl, after in zip(states[:-1], controls, states[1:], strict=True):
        ours = step(in_warp(physics, env.physics, before), ctrl)
        assert not ours.diverged.any()
        assert distance(ours, after, "qpos", "qvel") < WIDER.get(name, WITHIN)
