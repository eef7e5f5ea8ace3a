"""Worlds: B worlds, their episodes, and the one step from which every reset mode follows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.sharding import Mesh

from worldline.env.cameras import Cameras
from worldline.env.env import Env, EnvState
from worldline.errors import ConfigError, VariationError, did_you_mean
from worldline.model import Model
from worldline.parallel.mesh import BY_WORLD, EVERYWHERE, check_shares, shared
from worldline.rendering.camera import Camera
from worldline.types import Array, ArrayLike, Key, Metrics, Observation, PyTree, Variation
from worldline.variation.context import Selector, as_selector
from worldline.variation.distributions import Distribution
from worldline.variation.domain import AbstractDomain, Ranges, as_domain

#: How a world's constants are drawn: a `Domain`, or a function `(key, model, ranges) -> variation`.
DomainLike: TypeAlias = AbstractDomain | Callable[[Key, Model, Any], Variation]

#: How an episode's context is chosen: a `Selector`, or distributions (or numbers) by feature.
ContextLike: TypeAlias = Selector | Mapping[str, Distribution | float]

#: The variation and the context of a world, or of all of them.
Given: TypeAlias = tuple[Variation, dict[str, Array]]


class WorldsState(eqx.Module):
    """B worlds and their episodes: a pytree with `B` in front of every leaf but the ranges."""

    env: EnvState
    """The worlds."""
    key: Key
    """Each world's own stream of random numbers, `(B,)`; it moves on at each reset."""
    steps: Array
    """Control steps taken in the current episode, `(B,)` int32."""
    episode_return: Array
    """Rewards of the current episode so far, `(B,)`."""
    limit: Array
    """Control steps after which the current episode is truncated, `(B,)` int32; 0: never."""
    turn: Array
    """The number of the current episode, were those of all worlds dealt in order, `(B,)` int32."""
    given: Given
    """The variation and the context that `Worlds.reset` was given, `(B, ...)` a field: they hold in
    every episode where nothing is drawn in their place."""
    ranges: Ranges
    """The numbers of the domain and of the context's selector, by name: what later episodes are
    drawn from. Replace them and nothing recompiles."""

    @classmethod
    def shared_by(cls, by_world: Any, everywhere: Any) -> WorldsState:
        """The one for leaves of which each device has its worlds' share, the other for leaves that
        are the same on all.
        """
        return cls(
            env=by_world,
            key=by_world,
            steps=by_world,
            episode_return=by_world,
            limit=by_world,
            turn=by_world,
            given=by_world,
            ranges=everywhere,
        )

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
        context: chooses the values of the environment's context features for each episode; None:
            a world keeps those that `reset` was given, by default the features' own.
        resample_every: control steps after which domain and context draw again within an episode;
            0: only at its start.
        cameras: as in `Env`: see these worlds through them; None: through the environment's own.
        mesh: devices that share the worlds, as many each, from
            `worldline.parallel.mesh.world_mesh`; None: all are on one. The worlds are the same
            bit for bit.

    Raises:
        ConfigError: `num_worlds` is not positive, or the devices of the mesh do not divide it;
            `episode_length` or `resample_every` is negative; or the cameras are wrong, see `Env`.
        VariationError: the domain fits no such model or can draw an impossible value; the context
            has a feature that the environment lacks, or a value outside its bounds.
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

    def repeating(self, times: int) -> Worlds:
        """These worlds with each action taken `times` times; see `Env(action_repeat=)`."""
        return Worlds(
            self.env.but(action_repeat=times * self.env.action_repeat),
            self.num_worlds,
            self.episode_length,
            self.domain,
            self.context,
            self.resample_every,
            mesh=self.mesh,
        )

    def reset(
        self,
        key: Key,
        variation: Variation | None = None,
        context: Mapping[str, ArrayLike] | None = None,
        ranges: Ranges | None = None,
    ) -> WorldsState:
        """All worlds at the start of their first episode.

        Args:
            key: one key, from which world i gets `jax.random.fold_in(key, i)` whatever B is; or
                the worlds' own keys, `(B,)`.
            variation: constants per world, `(B, ...)` a field; a `domain` goes before it.
            context: values per world, `(B,)` a feature; a `context` of the worlds goes before it.
            ranges: the numbers to draw from; None: those of the domain and the context's selector.

        Raises:
            ConfigError: the number of keys, or of values, is not B.
            VariationError: no such context feature, or a value outside its bounds.
        """
        if key.shape == ():
            key = jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(self.num_worlds))
        if key.shape != (self.num_worlds,):
            raise ConfigError(f"{key.shape} keys for {self.num_worlds} worlds; give one, or B")
        given = self._per_world(variation), self._per_world(context)
        self.env.context.complete(self.env.model, given[1])
        turn = jnp.arange(self.num_worlds, dtype=jnp.int32)
        return self._reset(key, turn, given, self.ranges if ranges is None else _strong(ranges))

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

    def after(self, state: WorldsState, action: Array, mask: Array | None = None) -> EnvState:
        """Every world after its action, those that ended too: before any new episode begins.

        Args:
            state: the worlds.
            action: `(B, nact)`.
            mask: `(B,)` bool; where False nothing is simulated, and the result is unspecified.
        """
        # What `Env` does not know: when the time is over.
        left = jnp.where(state.limit > 0, state.limit - state.steps, self.env.action_repeat)
        masks = {} if mask is None else {"mask": mask}
        return jax.vmap(self.env.step)(state.env, action, at_most=left, **masks)

    def reset_where(self, state: WorldsState, mask: ArrayLike) -> WorldsState:
        """Begins a new episode in the worlds where `mask`, `(B,)` bool, is True.

        What it costs follows the number of such worlds, not B.

        Raises:
            ConfigError: the mask is not `(B,)`.
        """
        return self._reset_where(state, self._check_mask(mask))

    def stagger(self, state: WorldsState) -> WorldsState:
        """The worlds with the time limits of their present episodes spread evenly, to end in turn.

        Worlds that begin together end together, for good where an episode ends by its time limit
        alone. A learner that forgets what it does not see now, as on-policy ones do, would learn
        from one part of the episode at a time. World i's present episode gets (B - i) / B of the
        time limit; later ones are whole. Without a time limit nothing changes.
        """
        spread = np.arange(self.num_worlds) * self.episode_length // self.num_worlds
        limit = jnp.asarray(self.episode_length - spread, jnp.int32)
        return dataclasses.replace(state, limit=limit)

    def _check_mask(self, mask: ArrayLike) -> Array | np.ndarray[Any, Any]:
        """A mask of worlds as an array of its own kind, `(B,)` bool; see `Env.check_action`."""
        array = jnp.asarray(mask, bool) if isinstance(mask, jax.Array) else np.array(mask, bool)
        if array.shape != (self.num_worlds,):
            raise ConfigError(f"the mask has shape {array.shape}; it must be ({self.num_worlds},)")
        return array

    def _check_sources(self) -> dict[str, PyTree]:
        """Checks the domain and the context's selector; returns their ranges together."""
        env, ranges = self.env, dict[str, PyTree]()
        if self.domain is not None:
            self.domain.check(env.model)
            ranges |= self.domain.ranges
        if self.context is not None:
            features = env.context.features(env.model)
            for name, values in self.context.support().items():
                if name not in features:
                    raise VariationError(
                        f"the environment has no context feature {name!r}"
                        f"{did_you_mean(name, features)}; give it to Env(context=...)"
                    )
                features[name].check(values)
            if twice := sorted(ranges.keys() & self.context.ranges.keys()):
                raise VariationError(
                    f"domain and context both have a range {twice[0]!r}; give the term a name="
                )
            ranges |= self.context.ranges
        return dict(_strong(ranges))

    def _per_world(self, values: Mapping[str, ArrayLike] | None) -> dict[str, Array]:
        """Values with `B` in front."""
        arrays = {name: jnp.asarray(value, jnp.float32) for name, value in (values or {}).items()}
        for name, array in arrays.items():
            if array.shape[:1] != (self.num_worlds,):
                raise ConfigError(
                    f"{name!r} has shape {array.shape}; give {self.num_worlds} values, one a world"
                )
        return arrays

    def _begin_all(self, key: Key, turn: Array, given: Given, ranges: Ranges) -> WorldsState:
        """All worlds, or a device's share of them, at their first start."""
        begin = jax.vmap(functools.partial(self._begin, ranges))
        everyone = jnp.ones(turn.shape, bool)
        return dataclasses.replace(begin(key, turn, given, everyone), ranges=ranges)

    def _begin(
        self, ranges: Ranges, key: Key, turn: Array, given: Given, mask: Array
    ) -> WorldsState:
        """One world at the start of an episode, without the ranges that it shares."""
        next_key, start_key, *draw_keys = jax.random.split(key, 4)
        variation, context = self._draw(ranges, draw_keys, turn, given)
        return WorldsState(
            env=self.env.reset(start_key, variation, context, mask=mask),
            key=next_key,
            steps=jnp.zeros((), jnp.int32),
            episode_return=jnp.zeros(()),
            limit=jnp.int32(self.episode_length),
            turn=turn,
            given=given,
            ranges={},
        )

    def _draw(self, ranges: Ranges, keys: Sequence[Key], turn: Array, given: Given) -> Given:
        """A world's variation and context: what is drawn, and what it was given."""
        variation, context = map(dict, given)
        domain_key, context_key = keys
        if self.domain is not None:
            variation |= self.domain(domain_key, self.env.model, ranges)
        if self.context is not None:
            context |= self.context(context_key, turn, ranges)
        return variation, context

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
            worth = jax.tree.map(lambda x: _where_rows(mask, x, jnp.zeros_like(x)), worth)
            still = (state.env, state.steps, state.episode_return)
            moved = jax.tree.map(functools.partial(_where_rows, mask), moved, still)
        env, steps, episode_return = moved
        reward, terminated, truncated, metrics = worth
        stepped = dataclasses.replace(state, env=env, steps=steps, episode_return=episode_return)
        ended = terminated | truncated
        if every := self.resample_every:
            due = (steps // every > state.steps // every) & ~ended
            stepped = self._resample(stepped, due)  # what is seen of the context follows
        fresh = self._reset_rows(stepped, ended)
        return fresh, Step(fresh.obs, reward, terminated, truncated, stepped.obs, metrics)

    def _resample(self, state: WorldsState, due: Array) -> WorldsState:
        """Draws the constants of the masked worlds again, in the middle of their episodes."""
        impl = jax.random.key_impl(state.key)

        def draw(state: WorldsState) -> WorldsState:
            keys = jax.random.wrap_key_data(state.key, impl=impl)
            next_key, *draw_keys = jax.vmap(lambda key: tuple(jax.random.split(key, 3)))(keys)
            draw_again = jax.vmap(functools.partial(self._draw, state.ranges))
            variation, context = draw_again(draw_keys, state.turn, state.given)
            varied = jax.vmap(self.env.vary)(state.env, variation, context)
            moved = varied, jax.random.key_data(next_key)
            still = state.env, state.key
            env, key = jax.tree.map(functools.partial(_where_rows, due), moved, still)
            return dataclasses.replace(state, env=env, key=key)

        state = jax.lax.cond(due.any(), draw, lambda state: state, _keys_as_words(state))
        return dataclasses.replace(state, key=jax.random.wrap_key_data(state.key, impl=impl))

    def _reset_rows(self, state: WorldsState, mask: Array) -> WorldsState:
        """Begins a new episode in the masked worlds."""
        # Keys go as words: JAX's check for keys used twice cannot see that a row whose key was
        # spent is overwritten.
        mine = _keys_as_words(dataclasses.replace(state, ranges={}))
        impl = jax.random.key_impl(state.key)
        fresh = _begin_again(self, impl, mine, mask, state.ranges)
        key = jax.random.wrap_key_data(fresh.key, impl=impl)
        return dataclasses.replace(fresh, key=key, ranges=state.ranges)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _begin_again(
    worlds: Worlds, impl: Any, state: WorldsState, mask: Array, ranges: Ranges
) -> WorldsState:
    """Begins a new episode in the masked worlds, a few rows at a time, until none is left.

    The keys of `state` are words, those of a generator `impl`.
    """
    # Few rows at a time, since most steps end a handful of episodes; in proportion to the worlds,
    # since a pass costs as much as a few rows do, and random humanoids end one in 25 a step. On
    # several devices these are a device's share.
    number = mask.shape[0]
    size = min(number, max(4, number // 16))

    def reset_some(carry: tuple[WorldsState, Array]) -> tuple[WorldsState, Array]:
        state, waiting = carry
        (rows,) = jnp.nonzero(waiting, size=size, fill_value=number)
        key, turn, given = jax.tree.map(
            lambda x: x.at[rows].get(mode="clip"), (state.key, state.turn, state.given)
        )
        key = jax.random.wrap_key_data(key, impl=impl)
        begin = jax.vmap(functools.partial(worlds._begin, ranges))
        fresh = begin(key, turn + worlds.num_worlds, given, rows < number)
        put = functools.partial(_put_rows, rows)
        state = jax.tree.map(put, state, _keys_as_words(fresh))
        return state, waiting.at[rows].set(False, mode="drop")

    return jax.lax.while_loop(lambda carry: carry[1].any(), reset_some, (state, mask))[0]


@functools.partial(_begin_again.defjvp, symbolic_zeros=True)
def _begin_again_jvp(worlds: Worlds, impl: Any, primals: Any, tangents: Any) -> Any:
    """The derivative of a row that goes on is its own; that of a fresh start comes from what it is
    drawn from, the ranges and the given constants, if anyone differentiates by those.
    """
    state, mask, ranges = primals
    moved, _, ranges_moved = tangents
    drawn_from, by = (state.given, ranges), (moved.given, ranges_moved)
    if all(map(_is_zero, jax.tree.leaves(by, is_leaf=_is_zero))):
        fresh = jax.tree.map(lambda _: None, moved, is_leaf=_is_zero)
    else:

        def begin(given: Given, ranges: Ranges) -> WorldsState:
            key = jax.random.wrap_key_data(state.key, impl=impl)
            # Every row, since what is left out is unspecified and may have no finite derivative.
            every = jnp.ones_like(mask)
            begun = jax.vmap(functools.partial(worlds._begin, ranges))
            return _keys_as_words(begun(key, state.turn + worlds.num_worlds, given, every))

        arrays = jax.tree.map(_as_array, by, drawn_from, is_leaf=_is_zero)
        _, fresh = jax.jvp(begin, drawn_from, arrays)

    def choose(old: Any, new: Any) -> Any:
        """The tangent of a leaf; what nobody differentiates by stays so, and costs nothing."""
        if new is not None and new.dtype != jax.dtypes.float0:
            return _where_rows(mask, new, _as_array(old, new))
        return old if _is_zero(old) else _where_rows(mask, jnp.zeros_like(old), old)

    moved = jax.tree.map(choose, moved, fresh, is_leaf=_is_zero)
    return _begin_again(worlds, impl, *primals), moved


def _as_array(tangent: Any, like: Any) -> Any:
    """A tangent as an array, also where it is known to be zero."""
    if not _is_zero(tangent):
        return tangent
    zeros = np.zeros if tangent.dtype == jax.dtypes.float0 else jnp.zeros
    return zeros(jnp.shape(like), tangent.dtype)


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, SymbolicZero)


def _strong(ranges: Ranges) -> Ranges:
    """Ranges as arrays of a definite type: a plain number's would have the step traced again."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.asarray(x).dtype), ranges)


def _keys_as_words(state: WorldsState) -> WorldsState:
    """The state with `uint32` words in place of its keys."""
    return dataclasses.replace(state, key=jax.random.key_data(state.key))


def _where_rows(mask: Array, new: Array, old: Array) -> Array:
    """The rows of `new` where `mask`, `(B,)` bool, is True, and of `old` elsewhere."""
    return jnp.where(mask.reshape(mask.shape + (1,) * (new.ndim - 1)), new, old)


def _put_rows(rows: Array, old: PyTree, new: PyTree) -> PyTree:
    """`old` with `new` at `rows`; rows past the end are dropped."""
    return old.at[rows].set(new, mode="drop")
