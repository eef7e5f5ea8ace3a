"""gym/ant: run along x on four legs, without a fall or a flight."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from worldline.physics.base import PhysicsState
from worldline.settings import Count
from worldline.tasks.gym.base import Camera, Range, UprightRunner, sum_of_squares
from worldline.types import Array, Metrics, PyTree


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Ant(UprightRunner):
    """Observation `(105,)`: height, orientation (quaternion) and eight joint angles; all fourteen
    velocities; the clipped contact force and torque on each of thirteen bodies.

    Action `(8,)`: motor torques. Reward: forward velocity and a bonus for health, minus costs of
    control and contact. An episode terminates when the ant is not healthy.
    """

    xml_file: str = "ant.xml"
    frame_skip: Count = 5
    default_camera_config: Camera = dataclasses.field(default_factory=lambda: {"distance": 4.0})
    ctrl_cost_weight: float = 0.5
    contact_cost_weight: float = 5e-4
    """Cost of the sum of the squared contact forces, once clipped."""
    main_body: int | str = 1
    """Name or number of the body whose velocity is rewarded."""
    healthy_z_range: Range = (0.2, 1.0)
    """Heights of the torso, limits included, at which the ant is healthy, m."""
    contact_force_range: Range = (-1.0, 1.0)
    """Contact forces and torques are clipped to this range: N, N m."""
    reset_noise_scale: float = 0.1
    include_cfrc_ext_in_observation: bool = True
    """Put the contact forces on the bodies into the observation."""

    changes = ("xpos",)  # the way of the main body
    position_size = 2
    normal_velocity = True

    @property
    def fields(self) -> tuple[str, ...]:
        """The contact forces, if they are observed or cost something."""
        seen = self.include_cfrc_ext_in_observation or self.contact_cost_weight != 0
        return ("cfrc_ext",) if seen else ()

    def velocity(self, after: PhysicsState) -> Array:
        """Mean velocity of the main body over the control step, `(2,)`, m/s."""
        name = self.main_body
        body = self.model.id("body", name) if isinstance(name, str) else name
        return after.changes["xpos"][body, :2] / self.control_timestep

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
        state = super().observe(physics, memory)
        if not self.include_cfrc_ext_in_observation:
            return state
        forces = self.contact_forces(physics)[1:]  # nothing touches the world body
        return jnp.concatenate([state, forces.ravel()])

    def reward_terms(self, action: Array, after: PhysicsState, speed: Array) -> Metrics:
        """Forward velocity and health, less the costs of control and contact."""
        contact = jnp.zeros(())
        if self.contact_cost_weight != 0:
            contact = -self.contact_cost_weight * sum_of_squares(self.contact_forces(after))
        return {**super().reward_terms(action, after, speed), "reward_contact": contact}
