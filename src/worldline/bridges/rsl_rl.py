"""Worlds as an rsl_rl `VecEnv`; rsl_rl's runners work without a change."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from worldline.bridges.packed_worlds import parts_of
from worldline.bridges.resets import seed_keys
from worldline.bridges.stepper import Stepper
from worldline.env.episodes import WorldsState
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError, MissingExtraError
from worldline.types import Array, NDArray

try:
    import torch
    from rsl_rl.env import VecEnv as RslRlVecEnv
    from tensordict import TensorDict
except ImportError as error:
    raise MissingExtraError("the rsl_rl bridge", "rsl-rl") from error

#: The observation group of a task whose observation is one array.
GROUP = "policy"
#: Metrics that rsl_rl computes itself, or gets by another name.
_TOLD_OTHERWISE = ("episode_return", "episode_length")


class VecEnv(RslRlVecEnv):  # type: ignore[misc] # as in sb3.py
    """Worlds as rsl_rl's `VecEnv`.

    An observation that is a dict has one group for each part, for example `state` and
    `privileged_state`; any other observation has the group `policy`. `extras` has `time_outs`, the
    truncated episodes, and under `log` the task's metrics.

    Args:
        worlds: the worlds; their episodes have a time limit.
        seed: world i is seeded with `seed + i`.
        device: where the tensors are.
        clip_actions: whether actions are clipped to the bounds; rsl_rl's policies draw them from a
            Gaussian without bounds.

    Raises:
        ConfigError: the episodes have no time limit.
    """

    def __init__(
        self, worlds: Worlds, *, seed: int = 0, device: Any = "cpu", clip_actions: bool = True
    ) -> None:
        if not worlds.episode_length:
            raise ConfigError("rsl_rl needs episodes with a time limit; give episode_length")
        env = worlds.env
        self.worlds, self.device, self.clip_actions = worlds, device, clip_actions
        self.num_envs, self.num_actions = worlds.num_worlds, env.action_low.size
        self.max_episode_length = worlds.episode_length
        #: What rsl_rl's logger keeps of the environment.
        self.cfg = {
            "task": type(env.task).__name__,
            "physics": env.physics.name,
            "num_envs": self.num_envs,
            "episode_length": worlds.episode_length,
        }
        state = worlds.reset(seed_keys(range(seed, seed + self.num_envs)))
        self._packed: Array
        self._steps: torch.Tensor
        self._stepper = Stepper(worlds, state, same_step=True)
        self._begin(state)

    @property
    def episode_length_buf(self) -> torch.Tensor:
        """Control steps taken in the current episodes, `(num_envs,)` int64. You can set it: the
        runner does so with `init_at_random_ep_len`, so that episodes end at different times.
        """
        return self._steps

    @episode_length_buf.setter
    def episode_length_buf(self, steps: torch.Tensor) -> None:
        state = self._stepper.unpack(self._packed)
        taken = jnp.asarray(steps.cpu().numpy(), jnp.int32)
        self._packed = self._stepper.pack(dataclasses.replace(state, steps=taken))
        self._steps = steps.to(self.device).clone()

    @property
    def unwrapped(self) -> VecEnv:
        """The environment itself."""
        return self

    def reset(self) -> tuple[TensorDict, dict[str, Any]]:
        """Begins a new episode in all worlds."""
        state = self._stepper.unpack(self._packed)
        self._begin(self.worlds.reset_where(state, np.ones(self.num_envs, bool)))
        return self.get_observations(), {}

    def get_observations(self) -> TensorDict:
        """The observations to act on, `(num_envs, ...)` for each group; it resets nothing."""
        return self._obs.clone()

    def step(
        self, actions: torch.Tensor
    ) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """One control step; if an episode ends, its world returns the start of the next one.

        Args:
            actions: `(num_envs, num_actions)`.

        Returns:
            Observations, rewards `(num_envs,)`, whether episodes ended `(num_envs,)` bool, and the
            extras.

        Raises:
            ActionError: a wrong shape or dtype, or a number that is not finite.
        """
        action = actions.detach().float().cpu().numpy()
        if self.clip_actions:
            action = np.clip(action, self.worlds.env.action_low, self.worlds.env.action_high)
        self._packed, step, _ = self._stepper.step(self._packed, action, None)
        self._obs = self._tensordict(step.obs)
        ended = step.terminated | step.truncated
        self._steps = self._tensor(np.where(ended, 0, step.metrics["episode_length"]).astype(int))
        told = {n: x for n, x in step.metrics.items() if n not in _TOLD_OTHERWISE}
        log = {f"/metrics/{n}": self._tensor(x.astype(np.float32)) for n, x in told.items()}
        extras = {"time_outs": self._tensor(step.truncated), "log": log}
        rewards, dones = self._tensor(step.reward), self._tensor(ended)
        return self.get_observations(), rewards, dones, extras

    def close(self) -> None:
        """Does nothing."""

    def _begin(self, state: WorldsState) -> None:
        self._packed = self._stepper.pack(state)
        self._obs = self._tensordict(jax.tree.map(np.array, state.obs))
        self._steps = self._tensor(np.array(state.steps).astype(np.int64))

    def _tensordict(self, obs: NDArray | Mapping[str, NDArray]) -> TensorDict:
        named = {GROUP: obs} if isinstance(obs, np.ndarray) else parts_of(obs)
        tensors = {name: self._tensor(value) for name, value in named.items()}
        return TensorDict(tensors, batch_size=[self.num_envs], device=self.device)

    def _tensor(self, array: NDArray) -> torch.Tensor:
        """A tensor; one of int32 in place of uint16, with which torch computes little."""
        wide = array.astype(np.int32) if array.dtype == np.uint16 else array
        return torch.from_numpy(np.ascontiguousarray(wide)).to(self.device)
