"""suite/ball_in_cup and suite/finger: catch a ball, turn a spinner."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.task import Start
from worldline.physics.base import PhysicsState
from worldline.tasks.suite.base import (
    XML,
    SuiteTask,
    first_accepted,
    moved,
    named,
    touch_signal,
    variant,
)
from worldline.tasks.suite.contacts import Contacts
from worldline.types import Array, Key


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BallInCupCatch(SuiteTask):
    """Swing a ball on a string into a cup.

    Observation `(8,)`: places and velocities of cup and ball. Action `(2,)`: forces on the cup.
    Reward: 1 where the ball is in the cup.
    """

    file = "ball_in_cup.xml"
    control_timestep: float = 0.02

    fields = ("site_xpos", "xpos")  # positions of the cup's inside and of the ball

    def pose(self, key: Key) -> Array:
        """The ball somewhere about the cup, without contact, `(4,)`."""
        low, high = jnp.array([-0.2, 0.2]), jnp.array([0.2, 0.5])

        def draw(key: Key) -> Array:
            ball = jax.random.uniform(key, (2,), minval=low, maxval=high)
            return jnp.concatenate([jnp.zeros(2), ball])

        return first_accepted(key, draw, self._contacts.free)

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """Whether the ball is in the cup."""
        target, plane = self.model.id("site", "target"), np.array([0, 2])
        ball = self.row(physics, "xpos", "ball")[plane]
        distance = jnp.abs(self.row(physics, "site_xpos", "target")[plane] - ball)
        radius = self.model.constant("geom_size")[self.model.id("geom", "ball"), 0]
        room = self.model.constant("site_size")[target, plane] - radius
        return jnp.all(distance < jnp.asarray(room, jnp.float32)).astype(jnp.float32)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Finger(SuiteTask):
    """A finger of two links beside a body on a hinge, in a plane. Action `(2,)`: torques."""

    file = "finger.xml"
    control_timestep: float = 0.02

    fields = ("sensordata",)

    @functools.cached_property
    def _contacts(self) -> Contacts:
        # The two cylinders of the joints lie within what moves about them.
        return Contacts(self.model, without=("proximal_decoration", "spinner_decoration"))

    def pose(self, key: Key) -> Array:
        """Any pose in which the finger does not touch the body, `(3,)`."""
        return first_accepted(key, super().pose, self._contacts.free)

    def from_hinge(self, physics: PhysicsState, sensor: str) -> Array:
        """A place that a sensor measures, from the body's hinge: x and z, `(2,)`, m."""
        return (self.sensors(physics, sensor) - self.sensors(physics, "spinner"))[np.array([0, 2])]

    def features(self, physics: PhysicsState) -> dict[str, Array]:
        """Joint angles and the body's tip; velocities; touch."""
        angles = self.sensors(physics, "proximal", "distal")
        velocities = ("proximal_velocity", "distal_velocity", "hinge_velocity")
        return {
            "position": jnp.concatenate([angles, self.from_hinge(physics, "tip")]),
            "velocity": self.sensors(physics, *velocities),
            "touch": touch_signal(self.sensors(physics, "touchtop", "touchbottom")),
        }


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FingerSpin(Finger):
    """Spin a body with a finger.

    Observation `(9,)`: the finger's angles and the place of the body's tip, velocities, the
    logarithm of one plus the force at the fingertip's two sides. Action `(2,)`: torques. Reward: 1
    where the body turns at 15 rad/s or faster.
    """

    def edit(self, root: XML) -> None:
        """Frees the hinge of most of its damping, and hides what plays no part."""
        named(root, "joint", "hinge").set("damping", "0.03")
        for site in ("target", "tip"):
            named(root, "site", site).set("rgba", "0 0 0 0")

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """Whether it spins."""
        return (self.sensors(physics, "hinge_velocity")[0] <= -15.0).astype(jnp.float32)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FingerTurn(Finger):
    """Turn a body with a finger until its tip is in a target.

    Observation `(12,)`: as `suite/finger-spin`, then the target's place and the distance of the
    body's tip to its surface. Action `(2,)`: torques. Reward: 1 where the tip is in the target.
    """

    target_size: float
    """Radius of the target, m."""

    def edit(self, root: XML) -> None:
        """Gives the target its size."""
        named(root, "site", "target").set("size", str(self.target_size))

    def start(self, key: Key) -> Start:
        """Any pose without contact, at rest; a target on the circle of the body's tip."""
        pose, turn = jax.random.split(key)
        angle = jax.random.uniform(turn, minval=-jnp.pi, maxval=jnp.pi)
        center = self.model.constant("body_pos")[self.model.id("body", "spinner")]
        radius = float(self.model.constant("geom_size")[self.model.id("geom", "cap1")].sum())
        x = float(center[0]) + radius * jnp.sin(angle)
        z = float(center[2]) + radius * jnp.cos(angle)
        site_pos = moved(self.model, "site_pos", "target", (0, 2), jnp.stack([x, z]))
        return self.at_rest(self.pose(pose), variation={"site_pos": site_pos})

    def distance(self, physics: PhysicsState) -> Array:
        """From the body's tip to the target's surface, negative inside, `()`, m."""
        miss = self.from_hinge(physics, "target") - self.from_hinge(physics, "tip")
        return jnp.linalg.norm(miss) - self.target_size

    def features(self, physics: PhysicsState) -> dict[str, Array]:
        """Finger, body and target."""
        return {
            **super().features(physics),
            "target_position": self.from_hinge(physics, "target"),
            "dist_to_target": self.distance(physics),
        }

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """Whether the tip is in the target."""
        return (self.distance(physics) <= 0).astype(jnp.float32)


FingerTurnEasy = variant(
    FingerTurn, "FingerTurnEasy", "Turn a body to a large target", target_size=0.07
)
FingerTurnHard = variant(
    FingerTurn, "FingerTurnHard", "Turn a body to a small target", target_size=0.03
)
