"""What Playground's arms and hands share: a scene, where things are, servos, weighted rewards."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.env.task import Task
from worldline.physics.base import PhysicsState
from worldline.settings import Positive
from worldline.tasks.playground.assets import scene
from worldline.tasks.playground.costs import length
from worldline.types import Array, ArrayLike

NDArray = np.ndarray[Any, np.dtype[Any]]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ManipulationTask(Task):
    """A task of arms or hands that move an object.

    Its fields named `<term>_weight` are the weights of the terms of its reward; a term's weighted
    value is the metric `reward/<term>`.

    As in MuJoCo Playground, the positions, velocities and forces in the observation are those that
    the last physics step computed, one physics step behind the state.
    """

    control_timestep: Positive
    """Seconds between two actions; a multiple of `physics_timestep`."""
    physics_timestep: Positive
    """The model's time step, s."""
    action_scale: Positive
    """Effect of an action of 1, in the unit of the servos."""

    refresh = False

    file: ClassVar[str]
    """The scene, below `manipulation` among Playground's files."""
    keyframe: ClassVar[str] = "home"
    """The keyframe near which episodes start."""
    collision_iterations: ClassVar[int] = 0
    """Most steps of the search for collisions; 0: as many as the scene says."""

    @property
    def path(self) -> Path:
        """The MJCF file."""
        return scene(f"manipulation/{self.file}")

    def mjcf(self) -> mujoco.MjSpec:
        """The scene with this task's time step."""
        spec = mujoco.MjSpec.from_file(str(self.path))
        spec.option.timestep = self.physics_timestep
        if self.collision_iterations:
            spec.option.ccd_iterations = self.collision_iterations
        return spec

    @functools.cached_property
    def home(self) -> NDArray:
        """`qpos` of the keyframe, `(nq,)`."""
        return np.asarray(self.model.mj.key(self.keyframe).qpos, np.float32)

    @functools.cached_property
    def home_targets(self) -> NDArray:
        """The controls there, `(nu,)`."""
        return np.asarray(self.model.mj.key(self.keyframe).ctrl, np.float32)

    @property
    def action_bounds(self) -> tuple[NDArray, NDArray]:
        """From -1 to 1 for each motor."""
        return -np.ones(self.model.nu, np.float32), np.ones(self.model.nu, np.float32)

    def within_range(self, controls: ArrayLike) -> Array:
        """The nearest controls that the motors can be given, `(nu,)`."""
        low, high = self.model.ctrlrange.T
        return jnp.clip(controls, low, high)

    def sensor(self, physics: PhysicsState, name: str) -> Array:
        """The reading of a sensor."""
        return physics.fields["sensordata"][self.model.sensor(name)]

    def found(self, physics: PhysicsState, *sensors: str) -> Array:
        """Whether any of these sensors of contacts finds one, `()` bool."""
        return (jnp.concatenate([self.sensor(physics, name) for name in sensors]) > 0).any()

    def site(self, physics: PhysicsState, name: str) -> Array:
        """Where a site is, `(3,)`, m."""
        return physics.fields["site_xpos"][self.model.id("site", name)]

    def site_axes(self, physics: PhysicsState, name: str) -> Array:
        """The axes of a site as columns, `(3, 3)`."""
        return physics.fields["site_xmat"][self.model.id("site", name)].reshape(3, 3)

    def body(self, physics: PhysicsState, name: str) -> Array:
        """Where a body is, `(3,)`, m."""
        return physics.fields["xpos"][self.model.id("body", name)]

    def body_axes(self, physics: PhysicsState, name: str) -> Array:
        """The axes of a body as columns, `(3, 3)`."""
        return physics.fields["xmat"][self.model.id("body", name)].reshape(3, 3)

    def coordinates(self, body: str) -> int:
        """Where in `qpos` the first coordinate of a body's joint is."""
        joint = int(self.model.mj.body_jntadr[self.model.id("body", body)])
        return int(self.model.mj.jnt_qposadr[joint])

    def weighted(self, terms: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """The terms of a reward times their weights, as metrics: `reward/<term>`, `()` each."""
        return {
            f"reward/{name}": getattr(self, f"{name}_weight") * jnp.asarray(value, jnp.float32)
            for name, value in terms.items()
        }

    def total_weight(self, terms: Mapping[str, ArrayLike]) -> float:
        """The sum of the weights of terms."""
        return sum(getattr(self, f"{name}_weight") for name in terms)


def total(weighted: Mapping[str, Array]) -> Array:
    """The sum of terms, `()`."""
    return jnp.sum(jnp.stack(list(weighted.values())))


def distance(one: ArrayLike, other: ArrayLike) -> Array:
    """Between two points, or two arrays of the same shape, `()`."""
    return length(jnp.ravel(one - other))


def nearness(gap: Array, sharpness: float) -> Array:
    """1 at a gap of 0, and at `1 / sharpness` about a quarter; in (0, 1]."""
    return 1 - jnp.tanh(sharpness * gap)


def away(place: Array, limit: float) -> Array:
    """Whether an object is below the ground or far from the origin, `()` bool.

    Args:
        place: of the object, `(3,)`, m.
        limit: largest coordinate, m.
    """
    return (jnp.abs(place) > limit).any() | (place[2] < 0.0)
