"""robot/track-motion: a robot that follows a reference motion.

A controller in the style of Liao et al. (2025), "BeyondMimic: from motion tracking to versatile
humanoid control via guided diffusion": its observation, rewards, ends of episodes, starts and
adaptive sampling, with the constants published with it and in mjlab's tracking task. It leaves out
the cost of contacts beside feet and hands; `--push` and `--domain` stand in for its pushes and
randomisation.
"""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.parts import ActionPart, ObservationParts
from worldline.env.task import Outcome, Start, Task
from worldline.errors import ConfigError
from worldline.model import ModelSource
from worldline.physics.base import PhysicsState
from worldline.settings import Count, Finite, NotNegative, Number, Positive, PositiveShare, Share
from worldline.tasks.playground.costs import squared
from worldline.tasks.playground.legged import noisy, soft_limits
from worldline.tasks.playground.rotations import matrix
from worldline.tasks.tracking import parts, sampling, starts, terms
from worldline.tasks.tracking.layouts import read_motion
from worldline.tasks.tracking.motion import NDArray
from worldline.tasks.tracking.reference import (
    Bodies,
    Reference,
    Tracked,
    find_tracked,
    joint_names,
    reference_of,
)
from worldline.tasks.tracking.robots import Robot, Servos, robot_of, servos_of, with_defaults
from worldline.types import Array, Key
from worldline.variation.domain import Ranges

#: Height of a standing G1's pelvis, m, to whose size the published lengths belong.
_PUBLISHED_HEIGHT = 0.785

#: Largest actions: targets are that many action scales from the pose.
_LARGEST_ACTION = 4.0

#: The errors that the reward counts.
_KERNELS = (
    "anchor_position",
    "anchor_orientation",
    "body_position",
    "body_orientation",
    "body_linear_velocity",
    "body_angular_velocity",
)

#: Largest noise of the observation: the anchor's place and axes, both velocities of the base, and
#: the joints; m, -, m/s, rad/s, rad, rad/s.
_NOISE = (0.25, 0.05, 0.5, 0.2, 0.01, 0.5)

#: The range of starts that all worlds share: failures in each bin of the motion.
FAILURES = "motion_failures"


class Memory(eqx.Module):
    """What the task carries from step to step."""

    frame: Array
    """The frame of the reference where the robot should be after the next step, `()` int32."""
    action: Array
    """The last action, `(nu,)`."""
    words: Array
    """The key for the noise to come, as words `(2,)` uint32."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TrackMotion(Task):
    """Follow a reference motion with a robot; after its end, hold its last pose.

    Observation: a dict. `state`, with noise: joint angles and velocities of the reference after the
    next step; position and orientation of its anchor then, in the frame of the robot's anchor;
    linear and angular velocity of the base in its frame; joint angles from the pose
    and their velocities; the last action. `privileged_state`: the same without noise, and the other
    tracked bodies in the frame of the anchor. Action: target angles of the joints, relative to the
    pose.
    Reward: anchor and bodies close to the reference in position, orientation and velocity; minus
    costs of jerks and of joints near their limits. An episode terminates when the
    anchor's height or tilt, or the height of an end effector, is far from the reference.
    """

    defaults = {
        "ppo": {
            "num_worlds": 256,
            "unroll_length": 24,
            "minibatches": 8,
            "discount": 0.99,
            "actor_hidden": (256, 128),
            "critic_hidden": (256, 128),
            "initial_log_std": -1.4,
            "entropy_weight": 0.003,
        },
        "train": {"steps": 5_000_000},
    }

    robot: str = "quadruped"
    """The robot: g1 (extra `robots`), quadruped, or an MJCF file with a free joint, hinges,
    position servos and a floor."""
    motion: str = ""
    """The reference motion, a CSV or NPZ file; empty: the motion that comes with the robot."""
    motion_fps: Positive = 30.0
    """Frames per second of the motion, if its file does not contain them."""
    control_timestep: Positive = 0.02
    """Seconds between two actions; a multiple of `physics_timestep`."""
    physics_timestep: Positive = 0.005
    """The model's time step, s."""
    episode_length: Number = 500
    """Control steps after which an episode is truncated; 0 for no limit."""
    anchor: str = ""
    """The body that defines the robot's position; empty: the default of the robot."""
    bodies: tuple[str, ...] = ()
    """The bodies that are compared with the reference; empty: the default of the robot."""
    ends: tuple[str, ...] = ()
    """The end effectors (bodies or sites) whose heights can end an episode; empty: the default of
    the robot."""
    length_scale: NotNegative = 0.0
    """Factor for all published lengths, which are for a G1. 0: the height of the robot's root in
    the stance divided by the G1's."""
    action_torque_share: PositiveShare = 0.25
    """An action of 1 moves a joint's target by this share of (largest torque / stiffness) of its
    servo."""
    action_scale: Positive = 0.25
    """Change of the target for an action of 1, for servos without a largest torque, rad."""
    noise_level: NotNegative = 1.0
    """Factor for all noise of the observation; 0: no noise."""
    start_level: NotNegative = 1.0
    """Factor for all random changes of a start; 0: the start equals the reference."""
    anchor_position_width: Positive = 0.3
    """Error of the anchor's position at which `exp(-1)` of its reward is left, m on a G1."""
    anchor_orientation_width: Positive = 0.4
    """Error of the anchor's orientation at which `exp(-1)` of its reward is left, rad."""
    body_position_width: Positive = 0.3
    """Error of the bodies' positions at which `exp(-1)` of the reward is left, m on a G1."""
    body_orientation_width: Positive = 0.4
    """Error of the bodies' orientations at which `exp(-1)` of the reward is left, rad."""
    body_linear_velocity_width: Positive = 1.0
    """Error of the bodies' velocities at which `exp(-1)` of the reward is left, m/s."""
    body_angular_velocity_width: Positive = 3.14
    """Error of the bodies' angular velocities at which `exp(-1)` of the reward is left, rad/s."""
    anchor_position_weight: Finite = 0.5
    """Weight of the reward for the anchor's position."""
    anchor_orientation_weight: Finite = 0.5
    """Weight of the reward for the anchor's orientation."""
    body_position_weight: Finite = 1.0
    """Weight of the reward for the bodies' positions."""
    body_orientation_weight: Finite = 1.0
    """Weight of the reward for the bodies' orientations."""
    body_linear_velocity_weight: Finite = 1.0
    """Weight of the reward for the bodies' velocities."""
    body_angular_velocity_weight: Finite = 1.0
    """Weight of the reward for the bodies' angular velocities."""
    action_rate_weight: Finite = -0.1
    """Weight of the squared change of the action."""
    joint_limit_weight: Finite = -10.0
    """Weight of the distance of joints beyond `joint_range_share` of their ranges, rad."""
    joint_range_share: PositiveShare = 0.9
    """The share of each joint's range, about its middle, that costs nothing."""
    largest_height_error: Positive = 0.25
    """Error of the height of the anchor or of an end effector that ends an episode, m on a G1."""
    largest_tilt_error: Positive = 0.8
    """Error of the vertical part of gravity, in the anchor's frame, that ends an episode."""
    sampling_rate: Share = 0.001
    """Rate at which failures are counted and forgotten: the weight of one step of all worlds."""
    sampling_even: Positive = 0.1
    """The number of failures per step that counts for uniformly drawn starts."""
    sampling_look_back: Share = 0.8
    """The factor by which failures count less for starts in each earlier bin."""
    sampling_reach: Count = 3
    """The number of bins for which failures count: their own bin and those before it."""

    fields = ("xpos", "xquat", "cvel", "subtree_com", "site_xpos")

    @functools.cached_property
    def _given(self) -> Robot:
        robot = robot_of(self.robot, self.physics_timestep)
        own = {
            name: getattr(self, name) or getattr(robot, name)
            for name in ("anchor", "bodies", "ends")
        }
        return dataclasses.replace(robot, **own)

    @functools.cached_property
    def _robot(self) -> Robot:
        return with_defaults(self._given, self.model)

    @functools.cached_property
    def tracked(self) -> Tracked:
        """What is tracked, as indices."""
        return find_tracked(self.model, self._robot.bodies, self._robot.anchor, self._robot.ends)

    @functools.cached_property
    def servos(self) -> Servos:
        """The servos of the joints."""
        return servos_of(self._robot, self.model, self.action_torque_share, self.action_scale)

    @functools.cached_property
    def reference(self) -> Reference:
        """The motion on the robot, at the rate of the control.

        Raises:
            ConfigError: the motion cannot be read, or its joints do not fit the robot.
        """
        file = self.motion or self._given.motion
        if not file:
            raise ConfigError("motion is empty; give a .csv or .npz file for this robot")
        motion = read_motion(file, self.motion_fps)
        return reference_of(motion, self.model, self.tracked, self.control_timestep)

    @functools.cached_property
    def _length(self) -> float:
        """The factor of all published lengths."""
        return self.length_scale or float(self.servos.pose[2]) / _PUBLISHED_HEIGHT

    @property
    def _noise(self) -> tuple[float, ...]:
        """The largest noise of each part that is measured."""
        return (self._length * _NOISE[0], *_NOISE[1:])

    @functools.cached_property
    def _widths(self) -> dict[str, float]:
        metres = {"anchor_position": self._length, "body_position": self._length}
        return {name: getattr(self, f"{name}_width") * metres.get(name, 1.0) for name in _KERNELS}

    @functools.cached_property
    def _limits(self) -> tuple[NDArray, NDArray]:
        """The middle of the joints' ranges."""
        low, high = soft_limits(self.model, self.joint_range_share)
        limited = np.asarray(self.model.mj.jnt_limited[1:], bool)
        return np.where(limited, low, -np.inf), np.where(limited, high, np.inf)

    @property
    def camera(self) -> dict[str, object]:
        """From the front and the side, along with the robot."""
        return {
            "trackbodyid": int(self.model.mj.jnt_bodyid[0]),
            "azimuth": 130.0,
            "elevation": -12.0,
        }

    def mjcf(self) -> ModelSource:
        """The robot in its scene."""
        return self._given.spec

    def without_noise(self) -> TrackMotion:
        """The same task without noise of the observation."""
        return dataclasses.replace(self, noise_level=0.0)

    @property
    def bins(self) -> int:
        """Into how many bins the motion is cut."""
        return sampling.number_of_bins(self.reference.frames, self.control_timestep)

    @property
    def start_ranges(self) -> Ranges:
        """Failures in each bin of the motion, `(bins,)`, a moving average over steps."""
        return {FAILURES: np.zeros(self.bins, np.float32)}

    def start(self, key: Key) -> Start:
        """Anywhere in the motion."""
        return self.start_within(key, {FAILURES: jnp.zeros(self.bins, jnp.float32)})

    def start_within(self, key: Key, ranges: Ranges) -> Start:
        """In the reference, with random changes; more often where failures are."""
        frame_key, change_key, memory_key = jax.random.split(key, 3)
        spread = self.sampling_even, self.sampling_look_back, self.sampling_reach
        probabilities = sampling.chances(ranges[FAILURES], *spread)
        frame = sampling.drawn_frame(frame_key, probabilities, self.reference.frames)
        reference, sizes = self.reference.at(frame), (self.start_level, self._length)
        qpos, qvel = starts.near(change_key, reference, *sizes, self._limits)
        action = jnp.zeros(self.model.nu, jnp.float32)
        memory = Memory(frame + 1, action, jax.random.key_data(memory_key))
        return Start(qpos, qvel, memory=memory)

    def tally(self, memory: Memory, terminated: Array) -> Array:
        """A failure in its bin."""
        frames = self.reference.frames
        return sampling.failed_bin(memory.frame - 1, terminated, frames, self.bins)

    def adapt(self, ranges: Ranges, total: Array) -> Ranges:
        """The failures of the last step counted too."""
        return {FAILURES: sampling.counted(ranges[FAILURES], total, self.sampling_rate)}

    @property
    def action_bounds(self) -> tuple[NDArray, NDArray]:
        """From -4 to 4 for each servo."""
        most = np.full(self.model.nu, _LARGEST_ACTION, np.float32)
        return -most, most

    def control(self, action: Array, physics: PhysicsState, memory: Memory) -> Array:
        """Where to hold the joints, rad."""
        low, high = self.model.ctrlrange.T
        return jnp.clip(self.servos.offset + self.servos.scale * action, low, high)

    def robot_bodies(self, physics: PhysicsState) -> Bodies:
        """The robot's tracked bodies."""
        fields, bodies = physics.fields, self.tracked.bodies
        position, velocity = fields["xpos"][bodies], fields["cvel"][bodies]
        # MuJoCo's velocities are those at the centre of mass of all that hangs on the root.
        centre = fields["subtree_com"][self.model.mj.body_rootid[bodies]]
        linear = velocity[:, 3:] + jnp.cross(velocity[:, :3], position - centre)
        return Bodies(position, fields["xquat"][bodies], linear, velocity[:, :3])

    def _end_heights(self, physics: PhysicsState) -> Array:
        fields = physics.fields
        return jnp.concatenate(
            [
                fields["xpos"][self.tracked.end_bodies, 2],
                fields["site_xpos"][self.tracked.end_sites, 2],
            ]
        )

    def observe(self, physics: PhysicsState, memory: Memory) -> dict[str, Array]:
        """The reference to be at next, and what the robot feels."""
        robot, reference = self.robot_bodies(physics), self.reference.at(memory.frame)
        base = matrix(physics.qpos[3:7])
        anchor = terms.anchor_errors(robot, reference.bodies, self.tracked.anchor)
        measured = [
            *anchor,
            physics.qvel[:3] @ base,
            physics.qvel[3:6],
            physics.qpos[7:] - self.servos.pose[7:],
            physics.qvel[6:],
        ]
        key = jax.random.wrap_key_data(memory.words)
        wanted = [reference.qpos[7:], reference.qvel[6:]]
        state = [*wanted, *noisy(key, measured, self._noise, self.noise_level), memory.action]
        bodies = terms.seen_from_anchor(robot, self.tracked.anchor)
        exact = [*wanted, *measured, memory.action, *bodies]
        return {"state": jnp.concatenate(state), "privileged_state": jnp.concatenate(exact)}

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        model, anchor = self.model, self._robot.anchor
        base = model.names("body")[int(model.mj.jnt_bodyid[0])]
        pose = tuple(self.servos.pose[7:].tolist())
        make = functools.partial(parts.measured, joint_names(model), pose, base, anchor, model.nu)
        noise = tuple(self.noise_level * size for size in self._noise)
        bodies = parts.of_bodies(len(self.tracked.bodies) - 1, anchor)
        return {"state": make(noise), "privileged_state": (*make((0.0,) * 6), *bodies)}

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        servos, names = self.servos, tuple(self.model.names("actuator"))
        offset, scale = tuple(servos.offset.tolist()), tuple(servos.scale.tolist())
        name = "joint_position_target"
        return (ActionPart(name, len(names), "position", names, offset, scale, "rad"),)

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """How near the robot is to where it should be after this step."""
        robot, reference = self.robot_bodies(after), self.reference.at(memory.frame)
        errors = terms.squared_errors(robot, reference.bodies, self.tracked.anchor)
        joints = after.qpos[7:]
        worth = terms.kernels(errors, self._widths) | {
            "action_rate": squared(action - memory.action),
            "joint_limit": terms.beyond_limits(joints, *map(jnp.float32, self._limits)),
        }
        weighted = {name: getattr(self, f"{name}_weight") * value for name, value in worth.items()}
        # As published, a reward is per second.
        reward = self.control_timestep * jnp.sum(jnp.stack(list(weighted.values())))
        following = jax.random.split(jax.random.wrap_key_data(memory.words))[1]
        return Outcome(
            reward=reward,
            terminated=self.lost(robot, reference, self._end_heights(after)),
            memory=Memory(memory.frame + 1, action, jax.random.key_data(following)),
            metrics={f"reward/{name}": value for name, value in weighted.items()}
            | {f"error/{name}": jnp.sqrt(value) for name, value in errors.items()}
            | {"error/joint_position": jnp.mean(jnp.abs(joints - reference.qpos[7:]))},
        )

    def lost(self, robot: Bodies, reference: Reference, heights: Array) -> Array:
        """Whether the robot is far from the reference, `()` bool."""
        anchor = self.tracked.anchor
        rise = robot.position[anchor, 2] - reference.bodies.position[anchor, 2]
        off = jnp.append(heights - reference.end_heights, rise)
        too_high = jnp.any(jnp.abs(off) > self.largest_height_error * self._length)
        tilt = terms.tilt_error(robot, reference.bodies, anchor)
        return too_high | (tilt > self.largest_tilt_error)
