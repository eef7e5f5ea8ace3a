"""Gradient steps by optax, with learning rates that are arrays in the training state."""

from __future__ import annotations

from typing import TypeVar

import jax.numpy as jnp
import optax

from worldline.types import Array, PyTree

P = TypeVar("P")


def clipped(gradient: P, max_norm: Array) -> tuple[P, Array]:
    """The gradient, scaled down to a norm of at most `max_norm`, and its original norm, `()`."""
    clip = optax.clip_by_global_norm(max_norm)
    return clip.update(gradient, clip.init(gradient))[0], optax.tree.norm(gradient)


def descend(
    optimizer: optax.GradientTransformation,
    parameters: P,
    gradient: P,
    state: PyTree,
    learning_rate: Array,
) -> tuple[P, PyTree]:
    """The parameters after a step down the gradient, and the optimiser's state after it.

    Args:
        optimizer: converts the gradient to the direction of the step, for example
            `optax.scale_by_adam()`.
        parameters: any pytree of arrays.
        gradient: gradient of the loss with respect to the parameters.
        state: the optimiser's.
        learning_rate: the direction is multiplied by this, `()`.
    """
    direction, state = optimizer.update(gradient, state, parameters)
    moved: P = optax.apply_updates(parameters, optax.tree.scale(-learning_rate, direction))
    return moved, state


def annealed(updates: Array, anneal_updates: Array, lowest: float) -> Array:
    """The share of the first learning rate that remains after some updates, `()`.

    It falls linearly from 1 to `lowest` over `anneal_updates`, `()` float32. If `anneal_updates` is
    0, it is 1.
    """
    done = jnp.clip(updates.astype(jnp.float32) / jnp.maximum(anneal_updates, 1.0), 0.0, 1.0)
    return jnp.where(anneal_updates > 0, 1.0 - (1.0 - lowest) * done, 1.0)
