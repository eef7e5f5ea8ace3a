"""The configuration of `ppo`."""

from __future__ import annotations

import dataclasses
from typing import Literal

from worldline.errors import ConfigError
from worldline.learn.config import ImageLearnerConfig
from worldline.learn.networks.mlp import Activation
from worldline.learn.policy import Squash
from worldline.settings import (
    Count,
    Finite,
    LogStd,
    NotNegative,
    Number,
    Positive,
    Share,
    Steps,
    Units,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOConfig(ImageLearnerConfig):
    """How PPO trains. The defaults suit small bodies; the registered tasks have their own."""

    num_worlds: Count = 128
    """Worlds that act side by side (B)."""
    unroll_length: Count = 64
    """Control steps each world takes between two rounds of learning (T)."""
    epochs: Count = 5
    """Passes over a rollout."""
    minibatches: Count = 16
    """Gradient steps in a pass; divides num_worlds * unroll_length."""
    learning_rate: Positive = 1e-3
    """Adam's learning rate, or where it starts if it is annealed or led by the KL divergence; it
    never exceeds twice this value."""
    anneal_steps: Steps = 0
    """Environment steps over which the learning rate falls linearly to a tenth; 0: it stays."""
    target_kl: NotNegative = 0.02
    """The learning rate is led so that a pass ends with this KL divergence; 0: it is not led."""
    gae_lambda: Share = 0.95
    """Lambda of generalised advantage estimation, in [0, 1]."""
    clip: Positive = 0.2
    """How far the probability ratio may go from 1 before its gradient stops."""
    value_clip: NotNegative = 0.0
    """How far the value may go from the old one, in the units of its target; 0: any distance."""
    value_weight: Finite = 0.5
    """The factor of the value loss."""
    entropy_weight: Finite = 0.0
    """The factor of the entropy bonus."""
    max_grad_norm: Positive = 0.5
    """A gradient with a larger norm is scaled down to this one."""
    normalize_rewards: bool = True
    """Divide rewards by the running standard deviation of the discounted return."""
    normalize_advantages: bool = True
    """Bring the advantages of each minibatch to mean 0 and standard deviation 1."""
    advantage_floor: NotNegative = 0.0
    """Advantages of a smaller standard deviation are divided by this one instead: once nothing is
    left to learn, they are noise, and a policy that follows noise falls. With normalised rewards 1
    is the standard deviation of a return."""
    activation: Activation = "tanh"
    """Between layers."""
    initial_log_std: LogStd = -0.5
    """Logarithm of the first policy's standard deviation, in units of half the action range."""
    squash: Squash = "clip"
    """How an action drawn from the policy is brought into the action bounds."""
    recurrent_size: Units | Literal[0] = 0
    """Units of the memory that policy and critic each have; 0: they have no memory."""
    share_encoder: bool = True
    """Whether policy and critic share image encoders, where they observe the same and have no
    memory."""
    random_shift: Number = 0
    """Images are shifted by at most so many pixels: the same over a rollout, and drawn anew in each
    epoch."""

    @property
    def anneal_updates(self) -> float:
        """Updates over which the learning rate falls; 0: it stays."""
        return self.anneal_steps / self.steps_per_update

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.anneal_steps and self.target_kl:
            raise ConfigError(
                f"anneal_steps is {self.anneal_steps} and target_kl is {self.target_kl}: both lead "
                "the learning rate; set one of them to 0"
            )
        self._check_minibatches(self.minibatches)
        if self.recurrent_size:
            self.check_for_memory()

    def check_for_memory(self) -> None:
        """Refuses settings for networks with a memory, which learn from whole worlds.

        Raises:
            ConfigError: images are augmented, or the worlds do not divide into minibatches.
        """
        if self.augmentation:
            raise ConfigError(
                "images are not changed for networks with a memory; set random_shift, brightness, "
                "contrast and cutout to 0"
            )
        if self.num_worlds % self.minibatches:
            raise ConfigError(
                f"{self.num_worlds} worlds do not divide into {self.minibatches} minibatches, and "
                "with a memory each is of whole worlds; change one of the two"
            )
