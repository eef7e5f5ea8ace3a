"""gym/reacher and gym/pusher: bring a fingertip to a target, or push an object to a goal."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from worldline.env.task import Outcome, Start
from worldline.physics.base import PhysicsState
from worldline.settings import Count, Number
from worldline.tasks.gym.base import Camera, GymTask, sum_of_squares, symmetric
from worldline.types import Array, Key, PyTree


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Reacher(GymTask):
    """Observation `(10,)`: cosines and sines of the two joint angles, the target's position, the
    joint velocities, and x and y of the vector from target to fingertip.

    Action `(2,)`: motor torques. Reward: minus the fingertip's distance to the target and minus a
    cost of control. An episode never terminates.
    """

    defaults = {"train": {"steps": 1_000_000}}

    xml_file: str = "reacher.xml"
    frame_skip: Count = 2
    default_camera_config: Camera = dataclasses.field(default_factory=lambda: {"trackbodyid": 0})
    episode_length: Number = 50
    reward_dist_weight: float = 1.0
    """Cost of each metre between fingertip and target."""
    reward_control_weight: float = 1.0
    """Cost of the sum of the squared actions."""

    fields = ("xpos",)  # the positions of fingertip and target

    def start(self, key: Key) -> Start:
        """Near the default pose; the target is uniform in a disc of radius 0.2 m."""
        arm, velocity, radius, angle = jax.random.split(key, 4)
        # The area within a radius grows as its square: so grows the chance to be there.
        r = 0.2 * jnp.sqrt(jax.random.uniform(radius))
        phi = jnp.pi * symmetric(angle, ())
        target = r * jnp.array([jnp.cos(phi), jnp.sin(phi)])
        moved = self.model.qpos0[:2] + 0.1 * symmetric(arm, (2,))
        return Start(
            qpos=jnp.concatenate([moved, target]),
            qvel=jnp.zeros(4).at[:2].set(0.005 * symmetric(velocity, (2,))),
        )

    def from_target(self, physics: PhysicsState) -> Array:
        """The vector from target to fingertip, `(3,)`, m."""
        xpos = physics.fields["xpos"]
        return xpos[self.model.id("body", "fingertip")] - xpos[self.model.id("body", "target")]

    def observe(self, physics: PhysicsState, memory: PyTree) -> Array:
        """Joint angles and velocities, the target, and the fingertip's offset from it."""
        angles, target = physics.qpos[:2], physics.qpos[2:]
        offset = self.from_target(physics)[:2]
        return jnp.concatenate(
            [jnp.cos(angles), jnp.sin(angles), target, physics.qvel[:2], offset],
        )

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: PyTree
    ) -> Outcome:
        """Less the distance to the target and the cost of control."""
        distance = -self.reward_dist_weight * jnp.linalg.norm(self.from_target(after))
        control = -self.reward_control_weight * sum_of_squares(action)
        return Outcome(
            reward=distance + control,
            terminated=jnp.asarray(False),
            metrics={"reward_dist": distance, "reward_ctrl": control},
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Pusher(GymTask):
    """Observation `(23,)`: seven joint angles and their velocities, then the positions of the arm's
    tip, the object and the goal.

    Action `(7,)`: motor torques. Reward: minus the distances from tip to object and from object to
    goal, and minus a cost of control. An episode never terminates.
    """

    defaults = {"train": {"steps": 1_000_000}}

    xml_file: str = "pusher_v5.xml"
    frame_skip: Count = 5
    default_camera_config: Camera = dataclasses.field(
        default_factory=lambda: {"trackbodyid": -1, "distance": 4.0}
    )
    episode_length: Number = 100
    reward_near_weight: float = 0.5
    """Cost of each metre between the arm's tip and the object."""
    reward_dist_weight: float = 1.0
    """Cost of each metre between object and goal."""
    reward_control_weight: float = 0.1
    """Cost of the sum of the squared actions."""

    fields = ("xpos",)  # the positions of tip, object and goal

    def start(self, key: Key) -> Start:
        """The default pose; the goal at the origin and the object at random on the arm's side."""
        position, velocity = jax.random.split(key)
        # The last four coordinates are x and y of the object and of the goal.
        arm = self.model.qpos0[:-4]
        return Start(
            qpos=jnp.concatenate([arm, _object_position(position), jnp.zeros(2)]),
            qvel=jnp.concatenate([0.005 * symmetric(velocity, arm.shape), jnp.zeros(4)]),
        )

    def positions(self, physics: PhysicsState) -> tuple[Array, Array, Array]:
        """The positions of the arm's tip, the object and the goal, `(3,)` each, m."""
        tip, thing, goal = (self.model.id("body", n) for n in ("tips_arm", "object", "goal"))
        xpos = physics.fields["xpos"]
        return xpos[tip], xpos[thing], xpos[goal]

    def observe(self, physics: PhysicsState, memory: PyTree) -> Array:
        """Angles and velocities of the arm; positions of tip, object and goal."""
        return jnp.concatenate([physics.qpos[:7], physics.qvel[:7], *self.positions(physics)])

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: PyTree
    ) -> Outcome:
        """Less the two distances and the cost of control."""
        tip, thing, goal = self.positions(after)
        near = -self.reward_near_weight * jnp.linalg.norm(thing - tip)
        distance = -self.reward_dist_weight * jnp.linalg.norm(thing - goal)
        control = -self.reward_control_weight * sum_of_squares(action)
        return Outcome(
            reward=distance + control + near,
            terminated=jnp.asarray(False),
            metrics={"reward_dist": distance, "reward_ctrl": control, "reward_near": near},
        )


def _object_position(key: Key) -> Array:
    """Uniform on a rectangle, but for a disc of 0.17 m about the goal at the origin: `(2,)`, m."""
    low, high = jnp.array([-0.3, -0.2]), jnp.array([0.0, 0.2])

    def draw(last: tuple[Key, Array]) -> tuple[Key, Array]:
        following, now = jax.random.split(last[0])
        return following, jax.random.uniform(now, (2,), minval=low, maxval=high)

    def too_close(last: tuple[Key, Array]) -> Array:
        return jnp.asarray(jnp.linalg.norm(last[1]) <= 0.17)

    _, position = jax.lax.while_loop(too_close, draw, draw((key, low)))
    return position
