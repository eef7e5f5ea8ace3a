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
    """Update the policy and the temperature after every so many gradient steps of the critics. Must
    divide critic_steps."""
    batch_size: Count = 256
    """Transitions in a gradient step."""
    replay_capacity: Count = 1_000_000
    """The largest number of transitions in the replay buffer."""
    learning_starts: Steps = 5000
    """Environment steps, over all worlds, before the first gradient step. Until then actions are
    spread over their whole range."""
    learning_rate: Positive = 3e-4
    """Adam's learning rate for the policy and the temperature."""
    critic_learning_rate: Positive = 1e-3
    """Adam's learning rate for the critics."""
    target_rate: PositiveShare = 0.005
    """How far each gradient step moves the target critics towards the critics, from 0 to 1 (tau).
    """
    target_entropy: Finite = -1.0
    """The entropy of the policy that the temperature is tuned for, in nats for each action."""
    initial_temperature: Positive = 0.1
    """The first temperature (alpha), the weight of the entropy."""
    num_critics: Count = 2
    """The number of critics. The lowest of their values counts."""
    layer_norm: bool = True
    """Use layer normalisation in the critics."""
    actor_hidden: tuple[Units, ...] = (256, 256)
    """Hidden layers of the policy."""
    critic_hidden: tuple[Units, ...] = (256, 256)
    """Hidden layers of each critic."""
    activation: Activation = "relu"
    """The activation function of the hidden layers."""
    random_shift: Number = 0
    """Shift images by up to so many pixels, drawn anew for each image and gradient step."""

    def __post_init__(self) -> None:
        super().__post_init__()
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
