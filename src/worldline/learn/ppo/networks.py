"""The networks of PPO, made from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import jax

from worldline.learn.networks.actor_critic import ActorCritic
from worldline.learn.networks.mlp import MLP, Actor
from worldline.learn.networks.network import Network
from worldline.learn.networks.recurrent import GRU, GRUNetwork
from worldline.learn.networks.vision import ImageEncoder
from worldline.learn.ppo.config import PPOConfig
from worldline.rendering.camera import image_names
from worldline.types import Key

#: Makes the networks from a key, how many numbers the policy and the critic observe, and the size
#: of an action.
MakeNetworks: TypeAlias = Callable[[Key, int, int, int], ActorCritic]


def actor_critic(
    config: PPOConfig, images: Mapping[str, Sequence[int]] | None = None
) -> MakeNetworks:
    """Dense layers for policy and critic; the standard deviation of each action is a parameter.

    With a `recurrent_size`, each has a gated recurrent unit before its dense layers. Each observed
    image has an encoder before them.

    Args:
        config: the sizes. `actor_obs` and `critic_obs` name the images that each network observes.
        images: the shape of each image: height, width, channels.
    """
    critic_obs = config.actor_obs if config.critic_obs is None else config.critic_obs
    same_obs = config.share_encoder and critic_obs == config.actor_obs

    def make(key: Key, nobs: int, ncritic: int, nact: int) -> ActorCritic:
        encoder, critic_encoder = ImageEncoder(), ImageEncoder()
        shared = bool(images) and same_obs and nobs == ncritic and not config.recurrent_size
        if images:
            key, *encoder_keys = jax.random.split(key, 3)
            encoder, critic_encoder = (
                config.image_encoder(k, {name: images[name] for name in image_names(names)})
                for k, names in zip(encoder_keys, (config.actor_obs, critic_obs), strict=True)
            )
        sizes = nobs + encoder.size, ncritic + critic_encoder.size, nact
        actor, critic = _networks(config, key, *sizes)
        return ActorCritic(actor, critic, encoder, None if shared else critic_encoder)

    return make


def _networks(
    config: PPOConfig, key: Key, nobs: int, ncritic: int, nact: int
) -> tuple[Network, Network]:
    """Policy and critic of so many numbers, with a memory where there is a size for one."""
    size = config.recurrent_size
    key, *memory_keys = jax.random.split(key, 3) if size else [key]
    actor_key, critic_key = jax.random.split(key)
    actor = Actor.initial(
        actor_key,
        (nobs + size, *config.actor_hidden, nact),
        config.activation,
        config.initial_log_std,
    )
    critic_sizes = (ncritic + size, *config.critic_hidden, 1)
    critic = MLP.initial(critic_key, critic_sizes, config.activation, last_gain=1.0)
    if not size:
        return actor, critic
    units = (GRU.initial(k, n, size) for k, n in zip(memory_keys, (nobs, ncritic), strict=True))
    return GRUNetwork(next(units), actor), GRUNetwork(next(units), critic)
