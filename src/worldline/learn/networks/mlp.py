"""Multilayer perceptrons, and Gaussian policies made of them; all are pytrees."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.learn.networks.network import Network
from worldline.types import Array, ArrayLike, Key, NDArray

Activation: TypeAlias = Literal["tanh", "swish", "elu", "relu"]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "swish": jax.nn.swish,
    "elu": jax.nn.elu,
    "relu": jax.nn.relu,
}


class MLP(Network):
    """Dense layers with an activation between them; takes any leading axes.

    Weights are orthogonal with gain sqrt(2) (Saxe et al. 2014), biases zero, as in PPO's reference
    implementations (Huang et al. 2022, "The 37 implementation details of PPO", detail 2).
    """

    weights: list[Array]
    """The weights of each layer, `(n_in, n_out)`."""
    biases: list[Array]
    """The biases of each layer, `(n_out,)`."""
    activation: Activation = eqx.field(static=True)
    layer_norm: bool = eqx.field(static=True, default=False)
    """Whether each hidden layer is normalised before its activation: Ba et al. (2016), without
    their gains, which are redundant beside the next layer's weights."""

    @classmethod
    def initial(
        cls,
        key: Key,
        sizes: Sequence[int],
        activation: Activation,
        last_gain: float,
        *,
        layer_norm: bool = False,
    ) -> MLP:
        """A network before training.

        Args:
            key: decides the weights.
            sizes: of the input, each hidden layer and the output.
            activation: between layers.
            last_gain: the gain of the last layer's weights.
            layer_norm: whether each hidden layer is normalised.
        """
        shapes = list(itertools.pairwise(sizes))
        gains = [2**0.5] * (len(shapes) - 1) + [last_gain]
        # One draw for all layers: a random number generator is slow to compile.
        ends = list(itertools.accumulate(n * m for n, m in shapes))
        parts = jnp.split(jax.random.normal(key, (ends[-1],), jnp.float32), ends[:-1])
        weights = [
            gain * orthogonal(part.reshape(shape))
            for part, shape, gain in zip(parts, shapes, gains, strict=True)
        ]
        return cls(
            weights, [jnp.zeros(size, jnp.float32) for size in sizes[1:]], activation, layer_norm
        )

    def __call__(self, x: Array) -> Array:
        """`(..., n_in)` to `(..., n_out)`."""
        activate = ACTIVATIONS[self.activation]
        *hidden, last = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            x = x @ weight + bias
            x = activate(layer_normalized(x) if self.layer_norm else x)
        weight, bias = last
        return x @ weight + bias


def layer_normalized(x: Array, axis: int | tuple[int, ...] = -1) -> Array:
    """`x`, `(..., n)`, with mean 0 and variance 1 over its last or other axes: Ba et al. (2016)."""
    centred = x - x.mean(axis=axis, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(axis=axis, keepdims=True) + 1e-5)


@jax.custom_batching.sequential_vmap
def orthogonal(noise: Array) -> Array:
    """A matrix `(n, m)` with orthonormal rows or columns, uniformly distributed, of normal noise.

    Under `vmap` it decomposes one matrix after another: in JAX before 0.11.2, several
    decompositions of many matrices in one program wait for each other forever, once they hold all
    of XLA's threads.
    """
    tall = noise if noise.shape[0] >= noise.shape[1] else noise.T
    q, r = jnp.linalg.qr(tall)
    q = q * jnp.sign(jnp.diagonal(r))  # makes the decomposition unique: Mezzadri (2007), section 5
    return q if tall is noise else q.T


def _normal_quadrature(points: int) -> tuple[NDArray, NDArray]:
    """Points and weights, `(points,)`, of a mean over the standard normal distribution."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    return nodes.astype(np.float32), (weights / weights.sum()).astype(np.float32)


_NORMAL = _normal_quadrature(8)


class Gaussian(eqx.Module):
    """A normal distribution with independent components, over unbounded actions."""

    mean: Array
    """`(..., nact)`"""
    log_std: Array
    """`(..., nact)`"""

    def at(self, noise: Array) -> Array:
        """The action that standard normal noise `(..., nact)` draws, `(..., nact)`."""
        return self.mean + jnp.exp(self.log_std) * noise

    def log_prob(self, action: Array) -> Array:
        """The log density at `action`, `(...)`."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * (z**2 + jnp.log(2 * jnp.pi)) - self.log_std, axis=-1)

    def entropy(self) -> Array:
        """Differential entropy in nats, `(...)`."""
        return jnp.sum(self.log_std + 0.5 * jnp.log(2 * jnp.pi * jnp.e), axis=-1)

    def squashed_entropy(self, bounded: ArrayLike) -> Array:
        """The entropy in nats, `(...)`, of the action that tanh has brought into (-1, 1).

        It is exact up to Gauss-Hermite quadrature with 8 points.

        Args:
            bounded: which components go through tanh, `(nact,)` bool.
        """
        nodes, weights = _NORMAL
        raw = self.mean[..., None] + jnp.exp(self.log_std)[..., None] * nodes
        slope = jnp.where(bounded, log_tanh_slope(raw) @ weights, 0.0)
        return self.entropy() + slope.sum(axis=-1)

    def kl_from(self, other: Gaussian) -> Array:
        """KL(other || self) in nats, `(...)`."""
        variance_ratio = jnp.exp(2 * (other.log_std - self.log_std))
        shift = (self.mean - other.mean) * jnp.exp(-self.log_std)
        log_ratio = self.log_std - other.log_std
        return jnp.sum(log_ratio + 0.5 * (variance_ratio + shift**2 - 1), axis=-1)


class Actor(Network):
    """A Gaussian policy: a network gives the mean, and the standard deviation is a parameter."""

    mean: MLP
    log_std: Array
    """`(nact,)`"""

    @classmethod
    def initial(
        cls,
        key: Key,
        sizes: Sequence[int],
        activation: Activation,
        log_std: float,
        *,
        layer_norm: bool = False,
    ) -> Actor:
        """A policy before training: every mean is near 0.

        Args:
            key: decides the weights.
            sizes: of the observation, each hidden layer and the action.
            activation: between layers.
            log_std: logarithm of each action's standard deviation.
            layer_norm: whether each hidden layer is normalised.
        """
        mean = MLP.initial(key, sizes, activation, last_gain=0.01, layer_norm=layer_norm)
        return cls(mean, jnp.full(sizes[-1], jnp.float32(log_std)))

    def __call__(self, obs: Array) -> Gaussian:
        """The distribution of actions at normalised observations `(..., nobs)`."""
        mean = self.mean(obs)
        return Gaussian(mean, jnp.broadcast_to(self.log_std, mean.shape))


class StateDependentActor(Network):
    """A Gaussian policy: a network gives the mean and the standard deviation."""

    network: MLP
    """Gives the means, then the logarithms of the standard deviations: `(..., 2 nact)`."""

    def __call__(self, obs: Array) -> Gaussian:
        """The distribution of actions at normalised observations `(..., nobs)`."""
        mean, log_std = jnp.split(self.network(obs), 2, axis=-1)
        return Gaussian(mean, jnp.clip(log_std, -10.0, 2.0))


def log_tanh_slope(x: Array) -> Array:
    """The logarithm of `1 - tanh(x)**2`, the derivative of tanh; exact also far from 0."""
    return 2.0 * (jnp.log(2.0) - x - jax.nn.softplus(-2.0 * x))
