"""Starts: the physics at the beginning of an episode, with or without a time to come to rest."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from worldline.env.task import Start
from worldline.errors import TaskError
from worldline.model import Model
from worldline.physics.base import Physics, PhysicsState
from worldline.types import ArrayLike, Variation


def start_physics(
    physics: Physics, start: Start, constants: Variation, mask: ArrayLike = True
) -> PhysicsState:
    """The physics at a start, at time 0, after the settle time of the start.

    Args:
        physics: the engine.
        start: the start that the task drew.
        constants: those of the world that differ from the model's.
        mask: `()` bool; where False nothing is simulated and the result is unspecified.

    Raises:
        ModelError: the settle time is not a multiple of the model's time step.
    """
    qpos, qvel = (jnp.asarray(x, jnp.float32) for x in (start.qpos, start.qvel))
    state = physics.start(qpos, qvel, constants, start.inputs, mask)
    if not start.settle_time:
        return state
    substeps = physics.model.substeps(start.settle_time)
    end = physics.step(state, {}, substeps, mask)
    begin = physics.start(end.qpos, end.qvel, constants, start.inputs, mask)
    return dataclasses.replace(begin, diverged=begin.diverged | end.diverged)


def chosen_parts(model: Model, qpos: ArrayLike | None, qvel: ArrayLike | None) -> dict[str, Any]:
    """The given configuration, `(nq,)`, and velocity, `(nv,)`, as parts of a `Start`.

    Raises:
        TaskError: a shape is wrong.
    """
    parts: dict[str, Any] = {}
    for name, value, size in (("qpos", qpos, model.nq), ("qvel", qvel, model.nv)):
        if value is None:
            continue
        if np.shape(value) != (size,):
            raise TaskError(f"{name} has shape {np.shape(value)}; the model's is ({size},)")
        parts[name] = jnp.asarray(value, jnp.float32)
    return parts
