"""Boston Dynamics' Spot: its scenes, and what its tasks measure."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from worldline.physics.base import PhysicsState
from worldline.settings import Finite, NotNegative
from worldline.tasks.playground.legged import ServoTask, draws, noisy
from worldline.types import Array

SCENES = "locomotion/spot/xmls"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SpotTask(ServoTask):
    """A task of Boston Dynamics' Spot, a robot dog of 12 joints."""

    joint_noise: NotNegative = 0.05
    """Largest noise on joint angles, rad."""
    gyro_noise: NotNegative = 0.1
    """Largest noise on the angular velocity, rad/s."""
    vertical_noise: NotNegative = 0.03
    """Largest noise on the direction of the vertical."""
    upright_limit: Finite = 0.85
    """The vertical component of the torso's own vertical below which an episode terminates."""
    early_termination: bool = True
    """Whether a tilt beyond `upright_limit` ends an episode."""

    torso = "body"
    feet = ("FL", "FR", "HL", "HR")

    def tilted(self, physics: PhysicsState) -> Array:
        """Whether the torso is tilted so far that the episode ends, `()` bool."""
        return (self.up(physics)[2] < self.upright_limit) & self.early_termination

    def up(self, physics: PhysicsState) -> Array:
        """The direction of the vertical of the IMU, along the world's axes, `(3,)`."""
        return self.sensor(physics, "upvector")

    def felt_feet(self, places: Array, scale: tuple[float, float, float], words: Array) -> Array:
        """Places of feet, `(4, 3)`, m, with noise along each axis of this largest size."""
        key = jax.random.split(draws(words).noise)[1]
        return noisy(key, [places], [np.array(scale)], self.noise_level)[0]

    def felt(self, physics: PhysicsState, words: Array) -> list[Array]:
        """With noise the angular velocity, `(3,)`, the vertical, `(3,)`, and the joints, `(12,)`.

        Args:
            physics: the world.
            words: that the noise is drawn from, as in `draws`.
        """
        return noisy(
            jax.random.split(draws(words).noise)[0],
            [self.sensor(physics, "gyro"), self.up(physics), physics.qpos[7:]],
            [self.gyro_noise, self.vertical_noise, self.joint_noise],
            self.noise_level,
        )
