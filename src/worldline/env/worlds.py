"""Worlds: B worlds of one environment, which begin a new episode when one ends."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from worldline.env.cameras import Cameras
from worldline.env.env import Env, EnvState
from worldline.env.episodes import Episodes, Parameters, WorldsState
from worldline.env.resets import where_rows
from worldline.errors import ConfigError, VariationError
from worldline.host.fork import check_not_forked
from worldline.keys import as_key
from worldline.model import Model
from worldline.parallel.devices import put, unless_default
from worldline.parallel.mesh import BY_WORLD, EVERYWHERE, check_shares, shared, sum_over_shares
from worldline.rendering.camera import Camera
from worldline.rendering.html import card
from worldline.types import Array, ArrayLike, Key, Metrics, Observation, Variation
from worldline.variation.context import Selector, as_selector
from worldline.variation.distributions import Distribution
from worldline.variation.domain import AbstractDomain, Ranges, as_domain

#: How a world's constants are drawn: a `Domain`, or a function `(key, model, ranges) -> variation`.
DomainLike: TypeAlias = AbstractDomain | Callable[[Key, Model, Any], Variation]

#: How an episode's context is chosen: a `Selector`, or distributions (or numbers) by feature.
ContextLike: TypeAlias = Selector | Mapping[str, Distribution | float]


class Step(NamedTuple):
    """The result of one step of B worlds: one transition each. Every leaf has `B` in front."""

    obs: Observation
    """The observation to act on next; after the end of an episode, the first observation of the new
    one."""
    reward: Array
    """`(B,)`"""
    terminated: Array
    """`(B,)` bool: the task ended the episode; the value of its last state is 0."""
    truncated: Array
    """`(B,)` bool: the time limit or a diverged simulation cut the episode, and the task did not
    end it. The value of its last state is not 0: bootstrap from `final_obs`."""
    final_obs: Observation
    """The observation after the action, before any new episode begins."""
    metrics: Metrics
    """`(B,)` each: the task's metrics, and `episode_return`, `episode_length` (with this step) and
    `diverged`. If `terminated | truncated`, the first two are those of the whole episode."""


class Worlds:
    """`num_worlds` worlds of one environment. When an episode ends, its world begins a new one.

    `reset` and `step` are pure and compiled; inside your own `jit` or `scan` they become part of
    it. World i depends only on its key, its variation and its actions, not on other worlds.

    Args:
        env: the environment.
        num_worlds: B.
        episode_length: control steps after which an episode is truncated; 0 for no limit; None for
            the task's own.
        domain: draws a world's variation at the start of each episode. None: a world keeps the
            variation that was passed to `reset`.
        context: chooses the values of the environment's context features for each episode. None: a
            world keeps the values that were passed to `reset`, or the features' defaults.
        resample_every: control steps after which domain and context draw again within an episode.
            0: they draw only at its start.
        cameras: cameras that replace those of the environment, as in `Env`; None keeps them.
        mesh: devices that share the worlds evenly, from `worldline.parallel.mesh.world_mesh`; None:
            one device has them all. The numbers of a world are the same bit for bit; with an engine
            of XLA's (`mjx`, `brax`) up to rounding.
        adaptive: whether starts follow what happened so far, for tasks that `adapt`, as in
            training. Otherwise episodes begin as `Task.start` draws them, as in evaluation.

    Raises:
        ConfigError: `num_worlds` is not positive, or is not a multiple of the devices of the mesh;
            `episode_length` or `resample_every` is negative; or the cameras are wrong, as in `Env`.
        VariationError: the domain does not fit the model or can draw an impossible value; or the
            context has an unknown feature, or a value outside its bounds.
    """

    def __init__(
        self,
        env: Env,
        num_worlds: int,
        episode_length: int | None = None,
        domain: DomainLike | None = None,
        context: ContextLike | None = None,
        resample_every: int = 0,
        cameras: Cameras | Mapping[str, Camera] | None = None,
        mesh: Mesh | None = None,
        adaptive: bool = True,
    ) -> None:
        if num_worlds < 1:
            raise ConfigError(f"num_worlds is {num_worlds}; give 1 or more")
        check_shares(num_worlds, mesh)
        length = env.task.episode_length if episode_length is None else episode_length
        if length < 0:
            raise ConfigError(f"episode_length is {length}; give steps, or 0 for no limit")
        self.env = env if cameras is None else env.but(cameras=cameras)
        self.num_worlds = num_worlds
        self.episode_length = length
        if resample_every < 0:
            raise ConfigError(f"resample_every is {resample_every}; give steps, or 0 for never")
        self.domain = None if domain is None else as_domain(domain)
        self.context = None if context is None else as_selector(context)
        self.resample_every = resample_every
        sources = self.domain, self.context
        self._episodes = Episodes(self.env, num_worlds, length, *sources, adaptive)
        self.adaptive = adaptive
        #: The devices that share the worlds.
        self.mesh = mesh
        #: The ranges that `reset` begins with.
        self.ranges = self._check_sources()
        state = WorldsState.shared_by(BY_WORLD, EVERYWHERE)
        first = (BY_WORLD, BY_WORLD, BY_WORLD, EVERYWHERE)
        self._reset = jax.jit(shared(mesh, self._begin_all, first, state))
        step = shared(mesh, self._take_step, (state, BY_WORLD, BY_WORLD), (state, BY_WORLD))
        self._step = jax.jit(step)
        self._reset_where = jax.jit(shared(mesh, self._reset_rows, (state, BY_WORLD), state))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as what it is made of."""
        drawn = (self.domain, self.context, self.resample_every)
        made_of = (self.env, self.num_worlds, self.episode_length, *drawn)
        return type(self), (*made_of, None, self.mesh, self.adaptive)

    def __repr__(self) -> str:
        return f"Worlds({self.env!r}, {self.num_worlds})"

    def _repr_html_(self) -> str:
        """What a notebook shows: what the worlds are, and what varies in them."""
        env, limit = self.env, self.episode_length
        substeps = env.substeps * env.action_repeat
        facts = {
            "task": type(env.task).__name__,
            "physics": env.physics.name,
            "control step": f"{env.control_timestep:g} s, {substeps} physics steps",
            "episode": f"{limit} control steps" if limit else "no limit",
            "observation": env.observation_space,
            "action": env.action_space,
            "domain": self.domain or "none: all worlds have the model's constants",
        }
        return card(f"{self.num_worlds} worlds", facts)

    @property
    def device(self) -> jax.Device | None:
        """The device of the worlds, which is the environment's device; None: the devices of the
        mesh.
        """
        return self.env.device if self.mesh is None else None

    def repeating(self, times: int) -> Worlds:
        """The same worlds with `times` times the action repeat of their environment."""
        return self.but(env=self.env.but(action_repeat=times * self.env.action_repeat))

    def but(self, **changes: Any) -> Worlds:
        """The same worlds with other arguments, such as `num_worlds=64`."""
        made_of = {
            "env": self.env,
            "num_worlds": self.num_worlds,
            "episode_length": self.episode_length,
            "domain": self.domain,
            "context": self.context,
            "resample_every": self.resample_every,
            "mesh": self.mesh,
            "adaptive": self.adaptive,
        }
        return Worlds(**{**made_of, **changes})

    def share(self, number: int) -> Worlds:
        """One of `number` equal shares: fewer worlds, whose episodes count as those of all."""
        share = self.but(num_worlds=self.num_worlds // number)
        share._episodes = self._episodes
        return share

    def reset(
        self,
        key: Key,
        variation: Variation | None = None,
        context: Mapping[str, ArrayLike] | None = None,
        ranges: Ranges | None = None,
    ) -> WorldsState:
        """All worlds at the start of their first episode.

        Args:
            key: one key, from which world i gets `jax.random.fold_in(key, i)` for any B; or a key
                for each world, `(B,)`.
            variation: constants per world, `(B, ...)` a field. A draw of `domain` replaces them.
            context: values per world, `(B,)` a feature. A choice of the selector replaces them.
            ranges: the parameters to draw from; None: those of the domain, of the selector and of
                the task's starts.

        Raises:
            ConfigError: the number of keys, or of values, is not B.
            VariationError: no such context feature, or a value outside its bounds.
        """
        check_not_forked()
        key = as_key(key)
        if key.shape == ():
            key = jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(self.num_worlds))
        if key.shape != (self.num_worlds,):
            raise ConfigError(
                f"the keys have shape {key.shape}; give one key, or {self.num_worlds} keys"
            )
        fixed = self._per_world(variation), self._per_world(context)
        self.env.context.complete(self.env.model, fixed[1])
        index = jnp.arange(self.num_worlds, dtype=jnp.int32)
        own = self.env.task.start_ranges
        ranges = self.ranges if ranges is None else _strong({**own, **ranges})
        given = key, index, fixed, ranges
        traced = any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(given))
        return self._reset(*(given if traced else put(given, unless_default(self.device))))

    def draw(self, key: Key) -> Parameters:
        """The variation and the context, `(B, ...)` each, of the episodes that `reset(key)` begins.

        Worlds that draw nothing, reset with the same keys and these, begin the same episodes.

        Args:
            key: the worlds' own keys, `(B,)`.
        """

        def draw_one(key: Key, index: Array) -> Parameters:
            return self._episodes.draw(self.ranges, key, index, ({}, {}))[2]

        return jax.vmap(draw_one)(key, jnp.arange(self.num_worlds, dtype=jnp.int32))

    def step(
        self, state: WorldsState, action: ArrayLike, mask: ArrayLike | None = None
    ) -> tuple[WorldsState, Step]:
        """All worlds one control step later. If an episode ends, its world begins a new one at
        once.

        Args:
            state: the worlds.
            action: `(B, nact)`.
            mask: `(B,)` bool; where it is False, a world does not change and is not simulated. In
                `Step`, its `obs` and `final_obs` are then its current observation, and everything
                else is zero. None: all worlds step.

        Raises:
            ActionError: a wrong shape or dtype, or a value that is not finite.
            ConfigError: the mask is not `(B,)`.
        """
        check_not_forked()
        checked = self.env.check_action(action, (self.num_worlds,))
        given = checked, None if mask is None else self._check_mask(mask)
        return self._step(state, *(_beside(state, x) for x in given))

    def after(self, state: WorldsState, action: Array, mask: Array | None = None) -> EnvState:
        """Every world after its action, before new episodes begin.

        Args:
            state: the worlds.
            action: `(B, nact)`.
            mask: `(B,)` bool; where False nothing is simulated, and the result is unspecified.
        """
        # The time limit, which `Env` does not know, may end the episode between repeats.
        left = jnp.where(state.limit > 0, state.limit - state.steps, self.env.action_repeat)
        masks = {} if mask is None else {"mask": mask}
        return jax.vmap(self.env.step)(state.env, action, at_most=left, **masks)

    def reset_where(self, state: WorldsState, mask: ArrayLike) -> WorldsState:
        """Begins a new episode in the worlds where `mask`, `(B,)` bool, is True.

        The cost grows with the number of such worlds, not with B.

        Raises:
            ConfigError: the mask is not `(B,)`.
        """
        return self._reset_where(state, _beside(state, self._check_mask(mask)))

    def stagger(self, state: WorldsState) -> WorldsState:
        """Shortens the current episodes so that the worlds' episodes end at different times.

        World i's current episode gets (B - i) / B of the time limit; later episodes have full
        length. Otherwise, if only the time limit ends episodes, worlds that begin together would
        always end together, and an on-policy learner would see one part of the episode at a time.
        Without a time limit nothing changes.
        """
        cut = np.arange(self.num_worlds) * self.episode_length // self.num_worlds
        limit = jnp.asarray(self.episode_length - cut, jnp.int32)
        return dataclasses.replace(state, limit=limit)

    def _check_mask(self, mask: ArrayLike) -> Array | np.ndarray[Any, Any]:
        """A mask of worlds as bool `(B,)`; a NumPy array is copied, as in `Env.check_action`."""
        array = jnp.asarray(mask, bool) if isinstance(mask, jax.Array) else np.array(mask, bool)
        if array.shape != (self.num_worlds,):
            raise ConfigError(f"the mask has shape {array.shape}; it must be ({self.num_worlds},)")
        return array

    def _check_sources(self) -> Ranges:
        """Checks the domain and the context's selector; returns their ranges and the task's."""
        domain, context = self.domain, self.context
        if domain is not None:
            domain.check(self.env.model)
        if context is not None:
            self.env.context.complete(self.env.model, context.support())
        first, second = ({} if source is None else source.ranges for source in (domain, context))
        if twice := sorted(first.keys() & second.keys()):
            raise VariationError(
                f"domain and context both have a range {twice[0]!r}; give the term another name="
            )
        own = self.env.task.start_ranges
        if twice := sorted(own.keys() & {**first, **second}.keys()):
            raise VariationError(
                f"the task's starts and the domain or the context both have a range {twice[0]!r}; "
                "give the term another name="
            )
        return _strong({**first, **second, **own})

    def _per_world(self, values: Mapping[str, ArrayLike] | None) -> dict[str, Array]:
        """Values as float32, after a check that each has `B` in front."""
        arrays = {name: jnp.asarray(value, jnp.float32) for name, value in (values or {}).items()}
        for name, array in arrays.items():
            if array.shape[:1] != (self.num_worlds,):
                raise ConfigError(
                    f"{name!r} has shape {array.shape}; give {self.num_worlds} values, one for "
                    "each world"
                )
        return arrays

    def _begin_all(
        self, key: Key, episode_index: Array, fixed: Parameters, ranges: Ranges
    ) -> WorldsState:
        """All worlds, or a device's share of them, at their first start."""
        begin = jax.vmap(functools.partial(self._episodes.begin, ranges))
        everyone = jnp.ones(episode_index.shape, bool)
        return dataclasses.replace(begin(key, episode_index, fixed, everyone), ranges=ranges)

    def _reset_rows(self, state: WorldsState, mask: Array) -> WorldsState:
        """The worlds, or a device's share, with a new episode where `mask`."""
        return self._episodes.reset_rows(state, mask)

    def _take_step(
        self, state: WorldsState, action: Array, mask: Array | None
    ) -> tuple[WorldsState, Step]:
        env = self.after(state, action, mask)
        steps = state.steps + env.taken
        episode_return = state.episode_return + env.reward
        out_of_time = (state.limit > 0) & (steps >= state.limit)
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
            worth = jax.tree.map(lambda x: where_rows(mask, x, jnp.zeros_like(x)), worth)
            still = (state.env, state.steps, state.episode_return)
            moved = jax.tree.map(functools.partial(where_rows, mask), moved, still)
        env, steps, episode_return = moved
        reward, terminated, truncated, metrics = worth
        stepped = dataclasses.replace(state, env=env, steps=steps, episode_return=episode_return)
        ended = terminated | truncated
        if every := self.resample_every:
            due = (steps // every > state.steps // every) & ~ended
            stepped = self._episodes.resample(stepped, due)
        fresh = self._episodes.reset_rows(stepped, ended)
        fresh = dataclasses.replace(fresh, ranges=self._adapted(state.ranges, env, terminated))
        return fresh, Step(fresh.obs, reward, terminated, truncated, stepped.obs, metrics)

    def _adapted(self, ranges: Ranges, env: EnvState, terminated: Array) -> Ranges:
        """The ranges after a step, of which the task's starts may move with what happened."""
        task = self.env.task
        if not (self.adaptive and task.start_ranges):
            return ranges
        counts = jax.vmap(task.tally)(env.memory, terminated)
        total = jax.tree.map(lambda x: jnp.sum(x, axis=0), counts)
        return {**ranges, **task.adapt(ranges, sum_over_shares(self.mesh, total))}


def _beside(state: WorldsState, given: Any) -> Any:
    """An argument for worlds; one that somebody has placed elsewhere comes to where they are."""
    where = state.steps
    if isinstance(given, jax.core.Tracer) or isinstance(where, jax.core.Tracer):
        return given
    placed = isinstance(given, jax.Array) and given.committed and len(where.devices()) == 1
    return put(given, where.device) if placed and given.devices() != where.devices() else given


def _strong(ranges: Ranges) -> Ranges:
    """Ranges as arrays of a definite type: a plain number's would have the step traced again."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.asarray(x).dtype), ranges)
