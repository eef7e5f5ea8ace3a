"""The Franka Emika Panda: what its tasks with servos see, and how its servos move."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from worldline.env.parts import ActionPart, ObservationParts
from worldline.env.parts import ObservationPart as Part
from worldline.physics.base import PhysicsState
from worldline.settings import Finite, NotNegative, Number, Positive
from worldline.tasks.playground import arm_parts
from worldline.tasks.playground.manipulation import ManipulationTask, NDArray, distance, nearness
from worldline.types import Array

SCENES = "franka_emika_panda/xmls"

#: The parts of the hand that can touch something.
HAND = ("left_finger_pad", "right_finger_pad", "hand_capsule")

#: The axes of a thing that is not turned.
UPRIGHT = np.eye(3, dtype=np.float32)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PandaTask(ManipulationTask):
    """A task of the Panda, an arm of 7 joints with a hand of two fingers, and an object."""

    defaults = {
        "ppo": {
            "num_worlds": 128,
            "unroll_length": 16,
            "minibatches": 8,
            "discount": 0.97,
            "actor_hidden": (64, 64),
            "critic_hidden": (128, 128),
        },
        "train": {"steps": 5_000_000},
    }

    episode_length: Number = 150
    """Control steps after which an episode is truncated; 0 for no limit."""
    control_timestep: Positive = 0.02
    """Seconds between two actions; a multiple of `physics_timestep`."""
    physics_timestep: Positive = 0.005
    """The model's time step, s."""
    action_scale: Positive = 0.04
    """How far an action of 1 moves the targets of the servos, rad; of the fingers, m."""
    grasp_distance: NotNegative = 0.012
    """Between the gripper and the object, below which it has been reached, m."""
    sharpness: Positive = 5.0
    """Rate at which the rewards for nearness fall with the distance, 1/m."""
    largest_coordinate: Positive = 1.0
    """Coordinate of the object beyond which an episode terminates, m."""
    gripper_box_weight: Finite = 4.0
    """Weight of the reward for the gripper near the object."""
    box_target_weight: Finite = 8.0
    """Weight of the reward for the object near its target, once the gripper has been at it."""
    robot_target_qpos_weight: Finite = 0.3
    """Weight of the reward for an arm near its start."""

    fields = ("site_xpos", "site_xmat", "xpos", "xmat", "sensordata")
    camera = {"lookat": (0.4, 0.0, 0.25), "distance": 1.9, "azimuth": 130.0, "elevation": -20.0}
    thing = "box"
    """The body of the object."""

    def gripper(self, physics: PhysicsState) -> Array:
        """The point between the fingertips, `(3,)`, m."""
        return self.site(physics, "gripper")

    def reach(self, physics: PhysicsState) -> Array:
        """From the gripper to the object, `()`, m."""
        return distance(self.body(physics, self.thing), self.gripper(physics))

    def grasped(self, physics: PhysicsState, before: Array) -> Array:
        """Whether the gripper is, or was before, at the object, `()` bool."""
        return before | (self.reach(physics) < self.grasp_distance)

    def near_home(self, physics: PhysicsState) -> Array:
        """How near the arm is to its start, in (0, 1]."""
        return nearness(distance(physics.qpos[:7], self.home[:7]), 1.0)

    def seen(
        self, physics: PhysicsState, targets: Array, place: Array, axes: Array | NDArray
    ) -> Array:
        """What a policy sees, `(nq + nv + 35,)`.

        Args:
            physics: the world.
            targets: of the servos, `(8,)`.
            place: where the object is to be, `(3,)`, m.
            axes: how it is to be turned, its axes as columns, `(3, 3)`.
        """
        hand, turn = self.gripper(physics), self.site_axes(physics, "gripper")
        thing, own = self.body(physics, self.thing), self.body_axes(physics, self.thing)
        parts = [physics.qpos, physics.qvel, hand, turn[1:].ravel(), own[1:].ravel()]
        parts += [thing - hand, place - thing, (jnp.asarray(axes) - own)[:2].ravel()]
        return jnp.concatenate([*parts, targets - physics.qpos[:8]])

    @property
    def seen_parts(self) -> tuple[Part, ...]:
        """The numbers of `seen`."""
        thing = self.thing
        return (
            *arm_parts.positions(self.model),
            *arm_parts.velocities(self.model),
            arm_parts.site("gripper_position", "gripper"),
            arm_parts.axes("gripper_axes"),
            arm_parts.axes(f"{thing}_axes"),
            arm_parts.point(f"gripper_to_{thing}"),
            arm_parts.point(f"{thing}_to_target"),
            arm_parts.axes(f"{thing}_axes_to_target"),
            Part("joint_position_to_target", 8, unit="rad, m"),
        )

    @property
    def observation_parts(self) -> ObservationParts:
        """The numbers of `observe`."""
        return {"state": self.seen_parts}

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        return arm_parts.target_changes(self.model, self.action_scale)

    def moved(self, targets: Array, action: Array) -> Array:
        """The targets of the servos after an action, `(8,)`."""
        return self.within_range(targets + self.action_scale * action)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PandaCubeTask(PandaTask):
    """A task of the Panda and a cube on the floor."""

    turn_share: NotNegative = 0.1
    """The share of the orientation error in the distance of the cube from its target; the rest is
    the position error."""
    no_floor_collision_weight: Finite = 0.25
    """Weight of the reward for a hand that does not touch the floor."""

    def terms(
        self, physics: PhysicsState, place: Array, axes: Array | NDArray, reached: Array
    ) -> dict[str, Array]:
        """The terms of the reward that tasks with a cube share, without their weights.

        Args:
            physics: the world.
            place: where the cube is to be, `(3,)`, m.
            axes: how it is to be turned, its axes as columns, `(3, 3)`.
            reached: whether the gripper has been at the cube, `()` bool.
        """
        turn = (axes - self.body_axes(physics, self.thing))[:2]
        error = (1 - self.turn_share) * distance(place, self.body(physics, self.thing))
        error += self.turn_share * distance(turn, 0.0)
        floor = self.found(physics, *(f"{part}_floor_found" for part in HAND))
        return {
            "gripper_box": nearness(self.reach(physics), self.sharpness),
            "box_target": jnp.where(reached, nearness(error, self.sharpness), 0.0),
            "no_floor_collision": ~floor,
            "robot_target_qpos": self.near_home(physics),
        }
