"""The configuration of `sac`."""

from __future__ import annotations

import dataclasses

from worldline.errors import ConfigError
from worldline.learn.config import ImageLearnerConfig
from worldline.learn.networks.mlp import Activation
from worldline.settings import Count, Finite, Number, Positive, PositiveShare, Steps, Units


@dataclasses.dataclass(frozen=True, kw_only=True)
class SACConfig(ImageLearnerConfig):
    """How SAC trains."""

    num_worlds: Count = 16
    """Worlds that act side by side (B)."""
    unroll_length: Count = 16
    """Control steps each world takes between two rounds of learning (T)."""
    critic_steps: Count = 128
    """Gradient steps of the critics in an update, which takes num_worlds * unroll_length
    environment steps."""
    actor_delay: Count = 2
    """Gradient steps of the critics for each one of the policy and the temperature; divides
    critic_steps."""
    batch_size: Count = 256
    """Transitions in a gradient step, drawn anew for each step."""
    replay_capacity: Count = 1_000_000
    """The most transitions that the replay buffer holds."""
    learning_starts: Steps = 5000
    """Environment steps, over all worlds, before the first gradient step; the first policy's
    actions are spread over their whole range."""
    learning_rate: Positive = 3e-4
    """Adam's learning rate for the policy and the temperature."""
    critic_learning_rate: Positive = 1e-3
    """Adam's learning rate for the critics."""
    target_rate: PositiveShare = 0.005
    """The share of the way to the critics that the target critics go in a gradient step, in
    (0, 1]."""
    target_entropy: Finite = -1.0
    """The entropy that the temperature leads the policy to: nats for each action, with actions in
    [-1, 1]."""
    initial_temperature: Positive = 0.1
    """Weight of the entropy before the first gradient step."""
    num_critics: Count = 2
    """How many critics there are; the lowest value of them counts."""
    layer_norm: bool = True
    """Normalise the critics' hidden layers before each activation."""
    actor_hidden: tuple[Units, ...] = (256, 256)
    """Hidden layers of the policy."""
    critic_hidden: tuple[Units, ...] = (256, 256)
    """Hidden layers of each critic."""
    activation: Activation = "relu"
    """Between layers."""
    random_shift: Number = 0
    """Images are shifted by at most so many pixels, drawn anew for each image and gradient step."""

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
