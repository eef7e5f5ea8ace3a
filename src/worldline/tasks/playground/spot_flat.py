"""playground/spot-flat: a Spot that goes where a joystick points."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp

from worldline.env.parts import ActionPart, ObservationParts
from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.settings import Count, Finite, NotNegative, Number, Positive, Share
from worldline.tasks.playground import commands, costs, parts
from worldline.tasks.playground.commands import Command
from worldline.tasks.playground.joystick import JoystickTask, Walk
from worldline.tasks.playground.servos import Servos
from worldline.tasks.playground.spot import SCENES, SpotTask
from worldline.types import Array, Key


class Memory(eqx.Module):
    """What the task carries from step to step, as it was when the present state was observed."""

    walk: Walk
    """Commands, actions, feet, pushes."""
    servos: Servos
    """Where the joints were told to be."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SpotFlat(SpotTask, JoystickTask):
    """Follow commanded velocities with Boston Dynamics' Spot on flat ground.

    Observation: a dict. `state` `(81,)`, with noise: angular velocity and the vertical, joint
    angles from home, the position errors of the joints in the last control steps, the
    feet from the IMU, the action before the last, the command. `privileged_state` `(167,)`:
    `state`; without noise the angular velocity, the acceleration, the vertical, both velocities,
    joints, feet, velocities of joints, the forces of the motors, which feet touched the ground
    before, their velocities and times in the air, the push. Action `(12,)`: target angles of the
    joints, relative to home. An episode terminates when the torso tilts.

    The task `SpotFlatTerrainJoystick` of MuJoCo Playground 0.2.0.
    """

    episode_length: Number = 1000
    """Control steps after which an episode is truncated; 0 for no limit."""
    stiffness: NotNegative = 300.0
    """Stiffness of each joint's servo, N m / rad."""
    damping: NotNegative = 1.0
    """Damping of each joint, N m s / rad."""
    action_scale: Positive = 0.3
    """How far an action of 1 moves the target of a joint from home, rad."""
    history_length: Count = 3
    """The number of control steps of observed errors of the joints."""
    feet_noise: tuple[float, float, float] = (0.01, 0.005, 0.02)
    """Largest noise on the positions of the feet along each axis, m."""
    lowest_command: tuple[float, float, float] = (-1.0, -0.8, -1.0)
    """Lowest command: forward and left, m/s, and turning left, rad/s."""
    highest_command: tuple[float, float, float] = (1.0, 0.8, 1.0)
    """Highest command: forward and left, m/s, and turning left, rad/s."""
    stand_probability: Share = 0.1
    """Probability of a command to stand still."""
    command_steps: Count = 201
    """Control steps that a command lasts."""
    swing_height: Positive = 0.12
    """How high a foot should swing, m."""
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
    termination_weight: Finite = -1.0
    """Weight of the end of an episode by a fall."""
    posture_weight: Finite = 1.0
    """Weight of the reward for joints near home when commanded to stand; for any otherwise."""
    torques_weight: Finite = -0.0002
    """Weight of the motors' forces, N m."""
    action_rate_weight: Finite = -0.01
    """Weight of the squared first and second differences of actions."""
    energy_weight: Finite = -0.001
    """Weight of the motors' power, W."""
    feet_slip_weight: Finite = -0.1
    """Weight of the squared velocities of feet on the ground, (m/s)^2."""
    feet_clearance_weight: Finite = -2.0
    """Weight of feet that move away from the height of a swing."""
    feet_height_weight: Finite = -0.1
    """Weight of the squared relative errors of the heights of swings."""
    feet_air_time_weight: Finite = 0.1
    """Weight of the reward for the time in the air of feet that land, s."""

    file = f"{SCENES}/scene_mjx_feetonly_flat_terrain.xml"
    fields = ("sensordata", "site_xpos", "actuator_force")

    def start(self, key: Key) -> Start:
        """Standing at home, with a first command."""
        servos = Servos.at_start(self.history_length, self.model.nu)
        qpos, qvel = jnp.asarray(self.home), jnp.zeros(self.model.nv, jnp.float32)
        return Start(qpos=qpos, qvel=qvel, memory=Memory(self.standing(key), servos))

    def first_command(self, key: Key) -> Command:
        """Anything within bounds, or to stand still."""
        return Command(self._velocity(key), jnp.int32(self.command_steps))

    def next_command(self, key: Key, command: Command) -> Command:
        """This command, or one like the first."""
        return command.next(self._velocity(key), jnp.int32(self.command_steps))

    def _velocity(self, key: Key) -> Array:
        low, high = self.lowest_command, self.highest_command
        return commands.within(key, low, high, self.stand_probability)

    def control(
        self, action: Array, physics: PhysicsState, memory: Memory
    ) -> Array | dict[str, Array]:
        """Where to hold the joints, rad, and the forces of a push."""
        return self.moved(action, memory.walk)

    def observe(self, physics: PhysicsState, memory: Memory) -> dict[str, Array]:
        """What such a robot can feel, with noise; and all that matters, without."""
        walk = memory.walk
        places = jnp.stack([self.sensor(physics, f"{foot}_pos") for foot in self.feet])
        gyro, up, joints = self.felt(physics, walk.words)
        felt_places = self.felt_feet(places, self.feet_noise, walk.words)
        state = [gyro, up, joints - self.pose, memory.servos.errors(joints).ravel()]
        state += [felt_places.ravel(), walk.last_action, walk.command.velocity]
        privileged = [
            self.sensor(physics, "gyro"),
            self.sensor(physics, "accelerometer"),
            self.sensor(physics, "upvector"),
            self.sensor(physics, "local_linvel"),
            self.sensor(physics, "global_angvel"),
            physics.qpos[7:] - self.pose,
            places.ravel(),
            physics.qvel[6:],
            physics.fields["actuator_force"],
            walk.feet.last_contact.astype(jnp.float32),
            self.feet_velocity(physics).ravel(),
            walk.feet.air_time,
            self.push_on_torso(walk),
        ]
        return {
            "state": jnp.concatenate(state),
            "privileged_state": jnp.concatenate([*state, *privileged]),
        }

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        feet = parts.of_feet(
            self, {"last_contact": "same", "feet_velocity": "vector", "feet_air_time": "same"}
        )
        state = (
            parts.angular_velocity(self.gyro_noise),
            parts.upvector(self.vertical_noise),
            parts.joint_position(self, self.joint_noise),
            parts.servo_errors(self, self.history_length),
            parts.feet_position(self, self.feet_noise),
            parts.action_before_last(self),
            parts.command(self.lowest_command, self.highest_command),
        )
        exact = (
            parts.angular_velocity(),
            parts.acceleration(),
            parts.upvector(),
            parts.linear_velocity(),
            parts.global_angular_velocity(),
            parts.joint_position(self),
            parts.feet_position(self),
            parts.joint_velocity(self),
            parts.motor_force(self),
            *feet,
            parts.push(),
        )
        return {"state": state, "privileged_state": (*state, *parts.exact(exact))}

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        return parts.servo_targets(self)

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """Velocities as commanded, on feet that swing; smoothly; without a fall."""
        walk, landed = self.walked(memory.walk, action, after)
        last, moving = memory.walk, commands.moving(walk.command.velocity)
        fallen = self.tilted(after)
        terms = self.common_terms(after, action, walk, landed) | {
            "termination": fallen,
            "action_rate": costs.action_smoothness(action, last.action, last.last_action),
            "posture": costs.closeness(after.qpos[7:], self.pose, 10.0 * (1 - moving)),
        }
        _, _, joints = self.felt(before, last.words)
        following = Memory(walk, memory.servos.next(joints, self.targets(action)))
        return self.scored(terms, fallen, following, swing_peak=walk.feet.mean_peak())
