"""The networks of PPO, made as its configuration says: dense, with a memory, or seeing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp

from worldline.learn.batched_env import EnvSpec
from worldline.learn.networks.mlp import MLP, Actor
from worldline.learn.networks.recurrent import GRU, GRUNetwork
from worldline.learn.networks.vision import (
    ImageEncoder,
    PixelActor,
    PixelCritic,
    PixelRecurrent,
    SharedImageEncoder,
)
from worldline.learn.ppo.config import PPOConfig
from worldline.rendering.camera import image_names, image_shapes
from worldline.types import Key, PyTree


class Networks(eqx.Module):
    """What gradients change."""

    actor: Any
    """From observations `(..., nobs)` to a distribution of raw actions, such as `Gaussian`; or a
    `Recurrent` that makes one."""
    critic: Any
    """From what it observes, `(..., ncritic)`, to a value, `(..., 1)`; or a `Recurrent`."""


#: Makes the networks from a key and the sizes of what the policy observes, of what the critic
#: observes, and of an action.
MakeNetworks: TypeAlias = Callable[[Key, int, int, int], Networks | SharedImageEncoder]


def mlp_networks(config: PPOConfig) -> MakeNetworks:
    """Dense layers for both; the policy's spread is a parameter for each action."""
    return functools.partial(_dense, config)


def _dense(config: PPOConfig, key: Key, nobs: int, ncritic: int, nact: int) -> Networks:
    actor_key, critic_key = jax.random.split(key)
    actor_sizes = (nobs, *config.actor_hidden, nact)
    critic_sizes = (ncritic, *config.critic_hidden, 1)
    return Networks(
        actor=Actor(
            mean=MLP.initial(actor_key, actor_sizes, config.activation, last_gain=0.01),
            log_std=jnp.full(nact, jnp.float32(config.initial_log_std)),
        ),
        critic=MLP.initial(critic_key, critic_sizes, config.activation, last_gain=1.0),
    )


def gru_networks(config: PPOConfig) -> Callable[[Key, int, int, int], Networks]:
    """A gated recurrent unit for each, and dense layers as in `mlp_networks` on what is observed
    and what is remembered.
    """

    def make(key: Key, nobs: int, ncritic: int, nact: int) -> Networks:
        head_key, actor_key, critic_key = jax.random.split(key, 3)
        size = config.recurrent_size
        heads = _dense(config, head_key, nobs + size, ncritic + size, nact)
        return Networks(
            actor=GRUNetwork(GRU.initial(actor_key, nobs, size), heads.actor),
            critic=GRUNetwork(GRU.initial(critic_key, ncritic, size), heads.critic),
        )

    return make


def pixel_networks(config: PPOConfig, images: Mapping[str, Sequence[int]]) -> MakeNetworks:
    """An encoder for each image, and dense layers as in `mlp_networks` on what it gives.

    Args:
        config: how they are; which images each observes is in `actor_obs` and `critic_obs`.
        images: the shape of each image: height, width, channels.
    """
    of_actor, of_critic = _seen(config, images)
    shared = config.share_encoder and config.critic_obs in (None, config.actor_obs)

    def make(key: Key, nobs: int, ncritic: int, nact: int) -> Networks | SharedImageEncoder:
        head_key, actor_key, critic_key = jax.random.split(key, 3)
        eyes = _eyes(config, actor_key, of_actor)
        sizes = nobs + eyes.size, ncritic + config.image_features * len(of_critic)
        heads = _dense(config, head_key, *sizes, nact)
        if shared and sizes[0] == sizes[1]:
            return SharedImageEncoder(eyes, heads.actor, heads.critic)
        return Networks(
            actor=PixelActor(eyes, heads.actor),
            critic=PixelCritic(_eyes(config, critic_key, of_critic), heads.critic),
        )

    return make


def pixel_gru_networks(config: PPOConfig, images: Mapping[str, Sequence[int]]) -> MakeNetworks:
    """An encoder for each image, and behind them a memory and dense layers as in `gru_networks`.

    Actor and critic look through encoders of their own. The arguments are as in `pixel_networks`.
    """
    of_actor, of_critic = _seen(config, images)
    with_memory = gru_networks(config)

    def make(key: Key, nobs: int, ncritic: int, nact: int) -> Networks:
        network_key, actor_key, critic_key = jax.random.split(key, 3)
        actor, critic = _eyes(config, actor_key, of_actor), _eyes(config, critic_key, of_critic)
        behind = with_memory(network_key, nobs + actor.size, ncritic + critic.size, nact)
        return Networks(
            actor=PixelRecurrent(actor, behind.actor),
            critic=PixelRecurrent(critic, behind.critic),
        )

    return make


def _seen(
    config: PPOConfig, images: Mapping[str, Sequence[int]]
) -> tuple[dict[str, Sequence[int]], dict[str, Sequence[int]]]:
    """The images that the actor observes, and those that the critic does."""
    critic_obs = config.actor_obs if config.critic_obs is None else config.critic_obs
    of_actor, of_critic = (
        {name: images[name] for name in image_names(keys)}
        for keys in (config.actor_obs, critic_obs)
    )
    return of_actor, of_critic


def _eyes(config: PPOConfig, key: Key, images: Mapping[str, Sequence[int]]) -> ImageEncoder:
    kind, features = config.encoder, config.image_features
    return ImageEncoder.initial(
        key, images, kind, features, normalize_channels=config.normalize_channels
    )


def networks_for(config: PPOConfig, env: EnvSpec) -> MakeNetworks:
    """Networks for what policy and critic observe.

    Raises:
        ConfigError: there is no such image to observe.
    """
    names = image_names({*config.actor_obs, *(config.critic_obs or ())})
    if not names:
        return gru_networks(config) if config.recurrent_size else mlp_networks(config)
    make = pixel_gru_networks if config.recurrent_size else pixel_networks
    return make(config, image_shapes(env.observation_space, names))


def part_of(networks: Any, name: str) -> PyTree:
    """The actor or the critic as parts of the tree: with shared encoders, those go with either."""
    if isinstance(networks, SharedImageEncoder):
        return networks.eyes, getattr(networks, f"{name}_head")
    return getattr(networks, name)


def heads_and_features(networks: Any, obs: Any, critic_obs: Any) -> tuple[Any, Any, Any]:
    """Networks and what they read, where they share encoders behind those: an image is encoded
    once.
    """
    if not isinstance(networks, SharedImageEncoder):
        return networks, obs, critic_obs
    features = networks.eyes(obs)
    return Networks(networks.actor_head, networks.critic_head), features, features
