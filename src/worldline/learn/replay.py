"""Replay buffer: the latest transitions as a pytree, each observation stored once.

There are two ring buffers. The first holds observations in the order of time: at each step the
observations of all worlds, then the last observation of each episode that ended with the step. The
second holds transitions, each with the indices of its two observations in the first buffer. So an
observation between two steps is stored once, and the last observation of an episode is kept.

Worlds may be divided into groups. Each group of neighbouring worlds has two such ring buffers, one
group after the other in the same arrays. So devices can share every array by its first axis, and
each device stores and draws only the transitions of its own worlds.
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
    """The ring buffers of transitions, one group after the other: `(capacity, ...)`."""

    row: Array
    """The number of its observation, counted over all stored observations of its group, int32;
    negative if no transition is stored yet."""
    next_row: Array
    """The number of its successor."""
    action: Array
    reward: Array
    terminated: Array


class Replay(eqx.Module):
    """The latest transitions of B worlds in G groups.

    It holds `capacity` transitions, minus one for each episode that ended among them, because its
    last observation also takes a place. Each group drops its oldest transitions first.
    """

    observations: Observation
    """The ring buffers of observations, one group after the other: `(capacity + B, ...)` a leaf, in
    their own dtypes."""
    record: Record
    rows: Array
    """Observations that each group stored so far, `(G,)` int32. The next ones to act on are stored
    after them."""
    pushed: Array
    """Transitions that each group stored so far, `(G,)` int32: at most two billion."""
    size: Array
    """The number of latest transitions of each group that can be drawn, `(G,)` int32."""

    @classmethod
    def empty(cls, capacity: int, obs: Observation, nact: int, groups: int = 1) -> Replay:
        """A buffer without transitions.

        Args:
            capacity: the most transitions it holds; what does not divide by the groups is left out.
            obs: observations of the worlds, `(B, ...)` a leaf, for their shapes and dtypes.
            nact: the size of an action.
            groups: G; divides B.
        """
        capacity -= capacity % groups
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
            rows=jnp.zeros(groups, jnp.int32),
            pushed=jnp.zeros(groups, jnp.int32),
            size=jnp.zeros(groups, jnp.int32),
        )

    @property
    def groups(self) -> int:
        """The groups of worlds, G; of a device's share, those that it has."""
        return int(self.rows.shape[-1])

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
        (length, num_worlds), groups = ended.shape, self.groups
        if self.capacity < 2 * length * num_worlds:
            raise ConfigError(
                f"a replay buffer of {self.capacity} is too small for {length} steps of "
                f"{num_worlds} worlds at once; its capacity must be {2 * length * num_worlds} or "
                "more"
            )
        ended = ended.reshape(length, groups, num_worlds // groups)
        row, next_row, present = _places(self.rows, ended)
        last_rows = present[:, None] + jnp.arange(num_worlds // groups, dtype=jnp.int32)

        def store(rings: Array, obs: Array, next_obs: Array) -> Array:
            places = len(rings) // groups
            own = jnp.where(ended, _in_rings(next_row, places), len(rings))  # out of bounds: none
            rows = _in_rings(row, places), own, _in_rings(last_rows, places)
            where = jnp.concatenate([each.ravel() for each in rows])
            flat = (x.reshape(length * num_worlds, *x.shape[2:]) for x in (obs, next_obs))
            return rings.at[where].set(jnp.concatenate([*flat, next_obs[-1]]), mode="drop")

        new = Record(row, next_row, steps.action, steps.reward, steps.terminated)
        capacity, number = self.capacity // groups, length * (num_worlds // groups)
        # The number of each step in its group, `(T, G, B / G)`.
        count = jnp.arange(number, dtype=jnp.int32).reshape(length, 1, -1)
        slots = _in_rings(self.pushed[:, None] + count, capacity).ravel()
        record = jax.tree.map(
            lambda rings, x: rings.at[slots].set(x.reshape(len(slots), *rings.shape[1:])),
            self.record,
            new,
        )
        # Alive are those whose observation has not been written over.
        alive = record.row.reshape(groups, capacity) >= (present - capacity)[:, None]
        return Replay(
            observations=jax.tree.map(store, self.observations, steps.obs, steps.next_obs),
            record=record,
            rows=present,
            pushed=self.pushed + number,
            size=alive.sum(axis=1, dtype=jnp.int32),
        )

    def draw(self, keys: Key, shape: tuple[int, ...]) -> Array:
        """Draws transitions, uniformly within each group, with replacement.

        The indices of an empty buffer have no meaning.

        Args:
            keys: of the groups, `(G,)`.
            shape: `(..., n)`, n transitions of each group.

        Returns:
            Their indices for `at`, one group after the other, `(..., G * n)` int32.
        """

        def of_group(key: Key, pushed: Array, size: Array) -> Array:
            age = jax.random.randint(key, shape, 1, jnp.maximum(size, 1) + 1)
            return (pushed - age) % (self.capacity // self.groups)

        places = jax.vmap(of_group, out_axes=-2)(keys, self.pushed, self.size)
        first = jnp.arange(self.groups, dtype=jnp.int32) * (self.capacity // self.groups)
        return (places + first[:, None]).reshape(*shape[:-1], -1)

    def at(self, slots: Array) -> Transitions:
        """The transitions at these indices; every leaf begins with the axes of `slots`."""
        record = _take(self.record, slots)
        places = len(jax.tree.leaves(self.observations)[0]) // self.groups
        first = slots // (self.capacity // self.groups) * places
        return Transitions(
            obs=_take(self.observations, first + record.row % places),
            action=record.action,
            reward=record.reward,
            terminated=record.terminated,
            next_obs=_take(self.observations, first + record.next_row % places),
        )


def _places(rows: Array, ended: Array) -> tuple[Array, Array, Array]:
    """Numbers the observations of T steps in each group, from `rows`, `(G,)`, on.

    Returns:
        The number of each step's observation and of its successor, `(T, G, B / G)` each, and the
        number that the next push begins with, `(G,)`; int32.
    """
    num_worlds = ended.shape[2]
    ends = ended.astype(jnp.int32)
    sizes = num_worlds + ends.sum(axis=2, dtype=jnp.int32)
    after = rows + jnp.cumsum(sizes, axis=0, dtype=jnp.int32)  # where the next step's begin
    world = jnp.arange(num_worlds, dtype=jnp.int32)
    row = (after - sizes)[..., None] + world
    own = (after - sizes)[..., None] + num_worlds + jnp.cumsum(ends, axis=2, dtype=jnp.int32) - 1
    return row, jnp.where(ended, own, after[..., None] + world), after[-1]


def _in_rings(numbers: Array, places: int) -> Array:
    """The places of numbers, `(..., G, n)`, in the rings of `places` each, group after group."""
    first = jnp.arange(numbers.shape[-2], dtype=jnp.int32) * places
    return first[:, None] + numbers % places


def _take(tree: PyTree, rows: Array) -> PyTree:
    return jax.tree.map(lambda x: x.at[rows].get(mode="promise_in_bounds"), tree)
