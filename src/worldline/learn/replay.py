"""Replay buffer: the latest transitions as a pytree, each observation stored once.

There are two ring buffers. The first holds observations in the order of time: at each step the
observations of all worlds, then the last observation of each episode that ended with the step. The
second holds transitions, each with the indices of its two observations in the first buffer. So an
observation between two steps is stored once, and the last observation of an episode is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from worldline.errors import ConfigError
from worldline.types import Array, Key, Observation, PyTree


class Transitions(NamedTuple):
    """Steps of single worlds; every leaf begins with the same axes."""

    obs: Observation
    """The observation that was acted on."""
    action: Array
    """`(..., nact)`"""
    reward: Array
    terminated: Array
    """Bool: whether the task ended the episode, so that no value follows."""
    next_obs: Observation
    """The true successor; at the end of an episode, its last observation."""


class Record(eqx.Module):
    """The ring buffer of transitions, `(capacity, ...)`."""

    row: Array
    """The number of its observation, counted over all stored observations, int32; negative if no
    transition is stored yet."""
    next_row: Array
    """The number of its successor."""
    action: Array
    reward: Array
    terminated: Array


class Replay(eqx.Module):
    """The latest transitions of B worlds.

    It holds `capacity` transitions, minus one for each episode that ended among them, because its
    last observation also takes a place. The oldest transitions are dropped first.
    """

    observations: Observation
    """The ring buffer of observations: `(capacity + B, ...)` a leaf, in their own dtypes."""
    record: Record
    rows: Array
    """Observations stored so far, `()` int32. The next ones to act on are stored after them."""
    pushed: Array
    """Transitions stored so far, `()` int32: at most two billion."""
    size: Array
    """The number of latest transitions that can be drawn, `()` int32."""

    @classmethod
    def empty(cls, capacity: int, obs: Observation, nact: int) -> Replay:
        """A buffer without transitions.

        Args:
            capacity: the most transitions it holds.
            obs: observations of the worlds, `(B, ...)` a leaf, for their shapes and dtypes.
            nact: the size of an action.
        """
        num_worlds = jax.tree.leaves(obs)[0].shape[0]
        return cls(
            observations=jax.tree.map(
                lambda x: jnp.zeros((capacity + num_worlds, *x.shape[1:]), x.dtype), obs
            ),
            record=Record(
                row=jnp.full(capacity, jnp.iinfo(jnp.int32).min, jnp.int32),
                next_row=jnp.zeros(capacity, jnp.int32),
                action=jnp.zeros((capacity, nact), jnp.float32),
                reward=jnp.zeros(capacity, jnp.float32),
                terminated=jnp.zeros(capacity, bool),
            ),
            rows=jnp.int32(0),
            pushed=jnp.int32(0),
            size=jnp.int32(0),
        )

    @property
    def capacity(self) -> int:
        """The largest number of transitions that it holds."""
        return int(self.record.row.shape[-1])

    def push(self, steps: Transitions, ended: Array) -> Replay:
        """The buffer with T more steps of all worlds; the oldest steps are dropped.

        Args:
            steps: every leaf `(T, B, ...)`. They continue the last pushed steps: the first `obs` is
                their successor, or begins a new episode.
            ended: whether the episode ended with the step, for whatever reason, `(T, B)` bool.

        Raises:
            ConfigError: the buffer has no room for twice this number of steps, which is needed if
                each step ends an episode.
        """
        length, num_worlds = ended.shape
        number = length * num_worlds
        if self.capacity < 2 * number:
            raise ConfigError(
                f"a replay buffer of {self.capacity} is too small for {length} steps of "
                f"{num_worlds} worlds at once; its capacity must be {2 * number} or more"
            )
        row, next_row, present = _places(self.rows, ended)
        last_rows = present + jnp.arange(num_worlds, dtype=jnp.int32)

        def store(ring: Array, obs: Array, next_obs: Array) -> Array:
            places = len(ring)
            own = jnp.where(ended, next_row % places, places)  # elsewhere out of bounds: dropped
            where = jnp.concatenate([(row % places).ravel(), own.ravel(), last_rows % places])
            flat = (x.reshape(number, *x.shape[2:]) for x in (obs, next_obs))
            return ring.at[where].set(jnp.concatenate([*flat, next_obs[-1]]), mode="drop")

        new = Record(row, next_row, steps.action, steps.reward, steps.terminated)
        slots = (self.pushed + jnp.arange(number, dtype=jnp.int32)) % self.capacity
        record = jax.tree.map(
            lambda ring, x: ring.at[slots].set(x.reshape(number, *x.shape[2:])), self.record, new
        )
        return Replay(
            observations=jax.tree.map(store, self.observations, steps.obs, steps.next_obs),
            record=record,
            rows=present,
            pushed=self.pushed + number,
            # Alive are those whose observation has not been written over.
            size=(record.row >= present - self.capacity).sum(dtype=jnp.int32),
        )

    def draw(self, key: Key, shape: tuple[int, ...]) -> Array:
        """Draws transitions, uniformly with replacement: their indices for `at`, `shape` int32.

        The indices of an empty buffer have no meaning.
        """
        age = jax.random.randint(key, shape, 1, jnp.maximum(self.size, 1) + 1)
        return (self.pushed - age) % self.capacity

    def at(self, slots: Array) -> Transitions:
        """The transitions at these indices; every leaf begins with the axes of `slots`."""
        record = _take(self.record, slots)
        places = len(jax.tree.leaves(self.observations)[0])
        return Transitions(
            obs=_take(self.observations, record.row % places),
            action=record.action,
            reward=record.reward,
            terminated=record.terminated,
            next_obs=_take(self.observations, record.next_row % places),
        )


def _places(rows: Array, ended: Array) -> tuple[Array, Array, Array]:
    """Numbers the observations of T steps, from `rows` on.

    Returns:
        The number of each step's observation and of its successor, `(T, B)` each, and the number
        that the next push begins with, `()`; int32.
    """
    num_worlds = ended.shape[1]
    ends = ended.astype(jnp.int32)
    sizes = num_worlds + ends.sum(axis=1, dtype=jnp.int32)
    after = rows + jnp.cumsum(sizes, dtype=jnp.int32)  # where the next step's observations begin
    world = jnp.arange(num_worlds, dtype=jnp.int32)
    row = (after - sizes)[:, None] + world
    own = (after - sizes)[:, None] + num_worlds + jnp.cumsum(ends, axis=1, dtype=jnp.int32) - 1
    return row, jnp.where(ended, own, after[:, None] + world), after[-1]


def _take(tree: PyTree, rows: Array) -> PyTree:
    return jax.tree.map(lambda x: x.at[rows].get(mode="promise_in_bounds"), tree)
