"""playground/spot-getup: a Spot that stands up from wherever it fell."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.parts import ActionPart, ObservationParts
from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.settings import Finite, NotNegative, Number, Positive, Share
from worldline.tasks.playground import costs, parts
from worldline.tasks.playground.legged import draws, random_fall
from worldline.tasks.playground.spot import SCENES, SpotTask
from worldline.types import Array, Key

#: The vertical of an upright robot.
_UP = np.array([0.0, 0.0, 1.0], np.float32)


class Memory(eqx.Module):
    """What the task carries from step to step."""

    action: Array
    """The last action, `(12,)`."""
    last_action: Array
    """The action before it, `(12,)`."""
    words: Array
    """What random numbers are drawn from, `(2,)` uint32."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SpotGetup(SpotTask):
    """Stand up with Boston Dynamics' Spot that was dropped, or stay standing.

    Observation `(30,)`: with noise the angular velocity, the vertical and joint angles from home;
    the action before the last. Action `(12,)`: changes of the joints from their current angles. An
    episode terminates when a joint is beyond the range of its servo.

    The task `SpotGetup` of MuJoCo Playground 0.2.0.
    """

    episode_length: Number = 300
    """Control steps after which an episode is truncated; 0 for no limit."""
    stiffness: NotNegative = 400.0
    """Stiffness of each joint's servo, N m / rad."""
    damping: NotNegative = 20.0
    """Damping of each joint, N m s / rad."""
    action_scale: Positive = 0.6
    """How far an action of 1 moves the target of a joint from where the joint is, rad."""
    joint_noise: NotNegative = 0.01
    """Largest noise on joint angles, rad."""
    gyro_noise: NotNegative = 0.2
    """Largest noise on the angular velocity, rad/s."""
    vertical_noise: NotNegative = 0.05
    """Largest noise on the direction of the vertical."""
    drop_probability: Share = 0.6
    """Probability that an episode starts with a drop from `drop_height` in any pose; otherwise it
    starts in the home pose."""
    drop_height: Positive = 1.0
    """Height of the torso from which the robot is dropped, m."""
    settle_time: NotNegative = 0.5
    """Seconds that the robot has to come to rest before the episode begins."""
    standing_height: Positive = 0.46
    """Height of the torso when the robot stands, m."""
    upright_tolerance: Positive = 0.01
    """Squared error of the vertical up to which the robot is upright."""
    height_tolerance: Positive = 0.005
    """The share of `standing_height` that may be missing when the robot stands."""
    orientation_weight: Finite = 1.0
    """Weight of the reward for an upright torso."""
    torso_height_weight: Finite = 1.0
    """Weight of the reward for the height of the torso."""
    posture_weight: Finite = 1.0
    """Weight of the reward for joints near home, when upright."""
    stand_still_weight: Finite = 1.0
    """Weight of the reward for small actions, when standing."""
    torques_weight: Finite = 0.0
    """Weight of the motors' forces, N m."""
    action_rate_weight: Finite = 0.0
    """Weight of the squared first and second differences of actions."""

    file = f"{SCENES}/scene_mjx_flat_terrain.xml"
    on_feet = False
    fields = ("sensordata", "actuator_force")

    def start(self, key: Key) -> Start:
        """Dropped in a random pose, or at home; in both cases given time to come to rest."""
        drop_key, pose_key, memory_key = jax.random.split(key, 3)
        qpos = jnp.where(
            jax.random.bernoulli(drop_key, self.drop_probability),
            random_fall(pose_key, self.drop_height, *self.model.ctrlrange.T),
            jnp.asarray(self.home),
        )
        nothing = jnp.zeros(12, jnp.float32)
        return Start(
            qpos=qpos,
            qvel=jnp.zeros(self.model.nv, jnp.float32),
            memory=Memory(nothing, nothing, jax.random.key_data(memory_key)),
            inputs={"ctrl": qpos[7:]},
            settle_time=self.settle_time,
        )

    def control(self, action: Array, physics: PhysicsState, memory: Memory) -> Array:
        """Where to hold the joints, within their ranges, rad."""
        return self.within_range(physics.qpos[7:] + self.action_scale * action)

    def observe(self, physics: PhysicsState, memory: Memory) -> Array:
        """What such a robot can feel."""
        gyro, up, joints = self.felt(physics, memory.words)
        return jnp.concatenate([gyro, up, joints - self.pose, memory.last_action])

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        return {
            "state": (
                parts.angular_velocity(self.gyro_noise),
                parts.upvector(self.vertical_noise),
                parts.joint_position(self, self.joint_noise),
                parts.action_before_last(self),
            )
        }

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        return parts.servo_targets(self, "joint_position")

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """To be upright, high, at home and still."""
        up, joints = self.up(after), after.qpos[7:]
        lacking = jnp.clip(1 - after.qpos[2] / self.standing_height, 0.0, 1.0)
        upright = costs.squared(_UP - up) < self.upright_tolerance
        standing = upright & (lacking < self.height_tolerance)
        terms = {
            "orientation": costs.upright(up, _UP),
            "torso_height": 1 - lacking,
            "posture": jnp.where(upright, costs.closeness(joints, self.pose, 0.5), 0.0),
            "stand_still": jnp.where(standing, costs.closeness(action, 0.0, 0.5), 0.0),
            "action_rate": costs.action_smoothness(action, memory.action, memory.last_action),
            "torques": costs.torques(after.fields["actuator_force"]),
        }
        following = Memory(action, memory.action, draws(memory.words).words)
        return self.scored(terms, self.beyond_range(after), following)
