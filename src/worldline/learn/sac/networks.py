"""The networks of SAC: a policy, critics, and encoders of the images that they observe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

from worldline.learn.networks.mlp import MLP, Gaussian, StateDependentActor, log_tanh_slope
from worldline.learn.networks.vision import ImageEncoder, Observed
from worldline.learn.sac.config import SACConfig
from worldline.rendering.camera import image_names
from worldline.types import Array, Key


class Networks(eqx.Module):
    """The networks that gradients change."""

    encoder: ImageEncoder
    """Encodes the images that the critics observe, for critics and policy; only the critics' loss
    changes it: Yarats et al. (2021), "Improving sample efficiency in model-free reinforcement
    learning from images"."""
    actor_encoder: ImageEncoder
    """Encodes the images that only the policy observes, for example if critics observe the state;
    only the policy's loss changes it: Pinto et al. (2018), "Asymmetric actor critic for image-based
    robot learning"."""
    actor: StateDependentActor
    """From the policy's numbers and features to the distribution of actions."""
    critics: MLP
    """From the critics' numbers and features, and an action, to values; its leaves begin with the
    number of critics."""
    log_temperature: Array


def initial_networks(
    config: SACConfig,
    key: Key,
    obs: Observed,
    critic_obs: Observed,
    nact: int,
    shapes: Mapping[str, Sequence[int]],
) -> Networks:
    """Networks before training.

    Args:
        config: the settings of the networks.
        key: decides the weights.
        obs: the policy's observation; it gives the sizes, and encoders subtract its mean image.
        critic_obs: the same of the critics.
        nact: the size of an action.
        shapes: the shape of each image that is observed: height, width, channels.

    Raises:
        ConfigError: an image is too small.
    """
    actor_key, critic_key, *encoder_keys = jax.random.split(key, 4)
    of_critics, of_actor = image_names(critic_obs), image_names(obs)
    encoder, actor_encoder = (
        config.image_encoder(k, {name: shapes[name] for name in names})
        for k, names in zip(
            encoder_keys,
            (of_critics, [name for name in of_actor if name not in of_critics]),
            strict=True,
        )
    )
    nobs, ncritic = (
        seen["state"].shape[-1] + config.image_features * len(image_names(seen))
        for seen in (obs, critic_obs)
    )
    actor_sizes = (nobs, *config.actor_hidden, 2 * nact)
    critic_sizes = (ncritic + nact, *config.critic_hidden, 1)

    def critic(key: Key) -> MLP:
        return MLP.initial(
            key, critic_sizes, config.activation, last_gain=1.0, layer_norm=config.layer_norm
        )

    return Networks(
        encoder=encoder.centred(critic_obs),
        actor_encoder=actor_encoder.centred(obs),
        # So small a last gain makes the first actions tanh of a standard normal, everywhere:
        # nearly uniform.
        actor=StateDependentActor(
            MLP.initial(actor_key, actor_sizes, config.activation, last_gain=0.01)
        ),
        critics=jax.vmap(critic)(jax.random.split(critic_key, config.num_critics)),
        log_temperature=jnp.log(jnp.float32(config.initial_temperature)),
    )


def values(critics: MLP, obs: Array, action: Array) -> Array:
    """Each critic's value of `n` observations and actions in [-1, 1], `(num_critics, n)`."""
    seen = jnp.concatenate([obs, action], axis=-1)
    return jax.vmap(lambda critic: critic(seen)[..., 0])(critics)


def squashed_draw(distribution: Gaussian, noise: Array, bounded: Array) -> tuple[Array, Array]:
    """The action that noise draws, in [-1, 1] if it is bounded, and its log density there.

    Haarnoja et al. (2018), appendix C, equation 26.

    Returns:
        The action `(..., nact)` and its log density `(...)`.
    """
    raw = distribution.at(noise)
    slope = jnp.where(bounded, log_tanh_slope(raw), 0.0)
    return squashed(raw, bounded), distribution.log_prob(raw) - slope.sum(axis=-1)


def squashed(raw: Array, bounded: Array) -> Array:
    """The policy's most likely action, in [-1, 1] if it is bounded."""
    return jnp.where(bounded, jnp.tanh(raw), raw)
