"""A rollout as samples for PPO: advantages and value targets, then minibatches of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from worldline.learn.bootstrap import CUT_VALUE, next_values
from worldline.learn.images import with_images_of
from worldline.learn.networks.actor_critic import Segments
from worldline.learn.networks.vision import Observed
from worldline.learn.policy import critic_keys, normalized, select
from worldline.learn.ppo.config import PPOConfig
from worldline.learn.ppo.state import LearnerState
from worldline.learn.returns import discounted_return_so_far, generalized_advantage
from worldline.learn.rollout import Rollout
from worldline.learn.shuffle import random_order
from worldline.types import Array, Key, Observation, PyTree


class Batch(NamedTuple):
    """What one gradient step learns from; leaves begin with `(n,)` or `(n, T)`, as `Segments`."""

    segments: Segments
    action: Array
    """Before it was brought into the bounds, `(..., nact)`."""
    log_prob: Array
    """Its log density when it was drawn."""
    distribution: Any
    """What it was drawn from."""
    value: Array
    advantage: Array
    target: Array
    """Of the value."""


def prepare(
    config: PPOConfig,
    learning: LearnerState,
    rollout: Rollout,
    memory: PyTree = (),
    next_obs: Observation | None = None,
    advantage_of: Callable[..., Array] = generalized_advantage,
) -> tuple[Batch, LearnerState]:
    """A rollout as samples with advantages and value targets; statistics and the critic's memory
    moved on. Pure.

    Observations are normalised by the statistics the policy acted with, so that its ratio starts
    at 1; what this rollout adds to them counts from the next one on.

    Args:
        config: how to train.
        learning: the networks and statistics that acted.
        rollout: `(T, B)`.
        memory: the policy's memory before the first step, `(B, ...)`; `()` without one.
        next_obs: what is to be acted on after the last step, `(B, ...)`; read where
            the rollout was in `LeanWorlds`.
        advantage_of: as `generalized_advantage`.
    """
    numbers = learning.hyperparameters
    networks, statistics = learning.networks, learning.critic_statistics
    raw_obs, raw_critic_obs = observed(config, rollout.obs)
    critic_obs = normalized(statistics, raw_critic_obs)
    ended = rollout.terminated | rollout.truncated
    # No step 0 is among them: a memory is made fresh where an episode ends, also at the last step.
    first = jnp.concatenate([jnp.zeros_like(ended[:1]), ended[:-1]])
    memories, value = networks.values(learning.critic_memory, critic_obs, first)
    if isinstance(rollout.final_obs, dict) and CUT_VALUE in rollout.final_obs:
        assert next_obs is not None
        last_value = value_of(config, learning, next_obs)
        next_value = next_values(value, last_value, rollout.final_obs[CUT_VALUE], ended)
    else:  # the critic's memory is still of the old episode
        _, final_obs = observed(config, rollout.final_obs)
        _, next_value = networks.value(memories, normalized(statistics, final_obs))
    return_so_far, returns = discounted_return_so_far(
        learning.return_so_far, rollout.reward, ended, numbers.discount
    )
    return_statistics = learning.return_statistics.update(returns)
    reward = rollout.reward
    if config.normalize_rewards:
        reward = jnp.clip(reward / jnp.sqrt(return_statistics.variance + 1e-8), -10, 10)
    ends = rollout.terminated, rollout.truncated
    weights = numbers.discount, numbers.gae_lambda
    advantage = advantage_of(reward, value, next_value, *ends, *weights)
    segments = Segments(
        normalized(learning.statistics, raw_obs), critic_obs, first, memory, learning.critic_memory
    )
    samples = Batch(
        segments=segments,
        action=rollout.action,
        log_prob=rollout.log_prob,
        distribution=rollout.distribution,
        value=value,
        advantage=advantage,
        target=advantage + value,
    )
    if config.normalize_observations:
        learning = dataclasses.replace(
            learning,
            statistics=learning.statistics.update(raw_obs["state"]),
            critic_statistics=learning.critic_statistics.update(raw_critic_obs["state"]),
        )
    return cut(samples, networks.remembers), dataclasses.replace(
        learning,
        critic_memory=networks.critic.restart(last(memories), ended[-1]),
        return_so_far=return_so_far,
        return_statistics=return_statistics,
    )


def cut(samples: Batch, remembers: bool) -> Batch:
    """The steps of a rollout, `(T, B)`, as samples: single steps `(T * B,)`, or with a memory whole
    worlds `(B, T)`.
    """
    segments = samples.segments
    steps = samples._replace(segments=segments._replace(memory=(), critic_memory=()))
    if remembers:
        arranged = jax.tree.map(lambda x: x.swapaxes(0, 1), steps)
    else:
        arranged = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), steps)
    return arranged._replace(
        segments=arranged.segments._replace(
            memory=segments.memory,
            critic_memory=segments.critic_memory,
            critic_obs=with_images_of(arranged.segments.critic_obs, arranged.segments.obs),
        )
    )


def shuffled(samples: PyTree, key: Key, minibatches: int) -> PyTree:
    """The samples in random order, split: `(minibatches, samples / minibatches, ...)`."""
    number = jax.tree.leaves(samples)[0].shape[0]
    order = random_order(key, number)
    size = number // minibatches
    return jax.tree.map(lambda x: x[order].reshape(minibatches, size, *x.shape[1:]), samples)


def observed(config: PPOConfig, obs: Observation) -> tuple[Observed, Observed]:
    """What the policy reads of an observation, and what the critic reads."""
    of_critic = critic_keys(config.actor_obs, config.critic_obs, obs)
    return select(obs, config.actor_obs), select(obs, of_critic)


def value_of(config: PPOConfig, learning: LearnerState, obs: Observation) -> Array:
    """The values of observations `(n, ...)`, `(n,)`, of a critic without a memory."""
    _, critic_obs = observed(config, obs)
    return learning.networks.value((), normalized(learning.critic_statistics, critic_obs))[1]


def last(steps: PyTree) -> PyTree:
    """The last step's part of leaves `(T, ...)`."""
    return jax.tree.map(lambda x: x[-1], steps)
