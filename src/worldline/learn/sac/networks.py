"""The networks of SAC: a policy, critics, and encoders of the images that they observe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

from worldline.learn.networks.mlp import MLP, Gaussian, StateDependentActor, log_tanh_slope
from worldline.learn.networks.vision import ImageEncoder
from worldline.learn.sac.config import SACConfig
from worldline.rendering.camera import image_names
from worldline.types import Array, Key


class Networks(eqx.Module):
    """What gradients change."""

    eyes: ImageEncoder
    """Encoders of the images that the critics observe, which alone change them; the policy looks
    through them too: Yarats et al. (2021), "Improving sample efficiency in model-free reinforcement
    learning from images". None where the critics see nothing."""
    actor_eyes: ImageEncoder
    """Encoders of the images that the policy alone observes, which alone changes them, as where
    critics observe the state: Pinto et al. (2018), "Asymmetric actor critic for image-based robot
    learning"."""
    actor: StateDependentActor
    """The policy, of what the eyes make of what it observes."""
    critics: MLP
    """The values of an observation, likewise, and an action; its leaves begin with the number of
    critics."""
    log_temperature: Array

    def policy_encoder(self, obs_keys: Sequence[str]) -> ImageEncoder:
        """Encoders of the images among these parts of an observation, for the policy."""
        return self.eyes.only(image_names(obs_keys)).beside(self.actor_eyes)


def initial_networks(
    config: SACConfig,
    key: Key,
    nobs: int,
    ncritic: int,
    nact: int,
    images: Mapping[str, Sequence[int]],
    critic_obs: Sequence[str],
) -> Networks:
    """Networks before training.

    Args:
        config: how they are, and what the policy observes.
        key: decides the weights.
        nobs: numbers that the policy observes.
        ncritic: numbers that the critics observe.
        nact: the size of an action.
        images: the shape of each image that is observed: height, width, channels.
        critic_obs: what the critics observe.

    Raises:
        ConfigError: an image is too small.
    """
    actor_key, critic_key, eyes_key, actor_eyes_key = jax.random.split(key, 4)
    size, of_critics = config.image_features, image_names(critic_obs)
    of_actor = image_names(config.actor_obs)
    actor_sizes = (nobs + size * len(of_actor), *config.actor_hidden, 2 * nact)
    critic_sizes = (ncritic + size * len(of_critics) + nact, *config.critic_hidden, 1)

    def eyes(key: Key, names: Sequence[str]) -> ImageEncoder:
        shapes = {name: images[name] for name in names}
        return ImageEncoder.initial(
            key, shapes, config.encoder, size, normalize_channels=config.normalize_channels
        )

    def critic(key: Key) -> MLP:
        return MLP.initial(
            key, critic_sizes, config.activation, last_gain=1.0, layer_norm=config.layer_norm
        )

    return Networks(
        eyes=eyes(eyes_key, of_critics),
        actor_eyes=eyes(actor_eyes_key, [name for name in of_actor if name not in of_critics]),
        # So small a last gain makes the first actions tanh of a standard normal, everywhere:
        # nearly uniform.
        actor=StateDependentActor(
            MLP.initial(actor_key, actor_sizes, config.activation, last_gain=0.01)
        ),
        critics=jax.vmap(critic)(jax.random.split(critic_key, config.num_critics)),
        log_temperature=jnp.log(jnp.float32(config.initial_temperature)),
    )


def values(critics: MLP, obs: Array, action: Array) -> Array:
    """What each critic gives `n` observations and actions in [-1, 1], `(num_critics, n)`."""
    seen = jnp.concatenate([obs, action], axis=-1)
    return jax.vmap(lambda critic: critic(seen)[..., 0])(critics)


def squashed_draw(distribution: Gaussian, noise: Array, bounded: Array) -> tuple[Array, Array]:
    """The action that noise draws, in [-1, 1] where it is bounded, and its log density there.

    Haarnoja et al. (2018), appendix C, equation 26.

    Returns:
        The action `(..., nact)` and its log density `(...)`.
    """
    raw = distribution.at(noise)
    slope = jnp.where(bounded, log_tanh_slope(raw), 0.0)
    return squashed(raw, bounded), distribution.log_prob(raw) - slope.sum(axis=-1)


def squashed(raw: Array, bounded: Array) -> Array:
    """The policy's own choice, brought into [-1, 1] where the action is bounded."""
    return jnp.where(bounded, jnp.tanh(raw), raw)
