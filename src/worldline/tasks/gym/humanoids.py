"""gym/humanoid and gym/humanoid-standup: run along x on two legs, or get up from the floor."""

from __future__ import annotations

import abc
import dataclasses

import jax.numpy as jnp

from worldline.env.task import Outcome
from worldline.physics.base import PhysicsState
from worldline.settings import Count
from worldline.tasks.gym.base import (
    Camera,
    Locomotion,
    Range,
    UprightRunner,
    sum_of_squares,
    tracking_camera,
    within,
)
from worldline.types import Array, Metrics, PyTree


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class HumanoidBody(Locomotion):
    """A body of thirteen parts: what is observed of it, and what contact costs.

    Observation `(348,)`: height, orientation (quaternion) and seventeen joint angles; all 23
    velocities; of each part the inertia (10), velocity (6) and contact force (6) about the centre
    of mass; the seventeen actuator forces. Action `(17,)`: motor torques, between -0.4 and 0.4.
    """

    defaults = {"ppo": {"num_worlds": 64}}

    frame_skip: Count = 5
    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 1e-2
    include_cinert_in_observation: bool = True
    """Put mass and inertia of the parts, about the centre of mass, into the observation."""
    include_cvel_in_observation: bool = True
    """Put the velocities of the parts, about the centre of mass, into the observation."""
    include_qfrc_actuator_in_observation: bool = True
    """Put the actuator force on each joint into the observation."""
    include_cfrc_ext_in_observation: bool = True
    """Put the contact forces on the parts into the observation."""

    position_size = 2

    @property
    def observed_fields(self) -> tuple[str, ...]:
        """The MjData fields in the observation, in its order."""
        included = {
            "cinert": self.include_cinert_in_observation,
            "cvel": self.include_cvel_in_observation,
            "qfrc_actuator": self.include_qfrc_actuator_in_observation,
            "cfrc_ext": self.include_cfrc_ext_in_observation,
        }
        return tuple(field for field, include in included.items() if include)

    @property
    def fields(self) -> tuple[str, ...]:
        """What is observed, and the contact forces if they cost something."""
        observed = self.observed_fields
        free = self._contact_weight == 0 or "cfrc_ext" in observed
        return observed if free else (*observed, "cfrc_ext")

    @property
    @abc.abstractmethod
    def _contact_weight(self) -> float:
        """Cost of the sum of the squared contact forces."""

    def observe(self, physics: PhysicsState, memory: PyTree) -> Array:
        """Positions (without x and y by default), velocities, and `observed_fields`."""
        # Those of the world body are zero; the root joint, of six velocities, has no actuator.
        first = {"cinert": 1, "cvel": 1, "qfrc_actuator": 6, "cfrc_ext": 1}
        values = [physics.fields[name][first[name] :].ravel() for name in self.observed_fields]
        return jnp.concatenate([super().observe(physics, memory), *values])

    def contact_reward(self, physics: PhysicsState, limits: Range) -> Array:
        """Minus the cost of contact, which is clipped to `limits`, `()`."""
        weight = self._contact_weight
        cost = 0.0 if weight == 0 else weight * sum_of_squares(physics.fields["cfrc_ext"])
        return -jnp.clip(jnp.asarray(cost), *limits)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Humanoid(HumanoidBody, UprightRunner):
    """Run along x. Reward: velocity of the centre of mass and a bonus for health, minus costs of
    control and contact. An episode terminates when the humanoid is not healthy.
    """

    xml_file: str = "humanoid.xml"
    default_camera_config: Camera = dataclasses.field(
        default_factory=lambda: tracking_camera(1, distance=4.0, height=2.0)
    )
    forward_reward_weight: float = 1.25
    contact_cost_weight: float = 5e-7
    """Cost of the sum of the squared contact forces."""
    contact_cost_range: Range = (float("-inf"), 10.0)
    """The cost of contact is clipped to this range."""
    healthy_reward: float = 5.0
    healthy_z_range: Range = (1.0, 2.0)

    changes = ("xipos",)  # the parts' centres of mass

    @property
    def _contact_weight(self) -> float:
        return self.contact_cost_weight

    def velocity(self, after: PhysicsState) -> Array:
        """Mean velocity of the centre of mass over the control step, `(3,)`, m/s."""
        mass = after.variation.get("body_mass", self.model.constant("body_mass"))
        distance = mass @ after.changes["xipos"] / mass.sum()
        return jnp.asarray(distance / self.control_timestep)

    def healthy(self, physics: PhysicsState) -> Array:
        """Whether the torso's height is in its range, `()` bool."""
        return within(physics.qpos[2], self.healthy_z_range)

    def reward_terms(self, action: Array, after: PhysicsState, speed: Array) -> Metrics:
        """Forward velocity and health, less the costs of control and contact."""
        contact = self.contact_reward(after, self.contact_cost_range)
        return {**super().reward_terms(action, after, speed), "reward_contact": contact}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class HumanoidStandup(HumanoidBody):
    """Get up from the floor. Reward: the height of the torso, divided by the physics time step,
    minus costs of control and impact, plus 1. An episode never terminates.
    """

    xml_file: str = "humanoidstandup.xml"
    default_camera_config: Camera = dataclasses.field(
        default_factory=lambda: tracking_camera(1, distance=4.0, height=0.8925)
    )
    uph_cost_weight: float = 1.0
    """This option has no effect, also in Gymnasium: the weight of the height is always 1."""
    impact_cost_weight: float = 5e-7
    """Cost of the sum of the squared contact forces."""
    impact_cost_range: Range = (float("-inf"), 10.0)
    """The cost of impact is clipped to this range."""

    @property
    def _contact_weight(self) -> float:
        return self.impact_cost_weight

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: PyTree
    ) -> Outcome:
        """Height, less the costs of control and impact, and 1."""
        height = after.qpos[2]
        up = height / self.model.timestep
        control = -self.ctrl_cost_weight * sum_of_squares(action)
        impact = self.contact_reward(after, self.impact_cost_range)
        return Outcome(
            reward=up + control + impact + 1,
            terminated=jnp.asarray(False),
            metrics={
                "x_position": after.qpos[0],
                "y_position": after.qpos[1],
                "z_distance_from_origin": height - self.model.qpos0[2],
                "reward_linup": up,
                "reward_quadctrl": control,
                "reward_impact": impact,
            },
        )
