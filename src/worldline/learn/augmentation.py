"""Augmentation: random changes of images, so that a network does not depend on them.

Random shifts make reinforcement learning from pixels work: Yarats, Kostrikov and Fergus (2021),
"Image Augmentation Is All You Need"; Laskin et al. (2020), "Reinforcement Learning with Augmented
Data", compares other changes. All functions are pure functions of a batch. One function draws the
changes and another applies them, so that the images of a whole trajectory can share a draw.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from worldline.learn.networks.vision import Observed
from worldline.rendering.camera import image_names
from worldline.settings import NotNegative, Number, check_settings
from worldline.types import Array, Key


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmentation:
    """The sizes of the random changes; by default there are none.

    Raises:
        ConfigError: a number is negative.
    """

    shift: Number = 0
    """The largest shift up, down, left or right, in pixels; the image's edge is repeated."""
    brightness: NotNegative = 0.0
    """The largest change of all colours, as a share of the full range."""
    contrast: NotNegative = 0.0
    """The largest relative change of the distance of colours from their mean."""
    cutout: Number = 0
    """The side of a grey square at a random position of the image, in pixels."""

    def __post_init__(self) -> None:
        check_settings(self)

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in dataclasses.fields(self))


class Draws(NamedTuple):
    """The changes of n images."""

    shift: Array
    """Pixels that the image moves down and right, `(n, 2)` int32."""
    brightness: Array
    """The share of the full range that is added, `(n,)`."""
    contrast: Array
    """The factor of each colour's distance from the mean, `(n,)`."""
    corner: Array
    """The square's upper left corner, as shares of the places it can have, `(n, 2)` in [0, 1)."""


def draw(augmentation: Augmentation, key: Key, number: int) -> Draws:
    """Draws the changes of `number` images, independently of each other."""
    shift_key, brightness_key, contrast_key, corner_key = jax.random.split(key, 4)
    reach, spread = augmentation.shift, augmentation.contrast
    return Draws(
        shift=jax.random.randint(shift_key, (number, 2), -reach, reach + 1),
        brightness=augmentation.brightness
        * jax.random.uniform(brightness_key, (number,), jnp.float32, -1.0, 1.0),
        contrast=1.0 + spread * jax.random.uniform(contrast_key, (number,), jnp.float32, -1.0),
        corner=jax.random.uniform(corner_key, (number, 2), jnp.float32),
    )


def augment(augmentation: Augmentation, draws: Draws, images: Array) -> Array:
    """The images, `(n, height, width, channels)`, with the drawn changes, in the same dtype.

    Depth images (uint16) are only shifted and cut out.
    """
    if augmentation.shift:
        images = shifted(images, draws.shift)
    if images.dtype == jnp.uint8 and (augmentation.brightness or augmentation.contrast):
        images = jittered(images, draws.brightness, draws.contrast)
    if augmentation.cutout:
        images = cut_out(images, draws.corner, augmentation.cutout)
    return images


def shifted(images: Array, shift: Array) -> Array:
    """Images, `(n, height, width, channels)`, moved by `shift` pixels down and right, `(n, 2)`."""
    height, width = images.shape[1:3]

    def move(image: Array, by: Array) -> Array:
        rows = jnp.clip(jnp.arange(height) - by[0], 0, height - 1)
        columns = jnp.clip(jnp.arange(width) - by[1], 0, width - 1)
        return image[rows][:, columns]

    return jax.vmap(move)(images, shift)


def jittered(images: Array, brightness: Array, contrast: Array) -> Array:
    """Images of dtype uint8 with the brightness and contrast of `Draws`."""
    colours = images.astype(jnp.float32)
    mean = colours.mean(axis=(1, 2, 3), keepdims=True)
    add, stretch = (x[:, None, None, None] for x in (255.0 * brightness, contrast))
    return jnp.clip(jnp.round(mean + (colours - mean) * stretch + add), 0, 255).astype(jnp.uint8)


def cut_out(images: Array, corner: Array, size: int) -> Array:
    """Images with a grey square of `size` pixels a side at the corner of `Draws`.

    In depth images the square is 0.
    """
    sides = jnp.array(images.shape[1:3])
    places = jnp.maximum(sides - size, 0) + 1
    start = jnp.floor(corner * places.astype(jnp.float32)).astype(jnp.int32)
    rows, columns = (
        (jnp.arange(side) >= begin[:, None]) & (jnp.arange(side) < begin[:, None] + size)
        for side, begin in zip(images.shape[1:3], start.T, strict=True)
    )
    square = (rows[:, :, None] & columns[:, None, :])[..., None]
    grey = jnp.asarray(127 if images.dtype == jnp.uint8 else 0, images.dtype)
    return jnp.where(square, grey, images)


def draw_changes(
    augmentation: Augmentation, key: Key, number: int, *observations: Observed
) -> dict[str, Draws]:
    """Draws the changes of `number` images for each image of these observations, by its name."""
    names = sorted({name for obs in observations for name in image_names(obs)})
    keys = jax.random.split(key, len(names))
    return {name: draw(augmentation, keys[i], number) for i, name in enumerate(names)}


def changed(
    augmentation: Augmentation, changes: dict[str, Draws], rows: Array, obs: Observed
) -> Observed:
    """An observation with the drawn changes of its images.

    Args:
        augmentation: the augmentation for which `changes` were drawn.
        changes: from `draw_changes`.
        rows: the index of the drawn changes for each row of the observation, `(n,)` int.
        obs: `(n, ...)` each part.
    """
    names = image_names(obs)
    mine = {name: jax.tree.map(lambda x: x[rows], changes[name]) for name in names}
    return {**obs, **{name: augment(augmentation, mine[name], obs[name]) for name in names}}
