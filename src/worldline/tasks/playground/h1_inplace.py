"""playground/h1-inplace-gait-tracking: a Unitree H1 that walks or jumps on the spot."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from worldline.env.parts import ObservationParts
from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.settings import Count, Finite, Positive
from worldline.tasks.playground import costs
from worldline.tasks.playground.gait import foot_height
from worldline.tasks.playground.h1 import H1Task, Track
from worldline.types import Array, Key


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class H1InplaceGaitTracking(H1Task):
    """Move the feet of a Unitree H1 at the phases and heights of a gait, on the spot.

    Observation `(186,)`: with noise the angular velocity, the vertical, joint angles from home and
    their velocities; the action before the last; without noise the velocities of joints, and their
    position errors, in the last control steps; which feet touch the ground; cosine and sine of the
    phase of each foot; frequency, number and height of the gait. Action `(19,)`: target angles of
    the joints, relative to home. Reward: the term `feet_phase`, times `exp(0.2 x)` of the sum of
    the others, times the control time step. An episode terminates when the torso tilts or a joint
    is beyond the range of its servo.

    The task `H1InplaceGaitTracking` of MuJoCo Playground 0.2.0.
    """

    action_scale: Positive = 0.6
    """How far an action of 1 moves the target of a joint from home, rad."""
    history_length: Count = 3
    """The number of control steps of observed errors and velocities of the joints."""
    gaits: tuple[str, ...] = ("walk", "jump")
    """Gaits to draw one of in each episode: `walk`, `jump`."""
    gait_frequency: tuple[float, float] = (0.5, 4.0)
    """Steps a second: lowest and highest, Hz."""
    phase_sigma: Positive = 0.1
    """Squared error of the feet's heights at which `exp(-1)` of its reward is left, m^2."""
    feet_phase_weight: Finite = 2.0
    """Weight of the reward for feet at the heights of the gait."""
    pose_weight: Finite = -0.5
    """Weight of the squared distance of joints from home, rad^2, except the joints of a stride."""
    ang_vel_weight: Finite = -0.5
    """Weight of the squared angular velocity, (rad/s)^2."""
    lin_vel_weight: Finite = -0.5
    """Weight of the squared horizontal velocity, (m/s)^2."""

    def start(self, key: Key) -> Start:
        """Standing at home, with a gait."""
        return dataclasses.replace(self.standing(), memory=self.track(key))

    def control(self, action: Array, physics: PhysicsState, memory: Track) -> Array:
        """Where to hold the joints, within their ranges, rad."""
        return self.within_range(self.pose + self.action_scale * action)

    def observe(self, physics: PhysicsState, memory: Track) -> Array:
        """What such a robot can feel, and the gait."""
        return jnp.concatenate([*self.felt(physics, memory), *self.known(physics, memory)])

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        return {"state": (*self.felt_parts(), *self.known_parts())}

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Track
    ) -> Outcome:
        """Feet at the heights of the gait, on the spot."""
        targets = self.control(action, before, memory)
        track, _ = self.tracked(memory, action, targets, before, after)
        wanted = foot_height(track.phase, track.swing_height)
        good = {
            "feet_phase": costs.closeness(self.feet_height(after), wanted, 1 / self.phase_sigma)
        }
        bad = {
            "ang_vel": costs.squared(self.sensor(after, "global_angvel")),
            "lin_vel": costs.squared(self.sensor(after, "global_linvel")[:2]),
            "pose": self.pose_error(after),
        }
        return self.scored_together(good, bad, self.over(after), track)
