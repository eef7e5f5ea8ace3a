"""The compiled functions of the TorchRL environment: the worlds go in and out as one array."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from worldline.bridges.caller_thread import jit_on_caller_thread
from worldline.bridges.packing import Packing
from worldline.bridges.stepper import without_ranges
from worldline.env.worlds import Worlds, WorldsState
from worldline.types import Array, Key

#: Names of the worlds' rows of 32-bit words, and of their real numbers alone.
WORLD, REALS = "world", "world_reals"
FLAGS = ("done", "terminated", "truncated")


class Advance(NamedTuple):
    """The results of a step, as dicts by name."""

    given: dict[str, Array]
    """The worlds after the step, the true successor, and `reward` and the flags, `(B, 1)` each."""
    begun: dict[str, Array]
    """The observation to act on next: that of the new episode where one ended."""


class PackedWorlds:
    """Compiled functions of worlds, which take and return them as `(B, words)` int32.

    Each returns a dict: the worlds as `WORLD`, with gradients also `REALS`, and the chosen parts of
    the observation. An observation that is no dict is called `"observation"`.

    Args:
        worlds: the worlds.
        observed: the names of the parts of the observation to return.
        requires_grad: whether to return the worlds' real numbers also alone, as `REALS`.
    """

    def __init__(self, worlds: Worlds, observed: tuple[str, ...], requires_grad: bool) -> None:
        self._worlds, self._observed, self._requires_grad = worlds, observed, requires_grad
        # The ranges of a domain have no axis `B`; nothing changes them here.
        self.packing = Packing(without_ranges(jax.eval_shape(worlds.reset, jax.random.key(0))))
        example = jax.ShapeDtypeStruct((worlds.num_worlds, self.packing.words), jnp.int32)
        obs = jax.eval_shape(lambda world: parts_of(self._unpack(world).obs), example)
        real = [name for name in observed if jnp.issubdtype(obs[name].dtype, jnp.floating)]
        #: The names of the results of a step that have a derivative.
        self.differentiable = (REALS, "reward", *real)
        self.start = jit_on_caller_thread(worlds, self._start)
        self.begin = jit_on_caller_thread(worlds, self._begin)
        self.put = jit_on_caller_thread(worlds, self._put)
        self.unpack = jit_on_caller_thread(worlds, self._unpack)
        self.advance = jit_on_caller_thread(worlds, self._advance)
        self.pull = jit_on_caller_thread(worlds, self._pull)

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
        state, step = self._worlds.step(state, action, mask)
        flags = (step.terminated | step.truncated, step.terminated, step.truncated)
        worth = dict(zip(("reward", *FLAGS), (step.reward, *flags), strict=True))
        given = self._travelling(state) | self._observation(step.final_obs)
        given |= {name: value[:, None] for name, value in worth.items()}
        return Advance(given, self._observation(state.obs))

    def _seen(self, state: WorldsState) -> dict[str, Array]:
        """The worlds and their observation, by name."""
        return self._travelling(state) | self._observation(state.obs)

    def _travelling(self, state: WorldsState) -> dict[str, Array]:
        """The worlds as arrays, by name."""
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
