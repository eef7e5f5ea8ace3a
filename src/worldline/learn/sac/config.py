"""The configuration of `sac`."""

from __future__ import annotations

import dataclasses

from worldline.errors import ConfigError
from worldline.learn.augmentation import Augmentation
from worldline.learn.networks.mlp import ACTIVATIONS, Activation
from worldline.learn.networks.vision import Architecture


@dataclasses.dataclass(frozen=True, kw_only=True)
class SACConfig:
    """How SAC trains."""

    num_worlds: int = 16
    """Worlds that act side by side (B)."""
    unroll_length: int = 16
    """Control steps each world takes between two rounds of learning (T)."""
    critic_steps: int = 128
    """Gradient steps of the critics in a round; over num_worlds * unroll_length it is the number of
    them for each environment step."""
    actor_delay: int = 2
    """Gradient steps of the critics to one of the policy and the temperature; divides critic_steps.
    """
    batch_size: int = 256
    """Transitions that a gradient step looks at, drawn anew for each."""
    replay_capacity: int = 1_000_000
    """Transitions remembered."""
    learning_starts: int = 5000
    """Environment steps, over all worlds, before the first gradient step; the first policy's
    actions are spread over their whole range."""
    learning_rate: float = 3e-4
    """Of Adam, for the policy and the temperature."""
    critic_learning_rate: float = 1e-3
    """Of Adam, for the critics."""
    target_rate: float = 0.005
    """How far the target critics go to the critics in a gradient step, in (0, 1]."""
    discount: float = 0.99
    """Per control step."""
    target_entropy: float = -1.0
    """Entropy that the temperature holds the policy at: nats for each action, with actions in
    [-1, 1]."""
    initial_temperature: float = 0.1
    """Weight of the entropy before the first gradient step."""
    num_critics: int = 2
    """Critics of which the lowest counts."""
    actor_obs: tuple[str, ...] = ("state",)
    """Parts of a dict of observations that the policy reads."""
    critic_obs: tuple[str, ...] | None = None
    """Parts that the critics read; None: the policy's, and `privileged_state` where there is one.
    """
    normalize_observations: bool = True
    """By the running mean and variance of all observations."""
    layer_norm: bool = True
    """In the critics, before each activation."""
    actor_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the policy."""
    critic_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of each critic."""
    activation: Activation = "relu"
    """Between layers."""
    encoder: Architecture = "patches"
    """How images are looked at, where any are observed."""
    image_features: int = 128
    """Numbers that an encoder makes of each image."""
    normalize_channels: bool = False
    """Whether each channel of an image is brought to mean 0 and variance 1."""
    random_shift: int = 0
    """Images are shifted by up to so many pixels, each anew in every gradient step."""
    brightness: float = 0.0
    """Up to this share of the full range is added to colours, or taken from them; likewise."""
    contrast: float = 0.0
    """Colours move by up to this share from their mean, or towards it; likewise."""
    cutout: int = 0
    """The side of a grey square somewhere in each image, in pixels; likewise."""

    @property
    def augmentation(self) -> Augmentation:
        """How images are changed to learn from."""
        return Augmentation(
            shift=self.random_shift,
            brightness=self.brightness,
            contrast=self.contrast,
            cutout=self.cutout,
        )

    def __post_init__(self) -> None:
        sizes = ("num_worlds", "unroll_length", "critic_steps", "actor_delay", "batch_size")
        rates = ("learning_rate", "critic_learning_rate", "target_rate", "initial_temperature")
        for name in (*sizes, *rates, "num_critics"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be positive")
        for name in ("discount", "target_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be in [0, 1]")
        _ = self.augmentation
        if self.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ConfigError(f"activation is {self.activation!r}; there are {known}")
        if self.critic_steps % self.actor_delay:
            raise ConfigError(
                f"critic_steps is {self.critic_steps} and actor_delay {self.actor_delay}; "
                "the first must be a multiple of the second"
            )
        steps = self.num_worlds * self.unroll_length
        if self.replay_capacity < 2 * steps:
            raise ConfigError(
                f"replay_capacity is {self.replay_capacity}; {self.num_worlds} worlds x "
                f"{self.unroll_length} steps need {2 * steps} or more"
            )
