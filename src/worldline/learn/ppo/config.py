"""The configuration of `ppo`."""

from __future__ import annotations

import dataclasses

from worldline.errors import ConfigError
from worldline.learn.augmentation import Augmentation
from worldline.learn.networks.mlp import ACTIVATIONS, Activation
from worldline.learn.networks.vision import Architecture
from worldline.learn.policy import Squash


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """How PPO trains. The defaults suit small bodies; each task brings its own beside it."""

    num_worlds: int = 128
    """Worlds that act side by side (B)."""
    unroll_length: int = 64
    """Control steps each world takes between two rounds of learning (T)."""
    epochs: int = 5
    """Passes over a rollout."""
    minibatches: int = 16
    """Gradient steps in a pass; divides num_worlds * unroll_length."""
    learning_rate: float = 1e-3
    """Of Adam; where it starts, if it is annealed or adaptive. Twice that is the most it can be."""
    anneal_steps: int = 0
    """Environment steps over which the learning rate falls linearly to a tenth; 0: it stays."""
    target_kl: float = 0.02
    """KL divergence at the end of a pass that the learning rate is led to; 0: it is fixed."""
    discount: float = 0.99
    """Per control step."""
    gae_lambda: float = 0.95
    """Of generalised advantage estimation."""
    clip: float = 0.2
    """How far the probability ratio may go from 1 before its gradient stops."""
    value_clip: float = 0.0
    """The same for the value, in units of its target's scale; 0: not clipped."""
    value_weight: float = 0.5
    """Of the value loss beside the policy loss."""
    entropy_weight: float = 0.0
    """Of the entropy bonus."""
    max_grad_norm: float = 0.5
    """Gradients are scaled down to this norm."""
    actor_obs: tuple[str, ...] = ("state",)
    """Parts of a dict of observations that the policy reads."""
    critic_obs: tuple[str, ...] | None = None
    """Parts that the critic reads; None: the policy's, and `privileged_state` where there is one.
    """
    normalize_observations: bool = True
    """By the running mean and variance of all observations."""
    normalize_rewards: bool = True
    """By the running standard deviation of the discounted return."""
    normalize_advantages: bool = True
    """In each minibatch, to mean 0 and deviation 1."""
    advantage_floor: float = 0.0
    """Advantages of a smaller deviation are divided by this one instead: once there is nothing left
    to learn, they are noise, and a policy that follows noise falls. With normalised rewards 1 is
    the deviation of a return."""
    actor_hidden: tuple[int, ...] = (64, 64)
    """Hidden layers of the policy."""
    critic_hidden: tuple[int, ...] = (64, 64)
    """Hidden layers of the value function."""
    activation: Activation = "tanh"
    """Between layers."""
    initial_log_std: float = -0.5
    """Spread of the first policy, in units of half the action range."""
    squash: Squash = "clip"
    """How the policy's unbounded choice comes into the action bounds."""
    recurrent_size: int = 0
    """Units of the memory that policy and critic each have of an episode; 0: neither has one."""
    encoder: Architecture = "patches"
    """How images are looked at, where any are observed."""
    image_features: int = 128
    """Numbers that an encoder makes of each image."""
    share_encoder: bool = True
    """Whether actor and critic look through the same encoders, where they observe the same and have
    no memory."""
    normalize_channels: bool = False
    """Whether each channel of an image is brought to mean 0 and variance 1."""
    random_shift: int = 0
    """Images are shifted by up to so many pixels, alike over a rollout and anew in each epoch."""
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
        counts = ("num_worlds", "unroll_length", "epochs", "minibatches")
        positive = (*counts, "learning_rate", "max_grad_norm", "clip")
        for name in positive:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be positive")
        for name in ("discount", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be in [0, 1]")
        if not self.advantage_floor >= 0:
            raise ConfigError(f"advantage_floor is {self.advantage_floor}; give 0 or more")
        if self.recurrent_size < 0:
            raise ConfigError(f"recurrent_size is {self.recurrent_size}; give 0 or more")
        _ = self.augmentation
        if self.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ConfigError(f"activation is {self.activation!r}; there are {known}")
        if self.anneal_steps and self.target_kl:
            raise ConfigError(
                f"anneal_steps is {self.anneal_steps} and target_kl is {self.target_kl}: both lead "
                "the learning rate; set one of them to 0"
            )
        steps = self.num_worlds * self.unroll_length
        if steps % self.minibatches:
            raise ConfigError(
                f"{self.num_worlds} worlds x {self.unroll_length} steps = {steps} do not divide "
                f"into {self.minibatches} minibatches; change one of the three"
            )
        if self.recurrent_size:
            check_for_memory(self)


def check_for_memory(config: PPOConfig) -> None:
    """Refuses what networks with a memory cannot learn by: their samples are whole worlds."""
    if config.augmentation:
        raise ConfigError(
            "images are not changed for networks with a memory; set random_shift, brightness, "
            "contrast and cutout to 0"
        )
    if config.num_worlds % config.minibatches:
        raise ConfigError(
            f"{config.num_worlds} worlds do not divide into {config.minibatches} minibatches, and "
            "with a memory each is of whole worlds; change one of the two"
        )
