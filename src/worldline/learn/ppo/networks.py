"""The networks of PPO, made as its configuration says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp

from worldline.learn.batched_env import EnvSpec
from worldline.learn.networks.actor_critic import ActorCritic
from worldline.learn.networks.mlp import MLP, Actor
from worldline.learn.networks.network import Network
from worldline.learn.networks.recurrent import GRU, GRUNetwork
from worldline.learn.networks.vision import ImageEncoder
from worldline.learn.ppo.config import PPOConfig
from worldline.rendering.camera import image_names, image_shapes
from worldline.types import Key

#: Makes the networks from a key and the sizes of what the policy observes, of what the critic
#: observes, and of an action.
MakeNetworks: TypeAlias = Callable[[Key, int, int, int], ActorCritic]


def actor_critic(
    config: PPOConfig, images: Mapping[str, Sequence[int]] | None = None
) -> MakeNetworks:
    """Dense layers for both; the standard deviation of the actions is a parameter for each.

    With a `recurrent_size` each has a gated recurrent unit before them, and with images an encoder
    for each image before that.

    Args:
        config: the sizes; the images that each observes are in `actor_obs` and `critic_obs`.
        images: the shape of each image: height, width, channels.
    """
    critic_obs = config.actor_obs if config.critic_obs is None else config.critic_obs
    of_actor, of_critic = (
        {name: (images or {})[name] for name in image_names(keys)}
        for keys in (config.actor_obs, critic_obs)
    )
    same_obs = config.share_encoder and critic_obs == config.actor_obs

    def make(key: Key, nobs: int, ncritic: int, nact: int) -> ActorCritic:
        encoder = ImageEncoder()
        critic_encoder: ImageEncoder | None = ImageEncoder()
        if images:
            key, actor_key, critic_key = jax.random.split(key, 3)
            encoder = _encoder(config, actor_key, of_actor)
            shared = same_obs and nobs == ncritic and not config.recurrent_size
            critic_encoder = None if shared else _encoder(config, critic_key, of_critic)
            nobs += encoder.size
            ncritic += config.image_features * len(of_critic)
        actor, critic = _networks(config, key, nobs, ncritic, nact)
        return ActorCritic(actor, critic, encoder, critic_encoder)

    return make


def _encoder(config: PPOConfig, key: Key, images: Mapping[str, Sequence[int]]) -> ImageEncoder:
    return ImageEncoder.initial(
        key,
        images,
        config.encoder,
        config.image_features,
        normalize_channels=config.normalize_channels,
    )


def _networks(
    config: PPOConfig, key: Key, nobs: int, ncritic: int, nact: int
) -> tuple[Network, Network]:
    """Actor and critic on inputs of these sizes, with a memory where there is a size for one."""
    size = config.recurrent_size
    if not size:
        return _dense(config, key, nobs, ncritic, nact)
    head_key, actor_key, critic_key = jax.random.split(key, 3)
    actor, critic = _dense(config, head_key, nobs + size, ncritic + size, nact)
    return (
        GRUNetwork(GRU.initial(actor_key, nobs, size), actor),
        GRUNetwork(GRU.initial(critic_key, ncritic, size), critic),
    )


def _dense(
    config: PPOConfig, key: Key, nobs: int, ncritic: int, nact: int
) -> tuple[Network, Network]:
    actor_key, critic_key = jax.random.split(key)
    actor_sizes = (nobs, *config.actor_hidden, nact)
    critic_sizes = (ncritic, *config.critic_hidden, 1)
    actor = Actor(
        mean=MLP.initial(actor_key, actor_sizes, config.activation, last_gain=0.01),
        log_std=jnp.full(nact, jnp.float32(config.initial_log_std)),
    )
    return actor, MLP.initial(critic_key, critic_sizes, config.activation, last_gain=1.0)


def networks_for(config: PPOConfig, env: EnvSpec) -> MakeNetworks:
    """Networks for what policy and critic observe of an environment.

    Raises:
        ConfigError: there is no such image to observe.
    """
    names = image_names({*config.actor_obs, *(config.critic_obs or ())})
    return actor_critic(config, image_shapes(env.observation_space, names) if names else None)
