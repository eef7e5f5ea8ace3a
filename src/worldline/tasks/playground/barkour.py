"""playground/barkour-joystick: Google's Barkour robot, which goes where a joystick points."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.env.parts import ActionPart, ObservationParts
from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.settings import Count, Finite, NotNegative, Number, Positive
from worldline.tasks.playground import commands, costs, feet, parts
from worldline.tasks.playground.assets import menagerie
from worldline.tasks.playground.commands import Command
from worldline.tasks.playground.feet import Feet
from worldline.tasks.playground.legged import ServoTask, draws, noisy
from worldline.tasks.playground.pushes import horizontal
from worldline.types import Array, Key

#: Factors of the command in the observation.
_COMMAND_SCALE = np.array([2.0, 2.0, 0.25], np.float32)

#: Numbers in the part of the observation that a control step adds.
_FRAME = 31


class Kicks(eqx.Module):
    """The kicks of an episode, which differ in their directions alone."""

    wait: Array
    """Control steps from a kick to the next, `()` int32."""
    steps: Array
    """Control steps that a kick lasts, `()` int32."""
    speed: Array
    """What a kick adds to the speed of the robot, about, `()`, m/s."""
    clock: Array
    """Control steps since the last command, `()` int32."""
    last: Array
    """The clock at the last kick, `()` int32; long ago at a start."""
    direction: Array
    """Of the last kick, `(3,)`."""

    def next(self, key: Key) -> Kicks:
        """The kicks during the next control step; the key decides the direction of a new one."""
        begins = (self.clock % self.wait == 0) & (self.clock != 0)
        return dataclasses.replace(
            self,
            last=jnp.where(begins, self.clock, self.last),
            direction=jnp.where(begins, horizontal(key), self.direction),
        )

    def acceleration(self, timestep: float) -> Array:
        """Of the robot in this control step of `timestep` seconds, `(3,)`, m/s^2."""
        done = jnp.maximum(self.clock - self.last, 0)
        steps = self.steps.astype(jnp.float32)
        wave = 0.5 * jnp.sin(jnp.pi * done.astype(jnp.float32) / steps)
        size = wave * self.speed / (steps * timestep)
        return jnp.where(done < self.steps, size, 0.0) * self.direction

    def counted(self, longest: int) -> Kicks:
        """After a control step; the clock begins anew where a command has lasted that long."""
        clock = self.clock + 1
        return dataclasses.replace(self, clock=jnp.where(clock >= longest, 0, clock))


class Memory(eqx.Module):
    """What the task carries from step to step, as it was when the present state was observed."""

    command: Command
    """What to follow."""
    action: Array
    """The last action, `(12,)`."""
    last_action: Array
    """The action before it, `(12,)`."""
    frames: Array
    """What was observed in the control steps before, newest first, `(n, 31)`."""
    feet: Feet
    """What the feet did."""
    kicks: Kicks
    """The kicks of the episode."""
    words: Array
    """What random numbers are drawn from, `(2,)` uint32."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BarkourJoystick(ServoTask):
    """Follow commanded velocities with Google's Barkour robot on flat ground, with random kicks.

    Observation `(465,)`: the last 15 control steps, newest first, each with noise: how it turns
    about its vertical, the direction of that vertical, the command, joint angles from home, the
    action before the last. Action `(12,)`: target angles of the joints, relative to home. An
    episode terminates when the robot is upside down, its torso is low, or a joint is beyond its
    limits.

    The task `BarkourJoystick` of MuJoCo Playground 0.2.0.
    """

    episode_length: Number = 1000
    """Control steps after which an episode is truncated; 0 for no limit."""
    stiffness: NotNegative = 35.0
    """Stiffness of each joint's servo, N m / rad."""
    damping: NotNegative = 0.5239
    """Damping of each joint, N m s / rad."""
    action_scale: Positive = 0.3
    """How far an action of 1 moves the target of a joint from home, rad."""
    lowest_angles: tuple[float, float, float] = (-0.7, -1.0, 0.05)
    """Lowest angle of abduction, hip and knee of each leg, rad."""
    highest_angles: tuple[float, float, float] = (0.52, 2.1, 2.1)
    """Highest angle of abduction, hip and knee of each leg, rad."""
    upright_limit: Finite = 0.0
    """The vertical component of the torso's own vertical below which an episode terminates."""
    lowest_torso: NotNegative = 0.18
    """Height of the torso below which an episode terminates, m."""
    noise: NotNegative = 0.05
    """Largest noise on each number observed."""
    history_length: Count = 15
    """The number of observed control steps."""
    lowest_command: tuple[float, float, float] = (-0.6, -0.8, -0.7)
    """Lowest command: forward and left, m/s, and turning left, rad/s."""
    highest_command: tuple[float, float, float] = (1.5, 0.8, 0.7)
    """Highest command: forward and left, m/s, and turning left, rad/s."""
    command_steps: Count = 501
    """Control steps that a command lasts."""
    kick_speed: tuple[float, float] = (0.1, 1.0)
    """What a kick adds to the robot's speed: lowest and highest, m/s."""
    kick_steps: tuple[int, int] = (1, 9)
    """Control steps that a kick lasts: fewest and most."""
    kick_wait: tuple[int, int] = (50, 149)
    """Control steps from a kick to the next: fewest and most."""
    tracking_sigma: Positive = 0.25
    """Squared error of velocity at which `exp(-1)` of its reward is left, (m/s)^2, (rad/s)^2."""
    least_air_time: NotNegative = 0.1
    """Shortest time of a foot in the air that is rewarded, s."""
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
    action_rate_weight: Finite = -0.1
    """Weight of the squared change of the action."""
    stand_still_weight: Finite = -0.5
    """Weight of the distance of joints from home, rad, under commands of which less than 0.1 of the
    horizontal direction is to the left; Playground means those to stand."""
    termination_weight: Finite = -1.0
    """Weight of the end of an episode while a command is new."""
    feet_air_time_weight: Finite = 0.2
    """Weight of the reward for the time in the air of feet that land, s."""

    fields = ("sensordata", "qfrc_actuator", "xpos")
    torso = "torso"
    feet = ("foot_front_left", "foot_hind_left", "foot_front_right", "foot_hind_right")

    @property
    def path(self) -> Path:
        """The MJCF file of the Menagerie."""
        return menagerie("google_barkour_vb/scene_mjx.xml")

    def mjcf(self) -> mujoco.MjSpec:
        """The scene, with a sensor of each foot's contact with the ground."""
        spec = super().mjcf()
        for foot in self.feet:
            spec.add_sensor(
                name=f"{foot}_floor_found",
                type=mujoco.mjtSensor.mjSENS_CONTACT,
                objtype=mujoco.mjtObj.mjOBJ_GEOM,
                objname=foot,
                reftype=mujoco.mjtObj.mjOBJ_GEOM,
                refname="floor",
                intprm=[1, 1, 1],  # whether there is one; the deepest; one contact
                datatype=mujoco.mjtDataType.mjDATATYPE_REAL,
                needstage=mujoco.mjtStage.mjSTAGE_ACC,
                dim=1,
            )
        return spec

    @property
    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest angles of the joints, `(12,)` each, rad."""
        low, high = np.array([self.lowest_angles, self.highest_angles], np.float32)
        return np.tile(low, 4), np.tile(high, 4)

    def start(self, key: Key) -> Start:
        """Standing at home, with a first command."""
        command_key, kick_key, memory_key = jax.random.split(key, 3)
        nothing = jnp.zeros(12, jnp.float32)
        memory = Memory(
            command=Command(self._velocity(command_key), jnp.int32(self.command_steps)),
            action=nothing,
            last_action=nothing,
            frames=jnp.zeros((self.history_length - 1, _FRAME), jnp.float32),
            feet=Feet.at_start(4),
            kicks=self._kicks(kick_key),
            words=jax.random.key_data(memory_key),
        )
        qpos, qvel = jnp.asarray(self.home), jnp.zeros(self.model.nv, jnp.float32)
        return Start(qpos=qpos, qvel=qvel, memory=memory)

    def _velocity(self, key: Key) -> Array:
        return commands.within(key, self.lowest_command, self.highest_command)

    def _kicks(self, key: Key) -> Kicks:
        """Draws the kicks of an episode."""
        wait_key, steps_key, speed_key = jax.random.split(key, 3)
        (fewest, most), (shortest, longest) = self.kick_wait, self.kick_steps
        return Kicks(
            wait=jax.random.randint(wait_key, (), fewest, most + 1, jnp.int32),
            steps=jax.random.randint(steps_key, (), shortest, longest + 1, jnp.int32),
            speed=jax.random.uniform(speed_key, (), jnp.float32, *self.kick_speed),
            clock=jnp.int32(0),
            last=jnp.int32(-1_000_000),
            direction=jnp.zeros(3, jnp.float32),
        )

    def control(self, action: Array, physics: PhysicsState, memory: Memory) -> dict[str, Array]:
        """Where to hold the joints, rad, and the forces of a kick."""
        kicks = memory.kicks.next(draws(memory.words).push)
        ctrl = jnp.clip(self.pose + self.action_scale * action, *self.limits)
        return {
            "ctrl": ctrl,
            "xfrc_applied": self.push_force(kicks.acceleration(self.control_timestep)),
        }

    def frame(self, physics: PhysicsState, memory: Memory) -> Array:
        """What a control step adds to the observation, `(31,)`."""
        exact = jnp.concatenate(
            [
                0.25 * self.sensor(physics, "gyro")[2:],
                self.sensor(physics, "upvector"),
                _COMMAND_SCALE * memory.command.velocity,
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
            parts.yaw_rate(0.25, 4 * noise),
            parts.upvector(noise),
            parts.command(
                self.lowest_command, self.highest_command, tuple(_COMMAND_SCALE.tolist())
            ),
            parts.joint_position(self, noise),
            parts.action_before_last(self),
        )
        return {"state": (*frame, parts.before(frame, self.history_length - 1))}

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        return parts.servo_targets(self, limits=self.limits)

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """Velocities as commanded, on feet that swing; smoothly; without a fall."""
        keys = draws(memory.words)
        fresh = self._velocity(keys.command)
        command = memory.command.next(fresh, jnp.int32(self.command_steps))
        touching, nothing = self.touching(after, self.feet), jnp.zeros(4, jnp.float32)
        walked, landed = memory.feet.step(touching, nothing, self.control_timestep)
        over = self._over(after)
        new = memory.kicks.clock < self.command_steps - 1
        terms = self._terms(after, action, memory, command.velocity, walked, landed)
        terms["termination"] = over & new
        frames = jnp.concatenate([self.frame(before, memory)[None], memory.frames])
        following = Memory(
            command=command,
            action=action,
            last_action=memory.action,
            frames=frames[:-1],
            feet=walked,
            kicks=memory.kicks.next(keys.push).counted(self.command_steps),
            words=keys.words,
        )
        return self.scored(terms, over, following)

    def _over(self, physics: PhysicsState) -> Array:
        """Whether the episode terminates, `()` bool."""
        joints, (low, high) = physics.qpos[7:], self.limits
        height = physics.fields["xpos"][self.model.id("body", self.torso), 2]
        return (
            (self.sensor(physics, "upvector")[2] < self.upright_limit)
            | ((joints < low) | (joints > high)).any()
            | (height < self.lowest_torso)
        )

    def _terms(
        self,
        physics: PhysicsState,
        action: Array,
        memory: Memory,
        command: Array,
        walked: Feet,
        landed: Array,
    ) -> dict[str, Array]:
        """The terms of the reward, without their weights."""
        joints, speed = physics.qpos[7:], costs.length(command[:2])
        linear, gyro = (self.sensor(physics, name) for name in ("local_linvel", "gyro"))
        away = jnp.sum(jnp.abs(joints - self.pose))
        air_time = feet.air_time(walked.air_time, landed, self.least_air_time)
        return {
            "tracking_lin_vel": costs.linear_tracking(command, linear, self.tracking_sigma),
            "tracking_ang_vel": costs.angular_tracking(command, gyro, self.tracking_sigma),
            "lin_vel_z": costs.squared(self.sensor(physics, "global_linvel")[2]),
            "ang_vel_xy": costs.squared(self.sensor(physics, "global_angvel")[:2]),
            "orientation": costs.squared(self.sensor(physics, "upvector")[:2]),
            "torques": costs.torques(physics.fields["qfrc_actuator"]),
            "action_rate": costs.action_rate(action, memory.action),
            "stand_still": jnp.where(command[1] < 0.1 * speed, away, 0.0),
            "feet_air_time": jnp.where(speed > 0.05, air_time, 0.0),
        }
