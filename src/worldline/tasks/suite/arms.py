"""suite/reacher and suite/point_mass: to a target, in a plane."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.task import Start
from worldline.physics.base import PhysicsState
from worldline.tasks.rewards import tolerance
from worldline.tasks.suite.base import XML, SuiteTask, moved, named, small_control, variant
from worldline.types import Array, Key


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Reacher(SuiteTask):
    """Bring the tip of an arm of two links to a target.

    Observation `(6,)`: joint angles, the way from tip to target, velocities. Action `(2,)`:
    torques. Reward: 1 where the tip touches the target.
    """

    file = "reacher.xml"
    control_timestep: float = 0.02
    target_size: float
    """Radius of the target, m."""

    fields = ("geom_xpos",)  # positions of tip and target

    def edit(self, root: XML) -> None:
        """Gives the target its size."""
        named(root, "geom", "target").set("size", str(self.target_size))

    def start(self, key: Key) -> Start:
        """Any pose, at rest; a target from 5 to 20 cm from the arm's root."""
        pose, turn, reach = jax.random.split(key, 3)
        angle = jax.random.uniform(turn, maxval=2 * jnp.pi)
        radius = jax.random.uniform(reach, minval=0.05, maxval=0.20)
        target = jnp.stack([radius * jnp.sin(angle), radius * jnp.cos(angle)])
        geom_pos = moved(self.model, "geom_pos", "target", (0, 1), target)
        return self.at_rest(self.pose(pose), variation={"geom_pos": geom_pos})

    def to_target(self, physics: PhysicsState) -> Array:
        """The vector from tip to target, `(2,)`, m."""
        return self.offset(physics, "geom_xpos", "finger", "target")[:2]

    def features(self, physics: PhysicsState) -> dict[str, Array]:
        """Angles, the way to the target, velocities."""
        return {
            "position": physics.qpos,
            "to_target": self.to_target(physics),
            "velocity": physics.qvel,
        }

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """Whether the tip touches the target."""
        distance = jnp.linalg.norm(self.to_target(physics))
        return tolerance(distance, (0.0, self.target_size + self.size("geom_size", "finger")))


ReacherEasy = variant(Reacher, "ReacherEasy", "Reach a large target", target_size=0.05)
ReacherHard = variant(Reacher, "ReacherHard", "Reach a small target", target_size=0.015)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PointMassEasy(SuiteTask):
    """Push a point to the middle of a square.

    Observation `(4,)`: position, velocity. Action `(2,)`: forces. Reward: how near the point is to
    the target, with a little for small controls.
    """

    file = "point_mass.xml"
    control_timestep: float = 0.02

    fields = ("geom_xpos",)  # positions of point and target

    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """How near the point is to the target, times how small the controls are."""
        size = self.size("geom_size", "target")
        distance = jnp.linalg.norm(self.offset(physics, "geom_xpos", "pointmass", "target"))
        near = tolerance(distance, (0.0, size), margin=size)
        return near * (small_control(action) + 4) / 5


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PointMassHard(PointMassEasy):
    """As `suite/point_mass-easy`, but each episode draws in which two directions the motors push:
    the policy is to find that out.
    """

    def start(self, key: Key) -> Start:
        """Anywhere, at rest; two directions whose cosine is at most 0.9."""
        pose, turn, between, side = jax.random.split(key, 4)
        first = jax.random.uniform(turn, minval=-jnp.pi, maxval=jnp.pi)
        least = float(np.arccos(0.9))
        angle = jax.random.uniform(between, minval=least, maxval=float(np.pi) - least)
        second = first + angle * jax.random.rademacher(side, dtype=jnp.float32)
        directions = [jnp.cos(first), jnp.sin(first), jnp.cos(second), jnp.sin(second)]
        # How much each joint contributes to each of the two tendons.
        return self.at_rest(self.pose(pose), variation={"wrap_prm": jnp.stack(directions)})
