"""The training state of `ppo`."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp

from worldline.env.worlds import WorldsState
from worldline.errors import ConfigError, did_you_mean
from worldline.learn.networks.actor_critic import ActorCritic
from worldline.learn.normalizer import RunningStatistics
from worldline.types import Array, Key, PyTree


class Hyperparameters(eqx.Module):
    """Numbers of the configuration as arrays: another value recompiles nothing."""

    learning_rate: Array
    """Where it starts."""
    anneal_updates: Array
    """Updates over which it falls to a tenth; 0: it stays."""
    target_kl: Array
    discount: Array
    gae_lambda: Array
    clip: Array
    value_clip: Array
    value_weight: Array
    advantage_floor: Array
    entropy_weight: Array
    max_grad_norm: Array


class CollectorState(eqx.Module):
    """The part of the training state that acting reads and moves on."""

    worlds: WorldsState
    memory: PyTree
    """The policy's memory of each world's episode, `(B, ...)`; `()` without a memory."""
    key: Key


class LearnerState(eqx.Module):
    """The part of the training state that learning reads and moves on."""

    networks: ActorCritic
    optimizer: PyTree
    learning_rate: Array
    statistics: RunningStatistics
    """Of what the policy observes."""
    critic_statistics: RunningStatistics
    """Of what the critic observes."""
    critic_memory: PyTree
    """The critic's memory of each world's episode, `(B, ...)`; `()` without a memory."""
    return_so_far: Array
    """Each world's discounted sum of rewards in its episode, `(B,)`."""
    return_statistics: RunningStatistics
    """Of those sums."""
    hyperparameters: Hyperparameters
    updates: Array
    """Updates so far, `()` int32."""
    key: Key


class PPOState(eqx.Module):
    """All that training is, in one pytree."""

    acting: CollectorState
    learning: LearnerState


def with_hyperparameters(state: PPOState, **values: float | Array) -> PPOState:
    """The state with other values of some `Hyperparameters`; the next update goes by them.

    Nothing recompiles; under `jax.vmap` each member of a population has its own.

    Raises:
        ConfigError: there is no such hyperparameter.
    """
    learning = state.learning
    known = [field.name for field in dataclasses.fields(Hyperparameters)]
    for name in values:
        if name not in known:
            raise ConfigError(f"there is no hyperparameter {name!r}{did_you_mean(name, known)}")
    arrays = {name: jnp.asarray(value, jnp.float32) for name, value in values.items()}
    learning = dataclasses.replace(
        learning,
        hyperparameters=dataclasses.replace(learning.hyperparameters, **arrays),
        learning_rate=arrays.get("learning_rate", learning.learning_rate),
    )
    return PPOState(state.acting, learning)
