"""Hand: forces on bodies that somebody outside the simulation chooses, control step by step."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp

from worldline.env.disturb import Disturbance
from worldline.env.episodes import WorldsState
from worldline.env.task import Task
from worldline.types import Array, ArrayLike, Key, PyTree


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hand(Disturbance):
    """Pushes bodies as its memory says: a force and a torque on each, `(nbody, 6)`, N and N m.

    The memory is zero at the start of an episode; `with_forces` writes it. It is the last one of an
    environment's disturbances.
    """

    def start(self, task: Task, key: Key) -> PyTree:
        """No force."""
        return jnp.zeros((task.model.mj.nbody, 6), jnp.float32)

    def next(self, task: Task, memory: PyTree, action: Array) -> PyTree:
        """The same forces until somebody writes others."""
        return memory

    def push(self, task: Task, memory: PyTree) -> Array | None:
        """The forces themselves."""
        return memory


def with_forces(state: WorldsState, forces: ArrayLike) -> WorldsState:
    """The worlds of an environment whose last disturbance is a `Hand`, with forces on its bodies.

    Args:
        state: B worlds.
        forces: force and torque on each body, along the world's axes, `(B, nbody, 6)`.
    """
    held = jnp.asarray(forces, jnp.float32)
    changed: WorldsState = eqx.tree_at(lambda state: state.env.memory[1][-1], state, held)
    return changed
