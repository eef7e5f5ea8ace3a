"""robot/quadruped-joystick: four legs that go where a joystick points.

A whole task of the kind that research writes: a robot of our own, commands that change within an
episode, a clock for the gait, costs that keep the motion smooth, and an end when it falls.
`docs/guides/own-robot.md` goes through it.
"""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.mirror import Symmetry
from worldline.env.parts import ActionPart, ObservationParts
from worldline.env.parts import ObservationPart as Part
from worldline.env.symmetry import left_right
from worldline.env.task import Outcome, Start
from worldline.errors import TaskError, did_you_mean
from worldline.model import ModelSource
from worldline.physics.base import PhysicsState
from worldline.settings import Number
from worldline.tasks.robot.four_legs import LEGS, ROBOTS, UNDERSIDE, FourLegs
from worldline.tasks.terrain.walking import WalkingTask
from worldline.types import Array, Key

#: Up to this commanded speed it should stand, m/s.
_SLOW = 0.1
#: From this height of its underside up, the torso is free of the ground, m.
_NEAR = 0.08


class Memory(eqx.Module):
    """What the task carries from step to step."""

    command: Array
    """Velocities to follow: forward and left, m/s, and turning left, rad/s; `(3,)`."""
    steps: Array
    """Steps until the next command, `()` int32."""
    action: Array
    """The last action, `(12,)`."""
    words: Array
    """The key for the commands to come, as words `(2,)` uint32: JAX's check for keys that are used
    twice cannot follow a key through the memories of many worlds."""
    heading: Array | None = None
    """Where it should head, `()`, rad; None without a `heading_gain`."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class QuadrupedJoystick(WalkingTask):
    """Walk on four legs at commanded velocities: forward, sideways and turning.

    Observation `(50,)`: the torso's linear and angular velocity and the vertical, in its frame;
    joint angles from the stance and their velocities; the last action; the command; sine and cosine
    of the gait's clock. Action `(12,)`: target angles of the joints, relative to the stance.
    Reward: following the commanded velocities, and a trot; minus costs of bouncing, tilting, effort
    and jerks. A fall terminates an episode.
    """

    defaults = {
        "ppo": {
            "num_worlds": 128,
            "unroll_length": 32,
            "minibatches": 8,
            "discount": 0.97,
            "actor_hidden": (128, 64),
            "critic_hidden": (128, 64),
            "initial_log_std": -1.0,
        },
        "train": {"steps": 6_000_000},
    }

    robot: str = "quadruped"
    """The robot: `quadruped`, made for Worldline, or `go1`, a Unitree Go1 (extra `robots`)."""
    control_timestep: float = 0.02
    """Seconds between two actions."""
    episode_length: Number = 1000
    """Control steps after which an episode is truncated; 0 for no limit."""
    fastest: tuple[float, float, float] = (0.8, 0.4, 0.8)
    """Largest command: forward and left, m/s, and turning left, rad/s."""
    slowest: tuple[float, float, float] | None = None
    """Smallest command; None: minus the largest, so that it walks and turns both ways alike."""
    stand_probability: float = 0.1
    """Probability of a command to stand still."""
    command_time: float = 4.0
    """Seconds between two commands."""
    heading_gain: float = 0.0
    """How fast the robot is told to turn back, for each rad that it has turned since the last new
    command, 1/s; at most as `slowest` and `fastest` say. Forward is then where it headed at that
    time, so walking in circles earns little. 0: the turning velocity is drawn, as the others are,
    and forward is where the robot heads now."""
    action_scale: float = 0.6
    """How far an action of 1 moves a joint from the stance, rad."""
    gait_frequency: float = 2.0
    """Steps a second of each leg; diagonal legs step together."""
    step_height: float = 0.06
    """How high a foot should swing, m."""
    tracking_width: float = 0.4
    """Error of velocity at which `exp(-1)` of its reward is left: m/s, rad/s."""
    linear_reward: float = 1.0
    """Reward for following the forward and sideways velocity."""
    progress: bool = False
    """Reward the share of the commanded forward and sideways speed that the robot reaches, in place
    of a small error of its velocity. Standing still then earns nothing of the linear reward under
    commands above 0.1 m/s: for ground where the robot may get stuck."""
    turning_reward: float = 0.5
    """Reward for following the turning velocity."""
    gait_reward: float = 0.4
    """Reward for feet at the heights of the gait's clock."""
    bounce_cost: float = 0.5
    """Cost of the squared vertical velocity, (m/s)^2."""
    tilt_cost: float = 2.0
    """Cost of the squared sine of the torso's tilt."""
    wobble_cost: float = 0.02
    """Cost of the squared roll and pitch rates, (rad/s)^2."""
    jerk_cost: float = 0.05
    """Cost of the squared change of the action."""
    pose_cost: float = 0.05
    """Cost of the squared distance of the joints from the stance, rad^2."""
    fallen_height: float = 0.15
    """Height of the torso's centre above the ground below which it has fallen, m. On stairs this
    height changes by a step at once; choose a smaller one there."""
    clearance: float | None = None
    """Height of the torso's underside above the ground below which it has fallen, m. On stairs it
    has then fallen, too, when its nose meets a step. None: only `fallen_height` counts."""
    clearance_cost: float = 0.0
    """Cost while the torso's underside is at the ground, so that it does not rest on the edge of a
    step. With the height of the underside, the cost falls to 0 at 8 cm."""

    fields = ("xmat", "site_xpos")  # how the torso is turned, and where the feet are
    camera = {"name": "side"}  # from the side, along with the robot

    def __post_init__(self) -> None:
        if self.robot not in ROBOTS:
            raise TaskError(
                f"there is no robot {self.robot!r}{did_you_mean(self.robot, ROBOTS)}; "
                f"give one of {', '.join(ROBOTS)}"
            )
        if any(low > high for low, high in zip(self.lowest_command, self.fastest, strict=True)):
            raise TaskError(
                f"slowest is {self.lowest_command}, in part above fastest, which is {self.fastest}"
            )
        if self.heading_gain < 0:
            raise TaskError(
                f"heading_gain is {self.heading_gain:g}, so it would turn further away; give a "
                "positive number, or 0 to draw the turning velocity"
            )
        slowest, fastest = self.lowest_command[2], self.fastest[2]
        if self.heading_gain and not slowest < 0 < fastest:
            raise TaskError(
                f"heading_gain is {self.heading_gain:g}, so the robot must be able to turn both "
                f"ways, but its turning velocity is {slowest:g} to {fastest:g} rad/s; give a "
                "negative number in slowest and a positive one in fastest, or a heading_gain of 0"
            )

    @property
    def legs(self) -> FourLegs:
        """The robot."""
        return ROBOTS[self.robot]

    def mjcf(self) -> ModelSource:
        """The robot on even ground."""
        return self.legs.source()

    @functools.cached_property
    def _stance(self) -> np.ndarray:
        """Angles of the joints of a robot that stands, `(12,)`, rad."""
        return np.tile(np.array(self.legs.stance, np.float32), len(LEGS))

    def start(self, key: Key) -> Start:
        """Standing, with noise, headed anywhere; a first command."""
        heading_key, joints_key, velocity_key, command_key, memory_key = jax.random.split(key, 5)
        heading = jax.random.uniform(heading_key, minval=-jnp.pi, maxval=jnp.pi) / 2
        turn = jnp.stack([jnp.cos(heading), jnp.zeros(()), jnp.zeros(()), jnp.sin(heading)])
        joints = self._stance + 0.1 * jax.random.normal(joints_key, (12,))
        command = self.command(command_key)
        memory = Memory(
            command=self._turned(command, jnp.zeros(())) if self.heading_gain else command,
            steps=jnp.int32(self._command_steps),
            action=jnp.zeros(12, jnp.float32),
            words=jax.random.key_data(memory_key),
            heading=2 * heading if self.heading_gain else None,
        )
        return Start(
            qpos=jnp.concatenate([jnp.array([0.0, 0.0, self.legs.height + 0.02]), turn, joints]),
            qvel=0.1 * jax.random.normal(velocity_key, (18,)),
            memory=memory,
        )

    def command(self, key: Key) -> Array:
        """Velocities to follow, `(3,)`: any within `fastest`, or now and then none."""
        stand_key, velocity_key = jax.random.split(key)
        low, high = jnp.array(self.lowest_command), jnp.array(self.fastest)
        velocities = jax.random.uniform(velocity_key, (3,), minval=low, maxval=high)
        return jnp.where(jax.random.bernoulli(stand_key, self.stand_probability), 0.0, velocities)

    def _turned(self, command: Array, away: Array) -> Array:
        """The command with the turning velocity for a heading that is `away` to the left, rad."""
        away = (away + jnp.pi) % (2 * jnp.pi) - jnp.pi
        turning = jnp.clip(self.heading_gain * away, self.lowest_command[2], self.fastest[2])
        return command.at[2].set(jnp.where(jnp.any(command != 0), turning, 0.0))

    @property
    def lowest_command(self) -> tuple[float, ...]:
        """The smallest command, `(3,)`."""
        return self.slowest or tuple(-most for most in self.fastest)

    @property
    def _command_steps(self) -> int:
        return max(1, round(self.command_time / self.control_timestep))

    @property
    def action_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """From -1 to 1 for each joint."""
        return -np.ones(12, np.float32), np.ones(12, np.float32)

    def control(self, action: Array, physics: PhysicsState, memory: Memory) -> Array:
        """Where to hold the joints, within their ranges, rad."""
        low, high = self.model.ctrlrange.T
        return jnp.clip(self._stance + self.action_scale * action, low, high)

    def torso(self, physics: PhysicsState) -> Array:
        """The torso's orientation, `(3, 3)`."""
        return physics.fields["xmat"][self.model.id("body", self.legs.torso)].reshape(3, 3)

    def velocity(self, physics: PhysicsState) -> Array:
        """Of the torso in its own frame, `(3,)`, m/s."""
        return physics.qvel[:3] @ self.torso(physics)

    def clock(self, physics: PhysicsState) -> Array:
        """The phase of the gait, `()`, rad."""
        return 2 * jnp.pi * self.gait_frequency * physics.time

    def observe(self, physics: PhysicsState, memory: Memory) -> Array:
        """What such a robot can feel, what it did last, and what it should do."""
        clock = self.clock(physics)
        return jnp.concatenate(
            [
                self.velocity(physics),
                physics.qvel[3:6],
                self.torso(physics)[2],
                physics.qpos[7:] - self._stance,
                0.1 * physics.qvel[6:],
                memory.action,
                memory.command,
                jnp.stack([jnp.sin(clock), jnp.cos(clock)]),
            ]
        )

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        joints, torso = self.legs.joints, (self.legs.torso,)
        stance = tuple(self._stance.tolist())
        return {
            "state": (
                Part(
                    "base_linear_velocity", 3, "linear_velocity", torso, unit="m/s", frame="torso"
                ),
                Part(
                    "base_angular_velocity",
                    3,
                    "angular_velocity",
                    torso,
                    unit="rad/s",
                    frame="torso",
                ),
                Part(
                    "projected_vertical", 3, "projected_gravity", torso, scale=-1.0, frame="torso"
                ),
                Part("joint_position", 12, "joint_position", joints, stance, unit="rad"),
                Part("joint_velocity", 12, "joint_velocity", joints, scale=0.1, unit="rad/s"),
                Part("last_action", 12, "action"),
                Part(
                    "command",
                    3,
                    "command",
                    unit="m/s, m/s, rad/s",
                    frame="torso",
                    low=self.lowest_command,
                    high=self.fastest,
                    mirror="velocity_command",
                ),
                # The other diagonal legs swing half a period later.
                Part("gait_clock", 2, "clock", frequency=self.gait_frequency, mirror="opposite"),
            )
        }

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        stance = tuple(self._stance.tolist())
        servos, name = self.legs.servos, "joint_position_target"
        return (ActionPart(name, 12, "position", servos, stance, self.action_scale, "rad"),)

    @property
    def symmetry(self) -> Symmetry:
        """Left and right, by the names of the joints and their axes."""
        return left_right(self)

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """Velocities and gait as commanded; smoothly; without a fall."""
        velocity, spin, up = self.velocity(after), after.qvel[3:6], self.torso(after)[2]
        moving = velocity[:2] if memory.heading is None else _seen_from(memory.heading, after)
        linear_error = jnp.linalg.norm(moving - memory.command[:2])
        turning_error = jnp.abs(spin[2] - memory.command[2])
        worth = (
            self.linear_reward * self._following(moving, memory.command[:2])
            + self.turning_reward * jnp.exp(-((turning_error / self.tracking_width) ** 2))
            + self.gait_reward * self._gait(after, memory.command)
        )
        cost = (
            self.bounce_cost * velocity[2] ** 2
            + self.tilt_cost * jnp.sum(up[:2] ** 2)
            + self.wobble_cost * jnp.sum(spin[:2] ** 2)
            + self.jerk_cost * jnp.sum((action - memory.action) ** 2)
            + self.pose_cost * jnp.sum((after.qpos[7:] - self._stance) ** 2)
        )
        if self.clearance_cost:
            missing = jnp.clip(1 - self._clearance(after) / _NEAR, 0.0, 1.0)
            cost += self.clearance_cost * missing
        return Outcome(
            reward=jnp.maximum(worth - cost, 0.0),  # so that to fall soon is never worth while
            terminated=self._fallen(after, up),
            memory=self._next(memory, action, after),
            metrics={
                "linear_error": linear_error,
                "turning_error": turning_error,
                "cost": cost,
            },
        )

    def _following(self, velocity: Array, command: Array) -> Array:
        """How well it moves forward and sideways as commanded, at most 1."""
        error = jnp.linalg.norm(velocity - command)
        near = jnp.exp(-((error / self.tracking_width) ** 2))
        if not self.progress:
            return near
        # As the tracking reward of Cheng et al. (2024), "Extreme parkour with legged robots".
        speed = jnp.sqrt(jnp.maximum(jnp.sum(command**2), _SLOW**2))
        along = velocity @ command / speed
        across = jnp.exp(-(jnp.sum(velocity**2) - along**2) / self.tracking_width**2)
        share = jnp.clip(along / speed, -1.0, 1.0) * across
        return jnp.where(speed > _SLOW, share, near)

    def _fallen(self, physics: PhysicsState, up: Array) -> Array:
        """Whether the torso is tipped over, or at the ground, `()` bool."""
        fallen = (up[2] < 0.5) | (physics.qpos[2] < self.fallen_height)
        if self.clearance is None:
            return fallen
        return fallen | (self._clearance(physics) < self.clearance)

    def _clearance(self, physics: PhysicsState) -> Array:
        """Height of the torso's underside above the ground, at its lowest point, `()`, m."""
        points = np.array([self.model.id("site", name) for name in UNDERSIDE])
        return physics.fields["site_xpos"][points, 2].min()

    def _gait(self, physics: PhysicsState, command: Array) -> Array:
        """How well the feet are at the heights of a trot, or on the ground to stand, in [0, 1]."""
        feet = np.array([self.model.id("site", foot) for foot in self.legs.feet])
        height = physics.fields["site_xpos"][feet, 2] - self.legs.foot
        offset = jnp.pi * jnp.array([0.0, 1.0, 1.0, 0.0])  # diagonal legs together
        swing = jnp.maximum(jnp.sin(self.clock(physics) + offset), 0.0)
        wanted = jnp.where(jnp.any(command != 0), self.step_height * swing, 0.0)
        return jnp.exp(-jnp.sum(((height - wanted) / self.step_height) ** 2))

    def _next(self, memory: Memory, action: Array, after: PhysicsState) -> Memory:
        """The memory after a step, with a new command when it is time."""
        key, now = jax.random.split(jax.random.wrap_key_data(memory.words))
        due = memory.steps <= 1
        command = jnp.where(due, self.command(now), memory.command)
        heading = memory.heading
        if heading is not None:
            torso = self.torso(after)
            present = jnp.arctan2(torso[1, 0], torso[0, 0])
            heading = jnp.where(due, present, heading)
            command = self._turned(command, heading - present)
        return Memory(
            command=command,
            steps=jnp.where(due, jnp.int32(self._command_steps), memory.steps - 1),
            action=action,
            words=jax.random.key_data(key),
            heading=heading,
        )


def _seen_from(heading: Array, physics: PhysicsState) -> Array:
    """The horizontal velocity along a heading and to its left, `(2,)`, m/s."""
    ahead = jnp.stack([jnp.cos(heading), jnp.sin(heading)])
    left = jnp.stack([-ahead[1], ahead[0]])
    return jnp.stack([ahead, left]) @ physics.qvel[:2]
