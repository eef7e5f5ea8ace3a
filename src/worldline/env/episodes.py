"""Episodes: the state of B worlds between steps, and how episodes begin."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp

from worldline.env.env import Env, EnvState
from worldline.env.resets import begin_where, where_rows
from worldline.env.task import Start
from worldline.types import Array, Key, Observation, Variation
from worldline.variation.context import Selector
from worldline.variation.domain import AbstractDomain, Ranges

#: A variation and a context, of one world or of all of them.
Parameters: TypeAlias = tuple[Variation, dict[str, Array]]


class WorldsState(eqx.Module):
    """B worlds and their episodes: a pytree; all leaves but the ranges have the first axis `B`."""

    env: EnvState
    """The worlds."""
    key: Key
    """Each world's own random key, `(B,)`; it changes at each reset."""
    steps: Array
    """Control steps taken in the current episode, `(B,)` int32."""
    episode_return: Array
    """Rewards of the current episode so far, `(B,)`."""
    limit: Array
    """Control steps after which the current episode is truncated, `(B,)` int32; 0: never."""
    episode_index: Array
    """The number of the current episode, `(B,)` int32: i + n * B in world i after n episodes."""
    fixed: Parameters
    """The arguments `variation` and `context` of `Worlds.reset`, `(B, ...)` a field. They hold in
    every episode, except for what the domain or the selector draws."""
    ranges: Ranges
    """The parameters of the domain, of the context's selector and of the task's starts, by name.
    Later episodes are drawn from them; nothing recompiles when they are replaced."""

    @classmethod
    def shared_by(cls, by_world: Any, everywhere: Any) -> WorldsState:
        """A state with one value for each field: `everywhere` for the ranges, which are the same
        on all devices, and `by_world` for the others, of which each device has a share.
        """
        values = dict.fromkeys((field.name for field in dataclasses.fields(cls)), by_world)
        return cls(**values | {"ranges": everywhere})

    @property
    def context(self) -> dict[str, Array]:
        """Each world's context, `(B,)` a feature."""
        return self.env.context

    @property
    def obs(self) -> Observation:
        """What to act on next, `(B, ...)`."""
        return self.env.obs

    @property
    def variation(self) -> Variation:
        """Each world's constants, `(B, ...)` a field."""
        return self.env.variation


@dataclasses.dataclass(frozen=True)
class Episodes:
    """How the episodes of worlds begin.

    JAX keeps a compiled program as long as the method of `Worlds` from which it was made. The
    program keeps the functions that differentiate it, which are methods of this class. If the two
    were one class, neither would ever be freed.
    """

    env: Env
    num_worlds: int
    length: int
    """Control steps after which an episode is truncated; 0: never."""
    domain: AbstractDomain | None
    context: Selector | None
    adaptive: bool
    """Whether starts are drawn within the worlds' ranges."""

    def begin(
        self, ranges: Ranges, key: Key, episode_index: Array, fixed: Parameters, mask: Array
    ) -> WorldsState:
        """One world at the start of an episode, without the ranges, which all worlds share."""
        next_key, start, (variation, context) = self.draw(ranges, key, episode_index, fixed)
        return WorldsState(
            env=self.env.begin(start, variation, context, mask=mask),
            key=next_key,
            steps=jnp.zeros((), jnp.int32),
            episode_return=jnp.zeros((), jnp.float32),
            limit=jnp.int32(self.length),
            episode_index=episode_index,
            fixed=fixed,
            ranges={},
        )

    def draw(
        self, ranges: Ranges, key: Key, episode_index: Array, fixed: Parameters
    ) -> tuple[Key, Start, Parameters]:
        """What is random in an episode of one world: its key afterwards, its start, its variation
        and context.
        """
        next_key, start_key, *draw_keys = jax.random.split(key, 4)
        task = self.env.task
        start = task.start_within(start_key, ranges) if self.adaptive else task.start(start_key)
        parameters = self._draw(ranges, draw_keys, episode_index, fixed, start.variation)
        return next_key, start, parameters

    def reset_rows(self, state: WorldsState, mask: Array) -> WorldsState:
        """Begins a new episode in the masked worlds."""
        # Keys go as words: JAX's check for keys used twice cannot see that a row whose key was
        # spent is overwritten.
        impl = jax.random.key_impl(state.key)

        def begin(state: WorldsState, ranges: Ranges, rows: Array) -> WorldsState:
            words, index, fixed = jax.tree.map(
                lambda x: x.at[rows].get(mode="clip"),
                (state.key, state.episode_index, state.fixed),
            )
            key = jax.random.wrap_key_data(words, impl=impl)
            begin_each = jax.vmap(functools.partial(self.begin, ranges))
            mask = rows < len(state.steps)
            return _keys_as_words(begin_each(key, index + self.num_worlds, fixed, mask))

        own = _keys_as_words(dataclasses.replace(state, ranges={}))
        fresh = begin_where(begin, own, state.ranges, mask)
        key = jax.random.wrap_key_data(fresh.key, impl=impl)
        return dataclasses.replace(fresh, key=key, ranges=state.ranges)

    def resample(self, state: WorldsState, due: Array) -> WorldsState:
        """Draws the constants of the masked worlds again, in the middle of their episodes."""
        impl = jax.random.key_impl(state.key)

        def draw(state: WorldsState) -> WorldsState:
            keys = jax.random.wrap_key_data(state.key, impl=impl)
            next_key, *draw_keys = jax.vmap(lambda key: tuple(jax.random.split(key, 3)))(keys)
            draw_again = jax.vmap(functools.partial(self._draw, state.ranges))
            variation, context = draw_again(
                draw_keys, state.episode_index, state.fixed, state.env.drawn
            )
            varied = jax.vmap(self.env.vary)(state.env, variation, context)
            moved = varied, jax.random.key_data(next_key)
            still = state.env, state.key
            env, key = jax.tree.map(functools.partial(where_rows, due), moved, still)
            return dataclasses.replace(state, env=env, key=key)

        state = jax.lax.cond(due.any(), draw, lambda state: state, _keys_as_words(state))
        return dataclasses.replace(state, key=jax.random.wrap_key_data(state.key, impl=impl))

    def _draw(
        self,
        ranges: Ranges,
        keys: Sequence[Key],
        episode_index: Array,
        fixed: Parameters,
        start: Variation,
    ) -> Parameters:
        """A world's variation and context: the fixed ones, replaced by what is drawn.

        The domain changes the model's constants, or those that the task drew at the start.
        """
        variation, context = map(dict, fixed)
        domain_key, context_key = keys
        if self.domain is not None:
            variation |= self.domain(domain_key, self.env.model, ranges, start)
        if self.context is not None:
            context |= self.context(context_key, episode_index, ranges)
        return variation, context


def _keys_as_words(state: WorldsState) -> WorldsState:
    """The state with `uint32` words in place of its keys."""
    return dataclasses.replace(state, key=jax.random.key_data(state.key))
