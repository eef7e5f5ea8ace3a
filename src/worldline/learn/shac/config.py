"""The configuration of `shac`."""

from __future__ import annotations

import dataclasses

from worldline.learn.config import LearnerConfig
from worldline.learn.networks.mlp import Activation
from worldline.learn.policy import Squash
from worldline.settings import Count, LogStd, Positive, PositiveShare, Share, Steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class SHACConfig(LearnerConfig):
    """Settings of SHAC."""

    num_worlds: Count = 64
    """The number of worlds to simulate at the same time."""
    unroll_length: Count = 16
    """Control steps that each world takes in an update; the gradient goes through all of them. A
    longer segment sees further ahead, but its gradient explodes sooner."""
    checkpoint: bool = False
    """Save memory: compute each step again in the backward pass. This takes about a third more
    time."""
    learning_rate: Positive = 2e-3
    """Adam's first learning rate for the policy."""
    critic_learning_rate: Positive = 2e-3
    """Adam's first learning rate for the critic."""
    anneal_steps: Steps = 0
    """Environment steps over which both learning rates fall linearly to a hundredth. 0: they are
    constant."""
    critic_epochs: Count = 8
    """How many times the critic learns from each step of an update."""
    minibatches: Count = 4
    """The number of gradient steps of the critic in an epoch. It must divide num_worlds *
    unroll_length."""
    target_rate: PositiveShare = 0.5
    """The share of the way to the critic that each update moves the target critic."""
    gae_lambda: Share = 0.95
    """Lambda of the critic's targets: with 0 they use one step, with 1 the whole segment."""
    value_weight: Share = 1.0
    """Weight of the critic's value after the last step of a segment. 0: analytic policy gradients.
    """
    max_grad_norm: Positive = 1.0
    """Clip the norm of the policy's gradient to this value."""
    max_world_gradient: Positive = 3.0
    """In each step of the backward pass, clip the gradient of a world to this many times the median
    of all worlds."""
    reward_scale: Positive = 1.0
    """Multiply rewards by this."""
    activation: Activation = "elu"
    """The activation function of the hidden layers. A smooth function has smooth gradients."""
    layer_norm: bool = True
    """Use layer normalisation in policy and critic."""
    initial_log_std: LogStd = -1.0
    """Logarithm of the first policy's standard deviation, in units of half the action range."""
    squash: Squash = "tanh"
    """How to bring an action that the policy draws into the action bounds. `clip` has no gradient
    outside of the bounds."""

    @property
    def anneal_updates(self) -> float:
        """Updates over which the learning rates fall; 0: they stay."""
        return self.anneal_steps / self.steps_per_update

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_minibatches(self.minibatches)
