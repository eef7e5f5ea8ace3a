"""The configuration of `shac`."""

from __future__ import annotations

import dataclasses

from worldline.learn.config import LearnerConfig
from worldline.learn.networks.mlp import Activation
from worldline.learn.policy import Squash
from worldline.settings import Count, LogStd, Positive, PositiveShare, Share, Steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class SHACConfig(LearnerConfig):
    """How SHAC trains."""

    num_worlds: Count = 64
    """Worlds that act side by side (B)."""
    unroll_length: Count = 16
    """Control steps of a segment (T): long enough to see what an action does, short enough that
    gradients do not explode."""
    checkpoint: bool = False
    """Whether the backward pass computes each step again instead of keeping it: this takes the
    memory of a step instead of a segment's, and about a third more time."""
    learning_rate: Positive = 2e-3
    """Adam's learning rate for the policy, or where it starts if it is annealed."""
    critic_learning_rate: Positive = 2e-3
    """Adam's learning rate for the critic, or where it starts if it is annealed."""
    anneal_steps: Steps = 0
    """Environment steps over which both learning rates fall linearly to a hundredth; 0: they stay.
    """
    critic_epochs: Count = 8
    """Passes of the critic over a segment."""
    minibatches: Count = 4
    """Gradient steps in a pass; divides num_worlds * unroll_length."""
    target_rate: PositiveShare = 0.5
    """The share of the way to the critic that the target critic goes in an update, in (0, 1]."""
    gae_lambda: Share = 0.95
    """Lambda of the returns that the critic learns: 0 looks one step ahead, 1 a whole segment."""
    value_weight: Share = 1.0
    """The factor of the critic's value at the end of a segment or a truncated episode; 0: analytic
    policy gradients."""
    max_grad_norm: Positive = 1.0
    """A policy's gradient with a larger norm is scaled down to this one."""
    max_world_gradient: Positive = 3.0
    """In the backward pass through a step, a world's gradient is scaled down to this many times the
    worlds' median."""
    reward_scale: Positive = 1.0
    """Rewards are multiplied by this."""
    activation: Activation = "elu"
    """Between layers; a smooth one has smooth gradients."""
    layer_norm: bool = True
    """Normalise each hidden layer of policy and critic before its activation."""
    initial_log_std: LogStd = -1.0
    """Logarithm of the first policy's standard deviation, in units of half the action range."""
    squash: Squash = "tanh"
    """How an action drawn from the policy is brought into the action bounds; `clip` has no gradient
    beyond them."""

    @property
    def anneal_updates(self) -> float:
        """Updates over which the learning rates fall; 0: they stay."""
        return self.anneal_steps / self.steps_per_update

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_minibatches(self.minibatches)
