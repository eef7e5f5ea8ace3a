"""The base class of networks: it takes single steps in acting, and whole segments in learning."""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax

from worldline.env.resets import where_rows
from worldline.types import Array, PyTree


class Network(eqx.Module):
    """A network, with or without a memory of its episode.

    A subclass without a memory defines `__call__`. A subclass with a memory defines `start` and
    `step` instead.
    """

    def __call__(self, x: Array) -> Any:
        """The output at inputs `(..., n_in)`, of a network without a memory."""
        raise NotImplementedError(f"{type(self).__name__} has neither `__call__` nor `step`")

    def dense(self) -> Network:
        """The network that acts and that files hold: this one, or the same function without
        parameters that depend on each other.
        """
        return self

    def start(self, *lead: int) -> PyTree:
        """The memory at the start of an episode, `(*lead, ...)`; `()`: the network has none."""
        return ()

    def step(self, memory: PyTree, x: Array) -> tuple[PyTree, Any]:
        """The memory after the input `x`, `(..., n_in)`, and the output."""
        return memory, self(x)

    def restart(self, memory: PyTree, ended: Array) -> PyTree:
        """The memory, `(..., size)`, reset where an episode has ended, `(...)` bool."""
        choose = functools.partial(where_rows, ended)
        return jax.tree.map(choose, self.start(*ended.shape), memory)

    def over(self, memory: PyTree, x: Array, first: Array) -> tuple[PyTree, Any]:
        """The outputs over T steps of n worlds; episodes may end and begin in between.

        Args:
            memory: before the first step, `(n, ...)`.
            x: inputs, `(T, n, ...)`.
            first: whether a new episode begins with the step, `(T, n)` bool.

        Returns:
            The memory after each step and the output of each, `(T, n, ...)` both.
        """
        if not jax.tree.leaves(memory):
            return memory, self(x)

        def step(memory: PyTree, now: tuple[Array, Array]) -> tuple[PyTree, tuple[PyTree, Any]]:
            x, first = now
            memory, out = self.step(self.restart(memory, first), x)
            return memory, (memory, out)

        return jax.lax.scan(step, memory, (x, first))[1]
