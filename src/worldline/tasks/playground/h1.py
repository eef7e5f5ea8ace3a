"""The Unitree H1: its scene, and what its tasks measure and remember."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.parts import ActionPart, ObservationPart
from worldline.env.task import Start
from worldline.errors import TaskError, did_you_mean
from worldline.physics.base import PhysicsState
from worldline.settings import Count, Finite, NotNegative, Number
from worldline.tasks.playground import parts
from worldline.tasks.playground.feet import Feet
from worldline.tasks.playground.gait import BIPED_GAITS, advanced
from worldline.tasks.playground.legged import LeggedTask, between, draws, noisy
from worldline.tasks.playground.servos import Servos
from worldline.types import Array, Key

#: How much each joint counts in the term `pose`: legs, torso, arms.
_LEG = (5.0, 5.0, 0.0, 0.0, 5.0)
POSE_WEIGHTS = np.array([*_LEG, *_LEG, 2.0, *[1.0] * 8], np.float32)


class Track(eqx.Module):
    """What such a task carries from step to step, as it was when the present state was observed."""

    action: Array
    """The last action, `(19,)`."""
    last_action: Array
    """The action before it, `(19,)`."""
    servos: Servos
    """Where the joints were told to be."""
    velocities: Array
    """Of the joints in the control steps before, newest first, `(n - 1, 19)`, rad/s."""
    feet: Feet
    """What the feet did."""
    gait: Array
    """The number of the gait among `BIPED_GAITS`, `()` int32."""
    frequency: Array
    """Of its steps, `()`, Hz."""
    swing_height: Array
    """How high a foot should swing, `()`, m."""
    phase: Array
    """Of each foot, `(2,)`, rad."""
    next_phase: Array
    """Of each foot in the next control step, `(2,)`, rad."""
    words: Array
    """What random numbers are drawn from, `(2,)` uint32."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class H1Task(LeggedTask):
    """A task in which a Unitree H1 moves its feet at the phases and heights of a gait."""

    episode_length: Number = 1000
    """Control steps after which an episode is truncated; 0 for no limit."""
    joint_noise: NotNegative = 0.01
    """Largest noise on joint angles, rad."""
    joint_velocity_noise: NotNegative = 1.5
    """Largest noise on the velocities of joints, rad/s."""
    gyro_noise: NotNegative = 0.2
    """Largest noise on the angular velocity, rad/s."""
    vertical_noise: NotNegative = 0.05
    """Largest noise on the direction of the vertical."""
    history_length: Count
    """The number of control steps of observed errors and velocities of the joints."""
    gaits: tuple[str, ...]
    """Gaits to draw one of in each episode: `walk`, `jump`."""
    gait_frequency: tuple[float, float]
    """Steps a second: lowest and highest, Hz."""
    swing_heights: tuple[float, float] = (0.08, 0.4)
    """How high a foot should swing: lowest and highest, m."""
    upright_limit: Finite = 0.85
    """The vertical component of the torso's own vertical below which an episode terminates."""
    early_termination: bool = True
    """Whether a tilt beyond `upright_limit` ends an episode."""

    file = "locomotion/h1/xmls/scene_mjx_feetonly.xml"
    fields = ("sensordata", "site_xpos")
    torso = "torso_link"
    feet = ("left_foot", "right_foot")
    soles: ClassVar = tuple(
        tuple(f"{side}_foot{number}" for number in range(1, 4)) for side in ("left", "right")
    )

    def __post_init__(self) -> None:
        for gait in self.gaits:
            if gait not in BIPED_GAITS:
                raise TaskError(f"no gait is called {gait!r}{did_you_mean(gait, BIPED_GAITS)}")
        if not self.gaits:
            raise TaskError("gaits is empty; name at least one")

    def standing(self) -> Start:
        """A robot that stands at home."""
        return Start(jnp.asarray(self.home), jnp.zeros(self.model.nv, jnp.float32))

    def track(self, key: Key) -> Track:
        """The memory of a robot that has not moved yet, with a gait of its own."""
        gait_key, frequency_key, height_key, memory_key = jax.random.split(key, 4)
        numbers = jnp.array([list(BIPED_GAITS).index(name) for name in self.gaits], jnp.int32)
        gait = numbers[jax.random.randint(gait_key, (), 0, len(self.gaits))]
        phase = jnp.array(list(BIPED_GAITS.values()), jnp.float32)[gait]
        joints = self.model.nu
        nothing = jnp.zeros(joints, jnp.float32)
        return Track(
            action=nothing,
            last_action=nothing,
            servos=Servos.at_start(self.history_length, joints),
            velocities=jnp.zeros((self.history_length - 1, joints), jnp.float32),
            feet=Feet.at_start(2),
            gait=gait,
            frequency=between(frequency_key, self.gait_frequency),
            swing_height=between(height_key, self.swing_heights),
            phase=phase,
            next_phase=phase,
            words=jax.random.key_data(memory_key),
        )

    def tracked(
        self,
        track: Track,
        action: Array,
        targets: Array,
        before: PhysicsState,
        after: PhysicsState,
    ) -> tuple[Track, Array]:
        """The memory after a control step, and which feet land in it, `(2,)` bool.

        Args:
            track: the memory before it.
            action: `(19,)`.
            targets: where the joints were told to be in it, `(19,)`, rad.
            before: the world before it.
            after: the world after it.
        """
        phase, height = track.next_phase, self.feet_height(after)
        walked, landed = track.feet.step(self.grounded(after), height, self.control_timestep)
        following = Track(
            action=action,
            last_action=track.action,
            servos=track.servos.next(before.qpos[7:], targets),
            velocities=self._velocities(before, track)[:-1],
            feet=walked,
            gait=track.gait,
            frequency=track.frequency,
            swing_height=track.swing_height,
            phase=phase,
            next_phase=advanced(phase, 2 * jnp.pi * self.control_timestep * track.frequency),
            words=draws(track.words).words,
        )
        return following, landed

    def felt(self, physics: PhysicsState, track: Track) -> list[Array]:
        """With noise the angular velocity, the vertical, joints and their velocities; an action."""
        gyro, up = (self.sensor(physics, name) for name in ("gyro", "upvector"))
        scales = self.gyro_noise, self.vertical_noise, self.joint_noise, self.joint_velocity_noise
        exact = [gyro, up, physics.qpos[7:] - self.pose, physics.qvel[6:]]
        return [
            *noisy(draws(track.words).noise, exact, scales, self.noise_level),
            track.last_action,
        ]

    def known(self, physics: PhysicsState, track: Track) -> list[Array]:
        """Without noise what the joints did in the last control steps, the feet, and the gait."""
        gait = track.frequency, track.gait.astype(jnp.float32), track.swing_height
        return [
            self._velocities(physics, track).ravel(),
            track.servos.errors(physics.qpos[7:]).ravel(),
            self.grounded(physics).astype(jnp.float32),
            jnp.cos(track.phase),
            jnp.sin(track.phase),
            jnp.stack(gait),
        ]

    def felt_parts(self) -> tuple[ObservationPart, ...]:
        """The numbers of `felt`."""
        level = self.noise_level
        return (
            parts.angular_velocity(level * self.gyro_noise),
            parts.upvector(level * self.vertical_noise),
            parts.joint_position(self, level * self.joint_noise),
            parts.joint_velocity(self, level * self.joint_velocity_noise),
            parts.action_before_last(self),
        )

    def known_parts(self) -> tuple[ObservationPart, ...]:
        """The numbers of `known`."""
        joints, steps = parts.servo_joints(self), self.history_length
        names = ("feet_contact", "gait_phase_cosine", "gait_phase_sine")
        velocities = ObservationPart(
            "joint_velocities", steps * len(joints), unit="rad/s", mirror="joints", each=joints
        )
        return (
            velocities,
            parts.servo_errors(self, steps),
            *parts.of_feet(self, dict.fromkeys(names, "same")),
            *parts.of_task({"gait_frequency": 1, "gait_number": 1, "swing_height": 1}),
        )

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        return parts.servo_targets(self)

    def _velocities(self, physics: PhysicsState, track: Track) -> Array:
        """Of the joints, newest first, `(n, 19)`, rad/s."""
        return jnp.concatenate([physics.qvel[6:][None], track.velocities])

    def over(self, physics: PhysicsState) -> Array:
        """Whether a joint is beyond its range, or the torso tilts, `()` bool."""
        tilted = self.sensor(physics, "upvector")[2] < self.upright_limit
        return self.beyond_range(physics) | (tilted & self.early_termination)

    def pose_error(self, physics: PhysicsState) -> Array:
        """The squared way of joints from home, but for those of a stride, `()`, rad^2."""
        return jnp.sum(POSE_WEIGHTS * jnp.square(physics.qpos[7:] - self.pose))
