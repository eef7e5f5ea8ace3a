"""playground/go1-handstand and go1-footstand: a Go1 on two of its feet."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from worldline.env.parts import ActionPart, ObservationParts
from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.settings import Finite, NotNegative, Number, Positive, Share
from worldline.tasks.playground import costs, parts
from worldline.tasks.playground.go1 import SCENES, Go1Task
from worldline.tasks.playground.legged import draws, noisy, soft_limits
from worldline.types import Array, Key

#: Geoms of the front legs that must not touch the ground.
_FRONT_LEGS = (
    "fl_calf1", "fl_calf2", "fr_calf1", "fr_calf2", "fl_thigh1", "fl_thigh2", "fl_thigh3",
    "fr_thigh1", "fr_thigh2", "fr_thigh3", "fl_hip", "fr_hip",
)  # fmt: skip


class Memory(eqx.Module):
    """What the task carries from step to step."""

    action: Array
    """The last action, `(12,)`."""
    last_action: Array
    """The action before it, `(12,)`."""
    targets: Array
    """Where the joints were told to be, `(12,)`, rad; perhaps beyond their ranges."""
    words: Array
    """What random numbers are drawn from, `(2,)` uint32."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Go1Handstand(Go1Task):
    """Stand on the front feet of a Unitree Go1.

    Observation: a dict. `state` `(45,)`, with noise: linear and angular velocity and the direction
    of gravity in the frame of the IMU, joint angles from home and their velocities, the action
    before the last. `privileged_state` `(94,)`: `state`; without noise the angular velocity, the
    acceleration, the linear velocity, the angular one along the world's axes, joints, the forces of
    the motors, the height. Action `(12,)`: changes of the joints' targets. An episode
    terminates when the robot is upside down, or touches the ground with its front legs above
    the feet.

    The task `Go1Handstand` of MuJoCo Playground 0.2.0.
    """

    episode_length: Number = 500
    """Control steps after which an episode is truncated; 0 for no limit."""
    action_scale: Positive = 0.3
    """How far an action of 1 moves the target of a joint, rad."""
    joint_noise: NotNegative = 0.01
    """Largest noise on joint angles, rad."""
    velocity_noise: NotNegative = 0.1
    """Largest noise on the linear velocity, m/s."""
    soft_limit: NotNegative = 0.9
    """The share of each joint's range beyond which there is a cost."""
    crouch_probability: Share = 0.0
    """Probability that an episode starts on the belly, at rest; otherwise it starts in the home
    pose."""
    lowest_upright: Finite = -0.25
    """The vertical component of the torso's own vertical below which an episode terminates."""
    wanted_height: Positive = 0.55
    """Desired height of the IMU, m."""
    height_weight: Finite = 1.0
    """Weight of the reward for the height of the torso."""
    orientation_weight: Finite = 1.0
    """Weight of the reward for a torso that points where it should."""
    contact_weight: Finite = -0.1
    """Weight of any foot on the ground."""
    action_rate_weight: Finite = 0.0
    """Weight of the squared change of the action."""
    termination_weight: Finite = 0.0
    """Weight of the end of an episode."""
    dof_pos_limits_weight: Finite = -0.5
    """Weight of how far joints are beyond their soft limits, rad."""
    torques_weight: Finite = 0.0
    """Weight of the squared forces of the motors, (N m)^2."""
    pose_weight: Finite = -0.1
    """Weight of the squared distance from home of the joints of the legs in the air, rad^2."""
    stay_still_weight: Finite = 0.0
    """Weight of the squared velocities along the ground and about the torso's vertical."""
    energy_weight: Finite = 0.0
    """Weight of the motors' power, W; to make a policy smooth that can stand, Playground takes
    -0.003."""
    dof_acc_weight: Finite = 0.0
    """Weight of the squared accelerations of joints, (rad/s^2)^2; for that, Playground takes
    -2.5e-7."""

    file = f"{SCENES}/scene_mjx_flat_terrain.xml"
    on_feet = False
    fields = ("sensordata", "site_xpos", "site_xmat", "actuator_force", "qacc")

    forward: ClassVar[float] = -1.0
    """The desired vertical component of the torso's forward direction."""
    in_air: ClassVar[slice] = slice(6, 12)
    """The joints of the legs that should be in the air."""

    def start(self, key: Key) -> Start:
        """Standing somewhere near the origin, thrown a little; or in a crouch."""
        crouch_key, place_key, memory_key = jax.random.split(key, 3)
        crouch = jax.random.bernoulli(crouch_key, self.crouch_probability)
        crouching = jnp.asarray(self.model.mj.key("pre_recovery").qpos, jnp.float32)
        qpos = jnp.where(crouch, crouching, jnp.asarray(self.home))
        qpos, qvel = self.somewhere(place_key, qpos)
        nothing, targets = jnp.zeros(12, jnp.float32), qpos[7:]
        return Start(
            qpos=qpos,
            qvel=jnp.where(crouch, 0.0, qvel),
            memory=Memory(nothing, nothing, targets, jax.random.key_data(memory_key)),
            inputs={"ctrl": targets},
        )

    def control(self, action: Array, physics: PhysicsState, memory: Memory) -> Array:
        """Where to hold the joints, within their ranges, rad."""
        return self.within_range(self._next_targets(action, memory))

    def _next_targets(self, action: Array, memory: Memory) -> Array:
        return memory.targets + self.action_scale * action

    def observe(self, physics: PhysicsState, memory: Memory) -> dict[str, Array]:
        """What such a robot can feel, with noise; and all that matters, without."""
        exact = self.measured(physics)
        scales = (
            self.velocity_noise,
            self.gyro_noise,
            self.gravity_noise,
            self.joint_noise,
            self.joint_velocity_noise,
        )
        linear, gyro, gravity, joints, velocities = noisy(
            draws(memory.words).noise,
            list(exact.values()),
            scales,
            self.noise_level,
        )
        state = [linear, gyro, gravity, joints - self.pose, velocities, memory.last_action]
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
        measured = self.measured_parts(velocity_noise=self.velocity_noise)
        state = (*measured, parts.action_before_last(self))
        exact = self.exact_parts(
            "gyro", "accelerometer", "linear", "global_angvel", from_home=False
        )
        known = (*exact, *parts.motors_and_height(self))
        return {"state": state, "privileged_state": (*state, *known)}

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        return parts.servo_targets(self, "last_target")

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """To be high and point where it should, on two feet."""
        joints, speeds, forces = after.qpos[7:], after.qvel[6:], after.fields["actuator_force"]
        height = self.imu(after, "site_xpos")[2]
        pointing = self.forward * self.imu(after, "site_xmat").reshape(3, 3)[2, 0]
        power = costs.energy(speeds, forces)
        over = (
            (self.sensor(after, "upvector")[2] < self.lowest_upright)
            | self.touching(after, _FRONT_LEGS).any()
            | self.too_powerful(power)
        )
        low, high = soft_limits(self.model, self.soft_limit)
        terms = {
            "height": jnp.exp(jnp.minimum(height - self.wanted_height, 0.0)),
            "orientation": jnp.square(0.5 * pointing + 0.5),
            "contact": self.touching(after, self.feet).any(),
            "action_rate": costs.action_rate(action, memory.action),
            "termination": over,
            "dof_pos_limits": costs.beyond_limits(joints, low, high),
            "torques": costs.squared(forces),
            "pose": costs.squared((joints - self.pose)[self.in_air]),
            "stay_still": costs.squared(after.qvel[:2], after.qvel[5]),
            "energy": power,
            "dof_acc": costs.squared(after.fields["qacc"][6:]),
        }
        targets = self._next_targets(action, memory)
        following = Memory(action, memory.action, targets, draws(memory.words).words)
        return self.scored(terms, over, following)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Go1Footstand(Go1Handstand):
    """Stand on the hind feet of a Unitree Go1; see `Go1Handstand`.

    As in Playground, the front legs must not touch the ground here either.

    The task `Go1Footstand` of MuJoCo Playground 0.2.0.
    """

    wanted_height: Positive = 0.53
    """Desired height of the IMU, m."""

    forward = 1.0
    in_air = slice(0, 6)
