"""What SAC minimises: the losses of its critics, of its policy and of its temperature.

Images are encoded once for each loss, as the critics observe them; policy and critics read the
same features. Only the critics' loss reaches those encoders (Yarats et al. 2021, "Mastering visual
continuous control: improved data-augmented reinforcement learning", section 3.1), and what follows
is seen through the present ones: there are no target encoders. An image that the policy alone
observes has an encoder that the policy's loss changes.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from worldline.learn.images import changed, draw_changes
from worldline.learn.networks.mlp import MLP, StateDependentActor
from worldline.learn.networks.vision import ImageEncoder, Observed, joined
from worldline.learn.policy import critic_keys, normalized, select
from worldline.learn.replay import Transitions
from worldline.learn.sac.config import SACConfig
from worldline.learn.sac.networks import Networks, squashed_draw, values
from worldline.learn.sac.state import LearnerState
from worldline.rendering.camera import image_names
from worldline.types import Array, Key, Observation


class Batch(NamedTuple):
    """What a gradient step looks at; every leaf begins with the number of transitions, n."""

    obs: Observed
    """What the policy observes, normalised."""
    critic_obs: Observed
    """What the critics observe, likewise."""
    action: Array
    """In [-1, 1] where it is bounded."""
    reward: Array
    terminated: Array
    next_obs: Observed
    next_critic_obs: Observed
    noise: Array
    """Standard normal, to draw the policy's next actions."""


def batch_of(
    config: SACConfig, learning: LearnerState, transitions: Transitions, noise: Array, key: Key
) -> Batch:
    """Transitions as the networks read them.

    Args:
        config: what policy and critics observe, and how images are changed.
        learning: the statistics that observations are normalised by.
        transitions: n of them.
        noise: `Batch.noise`.
        key: changes each image, that before and that after a step, on its own.
    """
    now_key, next_key = jax.random.split(key)
    obs, critic_obs = _augmented(config, now_key, _normalized(config, learning, transitions.obs))
    next_obs, next_critic_obs = _augmented(
        config, next_key, _normalized(config, learning, transitions.next_obs)
    )
    return Batch(
        obs=obs,
        critic_obs=critic_obs,
        action=transitions.action,
        reward=transitions.reward,
        terminated=transitions.terminated,
        next_obs=next_obs,
        next_critic_obs=next_critic_obs,
        noise=noise,
    )


def _normalized(
    config: SACConfig, learning: LearnerState, obs: Observation
) -> tuple[Observed, Observed]:
    """What policy and critics observe, normalised."""
    of_actor, of_critics = read(config, obs)
    return (
        normalized(learning.statistics, of_actor),
        normalized(learning.critic_statistics, of_critics),
    )


def _augmented(
    config: SACConfig, key: Key, observed: tuple[Observed, Observed]
) -> tuple[Observed, Observed]:
    """What policy and critics observe, with its images changed; alike where they look at one."""
    if not (config.augmentation and any(image_names(obs) for obs in observed)):
        return observed
    number = len(observed[0]["state"])
    changes = draw_changes(config.augmentation, key, number, *observed)
    change = functools.partial(changed, config.augmentation, changes, jnp.arange(number))
    obs, critic_obs = observed
    return change(obs), change(critic_obs)


def read(config: SACConfig, obs: Observation) -> tuple[Observed, Observed]:
    """What the policy reads of an observation, and what the critics read."""
    return select(obs, config.actor_obs), select(
        obs, critic_keys(config.actor_obs, config.critic_obs, obs)
    )


def kept(config: SACConfig, obs: Observation) -> Observation:
    """The parts of an observation that a network reads."""
    if not isinstance(obs, dict):
        return obs
    return {
        key: obs[key]
        for key in sorted(
            {*config.actor_obs, *critic_keys(config.actor_obs, config.critic_obs, obs)}
        )
    }


def soft_target(
    networks: Networks,
    target_critics: MLP,
    batch: Batch,
    discount: Array,
    bounded: Array,
) -> Array:
    """What the critics learn, `(n,)`: Haarnoja et al. (2018), equations 3 and 5, one action drawn.

    Nothing follows a termination. After a truncation the value goes on, from the true successor.
    """
    features = networks.eyes.features(batch.next_critic_obs)
    own = networks.actor_eyes.features(batch.next_obs)
    distribution = networks.actor(joined(batch.next_obs, features | own))
    action, log_prob = squashed_draw(distribution, batch.noise, bounded)
    value = values(target_critics, joined(batch.next_critic_obs, features), action).min(axis=0)
    soft_value = value - jnp.exp(networks.log_temperature) * log_prob
    return batch.reward + discount * jnp.where(batch.terminated, 0.0, soft_value)


def critic_loss(
    learned: tuple[ImageEncoder, MLP], batch: Batch, target: Array
) -> tuple[Array, Array]:
    """Half the mean squared error, summed over the critics: equation 5.

    Args:
        learned: the encoders and the critics.
        batch: transitions.
        target: `(n,)`.

    Returns:
        The loss and the mean value, `()` each.
    """
    eyes, critics = learned
    obs = joined(batch.critic_obs, eyes.features(batch.critic_obs))
    value = values(critics, obs, batch.action)
    return 0.5 * ((value - target) ** 2).mean(axis=1).sum(), value.mean()


def actor_loss(
    learned: tuple[ImageEncoder, StateDependentActor],
    networks: Networks,
    batch: Batch,
    bounded: Array,
) -> tuple[Array, Array]:
    """Haarnoja et al. (2018), equation 7.

    Args:
        learned: the encoders that the policy alone looks through, and the policy.
        networks: all else; the encoders among them stay as they are.
        batch: transitions, with noise to draw the policy's actions at `obs`.
        bounded: which actions have bounds, `(nact,)` bool.

    Returns:
        The loss and the policy's entropy, `()` each.
    """
    features = jax.lax.stop_gradient(networks.eyes.features(batch.critic_obs))
    own_eyes, actor = learned
    distribution = actor(joined(batch.obs, features | own_eyes.features(batch.obs)))
    action, log_prob = squashed_draw(distribution, batch.noise, bounded)
    obs = joined(batch.critic_obs, features)
    value = values(networks.critics, obs, action).min(axis=0)
    temperature = jnp.exp(networks.log_temperature)
    return (temperature * log_prob - value).mean(), -log_prob.mean()


def temperature_gradient(log_temperature: Array, entropy: Array, wanted: Array) -> Array:
    """By the temperature's logarithm, of temperature times the entropy's excess: equation 18."""
    return jnp.exp(log_temperature) * (entropy - wanted)
