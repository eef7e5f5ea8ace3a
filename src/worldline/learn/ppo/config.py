"""The configuration of `ppo`."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

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
    Range,
    Share,
    Steps,
    Units,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOConfig(ImageLearnerConfig):
    """Settings of PPO. These defaults suit small robots; tasks may have other defaults."""

    num_worlds: Count = 128
    """The number of worlds to simulate at the same time."""
    unroll_length: Count = 64
    """Control steps that each world takes in an update."""
    epochs: Count = 5
    """How many times an update learns from each of its steps."""
    minibatches: Count = 16
    """The number of gradient steps in an epoch. It must divide num_worlds * unroll_length."""
    learning_rate: Positive = 1e-3
    """Adam's learning rate. With a target_kl this is the first value, and the maximum is twice
    this value."""
    anneal_steps: Steps = 0
    """Environment steps over which the learning rate falls linearly to a tenth. 0: it is constant.
    """
    target_kl: NotNegative = 0.02
    """Adapt the learning rate, so that after an epoch the KL divergence of the policy from the
    policy that acted is about this. 0: do not adapt it."""
    gae_lambda: Share = 0.95
    """Lambda of generalised advantage estimation, from 0 to 1."""
    clip: Positive = 0.2
    """PPO's clip: the largest change of the probability ratio from 1."""
    value_clip: NotNegative = 0.0
    """The largest change of a value in an update, in units of its target. 0: no limit."""
    value_weight: Finite = 0.5
    """Weight of the value loss."""
    entropy_weight: Finite = 0.0
    """Weight of the entropy bonus. With squash "tanh" it is the entropy of the bounded action, so
    that a policy earns nothing by actions far beyond the bounds."""
    max_grad_norm: Positive = 0.5
    """Clip the norm of the gradient to this value."""
    normalize_rewards: bool = True
    """Divide rewards by the running standard deviation of the discounted return."""
    normalize_advantages: bool = True
    """Normalise the advantages of each minibatch to mean 0 and standard deviation 1."""
    advantage_floor: NotNegative = 0.0
    """The smallest standard deviation by which normalised advantages are divided. When a task has
    been learned, advantages are mostly noise; a floor, for example 0.1, keeps them small."""
    activation: Activation = "tanh"
    """The activation function of the hidden layers."""
    initial_log_std: LogStd = -0.5
    """Logarithm of the first policy's standard deviation, in units of half the action range."""
    symmetry: bool = False
    """Networks that are exactly symmetric to left and right, as the task declares: a mirrored
    observation gives the mirrored action. They cost nothing, and learn from every step for both
    sides."""
    squash: Squash = "clip"
    """How to bring an action that the policy draws into the action bounds."""
    recurrent_size: Units | Literal[0] = 0
    """Units of the GRU of the policy, and of the critic. 0: they have no memory."""
    share_encoder: bool = True
    """Share the image encoder between policy and critic, if they see the same images and have no
    memory."""
    random_shift: Number = 0
    """Shift images by up to this number of pixels, drawn for each world and epoch."""
    shuffle_groups: Number = 0
    """Shuffle samples within this number of groups of worlds. Devices share the groups, and so
    exchange no samples. 0: the largest of 16, 8, 4, 2 and 1 that fits worlds and minibatches."""

    lag: Annotated[int, Range(0, 1)] = 0
    """Updates by which the policy that acts is behind the one that learns: 1 lets acting and
    learning go on at the same time, as --actors does. The probability ratio corrects for it."""

    def groups(self, remembers: bool) -> int:
        """The groups of worlds within which samples are shuffled.

        Args:
            remembers: whether networks have a memory, and a sample is a whole world.

        Raises:
            ConfigError: `shuffle_groups` does not fit worlds and minibatches.
        """
        if not self.shuffle_groups:
            return max(n for n in (1, 2, 4, 8, 16) if self._fits(n, remembers))
        if not self._fits(self.shuffle_groups, remembers):
            raise ConfigError(
                f"shuffle_groups is {self.shuffle_groups}: {self.num_worlds} worlds do not divide "
                f"into this number of groups with equal parts of {self.minibatches} minibatches; "
                "give 0 for a number that fits"
            )
        return self.shuffle_groups

    def _fits(self, groups: int, remembers: bool) -> bool:
        """Whether so many groups of worlds can have equal shares of all minibatches."""
        worlds, rest = divmod(self.num_worlds, groups)
        samples = worlds if remembers else worlds * self.unroll_length
        return rest == 0 and samples % self.minibatches == 0

    @property
    def anneal_updates(self) -> float:
        """Updates over which the learning rate falls; 0: it stays."""
        return self.anneal_steps / self.steps_per_update

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.anneal_steps and self.target_kl:
            raise ConfigError(
                f"anneal_steps is {self.anneal_steps} and target_kl is {self.target_kl}: both "
                "change the learning rate; set one of them to 0"
            )
        self._check_minibatches(self.minibatches)
        if self.recurrent_size:
            self.check_for_memory()
        if self.symmetry and self.recurrent_size:
            raise ConfigError(
                f"symmetry is True and recurrent_size is {self.recurrent_size}: networks with a "
                "memory have no symmetry; leave out one of the two"
            )
        self.groups(self.recurrent_size > 0)

    def check_devices(self, devices: int, remembers: bool) -> None:
        """Checks that the devices can share the groups of worlds.

        Raises:
            ConfigError: the number of groups is not a multiple of the devices.
        """
        groups = self.groups(remembers)
        if groups % devices:
            raise ConfigError(
                f"shuffle_groups is {groups}, not a multiple of the {devices} devices; give "
                f"shuffle_groups={devices}, or a multiple of it"
            )

    def check_for_memory(self) -> None:
        """Checks the settings for networks with a memory, which learn from whole worlds.

        Raises:
            ConfigError: images are augmented, or the worlds do not divide into minibatches.
        """
        if self.augmentation:
            raise ConfigError(
                "networks with a memory do not support image augmentation; set random_shift, "
                "brightness, contrast and cutout to 0"
            )
        if self.num_worlds % self.minibatches:
            raise ConfigError(
                f"{self.num_worlds} worlds do not divide into {self.minibatches} minibatches of "
                "whole worlds, which a memory needs; change one of the two"
            )
