"""A rollout as samples for PPO: advantages and value targets, then minibatches of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from worldline.learn.bootstrap import CUT_VALUE, ValueFunction, is_lean, next_values
from worldline.learn.images import with_images_of
from worldline.learn.networks.recurrent import Recurrent, as_recurrent, segments_for
from worldline.learn.policy import critic_keys, normalized, numbers_of, select
from worldline.learn.ppo.config import PPOConfig
from worldline.learn.ppo.state import LearnerState
from worldline.learn.returns import discounted_return_so_far, generalized_advantage
from worldline.learn.rollout import Rollout
from worldline.learn.shuffle import random_order
from worldline.rendering.camera import image_names
from worldline.types import Array, Key, Observation, PyTree


class Batch(NamedTuple):
    """What one gradient step looks at; every leaf begins with the number of samples, n.

    A sample is a step, `(n,)`; or where a network has a memory, all that a world did in a rollout,
    `(n, T)`, and what that network observes is `Segments`.
    """

    obs: Any
    """What the policy observes, as `select` gives it, normalised."""
    critic_obs: Any
    """What the critic observes, likewise."""
    action: Array
    log_prob: Array
    distribution: Any
    """What the action was drawn from."""
    value: Array
    advantage: Array
    target: Array


def valuer_for(config: PPOConfig, learning: LearnerState, obs: Observation) -> ValueFunction | None:
    """The critic, for a rollout in `LeanWorlds`, where observations have images; else None."""
    if not isinstance(obs, dict) or not image_names(obs) or have_memory(learning.networks):
        return None
    keys = critic_keys(config.actor_obs, config.critic_obs, obs)
    return ValueFunction(learning.networks.critic, learning.critic_statistics, keys)


def have_memory(networks: Any) -> bool:
    """Whether actor or critic has a memory."""
    return isinstance(networks.actor, Recurrent) or isinstance(networks.critic, Recurrent)


def prepare(
    config: PPOConfig,
    learning: LearnerState,
    rollout: Rollout,
    memory: PyTree = (),
    next_obs: Observation | None = None,
    advantage_of: Callable[..., Array] = generalized_advantage,
) -> tuple[Batch, LearnerState]:
    """A rollout as samples, with advantages and value targets; statistics and the critic's memory
    moved on.

    Observations are normalised by the statistics the policy acted with, so that its ratio starts
    at 1; what this rollout adds to them counts from the next one on.

    Args:
        config: how to train.
        learning: what has learned so far.
        rollout: `(T, B)`.
        memory: what the policy remembered before the first step, `(B, ...)`; `()` without one.
        next_obs: what is to be acted on after the last step, `(B, ...)`; read where the rollout was
            in `LeanWorlds`.
        advantage_of: as `generalized_advantage`.
    """
    of_critic = critic_keys(config.actor_obs, config.critic_obs, rollout.obs)
    raw_obs, raw_critic_obs = (select(rollout.obs, k) for k in (config.actor_obs, of_critic))
    critic_obs = normalized(learning.critic_statistics, raw_critic_obs)
    ended = rollout.terminated | rollout.truncated
    # No step 0 is among them: a memory is made fresh where an episode ends, also at the last step.
    first = jnp.concatenate([jnp.zeros_like(ended[:1]), ended[:-1]])
    critic = as_recurrent(learning.networks.critic)
    memories, value = critic.over(learning.critic_memory, critic_obs, first)
    value = value[..., 0]
    if is_lean(rollout.final_obs):
        assert next_obs is not None
        valuer = ValueFunction(learning.networks.critic, learning.critic_statistics, of_critic)
        next_value = next_values(value, valuer(next_obs), rollout.final_obs[CUT_VALUE], ended)
    else:
        final_obs = normalized(learning.critic_statistics, select(rollout.final_obs, of_critic))
        _, next_value = critic.step(memories, final_obs)  # still in the old episode
        next_value = next_value[..., 0]
    return_so_far, returns = discounted_return_so_far(
        learning.return_so_far, rollout.reward, ended, learning.numbers.discount
    )
    return_statistics = learning.return_statistics.update(returns)
    reward = rollout.reward
    if config.normalize_rewards:
        reward = jnp.clip(reward / jnp.sqrt(return_statistics.variance + 1e-8), -10, 10)
    advantage = advantage_of(
        reward,
        value,
        next_value,
        rollout.terminated,
        rollout.truncated,
        learning.numbers.discount,
        learning.numbers.gae_lambda,
    )
    samples = Batch(
        obs=normalized(learning.statistics, raw_obs),
        critic_obs=critic_obs,
        action=rollout.action,
        log_prob=rollout.log_prob,
        distribution=rollout.distribution,
        value=value,
        advantage=advantage,
        target=advantage + value,
    )
    samples = arranged(learning, samples, first, memory)
    statistics, critic_statistics = learning.statistics, learning.critic_statistics
    if config.normalize_observations:
        statistics = statistics.update(numbers_of(raw_obs))
        critic_statistics = critic_statistics.update(numbers_of(raw_critic_obs))
    return samples, dataclasses.replace(
        learning,
        critic_memory=critic.restart(last(memories), ended[-1]),
        statistics=statistics,
        critic_statistics=critic_statistics,
        return_so_far=return_so_far,
        return_statistics=return_statistics,
    )


def arranged(learning: LearnerState, samples: Batch, first: Array, memory: PyTree) -> Batch:
    """The steps of a rollout, `(T, B)`, as samples: each alone, or whole worlds where a network
    has a memory.

    `first` is as in `Segments`, `memory` what the policy remembered before the first step.
    """
    networks = learning.networks
    if not have_memory(networks):
        flat = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), samples)
        return flat._replace(critic_obs=with_images_of(flat.critic_obs, flat.obs))
    worlds, first = jax.tree.map(lambda x: x.swapaxes(0, 1), (samples, first))
    critic_obs = with_images_of(worlds.critic_obs, worlds.obs)
    return worlds._replace(
        obs=segments_for(networks.actor, memory, worlds.obs, first),
        critic_obs=segments_for(networks.critic, learning.critic_memory, critic_obs, first),
    )


def last(steps: PyTree) -> PyTree:
    """What there is of the last step, of leaves `(T, ...)`."""
    return jax.tree.map(lambda x: x[-1], steps)


def shuffled(samples: PyTree, key: Key, minibatches: int) -> PyTree:
    """The samples in random order, split: `(minibatches, samples / minibatches, ...)`."""
    number = jax.tree.leaves(samples)[0].shape[0]
    order = random_order(key, number)
    size = number // minibatches
    return jax.tree.map(lambda x: x[order].reshape(minibatches, size, *x.shape[1:]), samples)
