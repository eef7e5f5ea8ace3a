"""The process that draws an episode: frames to a video and to a picture.

It is a process of its own, so that a graphics driver that crashes ends it and not the training run
that asked for a video; and because Python's OpenGL bindings are for one driver in a process.
`video.render_episode` starts it with a pickled `Job` on standard input. It writes the job's files,
each whole or not at all. A failure is a line on standard error and exit status 1.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from worldline.errors import RendererUnavailableError
from worldline.files import whole_file
from worldline.rendering.base import View
from worldline.rendering.frames import MOST, filmed
from worldline.rendering.pool import open_pool
from worldline.rendering.scene import NDArray
from worldline.rendering.viewpoint import CameraPath

#: Pixels between the pictures of a montage.
GAP = 4

_STRIP_FRAMES, _STRIP_COLUMNS = 8, 4
_FRAMES_AT_A_TIME = 64


@dataclasses.dataclass(frozen=True)
class Job:
    """What to draw, how, and into which files."""

    model: mujoco.MjModel
    states: dict[str, NDArray]
    """MjData fields to set for each frame, `(T, ...)` each: `qpos`, `mocap_pos`, ..."""
    constants: dict[str, NDArray]
    """The world's own constants."""
    camera: CameraPath
    """Where to look from."""
    fps: float
    """Frames a second."""
    size: tuple[int, int]
    """Height and width of a frame, in pixels."""
    mp4: Path | None
    """The video to write."""
    png: Path | None
    """The picture to write."""
    views: dict[str, NDArray]
    """Pictures to show beside each frame, from top to bottom, `(T, height, width, 3)` uint8."""
    way: str = ""
    """The way to draw, and no other; see `rendering.pool`."""


def draw(job: Job) -> None:
    """Writes the files of a job."""
    number = len(job.states["qpos"])
    chosen = np.unique(np.linspace(0, number - 1, _STRIP_FRAMES).round().astype(int))
    stills = {}
    with _video(job.mp4, job.fps) if job.mp4 else contextlib.nullcontext() as video:
        for index, image in _frames(job, np.arange(number) if video else chosen):
            if video:
                video.append_data(image)
            if index in chosen:
                stills[index] = image
    if job.png:
        _write_strip(job.png, stills, job.fps)


def _frames(job: Job, chosen: NDArray) -> Iterator[tuple[int, NDArray]]:
    """The frames of some indices, the views beside them."""
    worlds = filmed(job.model, job.states, job.constants, job.camera)
    views, most = [View(job.camera.fixedcamid, *job.size)], min(len(chosen), MOST)
    pool, _ = open_pool([job.way], job.model, views, for_people=True, most=most)
    for start in range(0, len(chosen), _FRAMES_AT_A_TIME):
        rows = chosen[start : start + _FRAMES_AT_A_TIME]
        ((images, _),) = pool.draw({name: values[rows] for name, values in worlds.items()})
        assert images is not None
        for row, image in zip(rows.tolist(), images, strict=True):
            yield row, _with_views(image, [view[row] for view in job.views.values()])
    pool.close()


def _with_views(scene: NDArray, views: list[NDArray]) -> NDArray:
    """A frame with the views of its moment on its right, each pixel of theirs a square."""
    if not views:
        return scene
    height = len(scene)
    cell = height // max(len(views), 2) // 2 * 2
    column = np.full((height, cell, 3), 255, np.uint8)
    for place, view in enumerate(views):
        picture = enlarged(view, cell)
        column[place * cell :][: len(picture), : picture.shape[1]] = picture
    return np.concatenate([scene, column], axis=1)


def enlarged(picture: NDArray, side: int) -> NDArray:
    """A picture as large as fits into a square of `side` pixels, without smoothing."""
    height, width = picture.shape[:2]
    scale = side / max(height, width)
    rows, columns = (
        (np.arange(max(1, int(size * scale))) / scale).astype(int).clip(0, size - 1)
        for size in (height, width)
    )
    return picture[rows][:, columns]


def montage(pictures: Sequence[NDArray], columns: int) -> NDArray:
    """Pictures of one size `(height, width, 3)` in rows of `columns`, white gaps between them."""
    height, width, _ = pictures[0].shape
    rows = -(-len(pictures) // columns)
    size = rows * (height + GAP) - GAP, columns * (width + GAP) - GAP
    whole = np.full((*size, 3), 255, np.uint8)
    for place, picture in enumerate(pictures):
        row, column = place // columns * (height + GAP), place % columns * (width + GAP)
        whole[row : row + height, column : column + width] = picture
    return whole


@contextlib.contextmanager
def _video(path: Path, fps: float) -> Iterator[Any]:
    """An encoder for a file that browsers play: H.264 in yuv420p."""
    import imageio.v2 as imageio

    partial = path.with_name(f".{path.stem}.part{path.suffix}")  # the suffix names the format
    writer = imageio.get_writer(
        partial,
        format="FFMPEG",
        mode="I",
        fps=fps,
        codec="libx264",
        pixelformat="yuv420p",
        quality=8,
        macro_block_size=2,
        ffmpeg_log_level="error",
        output_params=["-movflags", "+faststart"],
    )
    try:
        with contextlib.closing(writer):
            yield writer
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _write_strip(path: Path, stills: dict[int, NDArray], fps: float) -> None:
    """A few frames side by side, the time of each written on it."""
    from PIL import Image, ImageDraw, ImageFont

    tiles = []
    for index, image in sorted(stills.items()):
        tile, (height, width, _) = Image.fromarray(image), image.shape
        ImageDraw.Draw(tile).text(
            (width * 0.025, height * 0.025),
            f"{index / fps:.2f} s",
            font=ImageFont.load_default(height / 16),
            fill="white",
            stroke_width=height / 200,
            stroke_fill="black",
        )
        tiles.append(np.asarray(tile))
    with whole_file(path) as file:
        Image.fromarray(montage(tiles, min(_STRIP_COLUMNS, len(tiles)))).save(file, format="PNG")


def main() -> int:
    """Draws the job on standard input; the exit status."""
    job: Job = pickle.load(sys.stdin.buffer)
    try:
        draw(job)
    except Exception as error:
        kind = "" if isinstance(error, RendererUnavailableError) else f"{type(error).__name__}: "
        sys.stderr.write(f"{kind}{' '.join(str(error).split())}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
