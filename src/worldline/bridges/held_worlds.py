"""Worlds between the steps of someone outside JAX: few arrays go in and out of each step."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from worldline.bridges import inline
from worldline.bridges.packing import Bundle
from worldline.env.worlds import Step, Worlds, WorldsState
from worldline.types import Array, Observation
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
        show: of a step, the observation to show, and one to show only if asked.
    """

    def __init__(
        self,
        worlds: Worlds,
        state: WorldsState,
        show: Callable[[Step], tuple[Observation, Observation | None]],
    ) -> None:
        self._worlds, self._show = worlds, show
        action = np.zeros((worlds.num_worlds, *worlds.env.action_low.shape), np.float32)
        shapes = jax.eval_shape(lambda: self._see(worlds.step(state, action)[1]))
        seen, self._nothing = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
        self._seen = Bundle(lambda: seen)
        # What is shown if asked stays with the worlds, since each array takes time.
        self._bundle = Bundle(lambda: (without_ranges(state), self._nothing))
        self._pack = inline.jit(worlds, self._bundle.pack)
        self._unpack = inline.jit(worlds, self._bundle.unpack)
        self._ask = inline.jit(worlds, lambda arrays: self._bundle.unpack(arrays)[1])
        self._step = inline.jit(worlds, self._take_step)
        self.put(state)

    @property
    def state(self) -> WorldsState:
        """Where the worlds are."""
        return dataclasses.replace(self._unpack(self._arrays)[0], ranges=self._ranges)

    def put(self, state: WorldsState) -> None:
        """Puts the worlds where a state has them whose leaves are those of the first one."""
        self._ranges = state.ranges
        self._arrays = self._pack((without_ranges(state), self._nothing))

    def step(
        self, action: NDArray, mask: NDArray | None
    ) -> tuple[Callable[[], Seen], Callable[[], Any]]:
        """A step of all worlds, or of those in a mask; see `Worlds.step`.

        Args:
            action: `(B, nact)`.
            mask: `(B,)` bool; None: all.

        Returns:
            What gives what there is to see, and what gives the observation to show if asked: as
            NumPy arrays, the caller's own at each call.
        """
        checked = self._worlds.env.check_action(action, (self._worlds.num_worlds,))
        self._arrays, seen = self._step(self._arrays, self._ranges, checked, mask)
        arrays = self._arrays

        def ask() -> Any:
            return jax.tree.map(np.array, self._ask(arrays))

        return functools.partial(self._seen.read, seen), ask

    def _take_step(
        self, arrays: Sequence[Array], ranges: Ranges, action: Array, mask: Array | None
    ) -> tuple[list[Array], list[Array]]:
        state = dataclasses.replace(self._bundle.unpack(arrays)[0], ranges=ranges)
        state, step = self._worlds.step(state, action, mask)
        seen, asked = self._see(step)
        return self._bundle.pack((without_ranges(state), asked)), self._seen.pack(seen)

    def _see(self, step: Step) -> tuple[Seen, Observation | None]:
        obs, asked = self._show(step)
        return Seen(obs, step.reward, step.terminated, step.truncated, step.metrics), asked


def without_ranges(state: WorldsState) -> WorldsState:
    """The state without its ranges, which have no axis `B`."""
    return dataclasses.replace(state, ranges={})
