"""One world as a `dm_env.Environment`, the interface of dm_control."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from worldline.bridges import gymnasium
from worldline.env.env import Env
from worldline.env.worlds import DomainLike
from worldline.errors import MissingExtraError
from worldline.physics import Engine
from worldline.types import NDArray

try:
    import dm_env
    from dm_env import specs
except ImportError as error:
    raise MissingExtraError("the dm_env adapter", "suite") from error


class Environment(dm_env.Environment):  # type: ignore[misc] # as in sb3.py
    """One world as a `dm_env.Environment`.

    The step after the last step of an episode ignores its action and begins the next episode. The
    discount is 0 if an episode terminates, and 1 if the time limit or a diverged simulation cuts
    it.

    Args:
        env: the environment, or the name of a task.
        physics: the engine of a named task, as in `worldline.Env`.
        seed: the random seed of all episodes; None: another seed each time.
        episode_length: control steps after which an episode is cut; 0 for no limit; None for the
            task's own.
        domain: draws the world's constants at the start of each episode, as in `Worlds`.
        config: fields of a named task's class.

    Raises:
        TaskError: there is no such task, or it has no such field.
    """

    def __init__(
        self,
        env: Env | str,
        physics: Engine = "native",
        *,
        seed: int | None = None,
        episode_length: int | None = None,
        domain: DomainLike | None = None,
        **config: Any,
    ) -> None:
        self._env = gymnasium.Env(
            env, physics, episode_length=episode_length, domain=domain, **config
        )
        self._seed = seed
        self._over = True

    def reset(self) -> dm_env.TimeStep:
        """The first time step of an episode."""
        obs, _ = self._env.reset(seed=self._seed)
        self._seed, self._over = None, False
        return dm_env.restart(obs)

    def step(self, action: NDArray) -> dm_env.TimeStep:
        """The next time step; after the last step of an episode, the first step of the next one.

        Raises:
            ActionError: a wrong shape or dtype, or a number that is not finite.
        """
        if self._over:
            return self.reset()
        obs, reward, terminated, truncated, _ = self._env.step(np.asarray(action, np.float32))
        self._over = terminated or truncated
        if terminated:
            return dm_env.termination(reward, obs)
        return dm_env.truncation(reward, obs) if truncated else dm_env.transition(reward, obs)

    def observation_spec(self) -> Any:
        """The observation's spec, or a dict of them."""
        space = self._env.observation_space
        if isinstance(space, spaces.Dict):
            return {name: _spec(part, name) for name, part in space.items()}
        return _spec(space, "observation")

    def action_spec(self) -> specs.BoundedArray:
        """The action's bounds."""
        return _spec(self._env.action_space, "action")

    def close(self) -> None:
        """Frees the world."""
        self._env.close()


def _spec(space: Any, name: str) -> Any:
    """The spec of a space; bounded if all its bounds are finite."""
    if not space.is_bounded():
        return specs.Array(space.shape, space.dtype, name)
    return specs.BoundedArray(space.shape, space.dtype, space.low, space.high, name)
