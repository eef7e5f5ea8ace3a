"""The LEAP hand with a cube: its scene, starts, what it measures, its published randomisation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.parts import ObservationPart as Part
from worldline.model import Model
from worldline.physics.base import PhysicsState
from worldline.settings import Finite, NotNegative, Positive
from worldline.tasks.playground import rotations
from worldline.tasks.playground.manipulation import ManipulationTask, NDArray
from worldline.types import Array, Key
from worldline.variation.distributions import Uniform
from worldline.variation.domain import AbstractDomain, Domain, add, scale, set_
from worldline.variation.presets import presets
from worldline.variation.targets import body, geom, joint

#: The sites, and geoms, of the fingertips: thumb, index, middle and ring finger.
FINGERTIPS = ("th_tip", "if_tip", "mf_tip", "rf_tip")

#: How many joints the hand has; they come first in `qpos` and `qvel`, then the cube.
JOINTS = 16


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LeapTask(ManipulationTask):
    """A task of the LEAP hand, of 16 joints, which lies with a cube on its palm."""

    defaults = {
        "ppo": {
            "num_worlds": 128,
            "unroll_length": 32,
            "minibatches": 8,
            "discount": 0.97,
            "actor_hidden": (256, 128),
            "critic_hidden": (256, 128),
        },
        "train": {"steps": 20_000_000},
    }

    control_timestep: Positive = 0.05
    """Seconds between two actions; a multiple of `physics_timestep`."""
    physics_timestep: Positive = 0.01
    """The model's time step, s."""
    noise_level: NotNegative = 1.0
    """Factor for all noise of the observation; 0: no noise."""
    joint_noise: NotNegative = 0.05
    """Largest noise on joint angles, rad."""
    joint_spread: NotNegative = 0.1
    """Standard deviation of the joints from home at a start, rad."""
    cube_place: tuple[float, float, float] = (0.1, 0.0, 0.05)
    """Mean start position of the cube, m."""
    cube_range: NotNegative = 0.01
    """Largest distance from there along each axis, m."""
    lowest_cube: Finite = -0.05
    """Height of the cube below which it has fallen and an episode terminates, m."""

    file = "leap_hand/xmls/scene_mjx_cube.xml"
    collision_iterations = 10
    fields = ("sensordata", "actuator_force")
    camera = {"name": "side"}

    @property
    def pose(self) -> NDArray:
        """The joints' angles at home, `(16,)`, rad."""
        return self.home[:JOINTS]

    @property
    def domains(self) -> Mapping[str, AbstractDomain]:
        """The presets, and Playground's own: `playground`."""
        return {**presets(self.model), "playground": playground_domain(self.model)}

    def somehow(self, key: Key) -> Array:
        """The hand about home with the cube above it in any orientation, `(nq,)`."""
        joints_key, place_key, turn_key = jax.random.split(key, 3)
        noise = self.joint_spread * jax.random.normal(joints_key, (JOINTS,), jnp.float32)
        reach = self.cube_range
        place = jnp.array(self.cube_place, jnp.float32) + jax.random.uniform(
            place_key, (3,), jnp.float32, -reach, reach
        )
        joints = self.within_range(self.pose + noise)
        return jnp.concatenate([joints, place, rotations.anywhere(turn_key)])

    @property
    def joints(self) -> tuple[str, ...]:
        """The names of the hand's joints."""
        return tuple(self.model.names("joint")[:JOINTS])

    def without_noise(self) -> LeapTask:
        """The same task, which feels exactly."""
        return dataclasses.replace(self, noise_level=0.0)

    @property
    def felt_joints(self) -> Part:
        """The joint angles, with noise."""
        return Part(
            "joint_position",
            JOINTS,
            "joint_position",
            self.joints,
            unit="rad",
            noise=self.noise_level * self.joint_noise,
        )

    @property
    def exact_joints(self) -> tuple[Part, ...]:
        """Joint angles without noise, and their velocities."""
        return (
            Part("exact_joint_position", JOINTS, "joint_position", self.joints, unit="rad"),
            Part("joint_velocity", JOINTS, "joint_velocity", self.joints, unit="rad/s"),
        )

    @property
    def exact_places(self) -> tuple[Part, ...]:
        """The places of the fingertips, and the way from the cube to the palm."""
        tips = tuple(f"{tip}_position" for tip in FINGERTIPS)
        return (
            Part("fingertip_position", 12, "sensor", tips, unit="m"),
            Part("cube_to_palm", 3, unit="m"),
        )

    @property
    def cube_velocities(self) -> tuple[Part, ...]:
        """The velocities of the cube."""
        return (
            Part("cube_linear_velocity", 3, "sensor", ("cube_linvel",), unit="m/s"),
            Part("cube_angular_velocity", 3, "sensor", ("cube_angvel",), unit="rad/s"),
        )

    def fingertips(self, physics: PhysicsState) -> Array:
        """Where the fingertips are, `(12,)`, m."""
        return jnp.concatenate([self.sensor(physics, f"{tip}_position") for tip in FINGERTIPS])

    def cube_from_palm(self, physics: PhysicsState) -> Array:
        """The vector from the cube to the palm, `(3,)`, m."""
        return self.sensor(physics, "palm_position") - self.sensor(physics, "cube_position")

    def fallen(self, physics: PhysicsState) -> Array:
        """Whether the cube has fallen, `()` bool."""
        return self.sensor(physics, "cube_position")[2] < self.lowest_cube


def playground_domain(model: Model) -> Domain:
    """What Playground draws for each world of the LEAP hand: `domain_randomize` of its tasks."""
    hand = joint(*(name for name in model.names("joint") if name != "cube_freejoint"))
    links = [name for name in model.names("body") if name == "palm" or name[2:3] == "_"]
    slip = model.constant("geom_friction")[model.id("geom", FINGERTIPS[0])]
    low, high = ([share, *slip[1:]] for share in (0.5, 1.0))
    push = np.array([5e-3] * 3)
    return Domain(
        set_(
            geom(*FINGERTIPS).friction, Uniform(low, high), per="world", name="fingertip friction"
        ),
        scale(body("cube").inertia, Uniform(0.8, 1.2), name="cube inertia"),
        add(body("cube").ipos, Uniform(-push, push), name="cube centre of mass"),
        add(hand.qpos0, Uniform(-0.05, 0.05), name="joint offsets"),
        scale(hand.frictionloss, Uniform(0.5, 2.0), name="joint friction"),
        scale(hand.armature, Uniform(1.0, 1.05), name="armature"),
        scale(body(*links).mass, Uniform(0.9, 1.1), name="mass"),
        scale(("actuator_gainprm", "actuator_biasprm"), Uniform(0.8, 1.2), name="stiffness"),
        scale(hand.damping, Uniform(0.8, 1.2), name="damping"),
    )
