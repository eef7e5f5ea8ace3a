"""The Unitree Go1: its scenes, starts and published randomisation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import mujoco

from worldline.env.parts import ObservationPart
from worldline.model import Model
from worldline.physics.base import PhysicsState
from worldline.settings import NotNegative
from worldline.tasks.playground import parts
from worldline.tasks.playground.legged import ServoTask
from worldline.types import Array
from worldline.variation.distributions import Uniform
from worldline.variation.domain import AbstractDomain, Domain, add, scale, set_
from worldline.variation.presets import presets
from worldline.variation.targets import body, geom, joint

SCENES = "locomotion/go1/xmls"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Go1Task(ServoTask):
    """A task of the Unitree Go1, a robot dog of 12 joints."""

    stiffness: NotNegative = 35.0
    """Stiffness of each joint's servo, N m / rad."""
    damping: NotNegative = 0.5
    """Damping of each joint, N m s / rad."""
    joint_noise: NotNegative = 0.03
    """Largest noise on joint angles, rad."""
    joint_velocity_noise: NotNegative = 1.5
    """Largest noise on the velocities of joints, rad/s."""
    gyro_noise: NotNegative = 0.2
    """Largest noise on the angular velocity, rad/s."""
    gravity_noise: NotNegative = 0.05
    """Largest noise on the direction of gravity."""
    largest_power: NotNegative = 0.0
    """Power of the motors beyond which an episode terminates, W; 0: any is allowed."""

    torso = "trunk"
    feet = ("FR", "FL", "RR", "RL")

    def mjcf(self) -> mujoco.MjSpec:
        """The scene, with the steps of the search for collisions that Playground takes."""
        spec = super().mjcf()
        spec.option.ccd_iterations = 20
        return spec

    @property
    def domains(self) -> Mapping[str, AbstractDomain]:
        """The presets, and Playground's own: `playground`."""
        return {**presets(self.model), "playground": playground_domain(self.model)}

    def too_powerful(self, power: Array) -> Array:
        """Whether the motors take more power, W, than the task allows, `()` bool."""
        return (power > self.largest_power) & (self.largest_power > 0)

    def measured(self, physics: PhysicsState) -> dict[str, Array]:
        """What the robot's sensors measure, by name, without noise."""
        return {
            "linear": self.sensor(physics, "local_linvel"),
            "gyro": self.sensor(physics, "gyro"),
            "gravity": self.down(physics),
            "joints": physics.qpos[7:],
            "velocities": physics.qvel[6:],
        }

    def measured_parts(self, velocity_noise: float | None = None) -> tuple[ObservationPart, ...]:
        """What the robot feels, with its noise; with the linear velocity where it has a noise."""
        linear = () if velocity_noise is None else (parts.linear_velocity(velocity_noise),)
        return (
            *linear,
            parts.angular_velocity(self.gyro_noise),
            parts.projected_gravity(self.gravity_noise),
            parts.joint_position(self, self.joint_noise),
            parts.joint_velocity(self, self.joint_velocity_noise),
        )

    def exact_parts(self, *names: str, from_home: bool = True) -> tuple[ObservationPart, ...]:
        """What sensors of these names measure without noise, and then the joints."""
        known = {
            "gyro": parts.angular_velocity(),
            "accelerometer": parts.acceleration(),
            "gravity": parts.projected_gravity(),
            "linear": parts.linear_velocity(),
            "global_angvel": parts.global_angular_velocity(),
        }
        joints = parts.joint_position(self, from_home=from_home), parts.joint_velocity(self)
        return parts.exact((*(known[name] for name in names), *joints))


def playground_domain(model: Model) -> Domain:
    """What Playground draws for each world of the Go1: `domain_randomize` of its module."""
    legs = joint(*(name for name in model.names("joint") if name))
    sliding = model.constant("geom_friction")[model.id("geom", "floor")]
    low, high = ([share, *sliding[1:]] for share in (0.4, 1.0))
    return Domain(
        set_(geom("floor").friction, Uniform(low, high), name="floor friction"),
        scale(legs.frictionloss, Uniform(0.9, 1.1), name="joint friction"),
        scale(legs.armature, Uniform(1.0, 1.05), name="armature"),
        add(body("trunk").ipos, Uniform([-0.05] * 3, [0.05] * 3), name="centre of mass"),
        scale("body_mass", Uniform(0.9, 1.1), name="mass"),
        add(body("trunk").mass, Uniform(-1.0, 1.0), name="load"),
        add(legs.qpos0, Uniform(-0.05, 0.05), name="joint offsets"),
    )
