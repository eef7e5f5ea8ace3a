"""The training state of `sac`."""

from __future__ import annotations

import equinox as eqx

from worldline.env.worlds import WorldsState
from worldline.learn.networks.mlp import MLP
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.replay import Replay
from worldline.learn.sac.networks import Networks
from worldline.types import Array, Key


class Hyperparameters(eqx.Module):
    """Numbers of the configuration as arrays: another value recompiles nothing."""

    learning_starts: Array
    learning_rate: Array
    critic_learning_rate: Array
    target_rate: Array
    discount: Array
    target_entropy: Array


class CollectorState(eqx.Module):
    """The part of the training state that acting reads and moves on."""

    worlds: WorldsState
    key: Key


class LearnerState(eqx.Module):
    """The part of the training state that learning reads and moves on; the replay is beside it."""

    networks: Networks
    target_critics: MLP
    optimizers: Networks
    """Adam's moments, in place of what they belong to."""
    statistics: RunningStatistics
    """Of what the policy observes."""
    critic_statistics: RunningStatistics
    """Of what the critics observe."""
    hyperparameters: Hyperparameters
    updates: Array
    """Updates so far, `()` int32."""


class SACState(eqx.Module):
    """All that training is, in one pytree."""

    acting: CollectorState
    learning: LearnerState
    replay: Replay
    key: Key
    """Of learning."""
