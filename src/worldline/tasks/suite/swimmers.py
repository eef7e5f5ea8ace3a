"""suite/fish and suite/swimmer: to a target, through a fluid."""

from __future__ import annotations

import dataclasses
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.task import Start
from worldline.errors import TaskError
from worldline.physics.base import PhysicsState
from worldline.settings import Count
from worldline.tasks.rewards import tolerance
from worldline.tasks.suite.base import (
    XML,
    SuiteTask,
    found,
    joint_places,
    moved,
    named,
    random_rotation,
    variant,
)
from worldline.types import Array, Key

_FISH_JOINTS = (
    "tail1",
    "tail_twist",
    "tail2",
    "finright_roll",
    "finright_pitch",
    "finleft_roll",
    "finleft_pitch",
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Fish(SuiteTask):
    """A fish with a tail and two fins. Action `(5,)`: where to hold tail and fins."""

    file = "fish.xml"
    control_timestep: float = 0.04

    def pose(self, key: Key) -> Array:
        """Turned in any way, the joints within 0.2 rad of straight: `qpos`."""
        turn, bend = jax.random.split(key)
        joints = jax.random.uniform(bend, (len(_FISH_JOINTS),), minval=-0.2, maxval=0.2)
        place = jnp.asarray(self.model.qpos0[:3])
        return jnp.concatenate([place, random_rotation(turn), joints])

    def upright(self, physics: PhysicsState) -> Array:
        """The height of the torso's axis z, from -1 to 1, `()`."""
        return self.row(physics, "xmat", "torso")[8]

    def joint_angles(self, physics: PhysicsState) -> Array:
        """Of tail and fins, `(7,)`, rad."""
        return physics.qpos[joint_places(self.model, *_FISH_JOINTS)]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FishUpright(Fish):
    """Turn upright, and stay so.

    Observation `(21,)`: joint angles, uprightness, velocities. Action `(5,)`. Reward: uprightness.
    """

    fields = ("xmat",)  # the torso's orientation

    def edit(self, root: XML) -> None:
        """Hides the target, which plays no part."""
        named(root, "geom", "target").set("rgba", "0 0 0 0")

    def features(self, physics: PhysicsState) -> dict[str, Array]:
        """Joint angles, uprightness, velocities."""
        return {
            "joint_angles": self.joint_angles(physics),
            "upright": self.upright(physics),
            "velocity": physics.qvel,
        }

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """How upright the torso is."""
        return tolerance(self.upright(physics), (1.0, 1.0), margin=1.0)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FishSwim(Fish):
    """Swim to a target, upright.

    Observation `(24,)`: joint angles, uprightness, the target as the mouth sees it, velocities.
    Action `(5,)`. Reward: how near the mouth is to the target, and a little for being upright.
    """

    fields = ("xmat", "geom_xpos", "geom_xmat")  # of the torso, the mouth and the target

    def start(self, key: Key) -> Start:
        """Turned in any way, at rest; a target somewhere around."""
        pose, place = jax.random.split(key)
        low, high = jnp.array([-0.4, -0.4, 0.1]), jnp.array([0.4, 0.4, 0.3])
        target = jax.random.uniform(place, (3,), minval=low, maxval=high)
        geom_pos = moved(self.model, "geom_pos", "target", (0, 1, 2), target)
        return self.at_rest(self.pose(pose), variation={"geom_pos": geom_pos})

    def to_target(self, physics: PhysicsState) -> Array:
        """The vector from mouth to target in the mouth's frame, `(3,)`, m."""
        mouth = self.row(physics, "geom_xmat", "mouth").reshape(3, 3)
        return self.offset(physics, "geom_xpos", "mouth", "target") @ mouth

    def features(self, physics: PhysicsState) -> dict[str, Array]:
        """Joint angles, uprightness, the way to the target, velocities."""
        return {
            "joint_angles": self.joint_angles(physics),
            "upright": self.upright(physics),
            "target": self.to_target(physics),
            "velocity": physics.qvel,
        }

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """Nearness, seven parts of eight, and uprightness."""
        radii = self.size("geom_size", "mouth") + self.size("geom_size", "target")
        distance = jnp.linalg.norm(self.to_target(physics))
        near = tolerance(distance, (0.0, radii), margin=2 * radii)
        return (7 * near + (self.upright(physics) + 1) / 2) / 8


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Swimmer(SuiteTask):
    """Swim to a target as a chain of links, in a plane.

    Observation `(5 links + 1,)`: joint angles, the target as the head sees it, each link's own
    velocity: along, across, turning. Action `(links - 1,)`: torques. Reward: how near the nose is
    to the target.
    """

    file = "swimmer.xml"
    control_timestep: float = 0.03
    links: Count
    """Links of the chain, at least 3."""

    fields = ("xmat", "geom_xpos", "sensordata")  # head, nose and target; the links' velocities

    def edit(self, root: XML) -> None:
        """Hangs the links one on the other, and moves the cameras back for a long chain."""
        if self.links < 3:
            raise TaskError(f"links is {self.links}; a swimmer has 3 or more")
        parent, sensors = found(root, "./worldbody/body"), found(root, "./sensor")
        actuators = ElementTree.SubElement(root, "actuator")
        for camera in parent.findall("camera[@mode='trackcom']"):
            far = [float(number) * self.links / 6 for number in camera.attrib["pos"].split()]
            camera.set("pos", " ".join(map(str, far)))
        limit = 360 / self.links
        for number in range(self.links - 1):
            joint, site = f"joint_{number}", f"site_{number}"
            link = ElementTree.SubElement(parent, "body", name=f"segment_{number}", pos="0 .1 0")
            for kind in ("visual", "inertial"):
                ElementTree.SubElement(link, "geom", {"class": kind, "name": f"{kind}_{number}"})
            ElementTree.SubElement(link, "site", name=site)
            ElementTree.SubElement(link, "joint", name=joint, range=f"{-limit} {limit}")
            ElementTree.SubElement(actuators, "motor", name=f"motor_{number}", joint=joint)
            for kind in ("velocimeter", "gyro"):
                ElementTree.SubElement(sensors, kind, name=f"{kind}_{number}", site=site)
            parent = link

    def start(self, key: Key) -> Start:
        """Bent in any way, at rest; the target is near in one episode of five."""
        pose, near, place = jax.random.split(key, 3)
        reach = jnp.where(jax.random.bernoulli(near, 0.2), 0.3, 2.0)
        target = reach * jax.random.uniform(place, (2,), minval=-1.0, maxval=1.0)
        marks = {"geom_pos": "target", "light_pos": "target_light"}
        variation = {f: moved(self.model, f, name, (0, 1), target) for f, name in marks.items()}
        return self.at_rest(self.pose(pose), variation=variation)

    def to_target(self, physics: PhysicsState) -> Array:
        """The vector from nose to target in the head's frame, `(2,)`, m."""
        head = self.row(physics, "xmat", "head").reshape(3, 3)
        return (self.offset(physics, "geom_xpos", "nose", "target") @ head)[:2]

    def features(self, physics: PhysicsState) -> dict[str, Array]:
        """Joint angles, the way to the target, velocities of the links."""
        start = self.model.sensor("head_vel").start
        velocities = physics.fields["sensordata"][start:].reshape(self.links, 6)
        return {
            "joints": physics.qpos[3:],
            "to_target": self.to_target(physics),
            "body_velocities": velocities[:, np.array([0, 1, 5])].ravel(),
        }

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """How near the nose is to the target."""
        size = self.size("geom_size", "target")
        distance = jnp.linalg.norm(self.to_target(physics))
        return tolerance(distance, (0.0, size), margin=5 * size, sigmoid="long_tail")


Swimmer6 = variant(Swimmer, "Swimmer6", "Swim to a target as a chain of six links", links=6)
Swimmer15 = variant(Swimmer, "Swimmer15", "Swim to a target as a chain of fifteen links", links=15)
