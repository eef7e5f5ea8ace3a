"""The objective of PPO: Schulman et al. (2017), "Proximal Policy Optimization Algorithms"."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from worldline.learn.networks.actor_critic import ActorCritic, Segments
from worldline.learn.ppo.config import PPOConfig
from worldline.types import Array, ArrayLike, Metrics, NDArray


class Hyperparameters(eqx.Module):
    """Numbers of the configuration as arrays: another value recompiles nothing."""

    learning_rate: Array
    """The configured learning rate, which is the first one."""
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


class Batch(NamedTuple):
    """Samples for learning; leaves begin with `(n,)` or `(n, T)`, as in `Segments`."""

    segments: Segments
    action: Array
    """The action before it was brought into the bounds, `(..., nact)`."""
    log_prob: Array
    """Its log density when it was drawn."""
    distribution: Any
    """The distribution that it was drawn from."""
    value: Array
    """The critic's value when the action was drawn."""
    advantage: Array
    target: Array
    """The target of the critic's value."""


def squashed_actions(config: PPOConfig, env: Any) -> NDArray | None:
    """Which components of an action tanh brings into the bounds, `(nact,)` bool; None: clipped."""
    if config.squash != "tanh":
        return None
    return np.isfinite(env.action_low) & np.isfinite(env.action_high)


def clipped_loss(
    networks: ActorCritic,
    batch: Batch,
    hyperparameters: Hyperparameters,
    squashed: ArrayLike | None = None,
) -> tuple[Array, Metrics]:
    """PPO's objective: Schulman et al. (2017), equation 9, with the policy term of equation 7.

    Args:
        networks: policy and value function.
        batch: samples.
        hyperparameters: numbers of the configuration.
        squashed: which components of an action tanh brings into the bounds, `(nact,)` bool. The
            entropy bonus is then that of the bounded action. None: actions are clipped.

    Returns:
        The loss `()`, and its metrics. `ppo/kl` adapts the learning rate.
    """
    distribution, value = networks.evaluate(batch.segments)
    log_ratio = distribution.log_prob(batch.action) - batch.log_prob
    ratio, clip = jnp.exp(log_ratio), hyperparameters.clip
    clipped = jnp.clip(ratio, 1 - clip, 1 + clip)
    policy_loss = -jnp.minimum(ratio * batch.advantage, clipped * batch.advantage).mean()
    value_loss = _value_loss(value, batch, hyperparameters.value_clip)
    if squashed is not None:
        entropy = bonus = distribution.squashed_entropy(squashed).mean()
    else:
        entropy = distribution.entropy().mean()
        # A standard deviation above half the actions' range only clips more: it earns nothing.
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
    """Half the mean squared error; the larger one, with the value's change clipped or not."""
    most = jnp.where(value_clip > 0, value_clip, jnp.inf)
    clipped = batch.value + jnp.clip(value - batch.value, -most, most)
    errors = jnp.maximum((value - batch.target) ** 2, (clipped - batch.target) ** 2)
    return 0.5 * errors.mean()
