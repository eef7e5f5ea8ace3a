"""A control step: calls the task's control once, or before each physics step."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from worldline.env.task import Task, inputs_of
from worldline.physics.base import Physics, PhysicsState
from worldline.types import Array, ArrayLike, PyTree


def control_step(
    task: Task,
    engine: Physics,
    physics: PhysicsState,
    memory: PyTree,
    action: Array,
    substeps: int,
    mask: ArrayLike,
) -> PhysicsState:
    """The world one control step later.

    Args:
        task: gives the inputs; with `Task.control_at_physics_rate`, before each physics step.
        engine: simulates.
        physics: the world.
        memory: the task's.
        action: `(nact,)`.
        substeps: physics steps in the control step.
        mask: `()` bool; where False, nothing is simulated and the world does not change.
    """
    inputs = inputs_of(task, action, physics, memory)
    if not task.control_at_physics_rate:
        return engine.step(physics, inputs, substeps, mask)

    def again(before: PhysicsState, _: None) -> tuple[PhysicsState, None]:
        inputs = dict(inputs_of(task, action, before, memory))
        inputs.pop("qvel", None)  # a knock is at the beginning
        after = engine.step(before, inputs, 1, mask)
        changes = {name: before.changes[name] + change for name, change in after.changes.items()}
        after = dataclasses.replace(after, changes=changes)
        goes_on = jnp.asarray(mask) & ~before.diverged
        return jax.tree.map(lambda new, old: jnp.where(goes_on, new, old), after, before), None

    first = engine.step(physics, inputs, 1, mask)
    return jax.lax.scan(again, first, length=substeps - 1)[0]
