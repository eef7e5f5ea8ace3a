"""The configuration that all algorithms share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from worldline.errors import ConfigError
from worldline.learn.augmentation import Augmentation
from worldline.learn.batched_env import BatchedEnv, EnvSpec
from worldline.learn.networks.mlp import Activation
from worldline.learn.networks.vision import Architecture, ImageEncoder, Observed
from worldline.learn.policy import select
from worldline.rendering.camera import image_names, image_shapes
from worldline.settings import Count, NotNegative, Number, Share, Units, check_settings
from worldline.types import Key, Observation

#: The most environment steps in an update: they are counted in 32 bits.
_MOST_STEPS = 2**31 - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """Settings that all algorithms have: acting, and the sizes of networks.

    Raises:
        ConfigError: a value is out of its range.
    """

    num_worlds: Count
    """The number of worlds to simulate at the same time (B)."""
    unroll_length: Count
    """Control steps that each world takes in an update (T)."""
    discount: Share = 0.99
    """Discount factor (gamma) per control step."""
    actor_obs: tuple[str, ...] = ("state",)
    """The parts of the observation that the policy reads, if the observation is a dict."""
    normalize_observations: bool = True
    """Normalise observations by their running mean and variance."""
    actor_hidden: tuple[Units, ...] = (64, 64)
    """Hidden layers of the policy."""
    critic_hidden: tuple[Units, ...] = (64, 64)
    """Hidden layers of the value function."""
    activation: Activation
    """The activation function of the hidden layers."""

    @property
    def steps_per_update(self) -> int:
        """Environment steps in a round of acting, over all worlds: `B * T`."""
        return self.num_worlds * self.unroll_length

    def check_worlds(self, worlds: BatchedEnv[Any]) -> None:
        """Checks the number of worlds, and that networks can read the observations.

        Raises:
            ConfigError: the number is not `num_worlds`; or a part of the observation is neither a
                vector nor an image.
        """
        if worlds.num_worlds != self.num_worlds:
            raise ConfigError(
                f"there are {worlds.num_worlds} worlds, but num_worlds is {self.num_worlds}; make "
                "them equal"
            )
        space = worlds.env.observation_space
        parts = getattr(space, "spaces", {"state": space})
        for name in {*self.obs_read}.intersection(parts).difference(image_names(self.obs_read)):
            if len(parts[name].shape) != 1:
                raise ConfigError(
                    f"the observation {name!r} has shape {parts[name].shape}, but networks read "
                    "vectors; give x[None] for a number, x.ravel() for a matrix"
                )

    @property
    def obs_read(self) -> tuple[str, ...]:
        """The parts of a dict of observations that networks read."""
        return self.actor_obs

    def __post_init__(self) -> None:
        check_settings(self)
        if self.steps_per_update > _MOST_STEPS:
            raise ConfigError(
                f"num_worlds is {self.num_worlds} and unroll_length is {self.unroll_length}: an "
                f"update has more than {_MOST_STEPS:,} steps; reduce one of the two"
            )
        if not all(self.obs_read):
            raise ConfigError("actor_obs has a part without a name; give names of parts")
        if not self.actor_obs:
            raise ConfigError("actor_obs is empty; name the parts of the observation to read")

    def _check_minibatches(self, minibatches: int) -> None:
        if self.steps_per_update % minibatches:
            raise ConfigError(
                f"{self.num_worlds} worlds x {self.unroll_length} steps = "
                f"{self.steps_per_update} do not divide into {minibatches} minibatches; "
                "change one of the three"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageLearnerConfig(LearnerConfig):
    """Settings of an algorithm that can read images. Its critic may read more than its policy."""

    critic_obs: tuple[str, ...] | None = None
    """The parts of the observation that the critic reads. None: what the policy reads, and
    `privileged_state` if there is one."""
    encoder: Architecture = "patches"
    """The network that encodes images."""
    image_features: Units = 128
    """The number of features that the encoder makes of an image."""
    normalize_channels: bool = False
    """Normalise each channel of an image to mean 0 and variance 1."""
    random_shift: Number = 0
    """Shift images by up to this number of pixels at random while learning."""
    brightness: NotNegative = 0.0
    """Change the brightness of images at random while learning, by up to this share of the full
    range."""
    contrast: NotNegative = 0.0
    """Change the contrast of images at random while learning, by up to this share."""
    cutout: Number = 0
    """Cover a square at a random position of each image while learning. This is its side in pixels.
    """

    @property
    def obs_read(self) -> tuple[str, ...]:
        """The parts that the policy or the critic reads, if the observation has them."""
        critic = ("privileged_state",) if self.critic_obs is None else self.critic_obs
        return (*self.actor_obs, *critic)

    def critic_keys(self, obs: Observation) -> tuple[str, ...]:
        """The parts of an observation that the critic reads, as `critic_obs` says."""
        if self.critic_obs is not None:
            return tuple(self.critic_obs)
        privileged = {"privileged_state"} & (obs.keys() if isinstance(obs, dict) else set())
        return (*self.actor_obs, *(privileged - set(self.actor_obs)))

    def select(self, obs: Observation) -> tuple[Observed, Observed]:
        """The parts of an observation for the policy, and the parts for the critic."""
        return select(obs, self.actor_obs), select(obs, self.critic_keys(obs))

    def image_shapes(self, env: EnvSpec) -> dict[str, tuple[int, ...]]:
        """The shape of each image that policy or critic reads: height, width, channels.

        Raises:
            ConfigError: the environment has no such image.
        """
        names = image_names(sorted(set(self.obs_read)))
        return image_shapes(env.observation_space, names) if names else {}

    def image_encoder(self, key: Key, shapes: Mapping[str, Sequence[int]]) -> ImageEncoder:
        """Encoders before training of images of these shapes: height, width, channels."""
        return ImageEncoder.initial(
            key,
            shapes,
            self.encoder,
            self.image_features,
            normalize_channels=self.normalize_channels,
        )

    @property
    def augmentation(self) -> Augmentation:
        """The random changes of images in learning."""
        return Augmentation(
            shift=self.random_shift,
            brightness=self.brightness,
            contrast=self.contrast,
            cutout=self.cutout,
        )
