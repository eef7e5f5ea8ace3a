"""Worlds as Gymnasium environments: one world here, a vector of them in `worldline.bridges.vector`.

Importing this module registers the tasks with Gymnasium, as `worldline/gym-ant-v0` and so on; see
`worldline.bridges.registration`.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import gymnasium
import jax
import mujoco
import numpy as np
from gymnasium.vector import AutoresetMode

from worldline.bridges import registration
from worldline.bridges.external import ExternalWorlds
from worldline.bridges.render import RENDER_SIZE
from worldline.bridges.resets import seed_keys
from worldline.bridges.vector import (
    RENDER_MODES,
    EpisodeOverError,
    HostObservation,
    Info,
    VectorEnv,
    metadata,
)
from worldline.env.env import Env as WorldlineEnv
from worldline.env.worlds import DomainLike, Worlds
from worldline.errors import ConfigError
from worldline.physics import Engine
from worldline.tasks import registry
from worldline.types import NDArray

__all__ = [
    "Env",
    "EpisodeOverError",
    "ExternalWorlds",
    "VectorEnv",
    "make_vector_env",
    "register_tasks",
    "seed_keys",
]


class Env(gymnasium.Env[HostObservation, NDArray]):
    """One world as a Gymnasium environment.

    Args:
        env: the environment, or the name of a task.
        physics: the engine of a named task, as in `worldline.Env`.
        render_mode: `"rgb_array"`, for `render`, or None.
        render_size: height and width of a picture, in pixels.
        episode_length: control steps after which an episode is truncated; 0 for no limit; None for
            the task's own.
        domain: draws the world's constants at the start of each episode, as in `Worlds`.
        config: fields of a named task's class.

    Raises:
        ConfigError: there is no such mode, or `config` is given with an environment instead of a
            name.
        TaskError: there is no such task, or it has no such field.
    """

    metadata: dict[str, Any] = {"render_modes": RENDER_MODES}

    def __init__(
        self,
        env: WorldlineEnv | str,
        physics: Engine = "native",
        *,
        render_mode: str | None = None,
        render_size: tuple[int, int] = RENDER_SIZE,
        episode_length: int | None = None,
        domain: DomainLike | None = None,
        **config: Any,
    ) -> None:
        worlds = Worlds(_environment(env, physics, config), 1, episode_length, domain)
        self._vector = VectorEnv(worlds, AutoresetMode.DISABLED, render_mode, render_size)
        self.render_mode = render_mode
        self.metadata = metadata(worlds.env)
        self.action_space = self._vector.single_action_space
        self.observation_space = self._vector.single_observation_space

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[HostObservation, Info]:
        """Begins an episode.

        Args:
            seed: the seed of this episode and those after it; None continues with the current
                random numbers.
            options: may contain `variation`, the world's constants, a dict from MjModel field name
                to the whole field's value; and `context`, the values of context features.

        Raises:
            VariationError: an unknown field or feature, a wrong shape or value.
        """
        super().reset(seed=seed)
        given = {} if options is None else dict(options)
        for name in ("variation", "context"):
            if isinstance(given.get(name), Mapping):
                given[name] = {n: np.asarray(v)[None] for n, v in given[name].items()}
        obs, info = self._vector.reset(seed=None if seed is None else [seed], options=given)
        return jax.tree.map(operator.itemgetter(0), obs), info

    def step(self, action: NDArray) -> tuple[HostObservation, float, bool, bool, Info]:
        """Steps the world.

        Raises:
            ActionError: a wrong shape or dtype, or a number that is not finite.
            EpisodeOverError: the episode is over.
            ResetNeeded: before the first reset.
        """
        if np.shape(action) != self.action_space.shape:
            self._vector.worlds.env.check_action(action)
        obs, reward, terminated, truncated, infos = self._vector.step(np.asarray(action)[None])
        info = {name: _scalar(infos[name][0]) for name in infos if f"_{name}" in infos}
        first = jax.tree.map(operator.itemgetter(0), obs)
        return first, float(reward[0]), bool(terminated[0]), bool(truncated[0]), info

    def render(self) -> Any:
        """A picture, `(height, width, 3)` uint8; None without a `render_mode`."""
        frames = self._vector.render()
        return None if frames is None else frames[0]

    @property
    def model(self) -> mujoco.MjModel:
        """The world's MuJoCo model, with its own constants; a copy, as in `VectorEnv.mujoco`."""
        return self._vector.mujoco()[0]

    @property
    def data(self) -> mujoco.MjData:
        """The world's MuJoCo data; a copy, as in `VectorEnv.mujoco`.

        Raises:
            ResetNeeded: before the first reset.
        """
        return self._vector.mujoco()[1]

    def close(self) -> None:
        """Frees the world and the renderer."""
        self._vector.close()


def make_vector_env(
    num_envs: int,
    env: WorldlineEnv | str,
    physics: Engine = "native",
    *,
    autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    render_mode: str | None = None,
    render_size: tuple[int, int] = RENDER_SIZE,
    max_episode_steps: int | None = None,
    episode_length: int | None = None,
    domain: DomainLike | None = None,
    **config: Any,
) -> VectorEnv:
    """Makes a `VectorEnv`; `gymnasium.make_vec("worldline/...", num_envs)` calls it.

    Args:
        num_envs: the number of worlds.
        env: the environment, or the name of a task.
        physics: the engine of a named task, as in `worldline.Env`.
        autoreset_mode: as in `VectorEnv`.
        render_mode: as in `VectorEnv`.
        render_size: as in `VectorEnv`.
        max_episode_steps: control steps after which an episode is truncated; -1 for no limit.
        episode_length: the same, with 0 for no limit; the shorter of the two is used. Without both,
            the task's own.
        domain: draws the worlds' constants at the start of each episode, as in `Worlds`.
        config: fields of a named task's class.
    """
    limits = [limit for limit in (max_episode_steps, episode_length) if limit is not None]
    length = min((limit for limit in limits if limit > 0), default=0) if limits else None
    worlds = Worlds(_environment(env, physics, config), num_envs, length, domain)
    return VectorEnv(worlds, autoreset_mode, render_mode, render_size)


def register_tasks() -> None:
    """Registers with Gymnasium every task of `worldline.list_tasks()`, your own included."""
    names = registry.list_tasks()
    registration.register_all({name: registry.task_class(name).episode_length for name in names})


def _environment(
    env: WorldlineEnv | str, physics: Engine, config: Mapping[str, Any]
) -> WorldlineEnv:
    if isinstance(env, str):
        return registry.make(env, physics, **config)
    if config:
        raise ConfigError(f"{env} is already made; give the options {sorted(config)} to its task")
    return env


def _scalar(value: Any) -> Any:
    """A number of an info. Gymnasium's vectors stack Python's bool, but not NumPy's."""
    return bool(value) if isinstance(value, np.bool_) else value


registration.register_built_in()
