"""Worlds: B worlds, their episodes, and the one step from which every reset mode follows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from worldline.env.env import Env, EnvState
from worldline.errors import ConfigError
from worldline.types import Array, ArrayLike, Key, Metrics, Observation, PyTree, Variation

#: Draws the constants of a world at the start of an episode.
Domain = Callable[[Key], Variation]


class WorldsState(eqx.Module):
    """B worlds and their episodes: a pytree with `B` in front of every leaf."""

    env: EnvState
    """The worlds."""
    key: Key
    """Each world's own stream of random numbers, `(B,)`; it moves on at each reset."""
    steps: Array
    """Control steps taken in the current episode, `(B,)` int32."""
    episode_return: Array
    """Rewards of the current episode so far, `(B,)`."""

    @property
    def obs(self) -> Observation:
        """What to act on next, `(B, ...)`."""
        return self.env.obs

    @property
    def variation(self) -> Variation:
        """Each world's constants, `(B, ...)` a field."""
        return self.env.variation


class Step(NamedTuple):
    """What a step gave; every leaf has `B` in front. N steps are N transitions."""

    obs: Observation
    """What to act on next: of the new episode where one has just ended."""
    reward: Array
    """`(B,)`"""
    terminated: Array
    """`(B,)` bool: the episode ended for a reason of the task's own; its value is 0 from there."""
    truncated: Array
    """`(B,)` bool: cut by the time limit or by a diverged simulation; never together with
    `terminated`. Its value goes on: bootstrap from `final_obs`."""
    final_obs: Observation
    """The true successor of the state acted in, whether or not the episode ended."""
    metrics: Metrics
    """`(B,)` each: the task's own, and `episode_return`, `episode_length` (this step included) and
    `diverged`. Where `terminated | truncated` the first two are those of a whole episode."""


class Worlds:
    """`num_worlds` worlds of one environment that begin a fresh episode as soon as one ends.

    `reset` and `step` are pure and compiled; inside a `jit` or a `scan` of yours they become part
    of it. World i depends on its key, its variation and its actions alone, not on the others.

    Args:
        env: the environment.
        num_worlds: B.
        episode_length: control steps after which an episode is truncated; 0 for no limit; None for
            the task's own.
        domain: draws a world's variation at the start of each of its episodes; None: a world keeps
            the variation that `reset` was given.

    Raises:
        ConfigError: `num_worlds` is not positive or `episode_length` negative.
    """

    def __init__(
        self,
        env: Env,
        num_worlds: int,
        episode_length: int | None = None,
        domain: Domain | None = None,
    ) -> None:
        if num_worlds < 1:
            raise ConfigError(f"num_worlds is {num_worlds}; give 1 or more")
        length = env.task.episode_length if episode_length is None else episode_length
        if length < 0:
            raise ConfigError(f"episode_length is {length}; give steps, or 0 for no limit")
        self.env = env
        self.num_worlds = num_worlds
        self.episode_length = length
        self.domain = domain
        # A reset works on this many worlds at a time: few, since most steps end a handful of
        # episodes; in proportion to B, since all may end at once.
        self._reset_size = min(num_worlds, max(4, num_worlds // 64))
        self._reset = jax.jit(jax.vmap(self._begin))
        self._step = jax.jit(self._take_step)
        self._reset_where = jax.jit(self._reset_rows)

    def reset(self, key: Key, variation: Variation | None = None) -> WorldsState:
        """All worlds at the start of their first episode.

        Args:
            key: one key, from which world i gets `jax.random.fold_in(key, i)` whatever B is; or
                the worlds' own keys, `(B,)`.
            variation: constants per world, `(B, ...)` a field; a `domain` overrides it.

        Raises:
            ConfigError: the number of keys is not B.
        """
        if key.shape == ():
            key = jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(self.num_worlds))
        if key.shape != (self.num_worlds,):
            raise ConfigError(f"{key.shape} keys for {self.num_worlds} worlds; give one, or B")
        everyone = jnp.ones(self.num_worlds, bool)
        return self._reset(key, {} if variation is None else dict(variation), everyone)

    def step(
        self, state: WorldsState, action: ArrayLike, mask: ArrayLike | None = None
    ) -> tuple[WorldsState, Step]:
        """All worlds one control step later; those whose episode ends start a new one at once.

        Args:
            state: the worlds.
            action: `(B, nact)`.
            mask: `(B,)` bool; a world where it is False stays exactly as it is and costs no
                physics: its `obs` and `final_obs` are its present one, all else that the step says
                of it is zero. None: all worlds step.

        Raises:
            ActionError: see `Env.step`.
            ConfigError: the mask is not `(B,)`.
        """
        checked = self.env.check_action(action, (self.num_worlds,))
        return self._step(state, checked, None if mask is None else self._check_mask(mask))

    def reset_where(self, state: WorldsState, mask: ArrayLike) -> WorldsState:
        """Begins a new episode in the worlds where `mask`, `(B,)` bool, is True.

        What it costs follows the number of such worlds, not B.

        Raises:
            ConfigError: the mask is not `(B,)`.
        """
        return self._reset_where(state, self._check_mask(mask))

    def _check_mask(self, mask: ArrayLike) -> Array:
        """A mask of worlds as an array, `(B,)` bool."""
        array = jnp.asarray(mask, bool)
        if array.shape != (self.num_worlds,):
            raise ConfigError(f"the mask has shape {array.shape}; it must be ({self.num_worlds},)")
        return array

    def _begin(self, key: Key, variation: Variation, mask: Array) -> WorldsState:
        """One world at the start of an episode."""
        next_key, start_key, domain_key = jax.random.split(key, 3)
        if self.domain is not None:
            variation = self.domain(domain_key)
        return WorldsState(
            env=self.env.reset(start_key, variation, mask=mask),
            key=next_key,
            steps=jnp.zeros((), jnp.int32),
            episode_return=jnp.zeros(()),
        )

    def _take_step(
        self, state: WorldsState, action: Array, mask: Array | None
    ) -> tuple[WorldsState, Step]:
        masks = {} if mask is None else {"mask": mask}
        env = jax.vmap(self.env.step)(state.env, action, **masks)
        steps = state.steps + 1
        episode_return = state.episode_return + env.reward
        out_of_time = steps >= self.episode_length if self.episode_length else False
        truncated = (env.diverged | out_of_time) & ~env.terminated
        metrics = {
            **env.metrics,
            "episode_return": episode_return,
            "episode_length": steps,
            "diverged": env.diverged,
        }
        worth = (env.reward, env.terminated, truncated, metrics)
        moved = (env, steps, episode_return)
        if mask is not None:
            worth = jax.tree.map(lambda x: _where_rows(mask, x, jnp.zeros_like(x)), worth)
            still = (state.env, state.steps, state.episode_return)
            moved = jax.tree.map(functools.partial(_where_rows, mask), moved, still)
        env, steps, episode_return = moved
        reward, terminated, truncated, metrics = worth
        stepped = WorldsState(env, state.key, steps, episode_return)
        fresh = self._reset_rows(stepped, terminated | truncated)
        return fresh, Step(fresh.obs, reward, terminated, truncated, env.obs, metrics)

    def _reset_rows(self, state: WorldsState, mask: Array) -> WorldsState:
        """Resets the masked worlds, a few rows at a time, until none is left."""
        impl = jax.random.key_impl(state.key)

        def reset_some(carry: tuple[WorldsState, Array]) -> tuple[WorldsState, Array]:
            state, waiting = carry
            (rows,) = jnp.nonzero(waiting, size=self._reset_size, fill_value=self.num_worlds)
            key, variation = jax.tree.map(
                lambda x: x.at[rows].get(mode="clip"), (state.key, state.variation)
            )
            key = jax.random.wrap_key_data(key, impl=impl)
            fresh = _keys_as_words(jax.vmap(self._begin)(key, variation, rows < self.num_worlds))
            put = functools.partial(_put_rows, rows)
            return jax.tree.map(put, state, fresh), waiting.at[rows].set(False, mode="drop")

        # Keys go through the loop as words: JAX's check for keys used twice cannot see that a row
        # whose key was spent is overwritten.
        carry = (_keys_as_words(state), mask)
        state, _ = jax.lax.while_loop(lambda carry: carry[1].any(), reset_some, carry)
        return dataclasses.replace(state, key=jax.random.wrap_key_data(state.key, impl=impl))


def _keys_as_words(state: WorldsState) -> WorldsState:
    """The state with `uint32` words in place of its keys."""
    return dataclasses.replace(state, key=jax.random.key_data(state.key))


def _where_rows(mask: Array, new: Array, old: Array) -> Array:
    """The rows of `new` where `mask`, `(B,)` bool, is True, and of `old` elsewhere."""
    return jnp.where(mask.reshape(mask.shape + (1,) * (new.ndim - 1)), new, old)


def _put_rows(rows: Array, old: PyTree, new: PyTree) -> PyTree:
    """`old` with `new` at `rows`; rows past the end are dropped."""
    return old.at[rows].set(new, mode="drop")
