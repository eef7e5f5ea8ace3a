"""The networks of SAC: a policy, critics, and encoders of the images that they observe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

from worldline.errors import ConfigError
from worldline.learn.nets import MLP, Gaussian, StateDependentActor, log_tanh_slope
from worldline.learn.sac_config import SACConfig
from worldline.learn.vision import Eyes, SeeingActor
from worldline.pixels.camera import image_names
from worldline.types import Array, Key


class Networks(eqx.Module):
    """What gradients change."""

    eyes: Eyes
    """Encoders of the images that the critics observe, which alone change them; the policy looks
    through them too: Yarats et al. (2021), "Improving sample efficiency in model-free reinforcement
    learning from images". None where nobody sees."""
    actor: StateDependentActor
    """The policy, of what the eyes make of what it observes."""
    critics: MLP
    """The values of an observation, likewise, and an action; its leaves begin with the number of
    critics."""
    log_temperature: Array

    def policy(self, obs_keys: Sequence[str]) -> StateDependentActor | SeeingActor:
        """The policy of normalised observations of these parts."""
        images = image_names(obs_keys)
        return SeeingActor(self.eyes.only(images), self.actor) if images else self.actor


def initial_networks(
    config: SACConfig,
    key: Key,
    nobs: int,
    ncritic: int,
    nact: int,
    images: Mapping[str, Sequence[int]],
) -> Networks:
    """Networks before training.

    Args:
        config: how they are, and which images the policy observes.
        key: decides the weights.
        nobs: numbers that the policy observes.
        ncritic: numbers that the critics observe.
        nact: the size of an action.
        images: the shape of each image that the critics observe: height, width, channels.

    Raises:
        ConfigError: the policy observes an image that the critics do not, or one is too small.
    """
    of_actor = image_names(config.actor_obs)
    for name in of_actor:
        if name not in images:
            raise ConfigError(
                f"the policy observes {name!r} and the critics do not, from whose loss alone its "
                "encoder learns; add it to critic_obs"
            )
    actor_key, critic_key, eyes_key = jax.random.split(key, 3)
    size = config.image_features
    actor_sizes = (nobs + size * len(of_actor), *config.actor_hidden, 2 * nact)
    critic_sizes = (ncritic + size * len(images) + nact, *config.critic_hidden, 1)

    def critic(key: Key) -> MLP:
        return MLP.initial(
            key, critic_sizes, config.activation, last_gain=1.0, layer_norm=config.layer_norm
        )

    return Networks(
        eyes=Eyes.initial(
            eyes_key, images, config.encoder, size, normalize_channels=config.normalize_channels
        ),
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
