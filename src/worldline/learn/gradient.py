"""Gradient steps whose sizes are arrays in the training state, with optax's own arithmetic."""

from __future__ import annotations

from typing import TypeVar

import optax

from worldline.types import Array, PyTree

P = TypeVar("P")


def clipped(gradient: P, max_norm: Array) -> tuple[P, Array]:
    """The gradient scaled down to a norm of at most `max_norm`, and its norm before, `()`."""
    clip = optax.clip_by_global_norm(max_norm)
    return clip.update(gradient, clip.init(gradient))[0], optax.tree.norm(gradient)


def descended(parameters: P, direction: PyTree, learning_rate: Array) -> P:
    """The parameters after a step of this length against a direction, such as Adam's."""
    moved: P = optax.apply_updates(parameters, optax.tree.scale(-learning_rate, direction))
    return moved


def averaged(target: P, parameters: P, rate: Array) -> P:
    """A target network after a step towards the parameters, by this share of the way: Polyak
    averaging.
    """
    moved: P = optax.incremental_update(parameters, target, rate)
    return moved
