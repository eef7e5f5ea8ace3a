"""Networks with a memory of the episode they are in: a gated recurrent unit, or one of your own.

In acting they take a step at a time; in learning whole segments of worlds, in which an episode may
end and another begin. `as_recurrent` makes any other network one whose memory is empty, `()`, so
that who acts and who learns need not tell them apart.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from worldline.learn.networks.mlp import orthogonal
from worldline.types import Array, Key, PyTree


class Segments(NamedTuple):
    """What n worlds observed one after the other, for a network with a memory to learn from."""

    x: Any
    """What it read, `(n, T, ...)`."""
    first: Array
    """Whether a new episode begins with the step, `(n, T)` bool."""
    memory: PyTree
    """What it remembered before the first step, `(n, ...)`."""


class Recurrent(eqx.Module):
    """A network with a memory. One of your own defines `start` and `step`."""

    @abc.abstractmethod
    def start(self, *lead: int) -> PyTree:
        """The memory at the start of an episode, `(*lead, ...)`."""

    @abc.abstractmethod
    def step(self, memory: PyTree, x: Any) -> tuple[PyTree, Any]:
        """The memory after `x`, `(..., n_in)`, and what the network makes of the two."""

    def restart(self, memory: PyTree, ended: Array) -> PyTree:
        """The memory, `(..., size)`, or where an episode has ended, `(...)` bool, a fresh one."""

        def choose(fresh: Array, old: Array) -> Array:
            return jnp.where(
                ended.reshape(ended.shape + (1,) * (old.ndim - ended.ndim)), fresh, old
            )

        return jax.tree.map(choose, self.start(*ended.shape), memory)

    def over(self, memory: PyTree, x: Any, first: Array) -> tuple[PyTree, Any]:
        """A step after the other.

        Args:
            memory: before the first step, `(B, ...)`.
            x: what is read, `(T, B, ...)`.
            first: whether a new episode begins with the step, `(T, B)` bool.

        Returns:
            The memory after each step, and what the network makes of each: `(T, B, ...)` both.
        """

        def step(memory: PyTree, now: tuple[Any, Array]) -> tuple[PyTree, tuple[PyTree, Any]]:
            x, first = now
            memory, out = self.step(self.restart(memory, first), x)
            return memory, (memory, out)

        return jax.lax.scan(step, memory, (x, first))[1]

    def __call__(self, segments: Segments) -> Any:
        """What the network makes of each step of some segments, `(n, T, ...)`."""
        x, first = jax.tree.map(lambda a: a.swapaxes(0, 1), (segments.x, segments.first))
        _, out = self.over(segments.memory, x, first)
        return jax.tree.map(lambda a: a.swapaxes(0, 1), out)


class Memoryless(Recurrent):
    """A network whose memory is empty."""

    network: Any

    def start(self, *lead: int) -> PyTree:
        """Nothing."""
        return ()

    def step(self, memory: PyTree, x: Any) -> tuple[PyTree, Any]:
        """Nothing, and what the network makes of `x`."""
        return memory, self.network(x)

    def over(self, memory: PyTree, x: Any, first: Array) -> tuple[PyTree, Any]:
        """Nothing, and what the network makes of all steps at once."""
        return memory, self.network(x)


def as_recurrent(network: Any) -> Recurrent:
    """The network itself where it has a memory, else as one whose memory is empty."""
    return network if isinstance(network, Recurrent) else Memoryless(network)


def segments_for(network: Any, memory: PyTree, x: Any, first: Array) -> Any:
    """What a network learns from: `Segments`, or where it has no memory `x` alone.

    The arguments are those of `Segments`.
    """
    return Segments(x, first, memory) if isinstance(network, Recurrent) else x


class GRU(eqx.Module):
    """A gated recurrent unit: Cho et al. (2014), "Learning Phrase Representations using RNN
    Encoder-Decoder for Statistical Machine Translation", section 2.3.

    With one change that cuDNN and PyTorch make too: the reset gate comes after the recurrent
    weights, so that they are one product. Weights begin orthogonal, biases at zero.
    """

    of_input: Array
    """Weights of the reset gate, the update gate and the candidate, side by side,
    `(n_in, 3 size)`."""
    of_memory: Array
    """Likewise, `(size, 3 size)`."""
    bias: Array
    """`(3 size,)`"""
    candidate_bias: Array
    """Of what the reset gate lets through to the candidate, `(size,)`."""

    @classmethod
    def initial(cls, key: Key, n_in: int, size: int) -> GRU:
        """A unit before training."""
        input_key, memory_key = jax.random.split(key)
        of_memory = jax.random.normal(memory_key, (3, size, size))
        return cls(
            of_input=orthogonal(jax.random.normal(input_key, (n_in, 3 * size))),
            of_memory=jnp.concatenate([orthogonal(gate) for gate in of_memory], axis=-1),
            bias=jnp.zeros(3 * size),
            candidate_bias=jnp.zeros(size),
        )

    def read(self, x: Array) -> Array:
        """What the unit takes from its input alone, `(..., n_in)` to `(..., 3 size)`."""
        return x @ self.of_input + self.bias

    def __call__(self, memory: Array, taken: Array) -> Array:
        """The memory `(..., size)` a step later, with what `read` gave."""
        new_reset, new_update, new_candidate = jnp.split(taken, 3, axis=-1)
        old_reset, old_update, old_candidate = jnp.split(memory @ self.of_memory, 3, axis=-1)
        reset = jax.nn.sigmoid(new_reset + old_reset)
        update = jax.nn.sigmoid(new_update + old_update)
        candidate = jnp.tanh(new_candidate + reset * (old_candidate + self.candidate_bias))
        return candidate + update * (memory - candidate)


class GRUNetwork(Recurrent):
    """A gated recurrent unit, and a head that reads what it remembers beside the input itself."""

    gru: GRU
    head: Any
    """From `(..., n_in + size)`: such as an `Actor`, or the `MLP` of a value."""

    def start(self, *lead: int) -> Array:
        """Zeros, `(*lead, size)`."""
        return jnp.zeros((*lead, self.gru.of_memory.shape[0]))

    def step(self, memory: Array, x: Array) -> tuple[Array, Any]:
        """See `Recurrent`."""
        memory = self.gru(memory, self.gru.read(x))
        return memory, self._said(memory, x)

    def over(self, memory: Array, x: Array, first: Array) -> tuple[Array, Any]:
        """See `Recurrent`; all that does not depend on the step before is done for all at once."""

        def step(memory: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            taken, first = now
            memory = self.gru(self.restart(memory, first), taken)
            return memory, memory

        _, memories = jax.lax.scan(step, memory, (self.gru.read(x), first))
        return memories, self._said(memories, x)

    def _said(self, memory: Array, x: Array) -> Any:
        return self.head(jnp.concatenate([x, memory], axis=-1))
