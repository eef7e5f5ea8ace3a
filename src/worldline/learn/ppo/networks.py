"""The networks of PPO, made from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from worldline.env.mirror import Mirror
from worldline.env.symmetry import symmetry_of
from worldline.learn.batched_env import EnvSpec
from worldline.learn.networks.actor_critic import ActorCritic
from worldline.learn.networks.equivariant import SAME, EquivariantActor, EquivariantMLP
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


class Mirrors(NamedTuple):
    """What becomes of what networks read and give where left and right are exchanged."""

    actor_obs: Mirror
    """Of what the policy observes."""
    critic_obs: Mirror
    """Of what the critic observes."""
    action: Mirror
    """Of an action."""


def mirrors_of(config: PPOConfig, env: EnvSpec) -> Mirrors:
    """The mirrors of what the configuration's networks read of an environment, and of its action.

    Raises:
        ConfigError: the environment declares no symmetry, or a part that is read has none.
    """
    parts: Any = getattr(env.observation_space, "spaces", {})
    critic = config.critic_keys(dict(parts))
    (actor_obs, action), (critic_obs, _) = (
        symmetry_of(env, keys) for keys in (config.actor_obs, critic)
    )
    return Mirrors(actor_obs, critic_obs, action)


def actor_critic(
    config: PPOConfig,
    images: Mapping[str, Sequence[int]] | None = None,
    mirrors: Mirrors | None = None,
) -> MakeNetworks:
    """Dense layers for policy and critic; the standard deviation of each action is a parameter.

    With a `recurrent_size`, each has a gated recurrent unit before its dense layers. Each observed
    image has an encoder before them.

    Args:
        config: the sizes. `actor_obs` and `critic_obs` name the images that each network observes.
        images: the shape of each image: height, width, channels.
        mirrors: for networks that are symmetric to left and right; they see no images.
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
        actor, critic = (
            _symmetric(config, key, mirrors) if mirrors else _networks(config, key, *sizes)
        )
        return ActorCritic(actor, critic, encoder, None if shared else critic_encoder)

    return make


def _symmetric(config: PPOConfig, key: Key, mirrors: Mirrors) -> tuple[Network, Network]:
    """Policy and critic that are symmetric to left and right."""
    actor_key, critic_key = jax.random.split(key)
    mean = EquivariantMLP.initial(
        actor_key,
        config.actor_hidden,
        config.activation,
        0.01,
        (mirrors.actor_obs, mirrors.action),
    )
    log_std = jnp.full(len(mirrors.action), jnp.float32(config.initial_log_std))
    critic = EquivariantMLP.initial(
        critic_key, config.critic_hidden, config.activation, 1.0, (mirrors.critic_obs, SAME)
    )
    return EquivariantActor(mean, log_std), critic


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
