"""A policy and a value function that are trained together, and the samples that they read."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax

from worldline.errors import ConfigError
from worldline.learn.networks.network import Network
from worldline.learn.networks.vision import ImageEncoder, Observed
from worldline.rendering.camera import image_names
from worldline.types import Array, PyTree


class Segments(NamedTuple):
    """Samples for learning: n steps, or for networks with a memory T steps of each of n worlds.

    Leaves begin with `(n,)`, or with `(n, T)`.
    """

    obs: Observed
    """What the policy observes, normalised."""
    critic_obs: Observed
    """What the critic observes, normalised."""
    first: Array
    """Whether a new episode begins with the step, bool."""
    memory: PyTree
    """The policy's memory before the first step, `(n, ...)`."""
    critic_memory: PyTree
    """The critic's memory before the first step, `(n, ...)`."""


class ActorCritic(eqx.Module):
    """A policy and a value function, with encoders of the images that they observe."""

    actor: Network
    """The policy: from its observation, `(..., nobs)`, to a distribution of unbounded actions."""
    critic: Network
    """The value function: from its observation, `(..., ncritic)`, to a value, `(..., 1)`."""
    encoder: ImageEncoder = eqx.field(default_factory=ImageEncoder)
    """Encodes the images that the policy observes."""
    critic_encoder: ImageEncoder | None = eqx.field(default_factory=ImageEncoder)
    """Encodes the images that the critic observes; None: actor and critic observe the same and
    share `encoder`."""

    def __check_init__(self) -> None:
        for name in ("actor", "critic"):
            network = getattr(self, name)
            if not isinstance(network, Network):
                raise ConfigError(
                    f"{name} is a {type(network).__name__}; derive its class from "
                    "worldline.learn.networks.network.Network"
                )

    @property
    def remembers(self) -> bool:
        """Whether actor or critic has a memory."""
        return bool(jax.tree.leaves((self.actor.start(), self.critic.start())))

    def value(self, memory: PyTree, critic_obs: Observed) -> tuple[PyTree, Array]:
        """The critic's memory after a step, and the value, `(...)`."""
        memory, value = self.critic.step(memory, self._encoder_of_critic(critic_obs))
        return memory, value[..., 0]

    def values(self, memory: PyTree, critic_obs: Observed, first: Array) -> tuple[PyTree, Array]:
        """The critic's memory after each of T steps, as `Network.over`, and the values `(T, n)`."""
        memory, value = self.critic.over(memory, self._encoder_of_critic(critic_obs), first)
        return memory, value[..., 0]

    def evaluate(self, segments: Segments) -> tuple[Any, Array]:
        """The distribution of actions at each step, and its value: `(n, ...)` or `(n, T, ...)`."""
        read = segments.obs, segments.critic_obs, segments.first
        if not self.remembers:
            return self._over((), (), *read)
        memories = segments.memory, segments.critic_memory
        steps_first = self._over(*memories, *jax.tree.map(_swapped, read))
        return jax.tree.map(_swapped, steps_first)

    def _over(
        self, memory: PyTree, critic_memory: PyTree, obs: Observed, critic_obs: Observed, first: Any
    ) -> tuple[Any, Array]:
        seen = self.encoder(obs)
        seen_by_critic = seen if self.critic_encoder is None else self.critic_encoder(critic_obs)
        _, distribution = self.actor.over(memory, seen, first)
        _, value = self.critic.over(critic_memory, seen_by_critic, first)
        return distribution, value[..., 0]

    @property
    def _encoder_of_critic(self) -> ImageEncoder:
        return self.encoder if self.critic_encoder is None else self.critic_encoder

    def centred(self, obs: Observed, critic_obs: Observed) -> ActorCritic:
        """The same networks with encoders that subtract the mean image of these observations, `(n,
        ...)`.

        Raises:
            ConfigError: an image has no encoder.
        """
        other = self.critic_encoder
        for seen, encoder in ((obs, self.encoder), (critic_obs, self._encoder_of_critic)):
            if missing := sorted(set(image_names(seen)) - set(encoder.names)):
                raise ConfigError(
                    f"the networks have no encoder for the image {missing[0]!r}; give ActorCritic "
                    "an ImageEncoder, or take the image out of actor_obs and critic_obs"
                )
        return ActorCritic(
            self.actor, self.critic, self.encoder.centred(obs), other and other.centred(critic_obs)
        )

    def parts(self) -> dict[str, PyTree]:
        """Parts with which another run can begin; a shared encoder belongs to both parts."""
        return {
            "actor": (self.encoder, self.actor),
            "critic": (self._encoder_of_critic, self.critic),
        }


def _swapped(x: Array) -> Array:
    return x.swapaxes(0, 1)
