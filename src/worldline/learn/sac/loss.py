"""The losses of SAC's critics and policy.

Images are encoded once for each loss, with the critics' encoder; policy and critics read the same
features. Only the critics' loss changes those encoders (Yarats et al. 2021, "Mastering visual
continuous control: improved data-augmented reinforcement learning", section 3.1). The targets are
computed with the current encoders; there are no target encoders. If only the policy observes an
image, its encoder learns from the policy's loss.
"""

from __future__ import annotations

import functools
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from worldline.learn.augmentation import Draws, changed, draw_changes
from worldline.learn.networks.mlp import MLP, StateDependentActor
from worldline.learn.networks.vision import ImageEncoder, Observed, joined
from worldline.learn.normalizer import ObservationStatistics
from worldline.learn.replay import Transitions
from worldline.learn.sac.config import SACConfig
from worldline.learn.sac.networks import Networks, squashed_draw, values
from worldline.rendering.camera import image_names
from worldline.types import Array, Key, Observation


class Batch(NamedTuple):
    """The transitions of a gradient step; every leaf begins with their number, n."""

    obs: Observed
    """The policy's observation, normalised."""
    critic_obs: Observed
    """The critics' observation, normalised."""
    action: Array
    """The action, in [-1, 1] if it has bounds."""
    reward: Array
    terminated: Array
    next_obs: Observed
    next_critic_obs: Observed
    noise: Array
    """Standard normal noise, `(n, nact)`, which draws the policy's actions."""


#: How the images before a step are changed, and those after it: by name, `(n, ...)` a leaf.
Changes: TypeAlias = tuple[dict[str, Draws], dict[str, Draws]]


def image_changes(config: SACConfig, key: Key, number: int, obs: Observation) -> Changes:
    """Draws how the images of `number` transitions are changed, before and after the step.

    Args:
        config: says how, and which images are read; without such, nothing is drawn.
        key: of the changes.
        number: n.
        obs: an observation of any size, which has the names of the images.
    """
    seen = config.select(obs)
    if not (config.augmentation and image_names(seen[0] | seen[1])):
        return {}, {}
    now_key, next_key = jax.random.split(key)
    now, after = (
        draw_changes(config.augmentation, key, number, *seen) for key in (now_key, next_key)
    )
    return now, after


def batch_of(
    config: SACConfig,
    statistics: ObservationStatistics,
    transitions: Transitions,
    noise: Array,
    changes: Changes,
) -> Batch:
    """Transitions in the form that the networks read.

    Args:
        config: determines the observations of policy and critics, and the changes of images.
        statistics: normalise the observations.
        transitions: n of them.
        noise: `Batch.noise`.
        changes: of their images, from `image_changes`.
    """

    def read(obs: Observation, changes: dict[str, Draws]) -> tuple[Observed, Observed]:
        """What policy and critics read; an image that both read is changed alike for both."""
        seen, critic_seen = statistics.normalize(*config.select(obs))
        if not changes:
            return seen, critic_seen
        change = functools.partial(changed, config.augmentation, changes, jnp.arange(len(noise)))
        return change(seen), change(critic_seen)

    obs, critic_obs = read(transitions.obs, changes[0])
    next_obs, next_critic_obs = read(transitions.next_obs, changes[1])
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


def soft_target(
    networks: Networks,
    target_critics: MLP,
    batch: Batch,
    discount: Array,
    bounded: Array,
) -> Array:
    """The critics' target, `(n,)`: Haarnoja et al. (2018), equations 3 and 5, one action drawn.

    No value follows a termination. After a truncation, the value of the true successor is used.
    """
    features = networks.encoder.features(batch.next_critic_obs)
    own = networks.actor_encoder.features(batch.next_obs)
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
        learned: the critics' encoder, and the critics.
        batch: transitions.
        target: `(n,)`.

    Returns:
        The loss and the mean value, `()` each.
    """
    encoder, critics = learned
    value = values(critics, encoder(batch.critic_obs), batch.action)
    return 0.5 * ((value - target) ** 2).mean(axis=1).sum(), value.mean()


def actor_loss(
    learned: tuple[ImageEncoder, StateDependentActor],
    networks: Networks,
    batch: Batch,
    bounded: Array,
) -> tuple[Array, Array]:
    """Haarnoja et al. (2018), equation 7.

    Args:
        learned: the encoder of the images that only the policy observes, and the policy.
        networks: all other networks, which do not change.
        batch: transitions, with noise to draw the policy's actions at `obs`.
        bounded: which actions have bounds, `(nact,)` bool.

    Returns:
        The loss and the policy's entropy, `()` each.
    """
    features = jax.lax.stop_gradient(networks.encoder.features(batch.critic_obs))
    actor_encoder, actor = learned
    distribution = actor(joined(batch.obs, features | actor_encoder.features(batch.obs)))
    action, log_prob = squashed_draw(distribution, batch.noise, bounded)
    obs = joined(batch.critic_obs, features)
    value = values(networks.critics, obs, action).min(axis=0)
    temperature = jnp.exp(networks.log_temperature)
    return (temperature * log_prob - value).mean(), -log_prob.mean()
