"""A puck written twice: as a Worldline task, and by hand as a `gymnasium.Env` without any of it.

Gymnasium's own `SyncVectorEnv` over the second is what `VectorEnv` over the first must equal. All
time steps are powers of two, so that products are exact and both round alike. Only the starts of
episodes are ours: the twin looks them up, episode by episode, in a world of its own.
"""

import functools
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import toys
import worldline
from worldline.bridges.gymnasium import VectorEnv, seed_keys

LIMIT, WALL, TIMESTEP = 6, 1.0, 0.25
MODES = list(AutoresetMode)

_MJCF = toys.PUCK.replace('timestep="0.01"', f'timestep="{TIMESTEP}"')


class PuckWithDict(toys.Puck):
    """The same with observations in a dict."""

    def observe(self, physics: Any, memory: Any) -> Any:
        return {"state": physics.qpos, "privileged_state": physics.qvel}


def puck(kind: type[toys.Puck] = toys.Puck) -> worldline.Env:
    task = kind(mjcf_text=_MJCF, control_timestep=TIMESTEP, wall=WALL, episode_length=LIMIT)
    return worldline.Env(task, physics="fake")


class Starts:
    """Where each episode of a world with a given seed begins, as drawn by a world of its own."""

    def __init__(self, env: worldline.Env) -> None:
        self._worlds = worldline.Worlds(env, 1)
        self._drawn: dict[int, list[worldline.WorldsState]] = {}

    def __call__(self, seed: int, episode: int) -> tuple[Any, Any]:
        """Position and velocity, `(2,)` each."""
        drawn = self._drawn.setdefault(seed, [self._worlds.reset(seed_keys([seed]))])
        while len(drawn) <= episode:
            drawn.append(self._worlds.reset_where(drawn[-1], np.ones(1, bool)))
        physics = drawn[episode].env.physics
        return np.array(physics.qpos[0]), np.array(physics.qvel[0])


class HandwrittenPuck(gymnasium.Env):
    """The puck of `toys`, in NumPy; the time limit is part of it."""

    def __init__(self, starts: Starts, as_dict: bool) -> None:
        part = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        whole = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        parts = gymnasium.spaces.Dict({"privileged_state": part, "state": part})
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space = parts if as_dict else whole
        self._as_dict, self._starts = as_dict, starts

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._seed, self._episode = seed, -1
        self._episode += 1
        self.x, self.v = self._starts(self._seed, self._episode)
        self.count, self.total = 0, np.float32(0)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        step = np.float32(TIMESTEP)
        self.v = self.v + step * np.asarray(action, np.float32)
        self.x = self.x + step * self.v
        reward = self.x[0] + self.x[1]
        self.count, self.total = self.count + 1, self.total + reward
        terminated = bool(self.x[0] > WALL)
        truncated = self.count >= LIMIT and not terminated
        info = {
            "x": self.x[0],
            "count": np.float32(self.count),
            "episode_return": self.total,
            "episode_length": np.int32(self.count),
            "diverged": False,
        }
        return self._observe(), float(reward), terminated, truncated, info

    def _observe(self) -> Any:
        if self._as_dict:
            return {"privileged_state": self.v.copy(), "state": self.x.copy()}
        return np.concatenate([self.x, self.v])


def pair(
    num_envs: int, mode: AutoresetMode, kind: type[toys.Puck] = toys.Puck
) -> tuple[VectorEnv, SyncVectorEnv]:
    """Ours, and Gymnasium's, of the same pucks; the first reset needs a seed."""
    worlds, starts = programs(num_envs, kind)
    thunks = [lambda: HandwrittenPuck(starts, kind is PuckWithDict)] * num_envs
    return VectorEnv(worlds, mode), SyncVectorEnv(thunks, autoreset_mode=mode)


@functools.cache
def programs(num_envs: int, kind: type[toys.Puck] = toys.Puck) -> tuple[worldline.Worlds, Starts]:
    """Worlds of pucks, compiled once for all tests, and where their episodes begin."""
    env = puck(kind)
    return worldline.Worlds(env, num_envs), Starts(env)
