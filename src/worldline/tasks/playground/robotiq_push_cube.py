"""playground/panda-robotiq-push-cube: push a box to where it should be, with torques."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.parts import ActionPart, ObservationParts
from worldline.env.parts import ObservationPart as Part
from worldline.env.task import Outcome, Start
from worldline.errors import TaskError
from worldline.physics.base import PhysicsState
from worldline.settings import Finite, NotNegative, Number, Positive, Share
from worldline.tasks.playground import arm_parts, rotations
from worldline.tasks.playground.costs import length
from worldline.tasks.playground.legged import draws
from worldline.tasks.playground.manipulation import ManipulationTask, NDArray, distance, total
from worldline.tasks.playground.panda import HAND
from worldline.tasks.rewards import tolerance
from worldline.tasks.robot.arm import JOINTS
from worldline.types import Array, Key

#: The parts of the gripper that push.
_PADS = tuple(
    f"{side}_{part}"
    for side in ("left", "right")
    for part in ("coupler_col_1", "coupler_col_2", "follower_pad2")
)

#: Lowest and highest angle of each joint, rad.
_LOW, _HIGH = np.array([[joint.low, joint.high] for joint in JOINTS], np.float32).T

#: Numbers that a control step adds to the observation.
_FRAME = 48


class Memory(eqx.Module):
    """What the task carries from step to step, as it was when the present state was observed."""

    place: Array
    """Where the box is to be, `(3,)`, m."""
    turn: Array
    """How it is to be turned, `(4,)`, a quaternion."""
    asked: Array
    """The actions before, newest first, `(n, 7)`."""
    action: Array
    """The last action that was taken, `(7,)`: one of them."""
    last_action: Array
    """That before it, `(7,)`."""
    frames: Array
    """What was seen in the control steps before, newest first, `(m, 48)`."""
    there: Array
    """For how many control steps the box has been at its target, `()` int32."""
    level: Array
    """How many targets were reached, `()` int32."""
    begun: Array
    """Whether the episode has had a control step, `()` bool."""
    words: Array
    """What random numbers are drawn from, `(2,)` uint32."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RobotiqPushCube(ManipulationTask):
    """Push a box to a target position and orientation with a Panda and a Robotiq gripper.

    Observation `(48,)`, with delay and noise: position and axes of the target, the action before
    the last, joint angles and their velocities, position and axes of the gripper, axes and position
    of the box. Action `(7,)`: torques, which are delayed too. When a target was held, another
    target follows, further away. The reward is the sum of all terms divided by the sum of their
    weights, plus rewards at a target, times the control time step. An episode terminates when the
    box or the gripper leaves the workspace, when the hand touches the floor or the wall, and near a
    joint's limit.

    The task `PandaRobotiqPushCube` of MuJoCo Playground 0.2.0, which repeats each action for four
    control steps in training: `action_repeat=4`.
    """

    defaults = {
        "ppo": {
            "num_worlds": 128,
            "unroll_length": 32,
            "minibatches": 8,
            "discount": 0.994,
            "actor_hidden": (64, 64, 64),
            "critic_hidden": (256, 256),
        },
        "train": {"steps": 20_000_000},
    }

    episode_length: Number = 3000
    """Control steps after which an episode is truncated; 0 for no limit."""
    control_timestep: Positive = 0.005
    """Seconds between two actions; a multiple of `physics_timestep`."""
    physics_timestep: Positive = 0.005
    """The model's time step, s."""
    action_scale: Positive = 0.1
    """The control of a motor for an action of 1; the motor's gear turns it into a torque."""
    largest_torque: Positive = 8.0
    """Largest torque of a joint, N m."""
    grip: NotNegative = 0.82
    """Where the gripper is held: closed, rad."""
    action_delay: tuple[int, int] = (1, 2)
    """By how many control steps an action is late: fewest and most."""
    observation_delay: tuple[int, int] = (6, 11)
    """By how many control steps an observation is late: fewest and most; zeros are seen before."""
    box_noise: NotNegative = 0.015
    """Largest noise on the place of the box, m."""
    box_angle_noise: NotNegative = 7.5
    """Largest noise on its orientation, degrees."""
    joint_noise: NotNegative = 0.1
    """Largest noise on joint angles, the same for all, rad."""
    joint_velocity_noise: NotNegative = 0.1
    """Largest noise on the velocities of joints, the same for all, rad/s."""
    gripper_noise: NotNegative = 0.02
    """Largest noise on the place of the gripper, the same along each axis, m."""
    gripper_angle_noise: NotNegative = 5.0
    """Largest noise on its orientation, degrees."""
    start_shares: tuple[float, float, float, float, float, float, float] = (
        0.06, 0.06, 0.06, 0.06, 0.09, 0.09, 0.09,
    )  # fmt: skip
    """Largest distance of each joint from the home pose at a start, as a share of its limits."""
    box_range: NotNegative = 0.15
    """Largest distance of the box from its position in the model at a start, along y, m; along x it
    is 0.4 of this."""
    target_ranges: tuple[float, ...] = (0.05, 0.05, 0.1, 0.2, 0.2)
    """The same for the target, after 0, 1, 2, ... reached targets, m."""
    target_angles: tuple[float, ...] = (45.0, 45.0, 90.0, 135.0, 180.0)
    """Largest angle from the box to its target, after as many, degrees."""
    lowest_place: tuple[float, float, float] = (0.4, -0.2, -0.005)
    """The smallest coordinates of box and target, m."""
    highest_place: tuple[float, float, float] = (0.65, 0.2, 0.04)
    """The largest coordinates of box and target, m."""
    lowest_corner: tuple[float, float, float] = (0.3, -0.5, -0.01)
    """The lowest corner of the workspace, m; its height applies only to the box."""
    highest_corner: tuple[float, float, float] = (0.75, 0.7, 0.5)
    """The highest corner of the workspace, m; its height applies only to the gripper."""
    joint_share: Share = 0.9
    """The share of a joint's limits beyond which an episode terminates."""
    largest_velocities: tuple[float, float, float, float, float, float, float] = (
        2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61,
    )  # fmt: skip
    """Largest velocities of the joints, rad/s."""
    velocity_share: Share = 0.9
    """The share of these velocities beyond which the reward `joint_vel_limit` is 0."""
    side_distance: NotNegative = 0.1
    """How far behind the box, seen from its target, the gripper should be, m."""
    success_distance: Positive = 0.03
    """Between the box and its target, below which it is there, m."""
    success_angle: Positive = 10.0
    """Angle to the target orientation below which the orientation counts as reached, degrees."""
    success_steps: Number = 30
    """Number of control steps for which both must hold."""
    gripper_box_weight: Finite = 2.0
    """Weight of the reward for the gripper behind the box."""
    box_target_weight: Finite = 8.0
    """Weight of the reward for the box at its target."""
    box_orientation_weight: Finite = 6.0
    """Weight of the reward for the box turned as its target."""
    gripper_collision_side_weight: Finite = 1.0
    """Weight of the reward for a gripper that touches the box from the side."""
    robot_target_qpos_weight: Finite = 0.75
    """Weight of the reward for an arm near home."""
    joint_vel_weight: Finite = 1.0
    """Weight of the reward for slow joints."""
    joint_vel_limit_weight: Finite = 3.0
    """Weight of the reward for joints that are not near their largest velocity."""
    total_command_weight: Finite = -0.1
    """Weight of the size of the action."""
    action_rate_weight: Finite = -0.1
    """Weight of the difference between the action and the last one that was taken."""
    termination_reward: Finite = -50.0
    """Reward when an episode terminates."""
    success_reward: Finite = 500.0
    """Reward for a target that was held."""
    success_wait_reward: Finite = 3.0
    """Reward for each control step at the target."""

    file = "franka_emika_panda_robotiq/xmls/scene_panda_robotiq_cube.xml"
    collision_iterations = 10
    fields = ("site_xpos", "site_xmat", "xpos", "xquat", "sensordata")
    camera = {"lookat": (0.5, 0.0, 0.2), "distance": 2.0, "azimuth": 130.0, "elevation": -25.0}

    def __post_init__(self) -> None:
        for name in ("action_delay", "observation_delay"):
            fewest, most = getattr(self, name)
            if not 0 <= fewest <= most:
                raise TaskError(
                    f"{name} is {(fewest, most)}; give the smaller number first, 0 or more"
                )
        if not len(self.target_ranges) == len(self.target_angles) > 0:
            raise TaskError("target_ranges and target_angles must have the same length, 1 or more")

    @property
    def action_bounds(self) -> tuple[NDArray, NDArray]:
        """From -1 to 1 for each joint."""
        return -np.ones(7, np.float32), np.ones(7, np.float32)

    def start(self, key: Key) -> Start:
        """The arm near home, the box somewhere before it, its target near the box."""
        box_key, turn_key, target_key, angle_key, arm_key, memory_key = jax.random.split(key, 6)
        first, middle = self.coordinates("box"), self._middle
        box = self._place(box_key, jnp.float32(self.box_range)).at[2].set(middle[2])
        turn = _about_vertical(turn_key, jnp.float32(2 * jnp.pi))
        more = _about_vertical(angle_key, jnp.deg2rad(self.target_angles[0]))
        share = np.array(self.start_shares, np.float32)
        off = jax.random.uniform(arm_key, (7,), jnp.float32, share * _LOW, share * _HIGH)
        qpos = jnp.asarray(self.home).at[:7].add(off)
        nothing = jnp.zeros(7, jnp.float32)
        memory = Memory(
            place=self._place(target_key, jnp.float32(self.target_ranges[0])),
            turn=rotations.product(turn, more),
            asked=jnp.zeros((self.action_delay[1], 7), jnp.float32),
            action=nothing,
            last_action=nothing,
            frames=jnp.zeros((self.observation_delay[1], _FRAME), jnp.float32),
            there=jnp.int32(0),
            level=jnp.int32(0),
            begun=jnp.asarray(False),
            words=jax.random.key_data(memory_key),
        )
        return Start(
            qpos=qpos.at[first : first + 7].set(jnp.concatenate([box, turn])),
            qvel=jnp.zeros(self.model.nv, jnp.float32),
            memory=memory,
            inputs={"ctrl": jnp.asarray(self.home_targets), **_shown(memory)},
        )

    @property
    def _middle(self) -> NDArray:
        """Where the box is at home, `(3,)`, m."""
        first = self.coordinates("box")
        return self.home[first : first + 3]

    def _place(self, key: Key, reach: Array) -> Array:
        """A place for the box or its target, `(3,)`, m."""
        way = reach * np.array([0.4, 1.0, 0.0], np.float32) + np.array([0, 0, 0.005], np.float32)
        place = self._middle + jax.random.uniform(key, (3,), jnp.float32, -way, way)
        low, high = np.array([self.lowest_place, self.highest_place], np.float32)
        return jnp.clip(place, low, high)

    def _taken(self, action: Array, memory: Memory) -> Array:
        """The action, `(7,)`, that a joint hears of now."""
        key = jax.random.split(draws(memory.words).push)[0]
        low, high = self.action_delay
        delay = jax.random.randint(key, (), low, high + 1)
        return jnp.concatenate([action[None], memory.asked])[delay]

    def control(self, action: Array, physics: PhysicsState, memory: Memory) -> dict[str, Array]:
        """The controls of the motors, and the target for those who watch."""
        most = (self.largest_torque / self.model.mj.actuator_gear[:7, 0]).astype(np.float32)
        motors = jnp.clip(self.action_scale * self._taken(action, memory), -most, most)
        ctrl = jnp.concatenate([motors, jnp.full(1, self.grip, jnp.float32)])
        return {"ctrl": self.within_range(ctrl), **_shown(memory)}

    def observe(self, physics: PhysicsState, memory: Memory) -> Array:
        """What was seen a random time ago; at a start at once."""
        key = jax.random.split(draws(memory.words).push)[1]
        low, high = self.observation_delay
        delay = jnp.where(memory.begun, jax.random.randint(key, (), low, high + 1), 0)
        return jnp.concatenate([self.frame(physics, memory)[None], memory.frames])[delay]

    def frame(self, physics: PhysicsState, memory: Memory) -> Array:
        """What is seen of a state, with noise, `(48,)`."""
        keys = jax.random.split(draws(memory.words).noise, 4)
        share = jax.random.uniform(keys[0], (5,), jnp.float32)
        angles = share[:2] * jnp.deg2rad(
            jnp.array([self.box_angle_noise, self.gripper_angle_noise])
        )
        box_turn, gripper_turn = (
            rotations.about(_direction(k), angle)
            for k, angle in zip(keys[1:3], angles, strict=True)
        )
        box = self.model.id("body", "box")
        shaken = jax.random.uniform(keys[3], (3,), jnp.float32, -1.0, 1.0) * self.box_noise
        turn = rotations.product(box_turn, physics.fields["xquat"][box])
        axes = rotations.matrix(gripper_turn) @ self.site_axes(physics, "gripper")
        return jnp.concatenate(
            [
                memory.place,
                rotations.matrix(memory.turn)[1:].ravel(),
                memory.last_action,
                physics.qpos[:7] + self.joint_noise * share[2],
                physics.qvel[:7] + self.joint_velocity_noise * share[3],
                self.site(physics, "gripper") + self.gripper_noise * share[4],
                axes[1:].ravel(),
                rotations.matrix(turn)[1:].ravel(),
                self.body(physics, "box") + shaken,
            ]
        )

    def without_noise(self) -> RobotiqPushCube:
        """The same task, which sees everything at once and exactly."""
        names = [field.name for field in dataclasses.fields(self) if field.name.endswith("_noise")]
        exact: Any = dict.fromkeys(names, 0.0)
        return dataclasses.replace(self, observation_delay=(0, 0), **exact)

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        joints = tuple(self.model.names("joint")[:7])
        return {
            "state": (
                arm_parts.point("target_position"),
                arm_parts.axes("target_axes"),
                Part("action_before_last", 7, "action", ago=2),
                arm_parts.joint_position(joints, self.joint_noise),
                arm_parts.joint_velocity(joints, self.joint_velocity_noise),
                arm_parts.site("gripper_position", "gripper", self.gripper_noise),
                arm_parts.axes("gripper_axes"),
                arm_parts.axes("box_axes"),
                arm_parts.point("box_position", self.box_noise),
            )
        }

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        return (ActionPart("joint_torque", 7, scale=self.action_scale, unit="N m"),)

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """The box at one target after the other."""
        terms = self._terms(after, action, memory)
        weighted, over = self.weighted(terms), self._over(after)
        near = distance(memory.place, self.body(after, "box")) < self.success_distance
        aligned = self._angle(after, memory) < jnp.deg2rad(self.success_angle)
        success = near & aligned & (memory.there >= self.success_steps)
        reward = total(weighted) / self.total_weight(terms)
        for what, worth in (
            (over, self.termination_reward),
            (near & aligned, self.success_wait_reward),
            (success, self.success_reward),
        ):
            reward += jnp.where(what, worth, 0.0)
        metrics = {"out_of_bounds": over, "success": success, "near": near, "aligned": aligned}
        return Outcome(
            reward=reward * self.control_timestep,
            terminated=over,
            memory=self._following(before, action, after, memory, near & aligned, success),
            metrics={**weighted, **{n: value.astype(jnp.float32) for n, value in metrics.items()}},
        )

    def _following(
        self,
        before: PhysicsState,
        action: Array,
        after: PhysicsState,
        memory: Memory,
        there: Array,
        success: Array,
    ) -> Memory:
        """The memory after a step, with another target after a success."""
        keys = draws(memory.words)
        place_key, angle_key = jax.random.split(keys.command)
        level = memory.level + success.astype(jnp.int32)
        reaches, angles = (
            jnp.array(values, jnp.float32) for values in (self.target_ranges, self.target_angles)
        )
        spin = jnp.deg2rad(angles[jnp.minimum(level, len(self.target_angles) - 1)])
        box = after.fields["xquat"][self.model.id("body", "box")]
        turn = rotations.product(box, _about_vertical(angle_key, spin))
        reach = reaches[jnp.minimum(level, len(self.target_ranges) - 1)]
        seen = jnp.where(memory.begun, self.frame(before, memory), 0.0)
        return Memory(
            place=jnp.where(success, self._place(place_key, reach), memory.place),
            turn=jnp.where(success, turn, memory.turn),
            asked=jnp.concatenate([action[None], memory.asked])[:-1],
            action=self._taken(action, memory),
            last_action=memory.action,
            frames=jnp.concatenate([seen[None], memory.frames])[:-1],
            there=jnp.where(there & ~success, memory.there + 1, 0),
            level=level,
            begun=jnp.asarray(True),
            words=keys.words,
        )

    def _angle(self, physics: PhysicsState, memory: Memory) -> Array:
        """From the box to its target, `()`, rad."""
        box = physics.fields["xquat"][self.model.id("body", "box")]
        return rotations.angle_between(box, memory.turn)

    def _over(self, physics: PhysicsState) -> Array:
        """Whether the episode terminates, `()` bool."""
        box, gripper = self.body(physics, "box"), self.site(physics, "gripper")
        low, high = np.array([self.lowest_corner, self.highest_corner], np.float32)
        joints, share = physics.qpos[:7], np.float32(self.joint_share)
        outside = [(place[:2] < low[:2]) | (place[:2] > high[:2]) for place in (box, gripper)]
        hits = (f"{thing}_{part}_found" for thing in ("wall", "floor") for part in HAND)
        return (
            jnp.concatenate(outside).any()
            | (box[2] < low[2])
            | (gripper[2] > high[2])
            | ((joints > share * _HIGH) | (joints < share * _LOW)).any()
            | self.found(physics, *hits)
        )

    def _terms(self, physics: PhysicsState, action: Array, memory: Memory) -> dict[str, Array]:
        """The terms of the reward, without their weights."""
        box, gripper = self.body(physics, "box"), self.site(physics, "gripper")
        back = box - memory.place
        behind = rotations.normalised(back) * jnp.where(
            length(back) > 1e-3, self.side_distance, 0.0
        )
        normals = [self.sensor(physics, f"{pad}_box_normal") for pad in _PADS]
        normal = rotations.normalised(jnp.mean(jnp.stack(normals), axis=0))
        fastest = np.array(self.largest_velocities, np.float32) * np.float32(self.velocity_share)
        speeds = physics.qvel[:7]
        return {
            "box_target": tolerance(
                length((box - memory.place)[:2]), (0, 0.005), 0.4, "reciprocal"
            ),
            "box_orientation": tolerance(
                self._angle(physics, memory), (0, 0.2), float(np.pi), "reciprocal"
            ),
            "gripper_box": tolerance(distance(box + behind, gripper), (0, 0.1), 1.0, "linear"),
            "gripper_collision_side": length(normal[:2]),
            "robot_target_qpos": tolerance(
                distance(physics.qpos[:7], self.home[:7]), (0, 0.5), 4.5, "linear"
            ),
            "joint_vel": tolerance(length(speeds), (0, 0.5), 2.0, "reciprocal"),
            "joint_vel_limit": ~(jnp.abs(speeds) > fastest).any(),
            "total_command": length(action),
            "action_rate": distance(action, memory.action),
        }


def _shown(memory: Memory) -> dict[str, Array]:
    """Where the target is shown."""
    return {"mocap_pos": memory.place[None], "mocap_quat": memory.turn[None]}


def _direction(key: Key) -> Array:
    """A random direction, `(3,)`, of normally distributed longitude and latitude."""
    longitude, latitude = jax.random.normal(key, (2,), jnp.float32) * np.array(
        [2 * np.pi, np.pi], np.float32
    )
    across = jnp.sin(latitude)
    return jnp.stack([across * jnp.cos(longitude), across * jnp.sin(longitude), jnp.cos(latitude)])


def _about_vertical(key: Key, most: Array) -> Array:
    """A random turn about the vertical by up to an angle, rad, `(4,)`."""
    share = jax.random.uniform(key, (), jnp.float32)
    return rotations.about(np.array([0.0, 0.0, 1.0], np.float32), share * most)
