"""playground/go1-getup: a Go1 that stands up from wherever it fell."""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.parts import ActionPart, ObservationParts
from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.settings import Finite, NotNegative, Number, Positive, Share
from worldline.tasks.playground import costs, parts
from worldline.tasks.playground.go1 import SCENES, Go1Task
from worldline.tasks.playground.legged import draws, noisy, random_fall, soft_limits
from worldline.types import Array, Key

#: The direction of gravity to an upright robot.
_DOWN = np.array([0.0, 0.0, -1.0], np.float32)


class Memory(eqx.Module):
    """What the task carries from step to step."""

    action: Array
    """The last action, `(12,)`."""
    last_action: Array
    """The action before it, `(12,)`."""
    words: Array
    """What random numbers are drawn from, `(2,)` uint32."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Go1Getup(Go1Task):
    """Stand up with a Unitree Go1 that was dropped, or stay standing.

    Observation: a dict. `state` `(42,)`, with noise: angular velocity and the direction of gravity
    in the frame of the IMU, joint angles from home and their velocities, the action before the
    last. `privileged_state` `(91,)`: `state`; without noise the angular velocity, the acceleration,
    the linear velocity, the angular one along the world's axes, joints, the forces of the motors,
    the height. Action `(12,)`: changes of the joints from their current angles. An episode
    terminates when the motors take more power than allowed, by default never.

    The task `Go1Getup` of MuJoCo Playground 0.2.0.
    """

    episode_length: Number = 300
    """Control steps after which an episode is truncated; 0 for no limit."""
    action_scale: Positive = 0.5
    """How far an action of 1 moves the target of a joint from where the joint is, rad."""
    soft_limit: NotNegative = 0.95
    """The share of each joint's range beyond which there is a cost."""
    drop_probability: Share = 0.6
    """Probability that an episode starts with a drop from `drop_height` in any pose; otherwise it
    starts in the home pose."""
    drop_height: Positive = 0.5
    """Height of the torso from which the robot is dropped, m."""
    settle_time: NotNegative = 0.5
    """Seconds that the robot has to come to rest before the episode begins."""
    standing_height: Positive = 0.275
    """Height of the IMU when the robot stands, m."""
    upright_tolerance: Positive = 0.01
    """Squared error of the direction of gravity up to which the robot is upright."""
    height_tolerance: Positive = 0.005
    """How much below `standing_height` it still stands, m."""
    fastest_joint: Positive = 2 * math.pi
    """Velocity of a joint from which it costs, rad/s."""
    orientation_weight: Finite = 1.0
    """Weight of the reward for an upright torso."""
    torso_height_weight: Finite = 1.0
    """Weight of the reward for the height of the torso."""
    posture_weight: Finite = 1.0
    """Weight of the reward for joints near home, when upright."""
    stand_still_weight: Finite = 1.0
    """Weight of the reward for small actions, when standing."""
    action_rate_weight: Finite = -0.001
    """Weight of the squared first and second differences of actions."""
    dof_pos_limits_weight: Finite = -0.1
    """Weight of how far joints are beyond their soft limits, rad."""
    torques_weight: Finite = -1e-5
    """Weight of the motors' forces, N m."""
    dof_acc_weight: Finite = -2.5e-7
    """Weight of the squared accelerations of joints, (rad/s^2)^2."""
    dof_vel_weight: Finite = -0.1
    """Weight of the squares of what velocities of joints are beyond `fastest_joint`, (rad/s)^2."""

    file = f"{SCENES}/scene_mjx_fullcollisions_flat_terrain.xml"
    on_feet = False
    fields = ("sensordata", "site_xpos", "site_xmat", "actuator_force", "qacc")

    def start(self, key: Key) -> Start:
        """Dropped in a random pose, or at home; in both cases given time to come to rest."""
        drop_key, pose_key, velocity_key, memory_key = jax.random.split(key, 4)
        low, high = self.model.mj.jnt_range[1:].T
        qpos = jnp.where(
            jax.random.bernoulli(drop_key, self.drop_probability),
            random_fall(pose_key, self.drop_height, low, high),
            jnp.asarray(self.home),
        )
        nothing = jnp.zeros(12, jnp.float32)
        return Start(
            qpos=qpos,
            qvel=self.thrown(velocity_key),
            memory=Memory(nothing, nothing, jax.random.key_data(memory_key)),
            inputs={"ctrl": qpos[7:]},
            settle_time=self.settle_time,
        )

    def control(self, action: Array, physics: PhysicsState, memory: Memory) -> Array:
        """Where to hold the joints, within their ranges, rad."""
        return self.within_range(physics.qpos[7:] + self.action_scale * action)

    def observe(self, physics: PhysicsState, memory: Memory) -> dict[str, Array]:
        """What such a robot can feel, with noise; and all that matters, without."""
        exact = self.measured(physics)
        scales = (
            self.gyro_noise,
            self.gravity_noise,
            self.joint_noise,
            self.joint_velocity_noise,
        )
        names = ("gyro", "gravity", "joints", "velocities")
        gyro, gravity, joints, velocities = noisy(
            draws(memory.words).noise,
            [exact[name] for name in names],
            scales,
            self.noise_level,
        )
        state = [gyro, gravity, joints - self.pose, velocities, memory.last_action]
        privileged = [
            exact["gyro"],
            self.sensor(physics, "accelerometer"),
            exact["linear"],
            self.sensor(physics, "global_angvel"),
            exact["joints"],
            exact["velocities"],
            physics.fields["actuator_force"],
            self.imu(physics, "site_xpos")[2:],
        ]
        return {
            "state": jnp.concatenate(state),
            "privileged_state": jnp.concatenate([*state, *privileged]),
        }

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        state = (*self.measured_parts(), parts.action_before_last(self))
        exact = self.exact_parts(
            "gyro", "accelerometer", "linear", "global_angvel", from_home=False
        )
        known = (*exact, *parts.motors_and_height(self))
        return {"state": state, "privileged_state": (*state, *known)}

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        return parts.servo_targets(self, "joint_position")

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """To be upright, high, at home and still; smoothly."""
        joints, speeds, forces = after.qpos[7:], after.qvel[6:], after.fields["actuator_force"]
        gravity, height = self.down(after), self.imu(after, "site_xpos")[2]
        upright = costs.squared(_DOWN - gravity) < self.upright_tolerance
        standing = upright & (self.standing_height - height < self.height_tolerance)
        low, high = soft_limits(self.model, self.soft_limit)
        terms = {
            "orientation": costs.upright(gravity, _DOWN),
            "torso_height": jnp.expm1(jnp.minimum(height, self.standing_height)),
            "posture": jnp.where(upright, costs.closeness(joints, self.pose, 0.5), 0.0),
            "stand_still": jnp.where(standing, costs.closeness(action, 0.0, 0.5), 0.0),
            "action_rate": costs.action_smoothness(action, memory.action, memory.last_action),
            "dof_pos_limits": costs.beyond_limits(joints, low, high),
            "torques": costs.torques(forces),
            "dof_acc": costs.squared(after.fields["qacc"][6:]),
            "dof_vel": costs.squared(jnp.maximum(jnp.abs(speeds) - self.fastest_joint, 0.0)),
        }
        tired = self.too_powerful(costs.energy(speeds, forces))
        following = Memory(action, memory.action, draws(memory.words).words)
        return self.scored(terms, tired, following)
