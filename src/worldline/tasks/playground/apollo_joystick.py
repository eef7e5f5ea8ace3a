"""playground/apollo-joystick-flat: Apptronik's Apollo, which goes where a joystick points."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.parts import ActionPart, ObservationPart
from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.settings import Finite, Positive
from worldline.tasks.playground import commands, costs, parts
from worldline.tasks.playground.commands import Command
from worldline.tasks.playground.gait import foot_height
from worldline.tasks.playground.humanoid import HumanoidTask, Stride
from worldline.types import Array, Key

#: How much each joint counts in the term `pose`: torso and neck, arms, legs.
_ARM, _LEG = (1.0, 1.0, 0.1, 1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 0.01, 0.01, 1.0, 1.0)
_POSE_WEIGHTS = np.array([5.0] * 3 + [1.0] * 3 + [*_ARM, *_ARM, *_LEG, *_LEG], np.float32)

#: The parts of the body that should not touch each other.
_THIGHS, _SHINS = (
    [f"collision_capsule_body_{side}_{part}" for side in "lr"] for part in ("thigh", "shin")
)
_COLLISIONS = (
    f"collision_l_hand_plate_{_THIGHS[0]}",
    f"collision_r_hand_plate_{_THIGHS[1]}",
    "collision_l_sole_collision_r_sole",
    "_".join(_SHINS),
    "_".join(_THIGHS),
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ApolloJoystickFlat(HumanoidTask):
    """Follow commanded velocities with Apptronik's Apollo on flat ground, with random pushes.

    Observation: a dict. `state` `(112,)`, with noise: linear and angular velocity and the direction
    of gravity in the frame of the IMU, the command, joint angles from home and their velocities,
    the action before the last, cosine and sine of the phase of each foot. `privileged_state`
    `(224,)`: `state`; without noise the angular velocity, gravity, the linear velocity, joints, the
    forces of the motors, place and orientation of the base. Action `(32,)`: target angles of the
    joints, relative to home. An episode terminates when the torso is upside down.

    The task `ApolloJoystickFlatTerrain` of MuJoCo Playground 0.2.0.
    """

    physics_timestep: Positive = 0.005
    """The model's time step, s."""
    action_scale: Positive = 0.5
    """How far an action of 1 moves the target of a joint from home, rad."""
    largest_command: tuple[float, float, float] = (1.5, 0.8, 1.5)
    """Largest command: forward or back and sideways, m/s, and turning, rad/s."""
    command_probability: tuple[float, float, float] = (0.9, 0.25, 0.5)
    """Probability, for each of these directions, that a new command is not 0."""
    command_time: Positive = 5.0
    """Mean time between two commands, exponentially distributed, s."""
    gait_frequency: tuple[float, float] = (1.25, 1.75)
    """Steps a second: lowest and highest, Hz."""
    swing_height: Positive = 0.12
    """How high a foot should swing, m."""
    tracking_sigma: Positive = 0.25
    """Squared error of velocity at which `exp(-1)` of its reward is left, (m/s)^2, (rad/s)^2."""
    phase_sigma: Positive = 0.01
    """Squared error of the feet's heights at which `exp(-1)` of its reward is left, m^2."""
    upright_limit: Finite = 0.0
    """The vertical component of the torso's own vertical below which an episode terminates."""
    tracking_weight: Finite = 1.0
    """Weight of the reward for following forward and sideways, and half as much for turns."""
    lin_vel_z_weight: Finite = 0.0
    """Weight of the squared vertical velocity, (m/s)^2."""
    ang_vel_xy_weight: Finite = -0.15
    """Weight of the squared angular velocity about the horizontal, (rad/s)^2."""
    orientation_weight: Finite = -1.0
    """Weight of the squared sine of the tilt."""
    torques_weight: Finite = 0.0
    """Weight of the sizes of the motors' forces, N m."""
    action_rate_weight: Finite = 0.0
    """Weight of the squared change of the action."""
    energy_weight: Finite = 0.0
    """Weight of the velocities of joints, rad/s, times their forces as shares of the largest ones.
    """
    feet_phase_weight: Finite = 1.0
    """Weight of the reward for feet at the heights of the gait."""
    alive_weight: Finite = 0.0
    """Weight of the reward for each control step without a fall."""
    termination_weight: Finite = 0.0
    """Weight of the end of an episode by a fall."""
    pose_weight: Finite = -1.0
    """Weight of the squared distance of joints from home, rad^2, with smaller weights for the
    joints of a stride."""
    collision_weight: Finite = -1.0
    """Weight of parts of the body that touch each other."""

    file = "locomotion/apollo/xmls/scene_mjx_feetonly_flat_terrain.xml"
    keyframe = "knees_bent"
    fields = ("sensordata", "site_xpos", "site_xmat", "actuator_force")
    torso = "torso_link"
    feet = ("l_foot", "r_foot")
    soles = (("collision_l_sole",), ("collision_r_sole",))
    pauses = True
    lowest_reward = -np.inf

    def start_at(self, key: Key, level: Array) -> Start:
        """Standing somewhere near the origin, with motors that are told to go to 0."""
        return dataclasses.replace(super().start_at(key, level), inputs={})

    @property
    def command_bounds(self) -> tuple[Sequence[float], Sequence[float]]:
        """As far one way as the other."""
        return tuple(-largest for largest in self.largest_command), self.largest_command

    def first_command(self, key: Key) -> Command:
        """Anything within bounds."""
        velocity_key, steps_key = jax.random.split(key)
        least = [-largest for largest in self.largest_command]
        velocity = commands.within(velocity_key, least, self.largest_command)
        return Command(velocity, self._command_steps(steps_key))

    def next_command(self, key: Key, command: Command) -> Command:
        """This command, or one of which some components are others."""
        velocity_key, steps_key = jax.random.split(key)
        velocity = commands.changed(
            velocity_key, command.velocity, self.largest_command, self.command_probability
        )
        return command.next(velocity, self._command_steps(steps_key))

    def _command_steps(self, key: Key) -> Array:
        return commands.exponential_steps(key, self.command_time / self.control_timestep)

    def targets(self, action: Array) -> Array:
        """Where an action holds the joints, about home and within their ranges, `(32,)`, rad."""
        held = np.asarray(self.model.mj.key(self.keyframe).ctrl, np.float32)
        return self.within_range(held + self.action_scale * action)

    def known(self, physics: PhysicsState, stride: Stride) -> list[Array]:
        """What only a critic knows, without noise."""
        exact = self.measured(physics)
        return [
            exact["gyro"],
            exact["gravity"],
            exact["linear"],
            exact["joints"] - self.pose,
            exact["velocities"],
            physics.fields["actuator_force"],
            physics.qpos[:7],
        ]

    def known_parts(self) -> tuple[ObservationPart, ...]:
        """The numbers of `known`."""
        exact = (
            parts.angular_velocity(),
            parts.projected_gravity(),
            parts.linear_velocity(),
            parts.joint_position(self),
            parts.joint_velocity(self),
        )
        place = ObservationPart("position", 3, unit="m", frame="world", mirror="vector")
        turn = ObservationPart("orientation", 4, frame="world", mirror="quaternion")
        return (*parts.exact(exact), parts.motor_force(self), place, turn)

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`: about the controls of the keyframe."""
        held = tuple(self.model.mj.key(self.keyframe).ctrl.tolist())
        return tuple(dataclasses.replace(each, offset=held) for each in super().action_parts)

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Stride
    ) -> Outcome:
        """Velocities as commanded, on feet that swing by the gait; without a fall."""
        stride, _ = self.strode(memory, action, after)
        fallen = self.sensor(after, "upvector")[2] < self.upright_limit
        terms = self._terms(after, stride) | {"termination": fallen, "alive": ~fallen}
        fell = {"termination/fall_termination": fallen}
        return self.scored(terms, fallen, stride, **fell)

    def _terms(self, physics: PhysicsState, stride: Stride) -> dict[str, Array]:
        """The terms of the reward, without their weights."""
        command, forces = stride.command.velocity, physics.fields["actuator_force"]
        linear, gyro = (self.sensor(physics, name) for name in ("local_linvel", "gyro"))
        following = costs.linear_tracking(command, linear, self.tracking_sigma)
        turning = costs.angular_tracking(command, gyro, self.tracking_sigma)
        wanted = foot_height(stride.phase, jnp.float32(self.swing_height))
        largest = self.model.mj.jnt_actfrcrange[1:, 1].astype(np.float32)
        away = physics.qpos[7:] - self.pose
        return {
            "tracking": following + 0.5 * turning,
            "lin_vel_z": costs.squared(linear[2]),
            "ang_vel_xy": costs.squared(gyro[:2]),
            "orientation": costs.squared(self.sensor(physics, "upvector")[:2]),
            "feet_phase": costs.closeness(self.feet_height(physics), wanted, 1 / self.phase_sigma),
            "torques": jnp.sum(jnp.abs(forces)),
            "action_rate": costs.action_rate(stride.action, stride.last_action),
            "energy": costs.energy(physics.qvel[6:], forces / largest),
            "collision": self._collides(physics),
            "pose": jnp.sum(self._pose_weights(command) * jnp.square(away)),
        }

    def _pose_weights(self, command: Array) -> Array:
        """How much each joint counts, `(32,)`: all alike in a stand; not hips on the way aside."""
        weights = jnp.where(costs.length(command) < 0.01, 1.0, _POSE_WEIGHTS)
        rolls = self.joints_at("l_hip_aa", "r_hip_aa")
        return weights.at[rolls].set(jnp.where(jnp.abs(command[1]) > 0.3, 0.01, 1.0))

    def _collides(self, physics: PhysicsState) -> Array:
        """Whether parts of the body touch each other, `()` bool."""
        found = [self.sensor(physics, f"{pair}_found") for pair in _COLLISIONS]
        return (jnp.concatenate(found) > 0).any()
