"""dm_control's own environments, as the tests of our versions of them need them."""

import os

os.environ.setdefault("MUJOCO_GL", "disable")  # nothing is drawn here

import mujoco
import numpy as np
from dm_control import suite
from dm_control.rl.control import Environment, flatten_observation

from worldline.tasks.registry import list_tasks

SUITE_TASKS = [name for name in list_tasks() if name.startswith("suite/")]


def dm_env(task: str) -> Environment:
    """dm_control's environment of the same name."""
    domain, _, name = task.removeprefix("suite/").partition("-")
    env = suite.load(domain, name, task_kwargs={"random": 11})
    env.physics._make_rendering_contexts = lambda: None  # `quadruped-escape` asks for a renderer
    return env


def put(env: Environment, qpos, qvel, constants, warmstart) -> None:
    """Begins an episode at a state, with other constants of the model."""
    env.reset()
    physics = env.physics
    for field, value in constants.items():
        getattr(physics.model, field)[:] = value
    # dm_control leaves out what MuJoCo derives from the constants, which differ by a rounding.
    mujoco.mj_setConst(physics.model.ptr, physics.data.ptr)
    with physics.reset_context():
        physics.data.qpos[:], physics.data.qvel[:] = qpos, qvel
    physics.data.qacc_warmstart[:] = warmstart


def flat(observation) -> np.ndarray:
    """An observation as one array."""
    return flatten_observation(observation)["observations"]


def warmstart_of(model: mujoco.MjModel, integration_state: np.ndarray) -> np.ndarray:
    """MuJoCo's `qacc_warmstart` in an integration state."""
    data = mujoco.MjData(model)
    mujoco.mj_setState(model, data, integration_state, mujoco.mjtState.mjSTATE_INTEGRATION)
    return data.qacc_warmstart
