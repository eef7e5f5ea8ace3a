"""playground/panda-pick-cube and its variant that turns the cube: bring a cube to a target."""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.settings import NotNegative
from worldline.tasks.playground import rotations
from worldline.tasks.playground.manipulation import away, total
from worldline.tasks.playground.panda import SCENES, PandaCubeTask
from worldline.types import Array, Key


class Memory(eqx.Module):
    """What the task carries from step to step."""

    targets: Array
    """Of the servos, `(8,)`: 7 joints, rad, and how far the fingers open, m."""
    place: Array
    """Where the cube is to be, `(3,)`, m."""
    turn: Array
    """How it is to be turned, `(4,)`, a quaternion."""
    reached: Array
    """Whether the gripper has been at the cube, `()` bool."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PandaPickCube(PandaCubeTask):
    """Bring a cube to a place in the air with a Franka Emika Panda.

    Observation `(66,)`: `qpos` and `qvel` of arm, fingers and cube; position and axes of the
    gripper; axes of the cube; the vectors from the gripper to the cube, and from the cube to its
    target; the error of its axes; the differences of the joints from the servos' targets. Action
    `(8,)`: changes of these targets. An episode terminates when the cube is below the floor or far
    away.

    The task `PandaPickCube` of MuJoCo Playground 0.2.0.
    """

    defaults = {
        "ppo": {
            **PandaCubeTask.defaults["ppo"],
            "num_worlds": 512,
            "minibatches": 16,
            "epochs": 4,
            # To hold the cube, the hand must close where it was worth most to keep it open.
            "entropy_weight": 0.03,
            "squash": "tanh",
        },
        "train": {"steps": 6_000_000},
    }

    cube_range: tuple[float, float] = (0.2, 0.2)
    """Largest distance of the cube from its position in the model at a start, along x and y, m."""
    lowest_target: tuple[float, float, float] = (-0.2, -0.2, 0.2)
    """Smallest displacement of the cube's target from its position in the model, m."""
    highest_target: tuple[float, float, float] = (0.2, 0.2, 0.4)
    """Largest displacement of the cube's target from its position in the model, m."""
    largest_turn: NotNegative = 0.0
    """Largest rotation of the target about any axis, rad."""

    file = f"{SCENES}/mjx_single_cube.xml"

    def start(self, key: Key) -> Start:
        """The arm at home, the cube somewhere on the floor, its target above."""
        place_key, target_key, turn_key = jax.random.split(key, 3)
        first = self.coordinates(self.thing)
        middle, reach = (
            jnp.asarray(self.home[first : first + 3]),
            np.array([*self.cube_range, 0.0], np.float32),
        )
        cube = middle + jax.random.uniform(place_key, (3,), jnp.float32, -reach, reach)
        low, high = jnp.array([self.lowest_target, self.highest_target], jnp.float32)
        memory = Memory(
            targets=jnp.asarray(self.home_targets),
            place=middle + jax.random.uniform(target_key, (3,), jnp.float32, low, high),
            turn=self._turn(turn_key),
            reached=jnp.asarray(False),
        )
        return Start(
            qpos=jnp.asarray(self.home).at[first : first + 3].set(cube),
            qvel=jnp.zeros(self.model.nv, jnp.float32),
            memory=memory,
            inputs={
                "ctrl": memory.targets,
                "mocap_pos": memory.place[None],
                "mocap_quat": memory.turn[None],
            },
        )

    def _turn(self, key: Key) -> Array:
        axis_key, angle_key = jax.random.split(key)
        axis = jax.random.uniform(axis_key, (3,), jnp.float32, -1.0, 1.0)
        angle = jax.random.uniform(angle_key, (), jnp.float32, 0.0, self.largest_turn)
        return rotations.about(rotations.normalised(axis), angle)

    def control(self, action: Array, physics: PhysicsState, memory: Memory) -> Array:
        """Where the servos are to be."""
        return self.moved(memory.targets, action)

    def observe(self, physics: PhysicsState, memory: Memory) -> Array:
        """Where everything is, and where it is to be."""
        return self.seen(physics, memory.targets, memory.place, rotations.matrix(memory.turn))

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """The gripper at the cube, then the cube at its target."""
        cube, reached = self.body(after, self.thing), self.grasped(after, memory.reached)
        axes = rotations.matrix(memory.turn)
        terms = self.weighted(self.terms(after, memory.place, axes, reached))
        gone = away(cube, self.largest_coordinate)
        return Outcome(
            reward=total(terms),
            terminated=gone,
            memory=dataclasses.replace(
                memory, targets=self.moved(memory.targets, action), reached=reached
            ),
            metrics={**terms, "out_of_bounds": gone.astype(jnp.float32)},
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PandaPickCubeOrientation(PandaPickCube):
    """Bring a cube to a place and an orientation with a Panda; see `PandaPickCube`.

    The task `PandaPickCubeOrientation` of MuJoCo Playground 0.2.0.
    """

    largest_turn: NotNegative = math.pi / 4
    """Largest rotation of the target about any axis, rad."""
