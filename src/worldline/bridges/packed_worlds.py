"""Worlds as compiled functions of one array: nothing of theirs stays outside of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.interpreters.partial_eval import dce_jaxpr

from worldline.bridges import inline
from worldline.bridges.held_worlds import without_ranges
from worldline.bridges.packing import Packing
from worldline.env.worlds import Worlds, WorldsState
from worldline.types import Array, Key

#: The worlds, a row of 32-bit words each, and their real numbers by themselves.
WORLD, REALS = "world", "world_reals"
FLAGS = ("done", "terminated", "truncated")


class Advance(NamedTuple):
    """What a step gave; all but `before` by name."""

    given: dict[str, Array]
    """The worlds after it, the true successor, `reward` and the flags, `(B, 1)` each."""
    begun: dict[str, Array]
    """The observation to act on next: of the new episode where one ended."""
    before: Array | None
    """The worlds before the last step of each episode, if kept: how it ended can be drawn."""


class PackedWorlds:
    """Worlds that travel as `(B, words)` int32.

    What there is to see of worlds is a dict: `WORLD`, with gradients `REALS`, and the parts of the
    observation that are asked for. An observation that is no dict is called `"observation"`.

    Args:
        worlds: the worlds.
        observed: the parts of the observation to give.
        requires_grad: whether the real numbers of worlds travel by themselves too.
        keep_before: whether `advance` gives what `Advance.before` holds.
    """

    def __init__(
        self,
        worlds: Worlds,
        observed: tuple[str, ...],
        requires_grad: bool,
        keep_before: bool,
    ) -> None:
        self._worlds, self._observed = worlds, observed
        self._requires_grad, self._keep_before = requires_grad, keep_before
        # A picture shows, and a gradient passes through, what no later step reads.
        kept = None if requires_grad or keep_before else self._read_by_steps()
        # The ranges of a domain have no axis `B`; nothing changes them here.
        self.packing = Packing(self._first, kept)
        example = jax.ShapeDtypeStruct((worlds.num_worlds, self.packing.words), jnp.int32)
        obs = jax.eval_shape(lambda world: parts_of(self._unpack(world).obs), example)
        real = [name for name in observed if jnp.issubdtype(obs[name].dtype, jnp.floating)]
        #: What a step gives that has a derivative.
        self.differentiable = (REALS, "reward", *real)
        self.start = inline.jit(worlds, self._start)
        self.begin = inline.jit(worlds, self._begin)
        self.put = inline.jit(worlds, self._put)
        self.unpack = inline.jit(worlds, self._unpack)
        self.advance = inline.jit(worlds, self._advance)
        self.pull = inline.jit(worlds, self._pull)

    def _first(self) -> WorldsState:
        """Any worlds, without ranges."""
        return without_ranges(self._worlds.reset(jax.random.key(0)))

    def _read_by_steps(self) -> list[bool]:
        """For each leaf of worlds, whether anything that is ever shown depends on it.

        The rest, such as metrics and fields that are read where they are made, need not travel: of
        an ant that is more than a quarter.
        """
        state, env = jax.eval_shape(self._first), self._worlds.env
        shape = (self._worlds.num_worlds, *env.action_low.shape)

        def step(state: WorldsState, action: Array) -> tuple[WorldsState, Any]:
            after, step = self._worlds.step(self._with_ranges(state), action)
            ends = (step.reward, step.terminated, step.truncated, step.final_obs)
            # A world that a mask leaves out, or that diverges, shows its present observation.
            return without_ranges(after), (ends, after.obs, state.obs)

        program = jax.make_jaxpr(step)(state, jax.ShapeDtypeStruct(shape, jnp.float32)).jaxpr
        leaves = len(jax.tree.leaves(state))
        shown = [True] * (len(program.outvars) - leaves)
        read, known = [False] * leaves, [True] * leaves
        while read != known:
            known = read
            _, needed = dce_jaxpr(program, [*known, *shown])
            read = [a or b for a, b in zip(known, needed[:leaves], strict=True)]
        return read

    def _start(self, keys: Key) -> dict[str, Array]:
        """All worlds at the start of their first episode, from their keys."""
        return self._seen(self._worlds.reset(keys))

    def _begin(self, world: Array, rows: Array) -> dict[str, Array]:
        """New episodes in the rows of a mask."""
        return self._seen(self._worlds.reset_where(self._unpack(world), rows))

    def _put(self, world: Array, given: Array, rows: Array) -> dict[str, Array]:
        """Worlds that were given in the rows of a mask."""
        return self._seen(self._unpack(_where_rows(rows, given, world)))

    def _unpack(self, world: Array) -> WorldsState:
        return self._with_ranges(self.packing.unpack(world))

    def _with_ranges(self, state: WorldsState) -> WorldsState:
        return dataclasses.replace(state, ranges=self._worlds.ranges)

    def _advance(
        self, world: Array, reals: Array | None, action: Array, mask: Array | None
    ) -> Advance:
        """A step."""
        state = self._unpack(world)
        if reals is not None:
            state = self._with_ranges(self.packing.with_reals(without_ranges(state), reals))
        before = world if self._keep_before else None
        state, step = self._worlds.step(state, action, mask)
        flags = (step.terminated | step.truncated, step.terminated, step.truncated)
        worth = dict(zip(("reward", *FLAGS), (step.reward, *flags), strict=True))
        given = self._travelling(state) | self._observation(step.final_obs)
        given |= {name: value[:, None] for name, value in worth.items()}
        return Advance(given, self._observation(state.obs), before)

    def _seen(self, state: WorldsState) -> dict[str, Array]:
        """What there is to see of worlds."""
        return self._travelling(state) | self._observation(state.obs)

    def _travelling(self, state: WorldsState) -> dict[str, Array]:
        """The worlds as they travel."""
        plain = without_ranges(state)
        travels = {WORLD: self.packing.pack(plain)}
        if self._requires_grad:
            travels[REALS] = self.packing.reals(plain)
        return travels

    def _observation(self, obs: Any) -> dict[str, Array]:
        """The parts of an observation that are asked for."""
        named = parts_of(obs)
        return {name: named[name] for name in self._observed}

    def _pull(
        self,
        world: Array,
        reals: Array,
        action: Array,
        mask: Array | None,
        cotangents: dict[str, Array],
    ) -> tuple[Array, Array]:
        """The gradient by the real numbers and the action, of a step computed once more."""

        def step(reals: Array, action: Array) -> dict[str, Array]:
            given = self._advance(world, reals, action, mask).given
            return {name: given[name] for name in self.differentiable}

        return jax.vjp(step, reals, action)[1](cotangents)


def parts_of(observation: Any) -> dict[str, Any]:
    """An observation, or a space of them, by name."""
    if isinstance(observation, Mapping):
        return dict(observation)
    return {"observation": observation}


def _where_rows(mask: Array, new: Array, old: Array) -> Array:
    """The rows of `new` where `mask`, `(B,)` bool, is True, and of `old` elsewhere."""
    return jnp.where(mask.reshape(mask.shape + (1,) * (new.ndim - 1)), new, old)
