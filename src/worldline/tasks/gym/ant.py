"""gym/ant: run along x on four legs, without a fall or a flight."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.tasks.gym.base import Camera, Locomotion, Range, noisy_start, sum_of_squares
from worldline.types import Array, Key, PyTree


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Ant(Locomotion):
    """Observation `(105,)`: height, orientation (quaternion) and eight joint angles; all fourteen
    velocities; the clipped contact force and torque on each of thirteen bodies.

    Action `(8,)`: motor torques. Reward: forward velocity and a bonus for health, less costs of
    control and contact. An episode terminates when the ant is not healthy.
    """

    xml_file: str = "ant.xml"
    frame_skip: int = 5
    default_camera_config: Camera = dataclasses.field(default_factory=lambda: {"distance": 4.0})
    forward_reward_weight: float = 1.0
    """Reward for each m/s along x."""
    ctrl_cost_weight: float = 0.5
    contact_cost_weight: float = 5e-4
    """Cost of the sum of the squared contact forces, once clipped."""
    healthy_reward: float = 1.0
    """Reward for each step after which the ant is healthy."""
    main_body: int | str = 1
    """Name or number of the body whose velocity is rewarded."""
    terminate_when_unhealthy: bool = True
    """Whether an ant that is not healthy ends the episode."""
    healthy_z_range: Range = (0.2, 1.0)
    """Heights of the torso, limits included, at which the ant is healthy, m."""
    contact_force_range: Range = (-1.0, 1.0)
    """Contact forces and torques are clipped to this range: N, N m."""
    reset_noise_scale: float = 0.1
    include_cfrc_ext_in_observation: bool = True
    """Put the contact forces on the bodies into the observation."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The contact forces, where they are seen or charged for."""
        seen = self.include_cfrc_ext_in_observation or self.contact_cost_weight != 0
        return ("cfrc_ext",) if seen else ()

    @property
    def changes(self) -> tuple[str, ...]:
        """The distance that the main body covers in a step."""
        return (self._place,)

    @property
    def _place(self) -> str:
        """Where the main body is."""
        body = self.main_body
        return f"xpos[{self.model.id('body', body) if isinstance(body, str) else body}]"

    def start(self, key: Key) -> Start:
        """The default pose with noise."""
        return noisy_start(self.model, key, self.reset_noise_scale, normal_velocity=True)

    def contact_forces(self, physics: PhysicsState) -> Array:
        """Clipped contact torque and force on each body, `(nbody, 6)`."""
        low, high = self.contact_force_range
        return jnp.clip(physics.fields["cfrc_ext"], low, high)

    def healthy(self, physics: PhysicsState) -> Array:
        """Whether the torso's height is in its range and all coordinates are finite, `()` bool."""
        low, high = self.healthy_z_range
        height = physics.qpos[2]
        finite = jnp.all(jnp.isfinite(physics.qpos)) & jnp.all(jnp.isfinite(physics.qvel))
        return finite & (low <= height) & (height <= high)

    def observe(self, physics: PhysicsState, memory: PyTree) -> Array:
        """Positions (without x and y by default), velocities and contact forces."""
        skipped = 2 if self.exclude_current_positions_from_observation else 0
        parts = [physics.qpos[skipped:], physics.qvel]
        if self.include_cfrc_ext_in_observation:
            parts.append(self.contact_forces(physics)[1:].ravel())  # nothing touches the world body
        return jnp.concatenate(parts)

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: PyTree
    ) -> Outcome:
        """Forward velocity and health, less the costs of control and contact."""
        healthy = self.healthy(after)
        x_velocity, y_velocity = after.changes[self._place][:2] / self.control_timestep
        forward = self.forward_reward_weight * x_velocity
        survive = jnp.where(healthy, self.healthy_reward, 0.0)
        control = -self.ctrl_cost_weight * sum_of_squares(action)
        contact = jnp.zeros(())
        if self.contact_cost_weight != 0:
            contact = -self.contact_cost_weight * sum_of_squares(self.contact_forces(after))
        return Outcome(
            reward=forward + survive + control + contact,
            terminated=~healthy & self.terminate_when_unhealthy,
            metrics={
                "x_position": after.qpos[0],
                "y_position": after.qpos[1],
                "distance_from_origin": jnp.linalg.norm(after.qpos[:2]),
                "x_velocity": x_velocity,
                "y_velocity": y_velocity,
                "reward_forward": forward,
                "reward_ctrl": control,
                "reward_contact": contact,
                "reward_survive": survive,
            },
        )
