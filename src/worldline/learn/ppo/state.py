"""The training state of `ppo`."""

from __future__ import annotations

import equinox as eqx

from worldline.env.worlds import WorldsState
from worldline.learn.networks.vision import SharedImageEncoder
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.ppo.networks import Networks
from worldline.types import Array, Key, PyTree


class Numbers(eqx.Module):
    """The configuration's numbers as arrays: `with_numbers` changes one and recompiles nothing."""

    learning_rate: Array
    """Where it starts."""
    anneal_updates: Array
    """Updates over which it falls to a tenth; 0: it stays."""
    target_kl: Array
    discount: Array
    gae_lambda: Array
    clip: Array
    value_clip: Array
    value_weight: Array
    advantage_floor: Array
    entropy_weight: Array
    max_grad_norm: Array


class CollectorState(eqx.Module):
    """The part of the training state that acting reads and moves on."""

    worlds: WorldsState
    memory: PyTree
    """What the policy remembers of each world's episode, `(B, ...)`; `()` without a memory."""
    key: Key


class LearnerState(eqx.Module):
    """The part of the training state that learning reads and moves on."""

    networks: Networks | SharedImageEncoder
    optimizer: PyTree
    learning_rate: Array
    statistics: RunningStatistics
    """Of what the policy observes."""
    critic_statistics: RunningStatistics
    """Of what the critic observes."""
    critic_memory: PyTree
    """What the critic remembers of each world's episode, `(B, ...)`; `()` without a memory."""
    return_so_far: Array
    """Each world's discounted sum of rewards in its episode, `(B,)`."""
    return_statistics: RunningStatistics
    """Of those sums."""
    numbers: Numbers
    updates: Array
    """Updates so far, `()` int32."""
    key: Key


class PPOState(eqx.Module):
    """All that training is, in one pytree."""

    acting: CollectorState
    learning: LearnerState
