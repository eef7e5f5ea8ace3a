"""gym/half-cheetah: run forward on two legs, in a plane; nothing can go wrong for good."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.tasks.gym.base import Camera, Locomotion, noisy_start, sum_of_squares
from worldline.types import Array, Key, PyTree


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class HalfCheetah(Locomotion):
    """Observation `(17,)`: height, pitch and six joint angles, then all nine velocities.

    Action `(6,)`: motor torques, back leg then front leg. Reward: forward velocity less a cost of
    control. An episode never terminates.
    """

    defaults = {
        "ppo": {"num_worlds": 256, "unroll_length": 32, "epochs": 4, "target_kl": 0.06},
        "sac": {"layer_norm": False},
        # Few worlds, for many steps of the policy. Little noise: a cheetah on its nose stays there.
        "shac": {
            "num_worlds": 32,
            "learning_rate": 1e-3,
            "anneal_steps": 200_000,
            "reward_scale": 0.1,
            "initial_log_std": -1.5,
        },
    }

    xml_file: str = "half_cheetah.xml"
    frame_skip: int = 5
    default_camera_config: Camera = dataclasses.field(default_factory=lambda: {"distance": 4.0})
    forward_reward_weight: float = 1.0
    """Reward for each m/s along x."""
    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 0.1

    @property
    def changes(self) -> tuple[str, ...]:
        """The distance covered in a step."""
        return ("qpos",)

    def start(self, key: Key) -> Start:
        """The default pose with noise."""
        return noisy_start(self.model, key, self.reset_noise_scale, normal_velocity=True)

    def observe(self, physics: PhysicsState, memory: PyTree) -> Array:
        """Positions (without x by default) and velocities."""
        skipped = 1 if self.exclude_current_positions_from_observation else 0
        return jnp.concatenate([physics.qpos[skipped:], physics.qvel])

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: PyTree
    ) -> Outcome:
        """Forward velocity less the cost of control."""
        x_velocity = after.changes["qpos"][0] / self.control_timestep
        forward = self.forward_reward_weight * x_velocity
        control = -self.ctrl_cost_weight * sum_of_squares(action)
        return Outcome(
            reward=forward + control,
            terminated=jnp.asarray(False),
            metrics={
                "x_position": after.qpos[0],
                "x_velocity": x_velocity,
                "reward_forward": forward,
                "reward_ctrl": control,
            },
        )
