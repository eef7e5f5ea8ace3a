"""Gymnasium's own environments, as the tests of our versions of them need them."""

import dataclasses
import inspect

import gymnasium
import mujoco
import numpy as np
from gymnasium.envs.mujoco import MujocoEnv

from worldline.tasks.registry import list_tasks

GYM_TASKS = [name for name in list_tasks() if name.startswith("gym/")]


def gym_id(task: str) -> str:
    """`gym/half-cheetah` -> `HalfCheetah-v5`."""
    words = task.removeprefix("gym/").split("-")
    return "".join(word[0].upper() + word[1:] for word in words) + "-v5"


def gym_env(task: str, **options) -> MujocoEnv:
    """Gymnasium's environment of the same name, without wrappers."""
    return gymnasium.make(gym_id(task), **options).unwrapped


def gym_options(task: str) -> dict[str, object]:
    """The options of Gymnasium's constructor and their defaults."""
    parameters = inspect.signature(type(gym_env(task)).__init__).parameters
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if name not in ("self", "kwargs")
    }


@dataclasses.dataclass
class Rollout:
    """T steps; arrays have T in front."""

    first_obs: np.ndarray
    obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    info: dict[str, np.ndarray]
    state: np.ndarray
    """MuJoCo's integration state, float64."""


def gym_rollout(env: MujocoEnv, qpos: np.ndarray, qvel: np.ndarray, actions: np.ndarray) -> Rollout:
    """Steps from a given state, on past the end of an episode."""
    mujoco.mj_resetData(env.model, env.data)
    env.set_state(np.asarray(qpos, np.float64), np.asarray(qvel, np.float64))
    first_obs = env._get_obs()
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    states = np.empty((len(actions), mujoco.mj_stateSize(env.model, kind)))
    steps = []
    for action, state in zip(actions, states, strict=True):
        obs, reward, terminated, _, info = env.step(action)
        mujoco.mj_getState(env.model, env.data, state, kind)
        steps.append((obs, reward, terminated, info))
    observations, rewards, terminations, infos = zip(*steps, strict=True)
    return Rollout(
        first_obs,
        np.stack(observations),
        np.array(rewards, np.float64),
        np.array(terminations),
        # Gymnasium's humanoids report their tendons too; a metric of ours is a number.
        {k: np.array([i[k] for i in infos]) for k, v in infos[0].items() if np.ndim(v) == 0},
        states,
    )
