"""ALOHA, two ViperX arms with grippers on a table: what its tasks share."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from worldline.env.parts import ActionPart
from worldline.physics.base import PhysicsState
from worldline.tasks.playground import arm_parts
from worldline.tasks.playground.manipulation import ManipulationTask
from worldline.types import Array

#: Where in `qpos` the joints of the left and the right arm are, without their fingers.
ARMS = (slice(0, 6), slice(8, 14))

#: Where the fingers are: left arm's left and right, right arm's left and right.
FINGERS = np.array([6, 7, 14, 15])

#: The sensors of contacts between fingers and the table.
_TOUCHES = tuple(
    f"table_{arm}/{finger}_finger_{end}_found"
    for arm in ("left", "right")
    for finger in ("left", "right")
    for end in ("top", "bottom")
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AlohaTask(ManipulationTask):
    """A task of ALOHA, of two arms with 6 joints and a gripper each."""

    defaults = {
        "ppo": {
            "num_worlds": 128,
            "unroll_length": 16,
            "minibatches": 8,
            "discount": 0.97,
            "actor_hidden": (256, 256),
            "critic_hidden": (256, 256),
        },
        "train": {"steps": 20_000_000},
    }

    camera = {"lookat": (0.0, 0.0, 0.2), "distance": 1.6, "azimuth": 90.0, "elevation": -25.0}

    def gripper(self, physics: PhysicsState, arm: str) -> Array:
        """The point between the fingertips of an arm, `left` or `right`, `(3,)`, m."""
        return self.site(physics, f"{arm}/gripper")

    def off_table(self, physics: PhysicsState) -> Array:
        """1 where no finger touches the table, `()`."""
        return 1 - self.found(physics, *_TOUCHES).astype(jnp.float32)

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The numbers of `control`."""
        return arm_parts.target_changes(self.model, self.action_scale)

    def moved(self, targets: Array, action: Array) -> Array:
        """The targets of the servos after an action, `(14,)`."""
        return self.within_range(targets + self.action_scale * action)
