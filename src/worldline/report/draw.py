"""Draws a trajectory to a video and a picture, in a process of its own.

A graphics driver that crashes then ends this process, not a training run; and MuJoCo reads the
choice of driver, `MUJOCO_GL`, only once in a process. `video.py` starts it, with a pickled `Job`
on standard input; it writes the job's files, and nothing else. A failure is a line on standard
error and exit status 1.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import queue
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import mujoco
import numpy as np

from worldline.rendering.raycast import RayPainter
from worldline.rendering.viewpoint import CameraPath

NDArray: TypeAlias = np.ndarray[Any, Any]
Images: TypeAlias = Callable[[Iterable[int]], Iterator[tuple[int, NDArray]]]

_STRIP_FRAMES, _STRIP_COLUMNS = 8, 4


@dataclasses.dataclass(frozen=True)
class Job:
    """What to draw, and into which files."""

    model: mujoco.MjModel
    """The model, with the world's own constants in it."""
    states: dict[str, NDArray]
    """MjData fields to set for each frame, `(T, ...)` each: `qpos`, `mocap_pos`, ..."""
    camera: CameraPath
    """Where to look from."""
    fps: float
    """Frames a second."""
    size: tuple[int, int]
    """Height and width of a frame, in pixels."""
    mp4: str | None
    """The video to write."""
    png: str | None
    """The picture to write."""
    views: dict[str, NDArray] = dataclasses.field(default_factory=dict)
    """Pictures to show beside each frame, from top to bottom, `(T, height, width, 3)` uint8."""
    rays: bool = False
    """Cast rays, rather than ask the graphics library that `MUJOCO_GL` names."""

    @property
    def frames(self) -> int:
        """The number of frames, `T`."""
        return len(self.states["qpos"])


def draw(job: Job) -> None:
    """Writes the files of a job; each is written whole or not at all."""
    chosen = np.unique(np.linspace(0, job.frames - 1, _STRIP_FRAMES).round().astype(int))
    stills = {}
    with contextlib.ExitStack() as stack:
        images = stack.enter_context(_rays(job) if job.rays else _graphics(job))
        video = stack.enter_context(_video(job)) if job.mp4 else None
        for index, scene in images(range(job.frames) if video else chosen):
            image = _with_views(job, scene, index)
            if video:
                video.append_data(image)
            if index in chosen:
                stills[index] = image
    if job.png:
        _write_strip(job.png, stills, job.fps)


def _with_views(job: Job, scene: NDArray, frame: int) -> NDArray:
    """A frame with the views of its moment on its right, each pixel of theirs a square."""
    if not job.views:
        return scene
    height = job.size[0]
    cell = height // max(len(job.views), 2) // 2 * 2
    column = np.full((height, cell, 3), 255, np.uint8)
    for place, view in enumerate(job.views.values()):
        picture = _enlarged(view[frame], cell)
        column[place * cell :][: len(picture), : picture.shape[1]] = picture
    return np.concatenate([scene, column], axis=1)


def _enlarged(picture: NDArray, side: int) -> NDArray:
    """A picture as large as fits into a square of `side` pixels, without smoothing."""
    height, width = picture.shape[:2]
    scale = side / max(height, width)
    rows, columns = (
        (np.arange(max(1, int(size * scale))) / scale).astype(int).clip(0, size - 1)
        for size in (height, width)
    )
    return picture[rows][:, columns]


def _pose(job: Job, data: mujoco.MjData, frame: int) -> mujoco.MjvCamera:
    """Puts a frame's state into `data`, and gives its camera."""
    for name, rows in job.states.items():
        getattr(data, name)[...] = rows[frame]
    mujoco.mj_fwdPosition(job.model, data)
    return job.camera.at(frame)


@contextlib.contextmanager
def _graphics(job: Job) -> Iterator[Images]:
    """MuJoCo's own renderer, set up to be quick where a CPU does the drawing."""
    height, width = job.size
    visual = job.model.vis
    visual.global_.offheight, visual.global_.offwidth = height, width
    visual.quality.shadowsize = min(visual.quality.shadowsize, 1024)
    if job.camera.fixedcamid < 0:
        visual.map.shadowclip = job.camera.distance / job.model.stat.extent
    data = mujoco.MjData(job.model)
    with mujoco.Renderer(job.model, height, width) as renderer:
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_HAZE] = False

        def images(frames: Iterable[int]) -> Iterator[tuple[int, NDArray]]:
            for frame in frames:
                camera = _pose(job, data, frame)
                renderer.update_scene(data, camera)
                _aim_shadows(renderer.scene, camera)
                yield frame, renderer.render()

        yield images


def _aim_shadows(scene: mujoco.MjvScene, camera: mujoco.MjvCamera) -> None:
    """Moves the suns to what the camera looks at: they cast shadows in a small region only."""
    if camera.type == mujoco.mjtCamera.mjCAMERA_FREE:
        for light in scene.lights[: scene.nlight]:
            if light.type == mujoco.mjtLightType.mjLIGHT_DIRECTIONAL:
                light.pos = camera.lookat - 2 * camera.distance * light.dir


@contextlib.contextmanager
def _rays(job: Job) -> Iterator[Images]:
    """The renderer that needs no graphics library, on every core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    workers = min(cores or 1, job.frames)
    idle: queue.SimpleQueue[tuple[RayPainter, mujoco.MjData]] = queue.SimpleQueue()
    for _ in range(workers):
        idle.put((RayPainter(job.model, job.size), mujoco.MjData(job.model)))

    def paint(frame: int) -> tuple[int, NDArray]:
        painter, data = idle.get()
        try:
            return frame, painter.paint(data, _pose(job, data, frame))
        finally:
            idle.put((painter, data))

    with ThreadPoolExecutor(workers) as pool:
        yield lambda frames: pool.map(paint, frames)


@contextlib.contextmanager
def _video(job: Job) -> Iterator[Any]:
    """An encoder for a file that browsers play: H.264 in yuv420p."""
    import imageio.v2 as imageio

    assert job.mp4
    with _whole(job.mp4) as partial:
        writer = imageio.get_writer(
            partial,
            format="FFMPEG",
            mode="I",
            fps=job.fps,
            codec="libx264",
            pixelformat="yuv420p",
            quality=8,
            macro_block_size=2,
            ffmpeg_log_level="error",
            output_params=["-movflags", "+faststart"],
        )
        with contextlib.closing(writer):
            yield writer


def _write_strip(path: str, stills: dict[int, NDArray], fps: float) -> None:
    """A few frames side by side, the time of each written on it."""
    from PIL import Image, ImageDraw, ImageFont

    height, width, _ = next(iter(stills.values())).shape
    columns = min(_STRIP_COLUMNS, len(stills))
    rows = -(-len(stills) // columns)
    gap = 4
    canvas = Image.new("RGB", (columns * (width + gap) - gap, rows * (height + gap) - gap), "white")
    font = ImageFont.load_default(height / 16)
    for place, (index, image) in enumerate(sorted(stills.items())):
        tile = Image.fromarray(image)
        text = f"{index / fps:.2f} s"
        position = (width * 0.025, height * 0.025)
        ImageDraw.Draw(tile).text(
            position, text, font=font, fill="white", stroke_width=height / 200, stroke_fill="black"
        )
        row, column = divmod(place, columns)
        canvas.paste(tile, (column * (width + gap), row * (height + gap)))
    with _whole(path) as partial:
        canvas.save(partial)


@contextlib.contextmanager
def _whole(path: str) -> Iterator[str]:
    """A name to write to, which becomes `path` when all went well."""
    final = Path(path)
    partial = final.with_name(f".{final.stem}.part{final.suffix}")
    try:
        yield str(partial)
        partial.replace(final)
    finally:
        partial.unlink(missing_ok=True)


def main() -> int:
    """Draws the job on standard input; the exit status."""
    job: Job = pickle.load(sys.stdin.buffer)
    try:
        draw(job)
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {' '.join(str(error).split())}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
