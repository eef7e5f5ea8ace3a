"""playground/op3-joystick: Robotis' small humanoid OP3, which goes where a joystick points."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco

from worldline.env.parts import ActionPart, ObservationParts
from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.settings import Count, Finite, NotNegative, Number, Positive, Share
from worldline.tasks.playground import commands, costs, feet, parts
from worldline.tasks.playground.commands import Command
from worldline.tasks.playground.legged import ServoTask, draws, noisy
from worldline.types import Array, Key

#: Numbers in the part of the observation that a control step adds.
_FRAME = 49


class Memory(eqx.Module):
    """What the task carries from step to step, as it was when the present state was observed."""

    command: Command
    """What to follow."""
    action: Array
    """The last action, `(20,)`."""
    last_action: Array
    """The action before it, `(20,)`."""
    frames: Array
    """What was observed in the control steps before, newest first, `(n, 49)`."""
    words: Array
    """What random numbers are drawn from, `(2,)` uint32."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Op3Joystick(ServoTask):
    """Follow commanded velocities with Robotis' OP3 on flat ground.

    Observation `(147,)`: the last 3 control steps, newest first, each with noise: the angular
    velocity, the vertical, the command, joint angles from home, the action before the last. Action
    `(20,)`: target angles of the joints, relative to home. An episode terminates when the torso
    tilts or is low, or a joint is beyond the range of its servo.

    The task `Op3Joystick` of MuJoCo Playground 0.2.0.
    """

    episode_length: Number = 1000
    """Control steps after which an episode is truncated; 0 for no limit."""
    stiffness: NotNegative = 21.1
    """Stiffness of each joint's servo, N m / rad."""
    damping: NotNegative = 1.084
    """Damping of each joint, N m s / rad."""
    action_scale: Positive = 0.3
    """How far an action of 1 moves the target of a joint from home, rad."""
    noise: NotNegative = 0.05
    """Largest noise on each number observed."""
    history_length: Count = 3
    """The number of observed control steps."""
    lowest_command: tuple[float, float, float] = (-0.6, -0.8, -0.7)
    """Lowest command: forward and left, m/s, and turning left, rad/s."""
    highest_command: tuple[float, float, float] = (1.5, 0.8, 0.7)
    """Highest command: forward and left, m/s, and turning left, rad/s."""
    stand_probability: Share = 0.1
    """Probability of a command to stand still."""
    command_steps: Count = 501
    """Control steps that a command lasts."""
    upright_limit: Finite = 0.85
    """The vertical component of the torso's own vertical below which an episode terminates."""
    lowest_torso: NotNegative = 0.21
    """Height of the torso below which an episode terminates, m."""
    early_termination: bool = True
    """Whether the tilt or the height of the torso ends an episode."""
    swing_height: Positive = 0.07
    """How high a foot should swing, m."""
    tracking_sigma: Positive = 0.25
    """Squared error of velocity at which `exp(-1)` of its reward is left, (m/s)^2, (rad/s)^2."""
    tracking_lin_vel_weight: Finite = 1.5
    """Weight of the reward for following forward and sideways."""
    tracking_ang_vel_weight: Finite = 0.8
    """Weight of the reward for following turns."""
    lin_vel_z_weight: Finite = -2.0
    """Weight of the squared vertical velocity, (m/s)^2."""
    ang_vel_xy_weight: Finite = -0.05
    """Weight of the squared angular velocity about the horizontal, (rad/s)^2."""
    orientation_weight: Finite = -5.0
    """Weight of the squared sine of the tilt."""
    torques_weight: Finite = -0.0002
    """Weight of the motors' forces, N m."""
    action_rate_weight: Finite = -0.01
    """Weight of the squared first and second differences of actions."""
    zero_cmd_weight: Finite = -0.5
    """Weight of the squared action under a command to stand."""
    termination_weight: Finite = -1.0
    """Weight of the end of an episode, but in the last step of a command."""
    feet_slip_weight: Finite = -0.1
    """Weight of the squared velocities of feet on the ground, (m/s)^2."""
    feet_clearance_weight: Finite = 0.0
    """Weight of the squared errors of the heights of feet that move, m^2."""
    energy_weight: Finite = -0.0001
    """Weight of the motors' power, W."""

    file = "locomotion/op3/xmls/scene_mjx_feetonly.xml"
    keyframe = "stand_bent_knees"
    fields = ("sensordata", "site_xpos", "actuator_force", "xpos")
    torso = "body_link"
    feet = ("left_foot", "right_foot")
    soles = (("l_foot1", "l_foot2"), ("r_foot1", "r_foot2"))

    def mjcf(self) -> mujoco.MjSpec:
        """The scene, with the steps of the search for collisions that Playground takes."""
        spec = super().mjcf()
        spec.option.ccd_iterations = 10
        return spec

    def start(self, key: Key) -> Start:
        """Standing at home, with a first command."""
        command_key, memory_key = jax.random.split(key)
        nothing = jnp.zeros(self.model.nu, jnp.float32)
        memory = Memory(
            command=Command(self._velocity(command_key), jnp.int32(self.command_steps)),
            action=nothing,
            last_action=nothing,
            frames=jnp.zeros((self.history_length - 1, _FRAME), jnp.float32),
            words=jax.random.key_data(memory_key),
        )
        qpos, qvel = jnp.asarray(self.home), jnp.zeros(self.model.nv, jnp.float32)
        return Start(qpos=qpos, qvel=qvel, memory=memory)

    def _velocity(self, key: Key) -> Array:
        low, high = self.lowest_command, self.highest_command
        return commands.within(key, low, high, self.stand_probability)

    def control(self, action: Array, physics: PhysicsState, memory: Memory) -> Array:
        """Where to hold the joints, within their ranges, rad."""
        return self.within_range(self.pose + self.action_scale * action)

    def frame(self, physics: PhysicsState, memory: Memory) -> Array:
        """What a control step adds to the observation, `(49,)`."""
        exact = jnp.concatenate(
            [
                self.sensor(physics, "gyro"),
                self.sensor(physics, "upvector"),
                memory.command.velocity,
                physics.qpos[7:] - self.pose,
                memory.last_action,
            ]
        )
        key, seen = draws(memory.words).noise, jnp.clip(exact, -100.0, 100.0)
        return noisy(key, [seen], [self.noise], self.noise_level)[0]

    def observe(self, physics: PhysicsState, memory: Memory) -> Array:
        """The last frames, newest first."""
        return jnp.concatenate([self.frame(physics, memory), memory.frames.ravel()])

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`: the newest frame, and those before it as they were."""
        noise = self.noise
        frame = (
            parts.angular_velocity(noise),
            parts.upvector(noise),
            parts.command(self.lowest_command, self.highest_command),
            parts.joint_position(self, noise),
            parts.action_before_last(self),
        )
        return {"state": (*frame, parts.before(frame, self.history_length - 1))}

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        return parts.servo_targets(self)

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """Velocities as commanded; smoothly; without a fall."""
        keys = draws(memory.words)
        fresh = self._velocity(keys.command)
        command = memory.command.next(fresh, jnp.int32(self.command_steps))
        over, still = self._over(after), costs.length(command.velocity) < 0.1
        terms = self._terms(after, command.velocity) | {
            "action_rate": costs.action_smoothness(action, memory.action, memory.last_action),
            "zero_cmd": jnp.where(still, costs.squared(action), 0.0),
            "termination": over & (command.steps > 0),
        }
        frames = jnp.concatenate([self.frame(before, memory)[None], memory.frames])
        following = Memory(command, action, memory.action, frames[:-1], keys.words)
        return self.scored(terms, over, following)

    def _over(self, physics: PhysicsState) -> Array:
        """Whether the episode terminates, `()` bool."""
        height = physics.fields["xpos"][self.model.id("body", self.torso), 2]
        tilted = self.sensor(physics, "upvector")[2] < self.upright_limit
        fallen = tilted | (height < self.lowest_torso)
        return self.beyond_range(physics) | (fallen & self.early_termination)

    def _terms(self, physics: PhysicsState, command: Array) -> dict[str, Array]:
        """The terms of the reward that follow from the state, without their weights."""
        linear, gyro = (self.sensor(physics, name) for name in ("local_linvel", "gyro"))
        forces, velocity = physics.fields["actuator_force"], self.feet_velocity(physics)
        low = jnp.square(self.feet_height(physics) - self.swing_height)
        return {
            "tracking_lin_vel": costs.linear_tracking(command, linear, self.tracking_sigma),
            "tracking_ang_vel": costs.angular_tracking(command, gyro, self.tracking_sigma),
            "lin_vel_z": costs.squared(self.sensor(physics, "global_linvel")[2]),
            "ang_vel_xy": costs.squared(self.sensor(physics, "global_angvel")[:2]),
            "orientation": costs.squared(self.sensor(physics, "upvector")[:2]),
            "torques": costs.torques(forces),
            "energy": costs.energy(physics.qvel[6:], forces),
            "feet_slip": feet.slip(velocity, self.grounded(physics)),
            "feet_clearance": jnp.sum(low * feet.root_speed(velocity)),
        }
