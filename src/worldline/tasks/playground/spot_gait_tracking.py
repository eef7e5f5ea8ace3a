"""playground/spot-gait-tracking: a Spot with a given gait."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.parts import ActionPart, ObservationParts
from worldline.env.task import Outcome, Start
from worldline.errors import TaskError, did_you_mean
from worldline.physics.base import PhysicsState
from worldline.settings import Count, Finite, NotNegative, Number, Positive, Share
from worldline.tasks.playground import commands, costs, parts
from worldline.tasks.playground.commands import Command
from worldline.tasks.playground.feet import Feet
from worldline.tasks.playground.gait import GAITS, advanced, foot_height
from worldline.tasks.playground.legged import between, draws
from worldline.tasks.playground.servos import Servos
from worldline.tasks.playground.spot import SCENES, SpotTask
from worldline.types import Array, Key


class Memory(eqx.Module):
    """What the task carries from step to step, as it was when the present state was observed."""

    command: Command
    """What to follow."""
    servos: Servos
    """Where the joints were told to be."""
    feet: Feet
    """What the feet did."""
    gait: Array
    """The number of the gait among `GAITS`, `()` int32."""
    frequency: Array
    """Of its steps, `()`, Hz."""
    swing_height: Array
    """How high a foot should swing, `()`, m."""
    phase: Array
    """Of each foot, `(4,)`, rad."""
    next_phase: Array
    """Of each foot in the next control step, `(4,)`, rad."""
    words: Array
    """What random numbers are drawn from, `(2,)` uint32."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SpotGaitTracking(SpotTask):
    """Move the feet of Boston Dynamics' Spot at the phases and heights of a gait.

    Observation `(69,)`: with noise the angular velocity, the vertical and joint angles, and the
    position errors of the joints in the last control steps; which feet touch the ground; cosine and
    sine of the phase of each foot; frequency, number and height of the gait. It does not contain
    the command, although the reward depends on it. Action `(12,)`: target angles of the joints,
    relative to home. Reward: the sum of the positive terms, times `exp(0.2 x)` of that of the
    negative ones, times the control time step. An episode terminates when the torso tilts.

    The task `SpotJoystickGaitTracking` of MuJoCo Playground 0.2.0.
    """

    episode_length: Number = 1000
    """Control steps after which an episode is truncated; 0 for no limit."""
    stiffness: NotNegative = 400.0
    """Stiffness of each joint's servo, N m / rad."""
    damping: NotNegative = 10.0
    """Damping of each joint, N m s / rad."""
    action_scale: Positive = 0.6
    """How far an action of 1 moves the target of a joint from home, rad."""
    history_length: Count = 3
    """The number of control steps of observed errors of the joints."""
    lowest_command: tuple[float, float, float] = (-1.0, -0.5, -1.0)
    """Lowest command: forward and left, m/s, and turning left, rad/s."""
    highest_command: tuple[float, float, float] = (1.0, 0.5, 1.0)
    """Highest command: forward and left, m/s, and turning left, rad/s."""
    stand_probability: Share = 0.1
    """Probability of a command to stand still."""
    command_steps: Count = 201
    """Control steps that a command lasts."""
    gaits: tuple[str, ...] = ("trot", "walk", "pace", "bound", "pronk")
    """Gaits to draw one of in each episode."""
    gait_frequency: tuple[float, float] = (0.5, 4.0)
    """Steps a second: lowest and highest, Hz."""
    swing_heights: tuple[float, float] = (0.08, 0.4)
    """How high a foot should swing: lowest and highest, m."""
    tracking_sigma: Positive = 0.25
    """Squared error of velocity at which `exp(-1)` of its reward is left, (m/s)^2, (rad/s)^2."""
    phase_sigma: Positive = 0.1
    """Squared error of the feet's heights at which `exp(-1)` of its reward is left, m^2."""
    feet_phase_weight: Finite = 2.0
    """Weight of the reward for feet at the heights of the gait."""
    tracking_lin_vel_weight: Finite = 0.5
    """Weight of the reward for following forward and sideways."""
    tracking_ang_vel_weight: Finite = 0.5
    """Weight of the reward for following turns."""
    ang_vel_xy_weight: Finite = -0.5
    """Weight of the squared angular velocity about the horizontal, (rad/s)^2."""
    lin_vel_z_weight: Finite = -0.5
    """Weight of the squared vertical velocity, (m/s)^2, in the gaits bound and pronk."""
    hip_splay_weight: Finite = -0.5
    """Weight of the squared distance of the hips from home, rad^2."""

    file = f"{SCENES}/scene_mjx_feetonly_flat_terrain.xml"
    longest_step = 1.7  # its strong damping, explicit in time, is unstable with longer ones
    fields = ("sensordata", "site_xpos")

    def __post_init__(self) -> None:
        for gait in self.gaits:
            if gait not in GAITS:
                raise TaskError(f"no gait is called {gait!r}{did_you_mean(gait, GAITS)}")
        if not self.gaits:
            raise TaskError("gaits is empty; name at least one")

    def start(self, key: Key) -> Start:
        """Standing at home, with a first command and a gait."""
        command_key, gait_key, frequency_key, height_key, memory_key = jax.random.split(key, 5)
        numbers = jnp.array([list(GAITS).index(name) for name in self.gaits], jnp.int32)
        gait = numbers[jax.random.randint(gait_key, (), 0, len(self.gaits))]
        phase = jnp.array(list(GAITS.values()), jnp.float32)[gait]
        memory = Memory(
            command=Command(self._velocity(command_key), jnp.int32(self.command_steps)),
            servos=Servos.at_start(self.history_length, self.model.nu),
            feet=Feet.at_start(4),
            gait=gait,
            frequency=between(frequency_key, self.gait_frequency),
            swing_height=between(height_key, self.swing_heights),
            phase=phase,
            next_phase=phase,
            words=jax.random.key_data(memory_key),
        )
        qpos, qvel = jnp.asarray(self.home), jnp.zeros(self.model.nv, jnp.float32)
        return Start(qpos=qpos, qvel=qvel, memory=memory)

    def _velocity(self, key: Key) -> Array:
        low, high = self.lowest_command, self.highest_command
        return commands.within(key, low, high, self.stand_probability)

    def control(self, action: Array, physics: PhysicsState, memory: Memory) -> Array:
        """Where to hold the joints, within their ranges, rad."""
        return self.within_range(self.pose + self.action_scale * action)

    def observe(self, physics: PhysicsState, memory: Memory) -> Array:
        """What such a robot can feel, and the gait."""
        gyro, up, joints = self.felt(physics, memory.words)
        parts = [gyro, up, joints, memory.servos.errors(joints).ravel()]
        parts += [self.touching(physics, self.feet).astype(jnp.float32)]
        parts += [jnp.cos(memory.phase), jnp.sin(memory.phase)]
        gait = memory.frequency, memory.gait.astype(jnp.float32), memory.swing_height
        return jnp.concatenate([*parts, jnp.stack(gait)])

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        names = ("feet_contact", "gait_phase_cosine", "gait_phase_sine")
        gait = {"gait_frequency": 1, "gait_number": 1, "swing_height": 1}
        return {
            "state": (
                parts.angular_velocity(self.gyro_noise),
                parts.upvector(self.vertical_noise),
                parts.joint_position(self, self.joint_noise, from_home=False),
                parts.servo_errors(self, self.history_length),
                *parts.of_feet(self, dict.fromkeys(names, "same")),
                *parts.of_task(gait),
            )
        }

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        return parts.servo_targets(self)

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """Feet at the heights of the gait; velocities as commanded."""
        keys, phase = draws(memory.words), memory.next_phase
        fresh = self._velocity(keys.command)
        command = memory.command.next(fresh, jnp.int32(self.command_steps))
        touching, height = self.touching(after, self.feet), self.feet_height(after)
        feet, _ = memory.feet.step(touching, height, self.control_timestep)
        _, _, joints = self.felt(before, memory.words)
        following = Memory(
            command=command,
            servos=memory.servos.next(joints, self.control(action, before, memory)),
            feet=feet,
            gait=memory.gait,
            frequency=memory.frequency,
            swing_height=memory.swing_height,
            phase=phase,
            next_phase=advanced(phase, 2 * jnp.pi * self.control_timestep * memory.frequency),
            words=keys.words,
        )
        good = self._good(after, command.velocity, height - foot_height(phase, memory.swing_height))
        bad = self._bad(after, memory.gait)
        peak = feet.mean_peak()
        return self.scored_together(good, bad, self.tilted(after), following, swing_peak=peak)

    def _good(self, physics: PhysicsState, command: Array, errors: Array) -> dict[str, Array]:
        """The positive terms, without their weights; `errors` are of the feet's heights, m."""
        linear, gyro = (self.sensor(physics, name) for name in ("local_linvel", "gyro"))
        return {
            "tracking_lin_vel": costs.linear_tracking(command, linear, self.tracking_sigma),
            "tracking_ang_vel": costs.angular_tracking(command, gyro, self.tracking_sigma),
            "feet_phase": jnp.exp(-costs.squared(errors) / self.phase_sigma),
        }

    def _bad(self, physics: PhysicsState, gait: Array) -> dict[str, Array]:
        """The negative terms, without their weights."""
        bouncing = gait >= list(GAITS).index("bound")
        vertical = costs.squared(self.sensor(physics, "global_linvel")[2])
        hips = np.arange(0, 12, 3)
        return {
            "ang_vel_xy": costs.squared(self.sensor(physics, "global_angvel")[:2]),
            "lin_vel_z": jnp.where(bouncing, vertical, 0.0),
            "hip_splay": costs.squared((physics.qpos[7:] - self.pose)[hips]),
        }
