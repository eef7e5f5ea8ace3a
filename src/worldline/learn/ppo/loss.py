"""What PPO minimises: Schulman et al. (2017), "Proximal Policy Optimization Algorithms"."""

from __future__ import annotations

import jax.numpy as jnp

from worldline.learn.networks.actor_critic import ActorCritic
from worldline.learn.ppo.samples import Batch
from worldline.learn.ppo.state import Hyperparameters
from worldline.types import Array, Metrics


def clipped_loss(
    networks: ActorCritic, batch: Batch, hyperparameters: Hyperparameters
) -> tuple[Array, Metrics]:
    """PPO's objective: Schulman et al. (2017), equation 9, with the policy term of equation 7.

    Returns:
        The loss `()`, and what to report of it; `ppo/kl` is what leads the learning rate.
    """
    distribution, value = networks.evaluate(batch.segments)
    log_ratio = distribution.log_prob(batch.action) - batch.log_prob
    ratio, clip = jnp.exp(log_ratio), hyperparameters.clip
    clipped = jnp.clip(ratio, 1 - clip, 1 + clip)
    policy_loss = -jnp.minimum(ratio * batch.advantage, clipped * batch.advantage).mean()
    value_loss = _value_loss(value, batch, hyperparameters.value_clip)
    entropy = distribution.entropy().mean()
    # A deviation of more than half the actions' range is only clipped: it earns nothing.
    bonus = entropy - jnp.maximum(distribution.log_std, 0.0).sum(-1).mean()
    total = (
        policy_loss
        + hyperparameters.value_weight * value_loss
        - hyperparameters.entropy_weight * bonus
    )
    return total, {
        "loss/policy": policy_loss,
        "loss/value": value_loss,
        "loss/entropy": entropy,
        "ppo/kl": distribution.kl_from(batch.distribution).mean(),
        "ppo/clip_fraction": (jnp.abs(ratio - 1) > clip).mean(),
        "ppo/action_std": jnp.exp(distribution.log_std).mean(),
    }


def _value_loss(value: Array, batch: Batch, value_clip: Array) -> Array:
    """Half the mean squared error, or with the value's change clipped the worse of the two."""
    reach = jnp.where(value_clip > 0, value_clip, jnp.inf)
    near = batch.value + jnp.clip(value - batch.value, -reach, reach)
    worse = jnp.maximum((value - batch.target) ** 2, (near - batch.target) ** 2)
    return 0.5 * worse.mean()


def standardized(values: Array, floor: Array) -> Array:
    """Values with mean 0 and standard deviation 1; less where it was below the floor."""
    return (values - values.mean()) / (jnp.maximum(values.std(), floor) + 1e-8)


def annealed_rate(learning_rate: Array, updates: Array, numbers: Hyperparameters) -> Array:
    """The learning rate of an update, after `updates` others: it falls linearly to a tenth."""
    done = updates.astype(jnp.float32) / jnp.maximum(numbers.anneal_updates, 1.0)
    annealed = numbers.learning_rate * (1.0 - 0.9 * jnp.clip(done, 0.0, 1.0))
    return jnp.where(numbers.anneal_updates > 0, annealed, learning_rate)


def adapted_rate(learning_rate: Array, kl: Array, numbers: Hyperparameters) -> Array:
    """The learning rate led by the KL divergence: Schulman et al. (2017), section 4, for Adam.

    A policy that is sure of itself hardly moves, and would let the rate grow until the value
    function breaks: twice what was configured is the most.
    """
    target, most = numbers.target_kl, 2.0 * numbers.learning_rate
    factor = jnp.where(kl > 2.0 * target, 1 / 1.5, jnp.where(kl < 0.5 * target, 1.5, 1.0))
    adapted = jnp.clip(learning_rate * factor, 1e-5, most)
    return jnp.where(target > 0, adapted, learning_rate)


def explained_variance(value: Array, target: Array) -> Array:
    """The share of the targets' variance that the value function explains, `()`; 1 is all."""
    return 1.0 - (target - value).var() / (target.var() + 1e-8)
