"""Encoders of images; their features are joined with the numbers of an observation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp

from worldline.errors import ConfigError, did_you_mean
from worldline.learn.networks.mlp import MLP, layer_normalized
from worldline.types import Array, Key

Architecture: TypeAlias = Literal["patches", "nature"]

#: What a network reads of an observation: its numbers as `state`, `(..., n)`, and its images.
Observed: TypeAlias = dict[str, Any]

#: For each convolution: the side of its window, the stride, its channels.
_LAYERS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "patches": ((4, 4, 32), (2, 2, 64), (2, 2, 64)),
    "nature": ((8, 4, 32), (4, 2, 64), (3, 1, 64)),
}

#: The most images that are encoded at a time, which bounds the memory of the layers.
_AT_A_TIME = 1024


class Encoder(eqx.Module):
    """A convolutional network from an image to features, each in [-1, 1].

    `nature` is the network of Mnih et al. (2015), "Human-level control through deep reinforcement
    learning". In `patches` windows do not overlap, as in the stem and between the stages of Liu et
    al. (2022), "A ConvNet for the 2020s". So a convolution is one matrix product, which is fast on
    a CPU. The layers of `patches` are normalised: Ba et al. (2016). The last layers of both are
    those of Yarats et al. (2021): dense, normalisation, tanh.
    """

    layers: list[MLP]
    """For each convolution, the linear map from a window to its channels."""
    last: MLP
    """The map from the last convolution's output to the features."""
    mean_image: Array
    """The image that is subtracted from every image first, `(height, width, channels)`, in the
    units of `_unit_range`; it is not learned. Without it, the static parts of a scene dominate the
    moving parts."""
    architecture: Architecture = eqx.field(static=True)
    normalize_channels: bool = eqx.field(static=True)
    """Whether each channel of the image is first normalised to mean 0 and variance 1."""

    @classmethod
    def initial(
        cls,
        key: Key,
        shape: Sequence[int],
        architecture: Architecture,
        features: int,
        *,
        normalize_channels: bool = False,
    ) -> Encoder:
        """An encoder before training.

        Args:
            key: decides the weights.
            shape: of an image: height, width, channels.
            architecture: `patches` or `nature`.
            features: the number of features of an image.
            normalize_channels: normalise each channel of an image to mean 0 and variance 1.

        Raises:
            ConfigError: there is no such architecture, or the image is too small for it.
        """
        if architecture not in _LAYERS:
            hint = did_you_mean(architecture, _LAYERS)
            raise ConfigError(f"there is no encoder {architecture!r}{hint}")
        height, width, channels = shape
        layers = []
        *keys, last_key = jax.random.split(key, len(_LAYERS[architecture]) + 1)
        for layer_key, (size, stride, out) in zip(keys, _LAYERS[architecture], strict=True):
            layers.append(_dense(layer_key, size * size * channels, out))
            channels = out
            height, width = (_windows(side, size, stride) for side in (height, width))
            if min(height, width) < 1:
                raise ConfigError(
                    f"an image of {shape[0]} x {shape[1]} pixels is too small for the encoder "
                    f"{architecture!r}; use larger cameras, or encoder='patches'"
                )
        last = _dense(last_key, height * width * channels, features)
        return cls(
            layers, last, jnp.zeros(tuple(shape), jnp.float32), architecture, normalize_channels
        )

    def __call__(self, images: Array) -> Array:
        """`(..., height, width, channels)` uint8 or uint16 to `(..., features)`."""
        lead = images.shape[:-3]
        rows = images.reshape(-1, *images.shape[-3:])
        number = rows.shape[0]  # a symbol, where a file is made for any number
        if isinstance(number, int) and number > _AT_A_TIME:
            encoded = jax.lax.map(lambda x: self._encode(x[None])[0], rows, batch_size=_AT_A_TIME)
        else:
            encoded = self._encode(rows)
        return encoded.reshape(*lead, -1)

    def _encode(self, images: Array) -> Array:
        """`(n, height, width, channels)` to `(n, features)`."""
        x = _unit_range(images) - jax.lax.stop_gradient(self.mean_image)
        if self.normalize_channels:
            x = layer_normalized(x, axis=(1, 2))
        for layer, (size, stride, _) in zip(self.layers, _LAYERS[self.architecture], strict=True):
            if size == stride:
                x = jax.nn.relu(layer_normalized(layer(_patches(x, size))))
            else:
                x = jax.nn.relu(_convolve(x, layer, size, stride))
        return jnp.tanh(layer_normalized(self.last(x.reshape(x.shape[0], -1))))


def _dense(key: Key, n_in: int, n_out: int) -> MLP:
    return MLP.initial(key, (n_in, n_out), "relu", last_gain=2**0.5)


def _windows(side: int, size: int, stride: int) -> int:
    """How many windows lie along a side; where windows do not overlap, the side is padded."""
    return math.ceil(side / size) if size == stride else (side - size) // stride + 1


def _patches(x: Array, size: int) -> Array:
    """Images `(n, h, w, c)` cut into squares: `(n, h / size, w / size, size * size * c)`."""
    height, width = (math.ceil(side / size) * size for side in x.shape[1:3])
    below, right = height - x.shape[1], width - x.shape[2]
    x = _longer(_longer(x, 1, below), 2, right)
    x = x.reshape(x.shape[0], height // size, size, width // size, size, -1)
    return x.swapaxes(2, 3).reshape(x.shape[0], height // size, width // size, -1)


def _longer(x: Array, axis: int, more: int) -> Array:
    """Repeats the last entry along an axis; `jnp.pad` cannot be converted to ONNX."""
    last = jax.lax.slice_in_dim(x, x.shape[axis] - 1, None, axis=axis)
    return jnp.concatenate([x, *[last] * more], axis=axis)


def _convolve(x: Array, layer: MLP, size: int, stride: int) -> Array:
    """A convolution without padding of `(n, h, w, c)`."""
    kernel = layer.weights[0].reshape(size, size, x.shape[-1], -1)
    layout = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, kernel, (stride, stride), "VALID", dimension_numbers=layout)
    return y + layer.biases[0]


def _unit_range(images: Array) -> Array:
    """Images as float32: colours in [-0.5, 0.5], and distances in millimetres as nearness,
    `1 / (1 + metres)`, 0 where nothing is seen.
    """
    x = images.astype(jnp.float32)
    if images.dtype == jnp.uint16:
        return jnp.where(x > 0, 1 / (1 + x / 1000), 0.0)
    return x / 255 - 0.5


class ImageEncoder(eqx.Module):
    """An encoder for each image of an observation; by default there are no images."""

    encoders: list[Encoder] = eqx.field(default_factory=list)
    names: tuple[str, ...] = eqx.field(static=True, default=())
    """The names of the images, in the encoders' order."""

    @classmethod
    def initial(
        cls,
        key: Key,
        images: Mapping[str, Sequence[int]],
        architecture: Architecture,
        features: int,
        *,
        normalize_channels: bool = False,
    ) -> ImageEncoder:
        """Encoders before training, one for each name and shape in `images`; the other arguments
        are those of `Encoder.initial`.
        """
        keys = jax.random.split(key, max(len(images), 1))
        encoders = [
            Encoder.initial(
                keys[i], images[name], architecture, features, normalize_channels=normalize_channels
            )
            for i, name in enumerate(sorted(images))
        ]
        return cls(encoders, tuple(sorted(images)))

    @property
    def size(self) -> int:
        """The number of features of all images."""
        return sum(encoder.last.biases[-1].shape[0] for encoder in self.encoders)

    def features(self, obs: Observed) -> dict[str, Array]:
        """The features of each image of an observation, `(..., features)`."""
        pairs = zip(self.names, self.encoders, strict=True)
        return {name: encode(obs[name]) for name, encode in pairs}

    def __call__(self, obs: Observed) -> Array:
        """The numbers of an observation, then the features of its images, `(..., n)`."""
        return joined(obs, self.features(obs))

    def centred(self, obs: Observed) -> ImageEncoder:
        """The same with encoders that subtract the mean of these images, `(n, height, width,
        channels)` each.
        """
        means = [_unit_range(obs[name]).mean(axis=0) for name in self.names]
        pairs = zip(self.encoders, means, strict=True)
        encoders = [eqx.tree_at(lambda e: e.mean_image, each, mean) for each, mean in pairs]
        return ImageEncoder(encoders, self.names)

    def beside(self, other: ImageEncoder) -> ImageEncoder:
        """These encoders and those of other images."""
        both = dict(zip(self.names + other.names, self.encoders + other.encoders, strict=True))
        return ImageEncoder([both[name] for name in sorted(both)], tuple(sorted(both)))

    def only(self, names: Sequence[str]) -> ImageEncoder:
        """The encoders of these images, without the others."""
        kept = [index for index, name in enumerate(self.names) if name in names]
        encoders = [self.encoders[index] for index in kept]
        return ImageEncoder(encoders, tuple(self.names[index] for index in kept))


def joined(obs: Observed, features: Mapping[str, Array]) -> Array:
    """The numbers of an observation, then the features of its images by name, `(..., n)`."""
    seen = [features[name] for name in sorted(obs) if name != "state"]
    numbers = [obs["state"]] if obs["state"].shape[-1] or not seen else []  # ONNX has no empty ones
    return jnp.concatenate([*numbers, *seen], axis=-1)
