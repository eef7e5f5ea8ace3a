"""The configuration of `shac`."""

from __future__ import annotations

import dataclasses

from worldline.learn.config import LearnerConfig
from worldline.learn.networks.mlp import Activation
from worldline.learn.policy import Squash


@dataclasses.dataclass(frozen=True, kw_only=True)
class SHACConfig(LearnerConfig):
    """How SHAC trains."""

    num_worlds: int = 64
    """Worlds that act side by side (B)."""
    unroll_length: int = 16
    """Control steps of a segment (T): long enough to see what an action does, short enough that
    gradients do not explode."""
    checkpoint: bool = False
    """True: the backward pass computes each step anew instead of keeping it; a step's memory
    instead of a segment's, for about a third more time."""
    learning_rate: float = 2e-3
    """Of Adam, for the policy; where it starts, if it is annealed."""
    critic_learning_rate: float = 2e-3
    """Of Adam, for the critic."""
    anneal_steps: int = 0
    """Environment steps over which both fall linearly to a hundredth; 0: they stay."""
    critic_epochs: int = 8
    """Passes of the critic over a segment."""
    minibatches: int = 4
    """Gradient steps in a pass; divides num_worlds * unroll_length."""
    target_rate: float = 0.5
    """How far the target critic goes to the critic in an update, in (0, 1]."""
    gae_lambda: float = 0.95
    """Of the returns that the critic learns; 0 gives one step's, 1 the whole segment's."""
    value_weight: float = 1.0
    """Of the value of where a segment, or an episode cut short, ends; 0: analytic policy
    gradients."""
    max_grad_norm: float = 1.0
    """The policy's gradient is scaled down to this norm."""
    max_world_gradient: float = 3.0
    """On its way back through a step, the gradient of one world is scaled down to this many times
    the median world's."""
    reward_scale: float = 1.0
    """Rewards are multiplied by this."""
    activation: Activation = "elu"
    """Between layers; a smooth one has smooth gradients."""
    layer_norm: bool = True
    """Normalise each hidden layer of policy and critic."""
    initial_log_std: float = -1.0
    """Logarithm of the first policy's standard deviation, in units of half the action range."""
    squash: Squash = "tanh"
    """How the policy's unbounded choice comes into the action bounds; `clip` has no gradient
    beyond them."""

    @property
    def anneal_updates(self) -> float:
        """Updates over which the learning rates fall; 0: they stay."""
        return self.anneal_steps / self.steps_per_update

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("critic_epochs", "minibatches", "learning_rate")
        self._check_positive("critic_learning_rate", "max_grad_norm", "target_rate")
        self._check_positive("max_world_gradient", "reward_scale")
        self._check_unit("gae_lambda", "target_rate", "value_weight")
        self._check_minibatches(self.minibatches)
