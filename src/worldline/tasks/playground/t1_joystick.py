"""playground/t1-joystick-flat and -rough: a Booster T1 that goes where a joystick points."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.physics.base import PhysicsState
from worldline.settings import Finite, NotNegative, Positive
from worldline.tasks.playground import costs
from worldline.tasks.playground.humanoid import Stride
from worldline.tasks.playground.humanoid_joystick import HumanoidJoystick
from worldline.tasks.playground.randomisation import t1_domain
from worldline.types import Array
from worldline.variation.domain import AbstractDomain
from worldline.variation.presets import presets

SCENES = "locomotion/t1/xmls"

#: How much each joint counts in the term `pose`: head, arms, waist, legs.
_ARM, _LEG = (0.1, 1.0, 1.0, 1.0), (0.01, 1.0, 1.0, 0.01, 1.0, 1.0)
_POSE_WEIGHTS = np.array([1.0, 1.0, *_ARM, *_ARM, 1.0, *_LEG, *_LEG], np.float32)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class T1JoystickFlat(HumanoidJoystick):
    """Follow commanded velocities with a Booster T1 on flat ground, with random pushes.

    Observation: a dict. `state` `(85,)`, with noise: linear and angular velocity and the direction
    of gravity in the frame of the IMU, the command, joint angles from home and their velocities,
    the action before the last, cosine and sine of the phase of each foot. `privileged_state`
    `(180,)`: `state`; without noise the angular velocity, the acceleration, gravity, both
    velocities, joints, the height of the trunk, the forces of the motors, which feet touch the
    ground, their velocities and times in the air. Action `(23,)`: target angles of the joints,
    relative to home. An episode terminates when the trunk is upside down.

    The task `T1JoystickFlatTerrain` of MuJoCo Playground 0.2.0.
    """

    action_scale: Positive = 1.0
    """How far an action of 1 moves the target of a joint from home, rad."""
    lowest_command: tuple[float, float, float] = (-1.0, -0.8, -1.0)
    """Lowest command: forward and left, m/s, and turning left, rad/s."""
    highest_command: tuple[float, float, float] = (1.0, 0.8, 1.0)
    """Highest command: forward and left, m/s, and turning left, rad/s."""
    gait_frequency: tuple[float, float] = (1.25, 1.75)
    """Steps a second: lowest and highest, Hz."""
    push_speed: tuple[float, float] = (0.1, 1.0)
    """The speed that a push adds to the robot's velocity: lowest and highest, m/s."""
    standing_height: Positive = 0.665
    """Height of the trunk when the robot stands, m."""
    swing_height: Positive = 0.12
    """How high a foot should swing, m."""
    least_feet_distance: NotNegative = 0.2
    """Sideways distance between the feet below which there is a cost, m."""
    alive_weight: Finite = 0.25
    """Weight of the reward for each control step."""
    dof_acc_weight: Finite = 0.0
    """Weight of the squared accelerations of joints, (rad/s^2)^2."""
    dof_vel_weight: Finite = 0.0
    """Weight of the squared velocities of joints, (rad/s)^2."""
    joint_deviation_hip_weight: Finite = -0.1
    """Weight of the distance of the hips from home, sideways and about their axes, rad, when
    commanded to go sideways."""
    feet_distance_weight: Finite = -1.0
    """Weight of feet nearer to each other than the least distance, m, up to 0.1."""
    collision_weight: Finite = -1.0
    """Weight of feet that touch each other."""

    file = f"{SCENES}/scene_mjx_feetonly_flat_terrain.xml"
    longest_step = 1.7  # with longer ones its joints are unstable
    fields = ("sensordata", "site_xpos", "site_xmat", "actuator_force", "qacc")
    torso = "Trunk"
    feet = ("left_foot", "right_foot")
    soles = tuple(
        tuple(f"{side}_foot_{number}" for number in range(1, 5)) for side in ("left", "right")
    )
    hips = ("Left_Hip_Roll", "Left_Hip_Yaw", "Right_Hip_Roll", "Right_Hip_Yaw")
    knees = ("Left_Knee_Pitch", "Right_Knee_Pitch")
    pauses = True

    def mjcf(self) -> mujoco.MjSpec:
        """The scene, with the steps of the search for collisions that Playground takes."""
        spec = super().mjcf()
        spec.option.ccd_iterations = 10
        return spec

    @property
    def domains(self) -> Mapping[str, AbstractDomain]:
        """The presets, and Playground's own: `playground`."""
        return {**presets(self.model), "playground": t1_domain(self.model)}

    @property
    def pose_weights(self) -> np.ndarray:
        """How much each joint counts in the term `pose`, `(23,)`."""
        return _POSE_WEIGHTS

    def terms(self, physics: PhysicsState, stride: Stride, landed: Array) -> dict[str, Array]:
        """The terms of the reward, without their weights."""
        sideways = (jnp.abs(stride.command.velocity[1]) > 0.1).astype(jnp.float32)
        return super().terms(physics, stride, landed) | {
            "lin_vel_z": costs.squared(self.sensor(physics, "local_linvel")[2]),
            "ang_vel_xy": costs.squared(self.sensor(physics, "gyro")[:2]),
            "orientation": costs.squared(self.sensor(physics, "upvector")[:2]),
            "dof_acc": costs.squared(physics.fields["qacc"][6:]),
            "dof_vel": costs.squared(physics.qvel[6:]),
            "joint_deviation_hip": sideways * jnp.sum(self.hip_deviation(physics)),
            "collision": self.sensor(physics, "left_foot_right_foot_found")[0] > 0,
            "feet_distance": jnp.clip(
                self.least_feet_distance - self._feet_distance(physics), 0.0, 0.1
            ),
        }

    def _feet_distance(self, physics: PhysicsState) -> Array:
        """How far the feet are from each other, to the side of the trunk, `()`, m."""
        sites = np.array([self.model.id("site", foot) for foot in self.feet])
        left, right = physics.fields["site_xpos"][sites]
        ahead = self.imu(physics, "site_xmat").reshape(3, 3)[:2, 0]
        ahead = ahead / costs.length(ahead)
        return jnp.abs(ahead[0] * (left - right)[1] - ahead[1] * (left - right)[0])


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class T1JoystickRough(T1JoystickFlat):
    """Follow commanded velocities with a Booster T1 on rough ground; see `T1JoystickFlat`.

    The task `T1JoystickRoughTerrain` of MuJoCo Playground 0.2.0.
    """

    file = f"{SCENES}/scene_mjx_feetonly_rough_terrain.xml"
