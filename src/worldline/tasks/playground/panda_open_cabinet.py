"""playground/panda-open-cabinet: pull a drawer open by its handle."""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.settings import Finite, NotNegative
from worldline.tasks.playground.manipulation import away, distance, nearness, total
from worldline.tasks.playground.panda import HAND, SCENES, UPRIGHT, PandaTask
from worldline.types import Array, Key

#: The lowest and the highest turn of each joint at a start, in units of `largest_turn`.
_TURNS = np.array([[-1, 1], [-1, 1], [-1, 1], [-2, 0], [-1, 1], [0, 2], [-1, 1]], np.float32)


class Memory(eqx.Module):
    """What the task carries from step to step."""

    targets: Array
    """Of the servos, `(8,)`: 7 joints, rad, and how far the fingers open, m."""
    place: Array
    """Where the handle is to be, `(3,)`, m."""
    reached: Array
    """Whether the gripper has been at the handle, `()` bool."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PandaOpenCabinet(PandaTask):
    """Pull a drawer open by its handle with a Franka Emika Panda, which starts upright.

    Observation `(55,)`: `qpos` and `qvel` of arm, fingers and drawer; position and axes of the
    gripper; axes of the handle; the vectors from the gripper to the handle, and from the handle to
    its target; the error of its axes; the differences of the joints from the servos' targets.
    Action `(8,)`: changes of these targets. An episode does not terminate, since the drawer cannot
    leave its rail.

    The task `PandaOpenCabinet` of MuJoCo Playground 0.2.0.
    """

    largest_turn: NotNegative = math.pi / 6
    """Largest angle of the joints from an upright arm at a start, rad. Joints 4 and 6 turn in one
    direction only, up to twice as far."""
    target: tuple[float, float, float] = (0.3, 0.0, 0.5)
    """The mean position of the handle's target, m."""
    target_range: NotNegative = 0.1
    """Largest distance from there along x, m."""
    no_barrier_collision_weight: Finite = 0.25
    """Weight of the reward for a hand that stays in front of the cabinet."""

    file = f"{SCENES}/mjx_cabinet.xml"
    keyframe = "upright"
    thing = "handle"

    def mjcf(self) -> mujoco.MjSpec:
        """The scene, in which the palm touches things as well."""
        spec = super().mjcf()
        spec.geom("hand_capsule").conaffinity = 3
        return spec

    def start(self, key: Key) -> Start:
        """The arm more or less upright, the drawer closed."""
        target_key, arm_key = jax.random.split(key)
        aside = jax.random.uniform(
            target_key, (), jnp.float32, -self.target_range, self.target_range
        )
        turns = jax.random.uniform(arm_key, (7,), jnp.float32, *(self.largest_turn * _TURNS).T)
        memory = Memory(
            targets=jnp.asarray(self.home_targets).at[:7].add(turns),
            place=jnp.array(self.target, jnp.float32).at[0].add(aside),
            reached=jnp.asarray(False),
        )
        return Start(
            qpos=jnp.asarray(self.home).at[:7].add(turns),
            qvel=jnp.zeros(self.model.nv, jnp.float32),
            memory=memory,
            inputs={"ctrl": memory.targets},
        )

    def control(self, action: Array, physics: PhysicsState, memory: Memory) -> Array:
        """Where the servos are to be."""
        return self.moved(memory.targets, action)

    def observe(self, physics: PhysicsState, memory: Memory) -> Array:
        """Where everything is, and where it is to be."""
        return self.seen(physics, memory.targets, memory.place, UPRIGHT)

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: Memory
    ) -> Outcome:
        """The gripper at the handle, then the handle at its target."""
        handle, reached = self.body(after, self.thing), self.grasped(after, memory.reached)
        barrier = self.found(after, *(f"barrier_{part}_found" for part in HAND))
        near = nearness(distance(memory.place, handle), self.sharpness)
        terms = self.weighted(
            {
                "gripper_box": nearness(self.reach(after), self.sharpness),
                "box_target": jnp.where(reached, near, 0.0),
                "no_barrier_collision": ~barrier,
                "robot_target_qpos": self.near_home(after),
            }
        )
        gone = away(handle, self.largest_coordinate)
        return Outcome(
            reward=total(terms),
            terminated=gone,
            memory=dataclasses.replace(
                memory, targets=self.moved(memory.targets, action), reached=reached
            ),
            metrics={**terms, "out_of_bounds": gone.astype(jnp.float32)},
        )
