"""playground/h1-joystick-gait-tracking: a Unitree H1 that follows a joystick in a given gait."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from worldline.env.parts import ActionPart, ObservationParts
from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.settings import Count, Finite, NotNegative, Positive
from worldline.tasks.playground import commands, costs, feet, parts
from worldline.tasks.playground.commands import Command
from worldline.tasks.playground.gait import BIPED_GAITS, foot_height
from worldline.tasks.playground.h1 import H1Task, Track
from worldline.tasks.playground.legged import draws
from worldline.types import Array, Key


class Memory(eqx.Module):
    """What the task carries from step to step, as it was when the present state was observed."""

    command: Command
    """What to follow."""
    track: Track
    """Gait, feet, joints, actions."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class H1JoystickGaitTracking(H1Task):
    """Follow commanded velocities with a Unitree H1, at the phases and heights of a gait.

    Observation `(113,)`: with noise the angular velocity, the vertical, joint angles from home and
    their velocities; the action before the last, the command; without noise the velocities of
    joints, and their position errors, in the last control steps; which feet touch the ground;
    cosine and sine of the phase of each foot; frequency, number and height of the gait. Action
    `(19,)`: changes of the joints' targets. An episode terminates when the torso tilts or a joint
    is beyond the range of its servo.

    The task `H1JoystickGaitTracking` of MuJoCo Playground 0.2.0.
    """

    action_scale: Positive = 0.3
    """Change of a joint's target from its last value for an action of 1, rad."""
    noise_level: NotNegative = 0.6
    """Factor for all noise of the observation; 0: no noise."""
    history_length: Count = 1
    """The number of control steps of observed errors and velocities of the joints."""
    lowest_command: tuple[float, float, float] = (-1.5, -0.5, -1.0)
    """Lowest command: forward and left, m/s, and turning left, rad/s."""
    highest_command: tuple[float, float, float] = (1.5, 0.5, 1.0)
    """Highest command: forward and left, m/s, and turning left, rad/s."""
    least_command: tuple[float, float, float] = (0.1, 0.1, 0.1)
    """Size below which each part of a command is 0, m/s and rad/s."""
    command_steps: Count = 501
    """Control steps that a command lasts."""
    gaits: tuple[str, ...] = ("walk",)
    """Gaits to draw one of in each episode: `walk`, `jump`."""
    gait_frequency: tuple[float, float] = (0.5, 2.0)
    """Steps a second: lowest and highest, Hz."""
    tracking_sigma: Positive = 0.5
    """Squared error of velocity at which `exp(-1)` of its reward is left, (m/s)^2, (rad/s)^2."""
    phase_sigma: Positive = 0.01
    """Squared error of the feet's heights at which `exp(-1)` of its reward is left, m^2."""
    least_air_time: NotNegative = 0.1
    """Shortest time of a foot in the air that is rewarded, s."""
    feet_phase_weight: Finite = 5.0
    """Weight of the reward for feet at the heights of the gait."""
    tracking_lin_vel_weight: Finite = 3.5
    """Weight of the reward for following forward and sideways."""
    tracking_ang_vel_weight: Finite = 0.75
    """Weight of the reward for following turns."""
    feet_air_time_weight: Finite = 0.0
    """Weight of the reward for the time in the air of feet that land, s, under commands to go
    faster than 0.05 m/s."""
    ang_vel_xy_weight: Finite = 0.0
    """Weight of the squared angular velocity about the horizontal, (rad/s)^2."""
    lin_vel_z_weight: Finite = 0.0
    """Weight of the squared vertical velocity, (m/s)^2, in the gait `jump`."""
    pose_weight: Finite = -2.5
    """Weight of the squared distance of joints from home, rad^2, except the joints of a stride."""
    foot_slip_weight: Finite = 0.0
    """Weight of the squared velocities of feet on the ground, (m/s)^2."""
    action_rate_weight: Finite = -0.01
    """Weight of the squared change of the action before, and the squared second difference of
    actions."""

    def start(self, key: Key) -> Start:
        """Standing at home, with a first command and a gait."""
        command_key, track_key = jax.random.split(key)
        command = Command(self._velocity(command_key), jnp.int32(self.command_steps))
        return dataclasses.replace(self.standing(), memory=Memory(command, self.track(track_key)))

    def _velocity(self, key: Key) -> Array:
        command = commands.within(key, self.lowest_command, self.highest_command)
        small = jnp.abs(command) < jnp.array(self.least_command, jnp.float32)
        return jnp.where(small, 0.0, command)

    def control(self, action: Array, physics: PhysicsState, memory: Memory) -> Array:
        """Where to hold the joints, within their ranges, rad."""
        return self.within_range(memory.track.servos.targets + self.action_scale * action)

    def observe(self, physics: PhysicsState, memory: Memory) -> Array:
        """What such a robot can feel, the command and the gait."""
        felt = [*self.felt(physics, memory.track), memory.command.velocity]
        return jnp.concatenate([*felt, *self.known(physics, memory.track)])

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        command = parts.command(self.lowest_command, self.highest_command)
        return {"state": (*self.felt_parts(), command, *self.known_parts())}

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`: targets move from the last ones, which begin at 0."""
        servos = tuple(self.model.names("actuator"))
        return (ActionPart("joint_position_target", len(servos), "task", servos, unit="rad"),)

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """Velocities as commanded, with feet at the heights of the gait."""
        targets = self.control(action, before, memory)
        track, landed = self.tracked(memory.track, action, targets, before, after)
        fresh = self._velocity(draws(memory.track.words).command)
        command = memory.command.next(fresh, jnp.int32(self.command_steps))
        terms = self._terms(after, track, command.velocity, landed)
        earlier = memory.track.action, memory.track.last_action
        # So Playground has it: the newest action in the place of the oldest.
        terms["action_rate"] = costs.action_smoothness(*earlier, action)
        return self.scored(terms, self.over(after), Memory(command, track))

    def _terms(
        self, physics: PhysicsState, track: Track, command: Array, landed: Array
    ) -> dict[str, Array]:
        """The terms of the reward, without their weights."""
        linear, gyro = (self.sensor(physics, name) for name in ("local_linvel", "gyro"))
        vertical = costs.squared(self.sensor(physics, "global_linvel")[2])
        wanted = foot_height(track.phase, track.swing_height)
        jumping = track.gait == list(BIPED_GAITS).index("jump")
        seconds = feet.air_time(track.feet.air_time, landed, self.least_air_time)
        walking = costs.length(command[:2]) > 0.05
        return {
            "tracking_lin_vel": costs.linear_tracking(command, linear, self.tracking_sigma),
            "tracking_ang_vel": costs.angular_tracking(command, gyro, self.tracking_sigma),
            "feet_phase": costs.closeness(self.feet_height(physics), wanted, 1 / self.phase_sigma),
            "feet_air_time": jnp.where(walking, seconds, 0.0),
            "ang_vel_xy": costs.squared(self.sensor(physics, "global_angvel")[:2]),
            "lin_vel_z": jnp.where(jumping, vertical, 0.0),
            "pose": self.pose_error(physics),
            "foot_slip": feet.slip(self.feet_velocity(physics), track.feet.contact),
        }
