"""Worlds as a Stable-Baselines3 `VecEnv`, for its algorithms and those of SBX."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from gymnasium.vector import AutoresetMode

from worldline.bridges.render import RENDER_SIZE
from worldline.bridges.vector import VectorEnv
from worldline.env.worlds import Worlds
from worldline.errors import MissingExtraError, VariationError
from worldline.types import NDArray

try:
    from stable_baselines3.common import vec_env
except ImportError as error:
    raise MissingExtraError("the Stable-Baselines3 bridge", "sb3") from error

Indices: TypeAlias = int | Iterable[int] | None


class VecEnv(vec_env.VecEnv):  # type: ignore[misc] # without the extra, mypy knows nothing of it
    """Worlds as a `VecEnv`, which behaves like SB3's `DummyVecEnv`.

    A step that ends an episode returns the first observation of the next one, and the true
    successor as `info["terminal_observation"]`. `info["TimeLimit.truncated"]` is true if the
    episode was truncated, so that the value of its last state is not 0. The info also holds the
    task's metrics, `episode_return`, `episode_length` and `diverged`. Wrap the environment in SB3's
    `VecMonitor` for the returns in SB3's own log.

    At the reset that follows `seed(seed)`, world i is seeded with `seed + i`. That reset also takes
    the options of `set_options`: `{"variation": {field: value}}` or `{"context": {...}}`, the
    values of one world in each.

    Args:
        worlds: the worlds.
        render_mode: `"rgb_array"`, for `render` and `get_images`, or None.
        render_size: height and width of a picture, in pixels.

    Raises:
        ConfigError: there is no such mode.
    """

    def __init__(
        self,
        worlds: Worlds,
        render_mode: str | None = None,
        render_size: tuple[int, int] = RENDER_SIZE,
    ) -> None:
        self.vector = VectorEnv(worlds, AutoresetMode.SAME_STEP, render_mode, render_size)
        self._envs = [_World(self.vector, index) for index in range(worlds.num_worlds)]
        spaces = self.vector.single_observation_space, self.vector.single_action_space
        super().__init__(worlds.num_worlds, *spaces)

    def reset(self) -> Any:
        """Begins an episode in all worlds, with the seeds and options given since the last reset.

        Raises:
            VariationError: the worlds do not accept the options.
        """
        obs, _ = self.vector.reset(seed=self._seeds, options=_stack(self._options))
        self._reset_seeds()
        self._reset_options()
        return obs

    def step_async(self, actions: NDArray) -> None:
        """Keeps the actions, `(num_envs, nact)`, for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, NDArray, NDArray, list[dict[str, Any]]]:
        """Steps the worlds.

        Returns:
            The observations to act on next, rewards `(num_envs,)` float32, whether episodes ended
            `(num_envs,)` bool, and an info for each world.

        Raises:
            ActionError: a wrong shape or dtype, or a number that is not finite.
        """
        obs, reward, terminated, truncated, info = self.vector.step(self._actions)
        done = terminated | truncated
        ended = info.get("final_info", info)
        going = ended if done.all() else info
        metrics = {
            name: np.where(done, value, going[name])
            for name, value in ended.items()
            if f"_{name}" in ended
        }
        columns = {**metrics, "TimeLimit.truncated": truncated & ~terminated}
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        infos = [dict(zip(columns, row, strict=True)) for row in rows]
        for index in np.flatnonzero(done):
            infos[index]["terminal_observation"] = info["final_obs"][index]
        return obs, reward.astype(np.float32), done, infos

    def close(self) -> None:
        """Frees the worlds and the renderer."""
        self.vector.close()

    def get_images(self) -> Sequence[NDArray | None]:
        """A picture of each world, `(height, width, 3)` uint8; None without a `render_mode`."""
        return self.vector.render() or [None] * self.num_envs

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """An attribute of each world: an attribute that was set, or one of the vector, the
        environment or its task.

        Raises:
            AttributeError: none of them has an attribute of that name.
        """
        return [getattr(env, attr_name) for env in self._chosen(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Sets an attribute of worlds, for `get_attr`; the simulation does not read it."""
        for env in self._chosen(indices):
            setattr(env, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Calls a method of each world: `reset`, `render`, or one of the task's.

        Raises:
            AttributeError: a world has no method of that name.
        """
        methods = self.get_attr(method_name, indices)
        return [method(*method_args, **method_kwargs) for method in methods]

    def env_is_wrapped(self, wrapper_class: type, indices: Indices = None) -> list[bool]:
        """False for each world: there are no wrappers around one."""
        return [False for _ in self._chosen(indices)]

    def _chosen(self, indices: Indices) -> list[_World]:
        return [self._envs[index] for index in self._get_indices(indices)]


class _World:
    """One of the worlds as SB3 sees it."""

    def __init__(self, vector: VectorEnv, index: int) -> None:
        self._vector, self._index = vector, index

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        env = self._vector.worlds.env
        for owner in (self._vector, env, env.task):
            if hasattr(owner, name):
                return getattr(owner, name)
        raise AttributeError(f"neither {env} nor its task has an attribute {name!r}")

    @property
    def observation_space(self) -> Any:
        return self._vector.single_observation_space

    @property
    def action_space(self) -> Any:
        return self._vector.single_action_space

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        vector = self._vector
        mask = np.arange(vector.num_envs) == self._index
        seeds = [seed if row else None for row in mask]
        rows = _stack([options or {}] * vector.num_envs)
        obs, info = vector.reset(seed=seeds, options={**rows, "reset_mask": mask})
        return jax.tree.map(lambda leaf: leaf[self._index], obs), info

    def render(self) -> NDArray | None:
        frames = self._vector.render()
        return None if frames is None else frames[self._index]


def _stack(options: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The options of all worlds, with `B` in front of each value, from those of each world."""
    first, *others = ({name: dict(values) for name, values in each.items()} for each in options)
    names = {name: values.keys() for name, values in first.items()}
    if any({name: values.keys() for name, values in o.items()} != names for o in others):
        raise VariationError("the worlds have options with other names; give all of them the same")
    return {
        name: {
            field: np.stack([np.asarray(each[name][field]) for each in options]) for field in values
        }
        for name, values in first.items()
    }
