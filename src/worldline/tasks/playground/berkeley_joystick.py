"""playground/berkeley-joystick-flat and -rough: a Berkeley Humanoid that follows a joystick."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from worldline.physics.base import PhysicsState
from worldline.settings import Finite, NotNegative, Positive
from worldline.tasks.playground import costs
from worldline.tasks.playground.humanoid import Stride
from worldline.tasks.playground.humanoid_joystick import HumanoidJoystick
from worldline.tasks.playground.randomisation import berkeley_domain
from worldline.types import Array
from worldline.variation.domain import AbstractDomain
from worldline.variation.presets import presets

SCENES = "locomotion/berkeley_humanoid/xmls"

#: How much each joint of a leg counts in the term `pose`.
_LEG = (1.0, 1.0, 0.01, 0.01, 1.0, 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BerkeleyJoystickFlat(HumanoidJoystick):
    """Follow commanded velocities with a Berkeley Humanoid on flat ground, with random pushes.

    Observation: a dict. `state` `(52,)`, with noise: linear and angular velocity and the direction
    of gravity in the frame of the IMU, the command, joint angles from home and their velocities,
    the action before the last, cosine and sine of the phase of each foot. `privileged_state`
    `(114,)`: `state`; without noise the angular velocity, the acceleration, gravity, both
    velocities, joints, the height of the torso, the forces of the motors, which feet touch the
    ground, their velocities and times in the air. Action `(12,)`: target angles of the joints,
    relative to home. An episode terminates when the torso is upside down.

    The task `BerkeleyHumanoidJoystickFlatTerrain` of MuJoCo Playground 0.2.0.
    """

    action_scale: Positive = 0.5
    """How far an action of 1 moves the target of a joint from home, rad."""
    joint_noise: NotNegative = 0.03
    """Largest noise on the angles of the hips and on the roll of the ankles, rad."""
    knee_noise: NotNegative = 0.05
    """Largest noise on the angles of the knees, rad."""
    ankle_noise: NotNegative = 0.08
    """Largest noise on the pitch of the ankles, rad."""
    lowest_command: tuple[float, float, float] = (-1.0, -1.0, -1.0)
    """Lowest command: forward and left, m/s, and turning left, rad/s."""
    highest_command: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Highest command: forward and left, m/s, and turning left, rad/s."""
    tracking_sigma: Positive = 0.5
    """Squared error of velocity at which `exp(-1)` of its reward is left, (m/s)^2, (rad/s)^2."""
    standing_height: Positive = 0.5
    """Height of the torso when the robot stands, m."""
    swing_height: Positive = 0.1
    """How high a foot should swing, m."""
    torques_weight: Finite = -2.5e-5
    """Weight of the sizes of the motors' forces, N m."""
    action_rate_weight: Finite = -0.01
    """Weight of the squared change of the action."""
    termination_weight: Finite = -1.0
    """Weight of the end of an episode by a fall."""
    joint_deviation_hip_weight: Finite = -0.25
    """Weight of the distance of the hips from home, sideways and about their axes, rad, when
    commanded to go sideways."""

    file = f"{SCENES}/scene_mjx_feetonly_flat_terrain.xml"
    fields = ("sensordata", "site_xpos", "site_xmat", "actuator_force")
    torso = "torso"
    feet = ("l_foot", "r_foot")
    soles = (("l_foot1",), ("r_foot1",))
    hips = ("LL_HR", "LL_HAA", "LR_HR", "LR_HAA")
    knees = ("LL_KFE", "LR_KFE")

    @property
    def domains(self) -> Mapping[str, AbstractDomain]:
        """The presets, and Playground's own: `playground`."""
        return {**presets(self.model), "playground": berkeley_domain(self.model)}

    @property
    def joint_noises(self) -> np.ndarray:
        """Largest noise on each joint angle, `(12,)`, rad."""
        hips, roll = [self.joint_noise] * 3, self.joint_noise
        return np.array([*hips, self.knee_noise, self.ankle_noise, roll] * 2, np.float32)

    @property
    def pose_weights(self) -> np.ndarray:
        """How much each joint counts in the term `pose`, `(12,)`."""
        return np.array(_LEG * 2, np.float32)

    def terms(self, physics: PhysicsState, stride: Stride, landed: Array) -> dict[str, Array]:
        """The terms of the reward, without their weights."""
        sideways = (jnp.abs(stride.command.velocity[1]) > 0.1).astype(jnp.float32)
        return super().terms(physics, stride, landed) | {
            "lin_vel_z": costs.squared(self.sensor(physics, "global_linvel")[2]),
            "ang_vel_xy": costs.squared(self.sensor(physics, "global_angvel")[:2]),
            "orientation": costs.squared(self.sensor(physics, "upvector")[:2]),
            "joint_deviation_hip": sideways * jnp.sum(self.hip_deviation(physics)),
        }


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BerkeleyJoystickRough(BerkeleyJoystickFlat):
    """Follow commanded velocities with a Berkeley Humanoid on rough ground; see
    `BerkeleyJoystickFlat`.

    The task `BerkeleyHumanoidJoystickRoughTerrain` of MuJoCo Playground 0.2.0.
    """

    file = f"{SCENES}/scene_mjx_feetonly_rough_terrain.xml"
