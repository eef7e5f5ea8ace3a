"""The images that a policy saw: as frames beside a video, and as a strip."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np

from worldline.env.env import Env
from worldline.learn.augmentation import Augmentation, augment, draw
from worldline.learn.rollout import Trajectory
from worldline.physics.base import NOTHING, blank_state
from worldline.rendering.scene import NDArray
from worldline.report.pictures import enlarged, write_montage
from worldline.types import Array

_STRIP_FRAMES, _SIDE = 8, 128


def seen_frames(env: Env, episode: Trajectory) -> dict[str, NDArray]:
    """The newest frame of each image at each control step of an episode, `(T, height, width, c)`.

    Colours are `(..., 3)` uint8, distances `(..., 1)` uint16, as in the observation. Without
    cameras there are none.
    """
    cameras = env.cameras
    if cameras is None:
        return {}

    def look(qpos: Array, inputs: Mapping[str, Array]) -> dict[str, Array]:
        world = blank_state(env.model, NOTHING, episode.variation)
        return cameras.first(dataclasses.replace(world, qpos=qpos, fields=dict(inputs)))

    images = jax.device_get(jax.jit(jax.vmap(look))(episode.qpos, episode.inputs))
    channels = {np.dtype(np.uint8): 3, np.dtype(np.uint16): 1}
    return {name: image[..., -channels[image.dtype] :] for name, image in images.items()}


def as_picture(frames: NDArray) -> NDArray:
    """Frames to look at, `(..., 3)` uint8: of distances the nearness, white at the camera."""
    if frames.dtype == np.uint8:
        return frames
    nearness = np.where(frames > 0, 255 / (1 + frames / 1000), 0).astype(np.uint8)
    return np.broadcast_to(nearness, (*frames.shape[:-1], 3))


def write_inputs(path: Path, frames: Mapping[str, NDArray], augmentation: Augmentation) -> None:
    """Writes a picture of eight moments of each image, and under them how the learner may see them.

    Args:
        path: the PNG to write.
        frames: from `seen_frames`.
        augmentation: as the learner changes images; without any, there is no second row.
    """
    rows = []
    for index, (_, all_frames) in enumerate(sorted(frames.items())):
        moments = np.linspace(0, len(all_frames) - 1, _STRIP_FRAMES).round().astype(int)
        chosen = all_frames[moments]
        rows.append(_row(chosen))
        if augmentation:
            draws = draw(augmentation, jax.random.key(index), _STRIP_FRAMES)
            rows.append(_row(np.asarray(augment(augmentation, draws, chosen))))
    write_montage(path, rows)


def _row(frames: NDArray) -> list[NDArray]:
    """Frames as pictures, small ones made a whole number of times larger."""
    side = max(frames.shape[1:3])
    side *= max(1, _SIDE // side)
    return [enlarged(picture, side) for picture in as_picture(frames)]
