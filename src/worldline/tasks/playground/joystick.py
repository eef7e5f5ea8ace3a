"""What robots share that go where a joystick points: commands, feet, pushes, rewards."""

from __future__ import annotations

import abc
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from worldline.physics.base import PhysicsState
from worldline.settings import NotNegative, Positive
from worldline.tasks.playground import commands, costs, feet
from worldline.tasks.playground.commands import Command
from worldline.tasks.playground.feet import Feet
from worldline.tasks.playground.legged import LeggedTask, draws
from worldline.tasks.playground.pushes import Pushes
from worldline.types import Array, Key


class Walk(eqx.Module):
    """What such a task carries from step to step, as it was when the present state was observed."""

    command: Command
    """What to follow."""
    action: Array
    """The last action, `(nu,)`."""
    last_action: Array
    """The action before it, `(nu,)`."""
    feet: Feet
    """What the feet did."""
    pushes: Pushes
    """The pushes of the episode."""
    words: Array
    """What random numbers are drawn from, `(2,)` uint32."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class JoystickTask(LeggedTask):
    """A task in which a robot follows commanded velocities, and may be pushed."""

    pushed: bool = False
    """Whether the robot is pushed at random times."""
    push_speed: tuple[float, float] = (0.0, 3.0)
    """What a push adds to the robot's speed: lowest and highest, m/s."""
    push_duration: tuple[float, float] = (0.05, 0.2)
    """How long a push lasts, s."""
    push_wait: tuple[float, float] = (1.0, 3.0)
    """Time from one push to the next, s."""
    tracking_sigma: Positive = 0.25
    """Squared error of velocity at which `exp(-1)` of its reward is left, (m/s)^2, (rad/s)^2."""
    swing_height: Positive
    """How high a foot should swing, m."""
    least_air_time: NotNegative = 0.1
    """Shortest time of a foot in the air that is rewarded, s."""

    @abc.abstractmethod
    def first_command(self, key: Key) -> Command:
        """Draws the command of an episode's first control steps."""

    @abc.abstractmethod
    def next_command(self, key: Key, command: Command) -> Command:
        """The command of the next control step."""

    def standing(self, key: Key) -> Walk:
        """The memory of a robot that has not moved yet."""
        command_key, push_key, memory_key = jax.random.split(key, 3)
        nothing = jnp.zeros(self.model.nu, jnp.float32)
        bounds = self.push_wait, self.push_duration, self.push_speed
        return Walk(
            command=self.first_command(command_key),
            action=nothing,
            last_action=nothing,
            feet=Feet.at_start(len(self.feet)),
            pushes=Pushes.at_start(push_key, *bounds, self.control_timestep),
            words=jax.random.key_data(memory_key),
        )

    def walked(self, walk: Walk, action: Array, physics: PhysicsState) -> tuple[Walk, Array]:
        """The memory after a control step, and which feet land in it, `(n,)` bool.

        Args:
            walk: the memory before it.
            action: `(nu,)`.
            physics: the world after it.
        """
        keys = draws(walk.words)
        touching, height = self.touching(physics, self.feet), self.feet_height(physics)
        stepped, landed = walk.feet.step(touching, height, self.control_timestep)
        following = Walk(
            command=self.next_command(keys.command, walk.command),
            action=action,
            last_action=walk.action,
            feet=stepped,
            pushes=self._next_pushes(walk),
            words=keys.words,
        )
        return following, landed

    def targets(self, action: Array) -> Array:
        """Where an action holds the joints, about home and within their ranges, `(nu,)`, rad."""
        return self.within_range(self.pose + self.action_scale * action)

    def moved(self, action: Array, walk: Walk) -> Array | dict[str, Array]:
        """The inputs of the physics: the joints' targets, and the forces of a push."""
        if not self.pushed:
            return self.targets(action)
        push = self.push_force(self._next_pushes(walk).acceleration)
        return {"ctrl": self.targets(action), "xfrc_applied": push}

    def _next_pushes(self, walk: Walk) -> Pushes:
        if not self.pushed:
            return walk.pushes
        return walk.pushes.step(draws(walk.words).push, self.control_timestep)

    def push_on_torso(self, walk: Walk) -> Array:
        """The force of the push in the last control step, `(3,)`, N."""
        torso = self.model.id("body", self.torso)
        return self.push_force(walk.pushes.acceleration)[torso, :3]

    def common_terms(
        self, physics: PhysicsState, action: Array, walk: Walk, landed: Array
    ) -> dict[str, Array]:
        """Terms of the reward, without their weights, that all robots have alike.

        Args:
            physics: the world after the control step.
            action: `(nu,)`.
            walk: the memory after the step.
            landed: which feet landed in it, `(n,)` bool.
        """
        command, forces = walk.command.velocity, physics.fields["actuator_force"]
        moving, peak = commands.moving(command), walk.feet.swing_peak
        linear, gyro = (self.sensor(physics, name) for name in ("local_linvel", "gyro"))
        velocity, height = self.feet_velocity(physics), self.feet_height(physics)
        return {
            "tracking_lin_vel": costs.linear_tracking(command, linear, self.tracking_sigma),
            "tracking_ang_vel": costs.angular_tracking(command, gyro, self.tracking_sigma),
            "lin_vel_z": costs.squared(self.sensor(physics, "global_linvel")[2]),
            "ang_vel_xy": costs.squared(self.sensor(physics, "global_angvel")[:2]),
            "orientation": costs.squared(self.sensor(physics, "upvector")[:2]),
            "torques": costs.torques(forces),
            "energy": costs.energy(physics.qvel[6:], forces),
            "feet_slip": feet.slip(velocity, walk.feet.contact),
            "feet_clearance": feet.clearance(velocity, height, self.swing_height),
            "feet_height": moving * feet.swing_height(peak, landed, self.swing_height),
            "feet_air_time": moving
            * feet.air_time(walk.feet.air_time, landed, self.least_air_time),
        }
