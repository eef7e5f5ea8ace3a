"""What a policy that sees has seen: as frames beside a video, and as a strip."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.cameras import Cameras
from worldline.files import whole_file
from worldline.learn.augmentation import Augmentation, augment, draw
from worldline.learn.rollout import Trajectory
from worldline.physics.base import PhysicsState
from worldline.rendering.scene import NDArray
from worldline.report.draw import GAP, enlarged, montage
from worldline.types import Array

_STRIP_FRAMES, _SIDE = 8, 128


def seen_frames(cameras: Cameras, episode: Trajectory) -> dict[str, NDArray]:
    """The newest frame of each image at each control step of an episode, `(T, height, width, c)`.

    Colours are `(..., 3)` uint8, distances `(..., 1)` uint16, as in the observation.
    """

    def look(qpos: Array, inputs: Mapping[str, Array]) -> dict[str, Array]:
        nothing = jnp.zeros(0)
        physics = PhysicsState(
            qpos=qpos,
            qvel=nothing,
            act=nothing,
            time=jnp.zeros(()),
            fields=dict(inputs),
            changes={},
            variation=episode.variation,
            diverged=jnp.asarray(False),
            engine=(),
        )
        return cameras.first(physics)

    images = jax.device_get(jax.jit(jax.vmap(look))(episode.qpos, episode.inputs))
    return {name: image[..., -_channels(image) :] for name, image in images.items()}


def _channels(image: NDArray) -> int:
    return 3 if image.dtype == np.uint8 else 1


def as_picture(frames: NDArray) -> NDArray:
    """Frames to look at, `(..., 3)` uint8: of distances the nearness, white at the camera."""
    if frames.dtype == np.uint8:
        return frames
    nearness = np.where(frames > 0, 255 / (1 + frames / 1000), 0).astype(np.uint8)
    return np.broadcast_to(nearness, (*frames.shape[:-1], 3))


def write_inputs(path: Path, frames: Mapping[str, NDArray], augmentation: Augmentation) -> None:
    """A picture of eight moments of each image, and under them how they may look to the learner.

    Args:
        path: the PNG to write.
        frames: from `seen_frames`.
        augmentation: as the learner changes images; without any, there is no second row.
    """
    from PIL import Image

    rows = []
    for index, (_, all_frames) in enumerate(sorted(frames.items())):
        moments = np.linspace(0, len(all_frames) - 1, _STRIP_FRAMES).round().astype(int)
        chosen = all_frames[moments]
        rows.append(_row(as_picture(chosen)))
        if augmentation:
            draws = draw(augmentation, jax.random.key(index), _STRIP_FRAMES)
            rows.append(_row(as_picture(np.asarray(augment(augmentation, draws, chosen)))))
    width = max(row.shape[1] for row in rows)
    padded = [
        np.pad(r, ((0, GAP), (0, width - r.shape[1]), (0, 0)), constant_values=255) for r in rows
    ]
    with whole_file(path) as file:
        Image.fromarray(np.concatenate(padded)[:-GAP]).save(file, format="PNG")


def _row(pictures: NDArray) -> NDArray:
    """Pictures `(n, height, width, 3)` side by side, small ones made a whole number larger."""
    side = max(pictures.shape[1:3])
    side *= max(1, _SIDE // side)
    return montage([enlarged(picture, side) for picture in pictures], columns=len(pictures))
