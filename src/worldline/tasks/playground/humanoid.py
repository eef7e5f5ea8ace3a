"""What humanoids share that walk by the phases of a gait: starts, knocks, observations."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.parts import ActionPart, ObservationPart, ObservationParts
from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.settings import NotNegative, Number, Positive
from worldline.tasks.playground import gradual, parts
from worldline.tasks.playground.commands import Command
from worldline.tasks.playground.costs import length
from worldline.tasks.playground.feet import Feet
from worldline.tasks.playground.gait import BIPED_GAITS, advanced
from worldline.tasks.playground.legged import LeggedTask, between, draws, noisy
from worldline.tasks.playground.pushes import Knocks, knock
from worldline.types import Array, Key, PyTree
from worldline.variation.domain import Ranges


class Stride(eqx.Module):
    """What such a task carries from step to step, as it was when the present state was observed."""

    command: Command
    """What to follow."""
    action: Array
    """The last action, `(nu,)`."""
    last_action: Array
    """The action before it, `(nu,)`."""
    feet: Feet
    """What the feet did."""
    phase: Array
    """Of each foot, `(2,)`, rad."""
    next_phase: Array
    """Of each foot in the next control step, `(2,)`, rad."""
    frequency: Array
    """Of the gait's steps, `()`, Hz."""
    knocks: Knocks
    """The knocks of the episode."""
    level: Array
    """How hard the episode is, `()`, in [0, 1]."""
    words: Array
    """What random numbers are drawn from, `(2,)` uint32."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class HumanoidTask(LeggedTask):
    """A task in which a humanoid follows commanded velocities under random pushes."""

    episode_length: Number = 1000
    """Control steps after which an episode is truncated; 0 for no limit."""
    physics_timestep: Positive = 0.002
    """The model's time step, s."""
    joint_noise: NotNegative = 0.03
    """Largest noise on joint angles, rad."""
    joint_velocity_noise: NotNegative = 1.5
    """Largest noise on the velocities of joints, rad/s."""
    gravity_noise: NotNegative = 0.05
    """Largest noise on the direction of gravity."""
    velocity_noise: NotNegative = 0.1
    """Largest noise on the linear velocity, m/s."""
    gyro_noise: NotNegative = 0.2
    """Largest noise on the angular velocity, rad/s."""
    pushed: bool = True
    """Whether the robot is pushed at random times; a push changes its velocity at once."""
    push_wait: tuple[float, float] = (5.0, 10.0)
    """Shortest and longest time from one push to the next, s."""
    push_speed: tuple[float, float] = (0.1, 2.0)
    """The speed that a push adds to the robot's velocity: lowest and highest, m/s."""
    gait_frequency: tuple[float, float] = (1.25, 1.5)
    """Steps a second: lowest and highest, Hz."""
    swing_height: Positive
    """How high a foot should swing, m."""
    gradual: bool = False
    """A curriculum: train at first without a throw at the start, without pushes and without noise.
    All three grow to full size while few robots fall. Evaluations have them at full size."""

    frame: ClassVar[str] = ""
    """What the names of the sensors of the robot's motion end with."""
    pauses: ClassVar[bool] = False
    """Whether the feet stay on the ground under a command to stand."""

    @abc.abstractmethod
    def first_command(self, key: Key) -> Command:
        """Draws the command of an episode's first control steps."""

    @abc.abstractmethod
    def next_command(self, key: Key, command: Command) -> Command:
        """The command of the next control step."""

    @property
    def start_ranges(self) -> Ranges:
        """With `gradual`, how hard episodes are."""
        return gradual.begin() if self.gradual else {}

    def start(self, key: Key) -> Start:
        """As hard as the task is."""
        return self.start_at(key, jnp.float32(1.0))

    def start_within(self, key: Key, ranges: Ranges) -> Start:
        """As hard as the task is; with `gradual`, as hard as training has become."""
        return self.start_at(key, ranges[gradual.LEVEL]) if self.gradual else self.start(key)

    def start_at(self, key: Key, level: Array) -> Start:
        """Standing somewhere near the origin, with other joint angles, thrown a little.

        Args:
            key: decides the draws.
            level: how hard the episode is, `()`, in [0, 1].
        """
        place_key, joints_key, memory_key = jax.random.split(key, 3)
        factors = jax.random.uniform(joints_key, (self.model.nu,), jnp.float32, 0.5, 1.5)
        standing = jnp.asarray(self.home).at[7:].multiply(factors)
        qpos, qvel = self.somewhere(place_key, standing)
        memory = self.standing(memory_key, level)
        return Start(qpos=qpos, qvel=level * qvel, memory=memory, inputs={"ctrl": qpos[7:]})

    def tally(self, memory: Stride, terminated: Array) -> PyTree:
        """With `gradual`, whether the robot fell."""
        return gradual.counted(terminated) if self.gradual else ()

    def adapt(self, ranges: Ranges, total: PyTree) -> Ranges:
        """With `gradual`, harder episodes while few robots fall."""
        return gradual.adapted(ranges, total) if self.gradual else {}

    def standing(self, key: Key, level: Array) -> Stride:
        """The memory of a robot that has not moved yet, in an episode of this level, `()`."""
        command_key, frequency_key, push_key, memory_key = jax.random.split(key, 4)
        nothing = jnp.zeros(self.model.nu, jnp.float32)
        phase = jnp.array(BIPED_GAITS["walk"], jnp.float32)
        return Stride(
            command=self.first_command(command_key),
            action=nothing,
            last_action=nothing,
            feet=Feet.at_start(2),
            phase=phase,
            next_phase=phase,
            frequency=between(frequency_key, self.gait_frequency),
            knocks=Knocks.at_start(push_key, self.push_wait, self.control_timestep),
            level=level,
            words=jax.random.key_data(memory_key),
        )

    def control(
        self, action: Array, physics: PhysicsState, memory: Stride
    ) -> Array | dict[str, Array]:
        """Where to hold the joints, rad, and the velocity after a knock."""
        if not self.pushed:
            return self.targets(action)
        push = memory.level * knock(draws(memory.words).push, self.push_speed)
        change = memory.knocks.change(push)
        return {"ctrl": self.targets(action), "qvel": physics.qvel.at[:2].add(change)}

    def targets(self, action: Array) -> Array:
        """Where an action holds the joints, about home and within their ranges, `(nu,)`, rad."""
        return self.within_range(self.pose + self.action_scale * action)

    def strode(self, stride: Stride, action: Array, physics: PhysicsState) -> tuple[Stride, Array]:
        """The memory after a control step, and which feet land in it, `(2,)` bool.

        Args:
            stride: the memory before it.
            action: `(nu,)`.
            physics: the world after it.
        """
        keys, phase = draws(stride.words), stride.next_phase
        command = self.next_command(keys.command, stride.command)
        following = advanced(phase, 2 * jnp.pi * self.control_timestep * stride.frequency)
        if self.pauses:
            following = jnp.where(length(command.velocity) > 0.01, following, jnp.pi)
        grounded, height = self.grounded(physics), self.feet_height(physics)
        stepped, landed = stride.feet.step(grounded, height, self.control_timestep)
        memory = Stride(
            command=command,
            action=action,
            last_action=stride.action,
            feet=stepped,
            phase=phase,
            next_phase=following,
            frequency=stride.frequency,
            knocks=stride.knocks.counted(),
            level=stride.level,
            words=keys.words,
        )
        return memory, landed

    def scored(
        self, terms: Mapping[str, Array], terminated: Array, memory: Stride, **metrics: Array
    ) -> Outcome:
        """The outcome with these terms of the reward; with `gradual`, the level is a metric."""
        if self.gradual:
            metrics[gradual.LEVEL] = memory.level
        return super().scored(terms, terminated, memory, **metrics)

    def base(self, physics: PhysicsState, name: str) -> Array:
        """The reading of a sensor of the robot's motion, `(3,)`."""
        return self.sensor(physics, f"{name}{self.frame}")

    def observe(self, physics: PhysicsState, memory: Stride) -> dict[str, Array]:
        """What such a robot can feel, with noise; and all that matters, without."""
        state = self.felt(physics, memory)
        return {
            "state": jnp.concatenate(state),
            "privileged_state": jnp.concatenate([*state, *self.known(physics, memory)]),
        }

    def felt(self, physics: PhysicsState, stride: Stride) -> list[Array]:
        """What such a robot can feel, with noise; its actions, the command and the phases."""
        exact = self.measured(physics)
        scales = (
            self.velocity_noise,
            self.gyro_noise,
            self.gravity_noise,
            self.joint_noises,
            self.joint_velocity_noise,
        )
        noise_key = draws(stride.words).noise
        linear, gyro, gravity, joints, velocities = noisy(
            noise_key, list(exact.values()), scales, self.noise_level, stride.level
        )
        felt = [linear, gyro, gravity, stride.command.velocity, joints - self.pose, velocities]
        return [*felt, stride.last_action, jnp.cos(stride.phase), jnp.sin(stride.phase)]

    @property
    def joint_noises(self) -> np.ndarray:
        """Largest noise on each joint angle, `(nu,)`, rad."""
        return np.full(self.model.nu, self.joint_noise, np.float32)

    def known(self, physics: PhysicsState, stride: Stride) -> list[Array]:
        """What only a critic knows, without noise."""
        exact = self.measured(physics)
        return [
            exact["gyro"],
            self.base(physics, "accelerometer"),
            exact["gravity"],
            exact["linear"],
            self.base(physics, "global_angvel"),
            exact["joints"] - self.pose,
            exact["velocities"],
            physics.qpos[2:3],
            physics.fields["actuator_force"],
            self.grounded(physics).astype(jnp.float32),
            self.feet_velocity(physics).ravel(),
            stride.feet.air_time,
        ]

    @property
    @abc.abstractmethod
    def command_bounds(self) -> tuple[Sequence[float], Sequence[float]]:
        """Lowest and highest command: forward and left, m/s, and turning left, rad/s."""

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        phases = ("gait_phase_cosine", "gait_phase_sine")
        state = (
            parts.linear_velocity(self.velocity_noise, f"local_linvel{self.frame}"),
            parts.angular_velocity(self.gyro_noise, f"gyro{self.frame}"),
            parts.projected_gravity(self.gravity_noise, self.imu_site),
            parts.command(*self.command_bounds),
            parts.joint_position(self, tuple(self.joint_noises.tolist())),
            parts.joint_velocity(self, self.joint_velocity_noise),
            parts.action_before_last(self),
            *parts.of_feet(self, dict.fromkeys(phases, "same")),
        )
        return {"state": state, "privileged_state": (*state, *self.known_parts())}

    def known_parts(self) -> tuple[ObservationPart, ...]:
        """The numbers of `known`."""
        exact = (
            parts.angular_velocity(sensor=f"gyro{self.frame}"),
            parts.acceleration(f"accelerometer{self.frame}"),
            parts.projected_gravity(site=self.imu_site),
            parts.linear_velocity(sensor=f"local_linvel{self.frame}"),
            parts.global_angular_velocity(f"global_angvel{self.frame}"),
            parts.joint_position(self),
            parts.joint_velocity(self),
        )
        feet = parts.of_feet(
            self, {"feet_contact": "same", "feet_velocity": "vector", "feet_air_time": "same"}
        )
        height = parts.of_task({"height": 1}, "m")
        return (*parts.exact(exact), *height, parts.motor_force(self), *feet)

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        return parts.servo_targets(self)

    def measured(self, physics: PhysicsState) -> dict[str, Array]:
        """What the robot's sensors measure, by name, without noise."""
        return {
            "linear": self.base(physics, "local_linvel"),
            "gyro": self.base(physics, "gyro"),
            "gravity": self.down(physics),
            "joints": physics.qpos[7:],
            "velocities": physics.qvel[6:],
        }
