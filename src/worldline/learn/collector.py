"""Collecting rollouts: the part of a training state for acting, and the program that acts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax

from worldline.env.episodes import WorldsState
from worldline.learn.policy import Policy
from worldline.learn.rollout import Rollout, unroll
from worldline.types import Key, Metrics, Observation, PyTree
from worldline.variation.domain import Ranges

#: Acts in worlds, as `worldline.learn.rollout.unroll` does.
Unroll: TypeAlias = Callable[..., tuple[Any, Rollout, Metrics]]


class CollectorState(eqx.Module):
    """The worlds between two rollouts, with the other data for acting."""

    worlds: Any
    """The state of the worlds, such as a `WorldsState`."""
    memory: PyTree
    """The policy's memory of each world's episode, `(B, ...)`; `()` without a memory."""
    key: Key
    """Draws the actions."""

    def with_ranges(self, ranges: Ranges) -> CollectorState:
        """The state with these ranges, from which later episodes are drawn."""
        return dataclasses.replace(self, worlds=dataclasses.replace(self.worlds, ranges=ranges))

    @classmethod
    def shared_by(cls, by_world: Any, everywhere: Any) -> CollectorState:
        """A state with one value for each field: how devices share it."""
        return cls(WorldsState.shared_by(by_world, everywhere), by_world, everywhere)


class Experience(NamedTuple):
    """What acting hands to learning."""

    rollout: Rollout
    """The steps, `(T, B)`."""
    memory: PyTree
    """The policy's memory before the first step, `(B, ...)`; `()` without a memory."""
    next_obs: Observation
    """The observation to act on after the last step, `(B, ...)`."""
    summary: Metrics
    """Of the rollout."""

    @classmethod
    def shared_by(cls, steps_by_world: Any, by_world: Any, everywhere: Any) -> Experience:
        """One value for each field: how devices share it."""
        return cls(steps_by_world, by_world, by_world, everywhere)


def collect(
    worlds: Any, state: CollectorState, policy: Policy, length: int, unroll: Unroll = unroll
) -> tuple[CollectorState, Rollout, Metrics]:
    """The state after `length` steps in all worlds, those steps, and the rollout's summary."""
    key, unroll_key = jax.random.split(state.key)
    after, rollout, summary = unroll(worlds, state.worlds, policy, unroll_key, length, state.memory)
    return CollectorState(after, last_step(rollout.memory), key), rollout, summary


def last_step(steps: PyTree) -> PyTree:
    """The last of T steps: leaves `(T, ...)` without their first axis."""
    return jax.tree.map(lambda x: x[-1], steps)


def update_metrics(summary: Metrics, measured: Metrics) -> Metrics:
    """The metrics of an update: a rollout's summary, as `train/...`, and those of learning."""
    return {f"train/{name}": value for name, value in summary.items()} | measured
