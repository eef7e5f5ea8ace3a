"""What G1, T1 and the Berkeley Humanoid share: commands, terms of the reward, terminations."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from worldline.env.task import Outcome
from worldline.errors import TaskError
from worldline.physics.base import PhysicsState
from worldline.settings import Count, Finite, NotNegative, Positive, Share
from worldline.tasks.playground import commands, costs, feet
from worldline.tasks.playground.commands import Command
from worldline.tasks.playground.gait import foot_height
from worldline.tasks.playground.humanoid import HumanoidTask, Stride
from worldline.tasks.playground.legged import soft_limits
from worldline.types import Array, Key

#: The terms for following the command.
_FOLLOWING = ("tracking_lin_vel", "tracking_ang_vel")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class HumanoidJoystick(HumanoidTask):
    """A task in which a humanoid follows commands that change every ten seconds."""

    soft_limit: NotNegative = 0.95
    """The share of a joint's range, about its middle, beyond which there is a cost."""
    lowest_command: tuple[float, float, float]
    """Lowest command: forward and left, m/s, and turning left, rad/s."""
    highest_command: tuple[float, float, float]
    """Highest command: forward and left, m/s, and turning left, rad/s."""
    stand_probability: Share = 0.1
    """Probability of a command to stand still."""
    command_steps: Count = 501
    """Control steps that a command lasts."""
    still_command: NotNegative = 0.1
    """Size of a command below which it is to stand still, m/s and rad/s together."""
    tracking_sigma: Positive = 0.25
    """Squared error of velocity at which `exp(-1)` of its reward is left, (m/s)^2, (rad/s)^2."""
    phase_sigma: Positive = 0.01
    """Squared error of the feet's heights at which `exp(-1)` of its reward is left, m^2."""
    standing_height: Positive
    """Height of the base when the robot stands, m."""
    air_times: tuple[float, float] = (0.2, 0.5)
    """Shortest and longest time of a foot in the air that is rewarded, s."""
    upright_limit: Finite = 0.0
    """The vertical component of the torso's own vertical below which an episode terminates."""
    tracking_lin_vel_weight: Finite = 1.0
    """Weight of the reward for following forward and sideways."""
    tracking_ang_vel_weight: Finite = 0.5
    """Weight of the reward for following turns."""
    lin_vel_z_weight: Finite = 0.0
    """Weight of the squared vertical velocity, (m/s)^2."""
    ang_vel_xy_weight: Finite = -0.15
    """Weight of the squared angular velocity about the horizontal, (rad/s)^2."""
    orientation_weight: Finite = -1.0
    """Weight of the squared error of the vertical."""
    base_height_weight: Finite = 0.0
    """Weight of the squared error of the height of the base, m^2."""
    torques_weight: Finite = 0.0
    """Weight of the sizes of the motors' forces, N m."""
    action_rate_weight: Finite = 0.0
    """Weight of the squared change of the action."""
    energy_weight: Finite = 0.0
    """Weight of the motors' power, W."""
    feet_clearance_weight: Finite = 0.0
    """Weight of feet that move away from the height of a swing."""
    feet_air_time_weight: Finite = 2.0
    """Weight of the reward for the time in the air of feet that land, s."""
    feet_slip_weight: Finite = -0.25
    """Weight of the horizontal speed of the base for each foot on the ground, m/s."""
    feet_height_weight: Finite = 0.0
    """Weight of the squared relative errors of the heights of swings."""
    feet_phase_weight: Finite = 1.0
    """Weight of the reward for feet at the heights of the gait."""
    stand_still_weight: Finite = 0.0
    """Weight of the distance of joints from home, rad, when commanded to stand."""
    alive_weight: Finite = 0.0
    """Weight of the reward for each control step."""
    termination_weight: Finite = 0.0
    """Weight of the end of an episode by a fall."""
    joint_deviation_knee_weight: Finite = -0.1
    """Weight of the distance of the knees from home, rad."""
    joint_deviation_hip_weight: Finite = -0.25
    """Weight of the distance of the hips from home, sideways and about their axes, rad."""
    dof_pos_limits_weight: Finite = -1.0
    """Weight of how far joints are beyond their soft limits, rad."""
    first_steps_weight: Finite = 0.0
    """With `gradual`, weight of the time in the air of feet that land, s, in the easiest episodes.
    It falls to 0 as they become harder."""
    first_following: Share = 1.0
    """With `gradual`, the share of the rewards for following that counts in the easiest episodes.
    It grows to 1 as they become harder."""
    pose_weight: Finite = -1.0
    """Weight of the squared distance of joints from home, rad^2, with smaller weights for the
    joints of a stride."""

    hips: ClassVar[tuple[str, ...]]
    """The joints that turn the legs sideways and about their axes."""
    knees: ClassVar[tuple[str, ...]]
    """The joints of the knees."""

    def __post_init__(self) -> None:
        for name, idle in {"first_steps_weight": 0.0, "first_following": 1.0}.items():
            if not self.gradual and getattr(self, name) != idle:
                raise TaskError(
                    f"{name} is {getattr(self, name)}, and changes nothing without gradual; "
                    f"set gradual=True, or leave {name} at {idle}"
                )

    def first_command(self, key: Key) -> Command:
        """Anything within bounds, or to stand still."""
        return Command(self._velocity(key), jnp.int32(self.command_steps))

    def next_command(self, key: Key, command: Command) -> Command:
        """This command, or one like the first."""
        return command.next(self._velocity(key), jnp.int32(self.command_steps))

    def _velocity(self, key: Key) -> Array:
        low, high = self.lowest_command, self.highest_command
        return commands.within(key, low, high, self.stand_probability)

    @property
    def command_bounds(self) -> tuple[Sequence[float], Sequence[float]]:
        """As configured."""
        return self.lowest_command, self.highest_command

    @property
    def pose_weights(self) -> np.ndarray:
        """How much each joint counts in the term `pose`, `(nu,)`."""
        return np.ones(self.model.nu, np.float32)

    def fallen(self, physics: PhysicsState) -> Array:
        """Whether the robot is tilted beyond `upright_limit`, `()` bool."""
        return self.sensor(physics, "upvector")[2] < self.upright_limit

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Stride
    ) -> Outcome:
        """Velocities as commanded, on feet that swing by the gait; without a fall."""
        stride, landed = self.strode(memory, action, after)
        fallen = self.fallen(after)
        terms = self.terms(after, stride, landed) | {"termination": fallen}
        if self.gradual:
            terms |= self._first_terms(terms, stride, landed)
        return self.scored(terms, fallen, stride, swing_peak=stride.feet.mean_peak())

    def terms(self, physics: PhysicsState, stride: Stride, landed: Array) -> dict[str, Array]:
        """The terms of the reward, without their weights.

        Args:
            physics: the world after the control step.
            stride: the memory after the step.
            landed: which feet landed in it, `(2,)` bool.
        """
        command = stride.command.velocity
        moving = (costs.length(command) >= self.still_command).astype(jnp.float32)
        linear, gyro = (self.base(physics, name) for name in ("local_linvel", "gyro"))
        return {
            "tracking_lin_vel": costs.linear_tracking(command, linear, self.tracking_sigma),
            "tracking_ang_vel": costs.angular_tracking(command, gyro, self.tracking_sigma),
            "base_height": costs.squared(physics.qpos[2] - self.standing_height),
            "action_rate": costs.action_rate(stride.action, stride.last_action),
            "alive": jnp.float32(1.0),
            **self._of_motors(physics),
            **self._of_feet(physics, stride, landed, moving),
            **self._of_joints(physics.qpos[7:], moving),
        }

    def _first_terms(
        self, terms: Mapping[str, Array], stride: Stride, landed: Array
    ) -> dict[str, Array]:
        """The terms that are others in easy episodes: a robot should step before it follows."""
        easy = 1 - stride.level
        swings = feet.air_time(stride.feet.air_time, landed, 0.0, self.air_times[1])
        share = 1 - easy * (1 - self.first_following)
        following = {name: share * terms[name] for name in _FOLLOWING}
        return {"first_steps": easy * swings, **following}

    def _of_motors(self, physics: PhysicsState) -> dict[str, Array]:
        forces = physics.fields["actuator_force"]
        return {
            "torques": jnp.sum(jnp.abs(forces)),
            "energy": costs.energy(physics.qvel[6:], forces),
        }

    def _of_feet(
        self, physics: PhysicsState, stride: Stride, landed: Array, moving: Array
    ) -> dict[str, Array]:
        walked, (least, most) = stride.feet, self.air_times
        velocity, height = self.feet_velocity(physics), self.feet_height(physics)
        speed = costs.length(self.base(physics, "global_linvel")[:2])
        wanted = foot_height(stride.phase, jnp.float32(self.swing_height))
        return {
            "feet_slip": speed * jnp.sum(walked.contact.astype(jnp.float32)),
            "feet_clearance": feet.clearance(velocity, height, self.swing_height),
            "feet_height": feet.swing_height(walked.swing_peak, landed, self.swing_height),
            "feet_air_time": moving * feet.air_time(walked.air_time, landed, least, most),
            "feet_phase": costs.closeness(height, wanted, 1 / self.phase_sigma),
        }

    def _of_joints(self, joints: Array, moving: Array) -> dict[str, Array]:
        away, knees = joints - self.pose, self.joints_at(*self.knees)
        return {
            "stand_still": (1 - moving) * jnp.sum(jnp.abs(away)),
            "joint_deviation_knee": jnp.sum(jnp.abs(away[knees])),
            "dof_pos_limits": costs.beyond_limits(
                joints, *soft_limits(self.model, self.soft_limit)
            ),
            "pose": jnp.sum(self.pose_weights * jnp.square(away)),
        }

    def hip_deviation(self, physics: PhysicsState) -> Array:
        """How far each of the `hips` is from home, `(n,)`, rad."""
        hips = self.joints_at(*self.hips)
        return jnp.abs((physics.qpos[7:] - self.pose)[hips])
