"""Steps of worlds for a Gymnasium environment: one array holds the worlds, another the results."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax

from worldline.bridges.caller_thread import jit_on_caller_thread
from worldline.bridges.packing import Packing
from worldline.bridges.shares import Shares
from worldline.env.episodes import WorldsState
from worldline.env.worlds import Step, Worlds
from worldline.types import Array, NDArray, Observation


class Stepper:
    """Compiled functions of worlds that are packed as `(B, words)` int32.

    Args:
        worlds: the worlds.
        state: any state of these worlds. Only states of the same structure can be packed.
        same_step: whether a step that ends an episode returns the first observation of the new one.
    """

    def __init__(self, worlds: Worlds, state: WorldsState, same_step: bool) -> None:
        self._worlds, self._same_step = worlds, same_step
        self._packing = Packing(without_ranges(state))
        action = jax.ShapeDtypeStruct((worlds.num_worlds, *worlds.env.action_low.shape), "float32")
        results = jax.eval_shape(functools.partial(self._step, worlds), state, action, None)[1]
        self._results, shares = Packing(results), Shares(worlds)
        self._share = shares.worlds
        self.pack = jit_on_caller_thread(worlds, self._pack)
        self.unpack = jit_on_caller_thread(worlds, self._unpack)
        self._program = shares.jit(self._packed_step)

    def step(
        self, packed: Array, action: NDArray, mask: NDArray | None
    ) -> tuple[Array, Any, Observation | None]:
        """A step of all worlds, or of those in a mask; see `Worlds.step`.

        Args:
            packed: the worlds, `(B, words)` int32.
            action: `(B, nact)`.
            mask: `(B,)` bool; None: all.

        Returns:
            The worlds after the step; a `Step` of NumPy arrays, which the caller may change, with
            the observation to return as `obs`; and the true successor as JAX arrays, or None
            without `same_step`.
        """
        checked = self._worlds.env.check_action(action, (self._worlds.num_worlds,))
        packed, results, final_obs = self._program(packed, checked, mask)
        return packed, self._results.read(results), final_obs

    def _packed_step(
        self, packed: Array, action: Array, mask: Array | None
    ) -> tuple[Array, Array, Observation | None]:
        state, results, final_obs = self._step(self._share, self._unpack(packed), action, mask)
        return self._pack(state), self._results.pack(results), final_obs

    def _step(
        self, worlds: Worlds, state: WorldsState, action: Array, mask: Array | None
    ) -> tuple[WorldsState, Step, Observation | None]:
        state, step = worlds.step(state, action, mask)
        if self._same_step:
            return state, step._replace(final_obs={}), step.final_obs
        return state, step._replace(obs=step.final_obs, final_obs={}), None

    def _pack(self, state: WorldsState) -> Array:
        return self._packing.pack(without_ranges(state))

    def _unpack(self, packed: Array) -> WorldsState:
        return dataclasses.replace(self._packing.unpack(packed), ranges=self._worlds.ranges)


def without_ranges(state: WorldsState) -> WorldsState:
    """The state without its ranges, which have no axis `B`."""
    return dataclasses.replace(state, ranges={})
