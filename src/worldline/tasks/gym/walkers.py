"""gym/hopper and gym/walker2d: move forward in a plane on one leg or two, without a fall."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from worldline.physics.base import PhysicsState
from worldline.settings import Count
from worldline.tasks.gym.base import Camera, Range, UprightRunner, tracking_camera, within
from worldline.types import Array, Metrics, PyTree


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PlanarWalker(UprightRunner):
    """A torso on legs in a plane: `qpos` is x, height, pitch and the joint angles.

    Observation: height, pitch and joint angles, then all velocities, clipped to 10 m/s or rad/s.
    Action: motor torques. Reward: forward velocity and a bonus for health, minus a cost of control.
    An episode terminates when the walker is not healthy.
    """

    frame_skip: Count = 4
    ctrl_cost_weight: float = 1e-3
    healthy_angle_range: Range
    """Pitches of the torso at which the walker is healthy, rad."""
    reset_noise_scale: float = 5e-3

    position_size = 1

    def healthy(self, physics: PhysicsState) -> Array:
        """Whether height and pitch of the torso are in their ranges, `()` bool."""
        _, height, pitch = physics.qpos[:3]
        return within(height, self.healthy_z_range) & within(pitch, self.healthy_angle_range)

    def observe(self, physics: PhysicsState, memory: PyTree) -> Array:
        """Positions (without x by default) and clipped velocities."""
        skipped = 1 if self.exclude_current_positions_from_observation else 0
        return jnp.concatenate([physics.qpos[skipped:], jnp.clip(physics.qvel, -10, 10)])

    def motion_metrics(self, after: PhysicsState, velocity: Array) -> Metrics:
        """Also how far the torso is above its default height, m."""
        height = after.qpos[1] - self.model.qpos0[1]
        return {**super().motion_metrics(after, velocity), "z_distance_from_origin": height}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Hopper(PlanarWalker):
    """One leg. Observation `(11,)`; action `(3,)`: thigh, leg, foot."""

    defaults = {
        # At a discount of 0.99 a fall costs the reward of 100 steps: to hop faster and fall now and
        # then pays. At 0.995 to stand still pays, unless so much noise makes that hard at first.
        "ppo": {"discount": 0.995, "initial_log_std": 0.0},
        "sac": {
            "critic_steps": 256,
            "layer_norm": False,
            "learning_rate": 1e-3,
            "target_rate": 0.01,
        },
    }

    xml_file: str = "hopper.xml"
    default_camera_config: Camera = dataclasses.field(
        default_factory=lambda: tracking_camera(2, distance=3.0, height=1.15)
    )
    healthy_state_range: Range = (-100.0, 100.0)
    """Range of every position but x and height, and of every velocity: rad, m/s, rad/s."""
    healthy_z_range: Range = (0.7, float("inf"))
    healthy_angle_range: Range = (-0.2, 0.2)

    def healthy(self, physics: PhysicsState) -> Array:
        """Whether the torso is upright, and all other numbers of the state are in range."""
        state = jnp.concatenate([physics.qpos[2:], physics.qvel])
        return super().healthy(physics) & within(state, self.healthy_state_range)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Walker2d(PlanarWalker):
    """Two legs. Observation `(17,)`; action `(6,)`: thigh, leg, foot, right then left."""

    xml_file: str = "walker2d_v5.xml"
    default_camera_config: Camera = dataclasses.field(
        default_factory=lambda: tracking_camera(2, distance=4.0, height=1.15)
    )
    healthy_z_range: Range = (0.8, 2.0)
    healthy_angle_range: Range = (-1.0, 1.0)
