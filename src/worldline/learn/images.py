"""Images among the samples of an update: held once, and changed as augmentation asks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from worldline.learn.augmentation import Augmentation, Draws, augment, draw
from worldline.learn.networks.vision import Observed
from worldline.rendering.camera import image_names
from worldline.types import Array, Key


def is_image_array(leaf: Any) -> bool:
    """Whether an array is one of images, by its type: colours, or distances."""
    return leaf.dtype in (jnp.uint8, jnp.uint16)


def with_images_of(obs: Observed, other: Observed) -> Observed:
    """An observation with the very images of another where both have them: they are held once."""
    return {**obs, **{name: other[name] for name in image_names(obs.keys() & other.keys())}}


def draw_changes(
    augmentation: Augmentation, key: Key, number: int, *observations: Observed
) -> dict[str, Draws]:
    """How the images of each of `number` worlds are changed, by the name of the image."""
    names = sorted({name for obs in observations for name in image_names(obs)})
    keys = jax.random.split(key, len(names))
    return {name: draw(augmentation, keys[i], number) for i, name in enumerate(names)}


def changed(
    augmentation: Augmentation, changes: dict[str, Draws], worlds: Array, obs: Observed
) -> Observed:
    """An observation with its images changed as those of their worlds are.

    Args:
        augmentation: what `changes` were drawn for.
        changes: from `draw_changes`.
        worlds: whose each row of the observation is, `(n,)` int.
        obs: `(n, ...)` each part.
    """
    names = image_names(obs)
    mine = {name: jax.tree.map(lambda x: x[worlds], changes[name]) for name in names}
    return {**obs, **{name: augment(augmentation, mine[name], obs[name]) for name in names}}
