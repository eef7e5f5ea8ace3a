"""Networks with a memory of their episode: a gated recurrent unit."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from worldline.learn.networks.mlp import orthogonal
from worldline.learn.networks.network import Network
from worldline.types import Array, Key


class GRU(eqx.Module):
    """A gated recurrent unit: Cho et al. (2014), "Learning Phrase Representations using RNN
    Encoder-Decoder for Statistical Machine Translation", section 2.3.

    As in cuDNN and PyTorch, the reset gate is applied after the recurrent weights, so that one
    product computes all gates. Initial weights are orthogonal, initial biases zero.
    """

    of_input: Array
    """Weights of the reset gate, the update gate and the candidate, side by side,
    `(n_in, 3 size)`."""
    of_memory: Array
    """The recurrent weights in the same order, `(size, 3 size)`."""
    bias: Array
    """`(3 size,)`"""
    candidate_bias: Array
    """Added to the memory's part of the candidate, before the reset gate, `(size,)`."""

    @classmethod
    def initial(cls, key: Key, n_in: int, size: int) -> GRU:
        """A unit before training."""
        input_key, memory_key = jax.random.split(key)
        of_memory = jax.random.normal(memory_key, (3, size, size), jnp.float32)
        return cls(
            of_input=orthogonal(jax.random.normal(input_key, (n_in, 3 * size), jnp.float32)),
            of_memory=jnp.concatenate([orthogonal(gate) for gate in of_memory], axis=-1),
            bias=jnp.zeros(3 * size, jnp.float32),
            candidate_bias=jnp.zeros(size, jnp.float32),
        )

    def read(self, x: Array) -> Array:
        """The input's part of the gates, `(..., n_in)` to `(..., 3 size)`."""
        return x @ self.of_input + self.bias

    def __call__(self, memory: Array, taken: Array) -> Array:
        """The memory `(..., size)` a step later; `taken` is the result of `read`."""
        new_reset, new_update, new_candidate = jnp.split(taken, 3, axis=-1)
        old_reset, old_update, old_candidate = jnp.split(memory @ self.of_memory, 3, axis=-1)
        reset = jax.nn.sigmoid(new_reset + old_reset)
        update = jax.nn.sigmoid(new_update + old_update)
        candidate = jnp.tanh(new_candidate + reset * (old_candidate + self.candidate_bias))
        return candidate + update * (memory - candidate)


class GRUNetwork(Network):
    """A gated recurrent unit, and a head that reads the input and the unit's memory."""

    gru: GRU
    head: Any
    """Reads `(..., n_in + size)`; an `Actor`, or the `MLP` of a value function."""

    def start(self, *lead: int) -> Array:
        """Zeros, `(*lead, size)`."""
        return jnp.zeros((*lead, self.gru.of_memory.shape[0]), jnp.float32)

    def step(self, memory: Array, x: Array) -> tuple[Array, Any]:
        """The memory after the input `x`, `(..., n_in)`, and the output."""
        memory = self.gru(memory, self.gru.read(x))
        return memory, self._output(memory, x)

    def over(self, memory: Array, x: Array, first: Array) -> tuple[Array, Any]:
        """As `Network.over`; products with the inputs are computed for all steps at once."""

        def step(memory: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            taken, first = now
            memory = self.gru(self.restart(memory, first), taken)
            return memory, memory

        _, memories = jax.lax.scan(step, memory, (self.gru.read(x), first))
        return memories, self._output(memories, x)

    def _output(self, memory: Array, x: Array) -> Any:
        return self.head(jnp.concatenate([x, memory], axis=-1))
