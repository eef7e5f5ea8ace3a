"""Worlds between the steps of someone outside JAX: few arrays go in and out of each step."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from worldline.bridges import inline
from worldline.bridges.packing import Bundle
from worldline.env.worlds import Step, Worlds, WorldsState
from worldline.types import Array, Observation, PyTree
from worldline.variation.domain import Ranges

NDArray: TypeAlias = np.ndarray[Any, Any]


class Seen(NamedTuple):
    """What is shown of a step, as arrays of JAX or of NumPy; fields as in `Step`."""

    obs: Any
    reward: Any
    terminated: Any
    truncated: Any
    metrics: Any


class HeldWorlds:
    """Worlds, where they are now, and their step.

    Args:
        worlds: the worlds.
        state: where they are.
        show: of a step, the observation to show, and what is to stay with JAX.
    """

    def __init__(
        self, worlds: Worlds, state: WorldsState, show: Callable[[Step], tuple[Observation, PyTree]]
    ) -> None:
        self._worlds, self._show = worlds, show
        action = np.zeros((worlds.num_worlds, *worlds.env.action_low.shape), np.float32)
        self._bundle = Bundle(lambda: without_ranges(state))
        self._seen = Bundle(lambda: self._see(worlds.step(state, action)[1])[0])
        self._pack = inline.jit(worlds, self._bundle.pack)
        self._unpack = inline.jit(worlds, self._bundle.unpack)
        self._step = inline.jit(worlds, self._take_step)
        self.put(state)

    @property
    def state(self) -> WorldsState:
        """Where the worlds are."""
        return dataclasses.replace(self._unpack(self._arrays), ranges=self._ranges)

    def put(self, state: WorldsState) -> None:
        """Puts the worlds where a state has them whose leaves are those of the first one."""
        self._ranges, self._arrays = state.ranges, self._pack(without_ranges(state))

    def step(self, action: NDArray, mask: NDArray | None) -> tuple[Callable[[], Seen], PyTree]:
        """A step of all worlds, or of those in a mask; see `Worlds.step`.

        Args:
            action: `(B, nact)`.
            mask: `(B,)` bool; None: all.

        Returns:
            What gives what there is to see as NumPy arrays, the caller's own at each call; and what
            stays with JAX.
        """
        checked = self._worlds.env.check_action(action, (self._worlds.num_worlds,))
        self._arrays, seen, kept = self._step(self._arrays, self._ranges, checked, mask)
        return functools.partial(self._seen.read, seen), kept

    def _take_step(
        self, arrays: Sequence[Array], ranges: Ranges, action: Array, mask: Array | None
    ) -> tuple[list[Array], list[Array], PyTree]:
        state = dataclasses.replace(self._bundle.unpack(arrays), ranges=ranges)
        state, step = self._worlds.step(state, action, mask)
        seen, kept = self._see(step)
        return self._bundle.pack(without_ranges(state)), self._seen.pack(seen), kept

    def _see(self, step: Step) -> tuple[Seen, PyTree]:
        obs, kept = self._show(step)
        return Seen(obs, step.reward, step.terminated, step.truncated, step.metrics), kept


def without_ranges(state: WorldsState) -> WorldsState:
    """The state without its ranges, which have no axis `B`."""
    return dataclasses.replace(state, ranges={})
