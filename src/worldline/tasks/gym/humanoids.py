"""gym/humanoid and gym/humanoid-standup: run along x on two legs, or get up from the floor."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.tasks.gym.base import (
    Camera,
    Locomotion,
    Range,
    noisy_start,
    sum_of_squares,
    within,
)
from worldline.types import Array, Key, PyTree


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class HumanoidBody(Locomotion):
    """A body of thirteen parts: what it feels, and how it starts.

    Observation `(348,)`: height, orientation (quaternion) and seventeen joint angles; all 23
    velocities; of each part the inertia (10), velocity (6) and contact force (6) about the centre
    of mass; the seventeen actuator forces. Action `(17,)`: motor torques, between -0.4 and 0.4.
    """

    defaults = {"ppo": {"num_worlds": 64}}

    frame_skip: int = 5
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

    @property
    def seen(self) -> tuple[str, ...]:
        """The MjData fields in the observation, in its order."""
        included = {
            "cinert": self.include_cinert_in_observation,
            "cvel": self.include_cvel_in_observation,
            "qfrc_actuator": self.include_qfrc_actuator_in_observation,
            "cfrc_ext": self.include_cfrc_ext_in_observation,
        }
        return tuple(field for field, include in included.items() if include)

    def start(self, key: Key) -> Start:
        """The default pose with noise."""
        return noisy_start(self.model, key, self.reset_noise_scale)

    def observe(self, physics: PhysicsState, memory: PyTree) -> Array:
        """Positions (without x and y by default), velocities, and what the body feels."""
        # The world body feels nothing, and the root joint, of six velocities, has no actuator.
        first = {"cinert": 1, "cvel": 1, "qfrc_actuator": 6, "cfrc_ext": 1}
        skipped = 2 if self.exclude_current_positions_from_observation else 0
        felt = [physics.fields[field][first[field] :].ravel() for field in self.seen]
        return jnp.concatenate([physics.qpos[skipped:], physics.qvel, *felt])


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Humanoid(HumanoidBody):
    """Run along x. Reward: velocity of the centre of mass and a bonus for health, less costs of
    control and contact. An episode terminates when the humanoid is not healthy.
    """

    xml_file: str = "humanoid.xml"
    default_camera_config: Camera = dataclasses.field(
        default_factory=lambda: {
            "trackbodyid": 1,
            "distance": 4.0,
            "lookat": (0.0, 0.0, 2.0),
            "elevation": -20.0,
        }
    )
    forward_reward_weight: float = 1.25
    """Reward for each m/s along x."""
    contact_cost_weight: float = 5e-7
    """Cost of the sum of the squared contact forces."""
    contact_cost_range: Range = (float("-inf"), 10.0)
    """The cost of contact is clipped to this range."""
    healthy_reward: float = 5.0
    """Reward for each step after which the humanoid is healthy."""
    terminate_when_unhealthy: bool = True
    """Whether a humanoid that is not healthy ends the episode."""
    healthy_z_range: Range = (1.0, 2.0)
    """Heights of the torso at which the humanoid is healthy, m."""

    @property
    def fields(self) -> tuple[str, ...]:
        """What is seen, and the contact forces where they are charged for."""
        return _with_forces(self.seen, self.contact_cost_weight)

    @property
    def changes(self) -> tuple[str, ...]:
        """The distance that the parts' centres of mass cover in a step."""
        return ("xipos",)

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: PyTree
    ) -> Outcome:
        """Forward velocity and health, less the costs of control and contact."""
        healthy = within(after.qpos[2], self.healthy_z_range)
        mass = after.variation.get("body_mass", self.model.constant("body_mass"))
        distance = mass @ after.changes["xipos"] / mass.sum()
        x_velocity, y_velocity, _ = distance / self.control_timestep
        forward = self.forward_reward_weight * x_velocity
        survive = jnp.where(healthy, self.healthy_reward, 0.0)
        control = -self.ctrl_cost_weight * sum_of_squares(action)
        contact = -_contact_cost(after, self.contact_cost_weight, self.contact_cost_range)
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


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class HumanoidStandup(HumanoidBody):
    """Get up from the floor. Reward: the height of the torso, divided by the physics time step,
    less costs of control and impact, and 1. An episode never terminates.
    """

    xml_file: str = "humanoidstandup.xml"
    default_camera_config: Camera = dataclasses.field(
        default_factory=lambda: {
            "trackbodyid": 1,
            "distance": 4.0,
            "lookat": (0.0, 0.0, 0.8925),
            "elevation": -20.0,
        }
    )
    uph_cost_weight: float = 1.0
    """Without effect, in Gymnasium too: the weight of the height is always 1."""
    impact_cost_weight: float = 5e-7
    """Cost of the sum of the squared contact forces."""
    impact_cost_range: Range = (float("-inf"), 10.0)
    """The cost of impact is clipped to this range."""

    @property
    def fields(self) -> tuple[str, ...]:
        """What is seen, and the contact forces where they are charged for."""
        return _with_forces(self.seen, self.impact_cost_weight)

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: PyTree
    ) -> Outcome:
        """Height, less the costs of control and impact, and 1."""
        height = after.qpos[2]
        up = height / self.model.timestep
        control = -self.ctrl_cost_weight * sum_of_squares(action)
        impact = -_contact_cost(after, self.impact_cost_weight, self.impact_cost_range)
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


def _with_forces(seen: tuple[str, ...], weight: float) -> tuple[str, ...]:
    """The fields `seen`, and the contact forces if they have a weight in the reward."""
    return seen if weight == 0 or "cfrc_ext" in seen else (*seen, "cfrc_ext")


def _contact_cost(physics: PhysicsState, weight: float, limits: Range) -> Array:
    """The weighted sum of the squared contact forces, clipped to `limits`, `()`."""
    cost = 0.0 if weight == 0 else weight * sum_of_squares(physics.fields["cfrc_ext"])
    return jnp.clip(jnp.asarray(cost), *limits)
