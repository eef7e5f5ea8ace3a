"""gym/swimmer: three links in a viscous plane; push against the fluid to move along x."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.tasks.gym.base import Locomotion, noisy_start, sum_of_squares
from worldline.types import Array, Key, PyTree


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Swimmer(Locomotion):
    """Observation `(8,)`: heading and two joint angles, then all five velocities.

    Action `(2,)`: torques of the two joints. Reward: forward velocity less a cost of control. An
    episode never terminates.
    """

    defaults = {"ppo": {"discount": 0.999}, "train": {"steps": 1_000_000}}

    xml_file: str = "swimmer.xml"
    frame_skip: int = 4
    forward_reward_weight: float = 1.0
    """Reward for each m/s along x."""
    ctrl_cost_weight: float = 1e-4
    reset_noise_scale: float = 0.1

    @property
    def changes(self) -> tuple[str, ...]:
        """The distance covered in a step."""
        return ("qpos",)

    def start(self, key: Key) -> Start:
        """The default pose with noise."""
        return noisy_start(self.model, key, self.reset_noise_scale)

    def observe(self, physics: PhysicsState, memory: PyTree) -> Array:
        """Positions (without x and y by default) and velocities."""
        skipped = 2 if self.exclude_current_positions_from_observation else 0
        return jnp.concatenate([physics.qpos[skipped:], physics.qvel])

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: PyTree
    ) -> Outcome:
        """Forward velocity less the cost of control."""
        x_velocity, y_velocity = after.changes["qpos"][:2] / self.control_timestep
        forward = self.forward_reward_weight * x_velocity
        control = -self.ctrl_cost_weight * sum_of_squares(action)
        return Outcome(
            reward=forward + control,
            terminated=jnp.asarray(False),
            metrics={
                "x_position": after.qpos[0],
                "y_position": after.qpos[1],
                "distance_from_origin": jnp.linalg.norm(after.qpos[:2]),
                "x_velocity": x_velocity,
                "y_velocity": y_velocity,
                "reward_forward": forward,
                "reward_ctrl": control,
            },
        )
