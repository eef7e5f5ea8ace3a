"""Networks that are symmetric to left and right: a mirrored input gives the mirrored output.

They are so exactly, from the first step on. Half of the units of each hidden layer are the mirror
images of the other half: a mirrored input exchanges the halves. Weights that this ties are averaged
over the mirror (van der Pol et al. 2020, "MDP homomorphic networks"; for robots with legs Su et al.
2024, "Leveraging symmetry in RL-based legged locomotion control"). So such a network costs what a
free one of its size does, and it *is* one: `dense` gives it, for acting and for files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import numpy as np

from worldline.env.mirror import Mirror
from worldline.errors import ConfigError
from worldline.learn.networks.mlp import MLP, Activation, Actor, Gaussian
from worldline.learn.networks.network import Network
from worldline.types import Array, Key

#: Before training an average of two weights is to be as large as one.
_GAIN = 2**0.5

#: Of a value: it is the same in the mirror.
SAME = Mirror((0,), (1.0,))


class EquivariantMLP(Network):
    """Dense layers of which a mirrored input gives the mirrored output."""

    free: MLP
    """Weights before they are averaged over the mirror."""
    mirror_in: Mirror = eqx.field(static=True)
    """Of the inputs."""
    mirror_out: Mirror = eqx.field(static=True)
    """Of the outputs."""

    @classmethod
    def initial(
        cls,
        key: Key,
        hidden: Sequence[int],
        activation: Activation,
        last_gain: float,
        mirrors: tuple[Mirror, Mirror],
    ) -> EquivariantMLP:
        """A network before training.

        Args:
            key: decides the weights.
            hidden: sizes of the hidden layers, even numbers.
            activation: between layers.
            last_gain: the gain of the last layer's weights.
            mirrors: of the inputs and of the outputs.

        Raises:
            ConfigError: the size of a layer is odd.
        """
        for size in hidden:
            if size % 2:
                raise ConfigError(
                    f"a hidden layer has {size} units, and with symmetry half of them are mirror "
                    "images of the others; give an even number"
                )
        sizes = (len(mirrors[0]), *hidden, len(mirrors[1]))
        free = MLP.initial(key, sizes, activation, last_gain)
        scaled = [_GAIN * weight for weight in free.weights]
        return cls(dataclasses.replace(free, weights=scaled), *mirrors)

    def dense(self) -> MLP:
        """The same function, without parameters in common."""
        sizes = [len(bias) for bias in self.free.biases[:-1]]
        mirrors = [self.mirror_in, *map(_halves, sizes), self.mirror_out]
        free = zip(self.free.weights, self.free.biases, mirrors[:-1], mirrors[1:], strict=True)
        weights, biases = [], []
        for weight, bias, inward, outward in free:
            image = outward(inward(weight.T).T)
            weights.append(0.5 * (weight + image))
            biases.append(0.5 * (bias + outward(bias)))
        return dataclasses.replace(self.free, weights=weights, biases=biases)

    def __call__(self, x: Array) -> Array:
        """`(..., n_in)` to `(..., n_out)`."""
        return self.dense()(x)


class EquivariantActor(Network):
    """A Gaussian policy: a mirrored observation gives the mirrored distribution."""

    mean: EquivariantMLP
    log_std: Array
    """`(nact,)`, before it is averaged over the mirror."""

    def dense(self) -> Actor:
        """The same policy, without parameters in common."""
        image = self.log_std[np.array(self.mean.mirror_out.index)]
        return Actor(self.mean.dense(), 0.5 * (self.log_std + image))

    def __call__(self, obs: Array) -> Gaussian:
        """The distribution of actions at normalised observations `(..., nobs)`."""
        return self.dense()(obs)


def _halves(size: int) -> Mirror:
    """The mirror of a hidden layer."""
    half = size // 2
    return Mirror((*range(half, size), *range(half)), (1.0,) * size)
