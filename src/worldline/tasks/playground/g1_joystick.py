"""playground/g1-joystick-flat and -rough: a Unitree G1 that goes where a joystick points."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.physics.base import PhysicsState
from worldline.settings import Finite, NotNegative, Positive
from worldline.tasks.playground import costs, feet
from worldline.tasks.playground.humanoid import Stride
from worldline.tasks.playground.humanoid_joystick import HumanoidJoystick
from worldline.tasks.playground.randomisation import g1_domain
from worldline.types import Array
from worldline.variation.domain import AbstractDomain
from worldline.variation.presets import presets

SCENES = "locomotion/g1/xmls"

#: The vertical of the torso, along the world's axes, of a robot that stands well.
_UP = np.array([0.073, 0.0, 1.0], np.float32)

#: Narrower ranges of the joints of each leg, rad.
_NARROW = {
    "hip_pitch": (-1.57, 1.57),
    "hip_roll": (-0.5, 0.5),
    "hip_yaw": (-0.7, 0.7),
    "knee": (0.0, 1.57),
    "ankle_pitch": (-0.4, 0.4),
    "ankle_roll": (-0.2, 0.2),
}

#: The parts of the body that should not touch each other.
_COLLISIONS = ("left_hand_left_thigh", "right_hand_right_thigh")
#: Those whose contact ends an episode.
_TANGLES = ("right_foot_left_foot", "left_foot_right_shin", "right_foot_left_shin")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class G1JoystickFlat(HumanoidJoystick):
    """Follow commanded velocities with a Unitree G1 on flat ground, with random pushes.

    Observation: a dict. `state` `(103,)`, with noise: linear and angular velocity and the direction
    of gravity in the frame of the pelvis, the command, joint angles from home and their velocities,
    the action before the last, cosine and sine of the phase of each foot. `privileged_state`
    `(216,)`: `state`; without noise the angular velocity, the acceleration, gravity, both
    velocities, joints, the height of the pelvis, the forces of the motors, which feet touch the
    ground, their velocities and times in the air. Action `(29,)`: target angles of the joints,
    relative to home. An episode terminates when the torso is upside down, or a foot touches the
    other leg.

    The task `G1JoystickFlatTerrain` of MuJoCo Playground 0.2.0.
    """

    action_scale: Positive = 0.5
    """How far an action of 1 moves the target of a joint from home, rad."""
    restricted_joint_range: bool = False
    """Whether the joints of the legs have narrower ranges than the robot's own."""
    lowest_command: tuple[float, float, float] = (-1.0, -0.5, -1.0)
    """Lowest command: forward and left, m/s, and turning left, rad/s."""
    highest_command: tuple[float, float, float] = (1.0, 0.5, 1.0)
    """Highest command: forward and left, m/s, and turning left, rad/s."""
    still_command: NotNegative = 0.01
    """Size of a command below which it is to stand still, m/s and rad/s together."""
    standing_height: Positive = 0.5
    """Height of the pelvis when the robot stands, m."""
    swing_height: Positive = 0.15
    """How high a foot should swing, m."""
    largest_contact_force: NotNegative = 500.0
    """Vertical force on a foot beyond which it costs, N."""
    tracking_ang_vel_weight: Finite = 0.75
    """Weight of the reward for following turns."""
    orientation_weight: Finite = -2.0
    """Weight of the squared error of the vertical."""
    dof_acc_weight: Finite = 0.0
    """Weight of the squared accelerations of joints, (rad/s^2)^2."""
    stand_still_weight: Finite = -1.0
    """Weight of the distance of joints from home, rad, when commanded to stand."""
    termination_weight: Finite = -100.0
    """Weight of the end of an episode by a fall."""
    collision_weight: Finite = -0.1
    """Weight of a hand that touches a thigh."""
    contact_force_weight: Finite = -0.01
    """Weight of vertical forces on feet beyond the largest one, N."""
    pose_weight: Finite = -0.1
    """Weight of the squared distance of joints from home, rad^2."""

    file = f"{SCENES}/scene_mjx_feetonly_flat_terrain.xml"
    keyframe = "knees_bent"
    fields = ("sensordata", "site_xpos", "site_xmat", "actuator_force", "qacc")
    torso = "torso_link"
    imu_site = "imu_in_pelvis"
    frame = "_pelvis"
    feet = ("left_foot", "right_foot")
    soles = (("left_foot",), ("right_foot",))
    hips = tuple(
        f"{side}_hip_{turn}_joint" for side in ("left", "right") for turn in ("roll", "yaw")
    )
    knees = ("left_knee_joint", "right_knee_joint")
    lowest_reward = -np.inf

    def mjcf(self) -> mujoco.MjSpec:
        """The scene, with narrower ranges of the legs' joints where they are asked for."""
        spec = super().mjcf()
        if self.restricted_joint_range:
            for side in ("left", "right"):
                for name, limits in _NARROW.items():
                    spec.joint(f"{side}_{name}_joint").range = limits
        return spec

    @property
    def domains(self) -> Mapping[str, AbstractDomain]:
        """The presets, and Playground's own: `playground`."""
        return {**presets(self.model), "playground": g1_domain(self.model)}

    def fallen(self, physics: PhysicsState) -> Array:
        """Whether the torso is tilted, or a foot touches the other leg, `()` bool."""
        tilted = self.sensor(physics, "upvector_torso")[2] < self.upright_limit
        return tilted | self._touch(physics, _TANGLES)

    def _touch(self, physics: PhysicsState, parts: tuple[str, ...]) -> Array:
        found = [self.sensor(physics, f"{pair}_found") for pair in parts]
        return (jnp.concatenate(found) > 0).any()

    def terms(self, physics: PhysicsState, stride: Stride, landed: Array) -> dict[str, Array]:
        """The terms of the reward, without their weights."""
        terms = super().terms(physics, stride, landed)
        command, (least, most) = stride.command.velocity, self.air_times
        speeds = [self.sensor(physics, f"global_linvel_{part}")[2] for part in ("pelvis", "torso")]
        # Playground means to free the roll of the hips on the way to the left, but multiplies a
        # column by a row: the sum of all errors, four times, and twice on the way to the left.
        hips = jnp.where(command[1] > 0.1, 2.0, 4.0)
        return terms | {
            "lin_vel_z": costs.squared(*speeds),
            "ang_vel_xy": costs.squared(self.sensor(physics, "global_angvel_torso")[:2]),
            "orientation": costs.squared(self.sensor(physics, "upvector_torso") - _UP),
            "dof_acc": costs.squared(physics.fields["qacc"][6:]),
            "feet_air_time": feet.air_time(stride.feet.air_time, landed, least, most),
            "feet_phase": jnp.where(self._strides(physics, command), terms["feet_phase"], 0.0),
            "joint_deviation_hip": hips * jnp.sum(self.hip_deviation(physics)),
            "collision": self._touch(physics, _COLLISIONS),
            "contact_force": self._heavy_steps(physics),
        }

    def _strides(self, physics: PhysicsState, command: Array) -> Array:
        """Whether the robot should stride, or moves, `()` bool."""
        speed = costs.length(self.base(physics, "global_linvel")[:2])
        turning = jnp.abs(self.base(physics, "global_angvel")[2])
        return (speed > 0.1) | (turning > 0.1) | (costs.length(command) > self.still_command)

    def _heavy_steps(self, physics: PhysicsState) -> Array:
        """Vertical forces on feet beyond the largest one, `()`, N."""
        forces = jnp.stack([self.sensor(physics, f"{foot}_force")[2] for foot in self.feet])
        return jnp.sum(jnp.maximum(jnp.abs(forces) - self.largest_contact_force, 0.0))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class G1JoystickRough(G1JoystickFlat):
    """Follow commanded velocities with a Unitree G1 on rough ground; see `G1JoystickFlat`.

    The task `G1JoystickRoughTerrain` of MuJoCo Playground 0.2.0.
    """

    file = f"{SCENES}/scene_mjx_feetonly_rough_terrain.xml"
