"""The compiled functions of the TorchRL environment: the worlds go in and out as one array."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from worldline.bridges.caller_thread import jit_on_caller_thread
from worldline.bridges.packing import Packing
from worldline.bridges.shares import Shares
from worldline.bridges.stepper import without_ranges
from worldline.env.episodes import WorldsState
from worldline.env.resets import where_rows
from worldline.env.worlds import Worlds
from worldline.types import Array, Key

#: Names of the worlds' rows of 32-bit words, and of their real numbers alone.
WORLD, REALS = "world", "world_reals"
FLAGS = ("done", "terminated", "truncated")


class PackedWorlds:
    """Compiled functions that take and return worlds as `(B, words)` int32.

    Each returns a dict: the worlds as `WORLD`, with gradients also `REALS`, and the chosen parts of
    the observation. An observation that is not a dict has the key `"observation"`.

    Args:
        worlds: the worlds.
        observed: the names of the parts of the observation to return.
        requires_grad: whether to return the worlds' real numbers also separately, as `REALS`.
    """

    def __init__(self, worlds: Worlds, observed: tuple[str, ...], requires_grad: bool) -> None:
        self._worlds, self._observed, self._requires_grad = worlds, observed, requires_grad
        self._shares = Shares(worlds)
        # The ranges of a domain have no axis `B`; nothing changes them here.
        self.packing = Packing(without_ranges(jax.eval_shape(worlds.reset, jax.random.key(0))))
        example = jax.ShapeDtypeStruct((worlds.num_worlds, self.packing.words), jnp.int32)
        obs = jax.eval_shape(lambda world: parts_of(self._unpack(world).obs), example)
        real = [name for name in observed if jnp.issubdtype(obs[name].dtype, jnp.floating)]
        #: The names of the results of a step that have a derivative.
        self.differentiable = (REALS, "reward", *real)
        self.start = jit_on_caller_thread(worlds, self._start)
        self.begin = self._shares.jit(self._begin)
        self.put = jit_on_caller_thread(worlds, self._put)
        self.unpack = jit_on_caller_thread(worlds, self._unpack)
        self.advance = self._shares.jit(self._advance)
        self.pull = self._shares.jit(self._pull)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as what it is made of: programs are compiled again."""
        return type(self), (self._worlds, self._observed, self._requires_grad)

    def _start(self, keys: Key) -> dict[str, Array]:
        """All worlds at the start of their first episode, from their keys, `(B,)`."""
        return self._seen(self._worlds.reset(keys))

    def _begin(self, world: Array, rows: Array) -> dict[str, Array]:
        """New episodes in the rows of a mask."""
        return self._seen(self._shares.worlds.reset_where(self._unpack(world), rows))

    def _put(self, world: Array, given: Array, rows: Array) -> dict[str, Array]:
        """The worlds `given` in the rows of a mask, and `world` in the others."""
        return self._seen(self._unpack(where_rows(rows, given, world)))

    def _unpack(self, world: Array) -> WorldsState:
        return self._with_ranges(self.packing.unpack(world))

    def _with_ranges(self, state: WorldsState) -> WorldsState:
        return dataclasses.replace(state, ranges=self._worlds.ranges)

    def _advance(
        self, world: Array, reals: Array | None, action: Array, mask: Array | None
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """A step.

        Returns:
            By name: the worlds after the step with the true successor, and `reward` and the flags,
            `(B, 1)` each; and the observation to act on next.
        """
        state = self._unpack(world)
        if reals is not None:
            state = self._with_ranges(self.packing.with_reals(without_ranges(state), reals))
        state, step = self._shares.worlds.step(state, action, mask)
        flags = (step.terminated | step.truncated, step.terminated, step.truncated)
        worth = dict(zip(("reward", *FLAGS), (step.reward, *flags), strict=True))
        results = self._carried(state) | self._observation(step.final_obs)
        results |= {name: value[:, None] for name, value in worth.items()}
        return results, self._observation(state.obs)

    def _seen(self, state: WorldsState) -> dict[str, Array]:
        return self._carried(state) | self._observation(state.obs)

    def _carried(self, state: WorldsState) -> dict[str, Array]:
        """The arrays that a tensordict carries for the worlds, by name."""
        plain = without_ranges(state)
        carried = {WORLD: self.packing.pack(plain)}
        if self._requires_grad:
            carried[REALS] = self.packing.reals(plain)
        return carried

    def _observation(self, obs: Any) -> dict[str, Array]:
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
        """The gradients of the real numbers and the action; the step is computed once more."""

        def step(reals: Array, action: Array) -> dict[str, Array]:
            results, _ = self._advance(world, reals, action, mask)
            return {name: results[name] for name in self.differentiable}

        return jax.vjp(step, reals, action)[1](cotangents)


def parts_of(observation: Any) -> dict[str, Any]:
    """An observation, or a space of them, by name."""
    if isinstance(observation, Mapping):
        return dict(observation)
    return {"observation": observation}
