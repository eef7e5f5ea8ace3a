"""A task for a model alone: no reward and no end, one action for each actuator."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from worldline.env.task import Outcome, Start, Task
from worldline.model import ModelSource
from worldline.physics.base import PhysicsState
from worldline.settings import Number
from worldline.types import Array, Key, Observation, PyTree

#: How often a model without a task takes an action, at most: 50 times a second.
_CONTROL_TIMESTEP = 0.02


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BareModel(Task):
    """A model to look at. Worlds begin at its first keyframe, or else at its default pose."""

    file: str
    """The MJCF file."""
    episode_length: Number = 0
    """Control steps after which an episode is truncated; 0 for no limit."""

    @property
    def control_timestep(self) -> float:
        """Seconds between two actions: whole time steps of the model, 0.02 s at most."""
        timestep = self.model.timestep
        return timestep * max(1, int(_CONTROL_TIMESTEP / timestep + 1e-6))

    def mjcf(self) -> ModelSource:
        """The file."""
        return self.file

    def start(self, key: Key) -> Start:
        """The first keyframe, or the default pose at rest."""
        mj = self.model.mj
        if mj.nkey:
            return Start(
                jnp.asarray(mj.key_qpos[0], jnp.float32), jnp.asarray(mj.key_qvel[0], jnp.float32)
            )
        return Start(jnp.asarray(self.model.qpos0), jnp.zeros(self.model.nv, jnp.float32))

    @property
    def rest(self) -> np.ndarray:
        """The controls of the first keyframe, `(nu,)`; zeros without one."""
        mj = self.model.mj
        return np.asarray(mj.key_ctrl[0] if mj.nkey else np.zeros(mj.nu), np.float32)

    def observe(self, physics: PhysicsState, memory: PyTree) -> Observation:
        """Configuration and velocity, `(nq + nv,)`."""
        return jnp.concatenate([physics.qpos, physics.qvel])

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: PyTree
    ) -> Outcome:
        """Nothing to earn, and no end."""
        return Outcome(reward=jnp.zeros(()), terminated=jnp.asarray(False))
