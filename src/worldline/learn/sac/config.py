"""The configuration of `sac`."""

from __future__ import annotations

import dataclasses

from worldline.errors import ConfigError
from worldline.learn.config import ImageLearnerConfig
from worldline.learn.networks.mlp import Activation
from worldline.settings import Count, Finite, Number, Positive, PositiveShare, Steps, Units


@dataclasses.dataclass(frozen=True, kw_only=True)
class SACConfig(ImageLearnerConfig):
    """Settings of SAC."""

    num_worlds: Count = 16
    """The number of worlds to simulate at the same time."""
    unroll_length: Count = 16
    """Control steps that each world takes in an update."""
    critic_steps: Count = 128
    """Gradient steps of the critics in an update of num_worlds * unroll_length environment steps.
    """
    actor_delay: Count = 2
    """Gradient steps of the critics between two steps of the policy and the temperature. It must
    divide critic_steps."""
    batch_size: Count = 256
    """Transitions in a gradient step."""
    replay_capacity: Count = 1_000_000
    """The largest number of transitions in the replay buffer."""
    replay_groups: Number = 0
    """Store the transitions of this number of groups of worlds separately; a minibatch has the same
    number from each. Devices share the groups, and so exchange no transitions. 0: the largest of
    16, 8, 4, 2 and 1 that divides num_worlds and batch_size."""
    learning_starts: Steps = 5000
    """Environment steps, over all worlds, before the first gradient step. Until then, actions are
    drawn from their whole range."""
    learning_rate: Positive = 3e-4
    """Adam's learning rate for the policy and the temperature."""
    critic_learning_rate: Positive = 1e-3
    """Adam's learning rate for the critics."""
    target_rate: PositiveShare = 0.005
    """The share (tau) of the way to the critics that each gradient step moves the target critics.
    """
    target_entropy: Finite = -1.0
    """The target for the entropy of the policy, in nats for each action. The temperature is adapted
    to reach it."""
    initial_temperature: Positive = 0.1
    """The first temperature (alpha), the weight of the entropy."""
    num_critics: Count = 2
    """The number of critics. The minimum of their values is used."""
    layer_norm: bool = True
    """Use layer normalisation in the critics."""
    actor_hidden: tuple[Units, ...] = (256, 256)
    """Hidden layers of the policy."""
    critic_hidden: tuple[Units, ...] = (256, 256)
    """Hidden layers of each critic."""
    activation: Activation = "relu"
    """The activation function of the hidden layers."""
    random_shift: Number = 0
    """Shift images by up to this number of pixels, drawn for each image and gradient step."""

    def groups(self) -> int:
        """The groups of worlds whose transitions are stored apart.

        Raises:
            ConfigError: there cannot be `replay_groups`.
        """
        if not self.replay_groups:
            return max(n for n in (1, 2, 4, 8, 16) if self._fits(n))
        if not self._fits(self.replay_groups):
            raise ConfigError(
                f"replay_groups is {self.replay_groups}: it must divide {self.num_worlds} worlds "
                f"and a batch_size of {self.batch_size}; give 0 to have the number chosen"
            )
        return self.replay_groups

    def _fits(self, groups: int) -> bool:
        """Whether so many groups can have as many worlds, and as many transitions of a batch."""
        return self.num_worlds % groups == 0 and self.batch_size % groups == 0

    def check_devices(self, devices: int) -> None:
        """Refuses devices that cannot share the groups of worlds.

        Raises:
            ConfigError: they do not divide the groups.
        """
        groups = self.groups()
        if groups % devices:
            raise ConfigError(
                f"{devices} devices do not divide the {groups} groups of worlds whose "
                f"transitions are stored apart; give replay_groups={devices}, or a multiple of that"
            )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.critic_steps % self.actor_delay:
            raise ConfigError(
                f"critic_steps is {self.critic_steps}, not a multiple of actor_delay, which is "
                f"{self.actor_delay}; change one of the two"
            )
        steps = self.num_worlds * self.unroll_length
        if self.replay_capacity < 2 * steps:
            raise ConfigError(
                f"replay_capacity is {self.replay_capacity}; {self.num_worlds} worlds x "
                f"{self.unroll_length} steps need {2 * steps} or more"
            )
        self.groups()
