"""An episode as a video and a picture, on any machine.

Another process draws them: a graphics driver that crashes then ends that process and not the
training, and Python's OpenGL bindings work with one driver in a process. It reads a pickled `_Job`
from standard input and writes the job's files, each whole or not at all. If it fails, it writes a
line to standard error and exits with status 1. It ends when the process that started it is gone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import mujoco
import numpy as np

from worldline.errors import ConfigError, RendererUnavailableError, RunError
from worldline.files import whole_file
from worldline.model import Model
from worldline.rendering import opengl
from worldline.rendering.base import View
from worldline.rendering.frames import MOST, camera_index, filmed
from worldline.rendering.pool import GET_OPENGL, RAYS, name_of, open_pool
from worldline.rendering.scene import NDArray

VideoRenderer: TypeAlias = Literal["auto", "egl", "osmesa", "glfw", "rays"]

_INSTALL = f"for MuJoCo's own renderer: {GET_OPENGL}"
_TIME_LIMIT_S = 600

#: White pixels between the pictures of a montage.
_GAP = 4

_STRIP_FRAMES, _STRIP_COLUMNS = 8, 4
_FRAMES_AT_A_TIME = 64


@dataclasses.dataclass(frozen=True)
class Clip:
    """What `render_episode` made."""

    mp4: Path | None
    """The video."""
    png: Path | None
    """A few of its frames."""
    note: str
    """How it was drawn, in one line for a person; with what to install for a better picture."""


@dataclasses.dataclass(frozen=True)
class _Job:
    """What to draw, how, and into which files."""

    model: mujoco.MjModel
    worlds: dict[str, NDArray]
    """The world at each frame, from `rendering.frames.filmed`."""
    camera: int
    """The camera of the model; -1 for the free camera of each frame."""
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
    """The way to draw: one of `opengl.backends()`, or `RAYS`."""


def render_episode(
    model: Model,
    qpos: NDArray,
    mp4: str | os.PathLike[str] | None = None,
    png: str | os.PathLike[str] | None = None,
    *,
    timestep: float,
    camera: Mapping[str, Any] | None = None,
    fps: float = 30.0,
    size: tuple[int, int] = (320, 480),
    variation: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    views: Mapping[str, NDArray] | None = None,
    renderer: VideoRenderer = "auto",
) -> Clip:
    """Draws an episode, in real time, in a process of its own.

    MuJoCo's renderer draws it through the first of EGL, OSMesa and GLFW that works (`MUJOCO_GL`
    chooses one); where none does, rays are cast instead, which needs no graphics library.

    Args:
        model: the model.
        qpos: the configuration at every control step, `(T, nq)`.
        mp4: the video to write (H.264, plays in browsers), or None.
        png: the picture to write, eight frames with their times, or None.
        timestep: seconds between two rows of `qpos`.
        camera: where to look from, as in `Task.camera`; by default beside the robot.
        fps: at most so many frames a second, in as many as divide the control steps.
        size: height and width of a frame in pixels, both even.
        variation: the world's own constants, as in `PhysicsState.variation`.
        inputs: further MjData fields to show, `(T, ...)` each, such as `mocap_pos`.
        views: pictures to show beside the scene, `(T, height, width, 3)` uint8 each: what a policy
            saw, from `worldline.report.inputs.seen_frames`.
        renderer: a renderer to use, and no other: `"egl"`, `"osmesa"`, `"glfw"` or `"rays"`.

    Returns:
        The files, and a line that says how they were drawn.

    Raises:
        ConfigError: an array with a wrong shape or numbers that are not finite, or a bad size.
        TaskError: a camera attribute that does not exist.
        ModelError: a camera or a body that the model does not have.
        RunError: a folder that cannot be written.
        RendererUnavailableError: the renderer asked for does not work, or the video encoder fails.
    """
    states = _states(model, {"qpos": qpos, **(inputs or {})})
    if min(size) < 2 or any(side % 2 for side in size):
        raise ConfigError(f"size is {size}; a video needs an even height and an even width")
    _check_views(views or {}, len(qpos))
    constants = {
        name: np.reshape(value, model.constant(name).shape)
        for name, value in (variation or {}).items()
    }
    camera = camera or {}
    worlds = filmed(model, camera, states, constants, timestep)
    stride = max(1, round(1 / (timestep * fps)))
    job = _Job(
        model=model.mj,
        worlds={name: rows[::stride] for name, rows in worlds.items()},
        camera=camera_index(model, camera),
        views={name: view[::stride] for name, view in (views or {}).items()},
        fps=1 / (timestep * stride),
        size=size,
        mp4=_output(mp4),
        png=_output(png),
    )
    with _until_whole(job.mp4) as partial:
        note = _draw_with_any(dataclasses.replace(job, mp4=partial), renderer)
    return Clip(mp4=job.mp4, png=job.png, note=note)


@contextlib.contextmanager
def _until_whole(video: Path | None) -> Iterator[Path | None]:
    """A new file beside a video, which takes its place once it is whole."""
    if video is None:
        yield None
        return
    handle, name = tempfile.mkstemp(video.suffix, f".{video.stem}.", video.parent)
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        partial.chmod(0o644)  # it was its maker's alone
        partial.replace(video)
    finally:
        partial.unlink(missing_ok=True)


def _draw_with_any(job: _Job, renderer: VideoRenderer) -> str:
    """Runs the job with the first renderer that works; how that went, in one line."""
    reason = "no EGL or OSMesa library was found"
    wants_rays = renderer == RAYS or (renderer == "auto" and opengl.disabled())
    for way in [*opengl.backends(), RAYS] if renderer == "auto" else [renderer]:
        failure = _run(dataclasses.replace(job, way=way))
        if failure is None and way != RAYS:
            return f"rendered by MuJoCo with {name_of(way)}"
        if failure is None:
            why = "" if wants_rays else f", since {reason}; {_INSTALL}"
            return f"rendered by casting rays{why}"
        reason = f"{name_of(way)} failed ({failure})"
    raise RendererUnavailableError(f"the episode cannot be drawn: {reason}; {_INSTALL}")


def _run(job: _Job) -> str | None:
    """Runs a job in a process of its own; what went wrong, or None."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment["MUJOCO_GL"] = "disable" if job.way == RAYS else job.way
    environment.pop("PYOPENGL_PLATFORM", None)
    program = "from worldline.report.video import _main; _main()"
    try:
        result = subprocess.run(
            [sys.executable, "-P", "-c", program],
            input=pickle.dumps(job),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            timeout=_TIME_LIMIT_S,
            start_new_session=True,  # Ctrl-C is for this process to answer
        )
    except subprocess.TimeoutExpired:
        return f"not done after {_TIME_LIMIT_S} s"
    if result.returncode == 0:
        return None
    if result.returncode < 0:
        return f"crashed with signal {-result.returncode}"
    lines = result.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit status {result.returncode}"


def _states(model: Model, given: Mapping[str, Any]) -> dict[str, NDArray]:
    """The arrays of all frames, checked against the model."""
    frames = len(np.asarray(given["qpos"]))
    states = {}
    for name, rows in given.items():
        array = np.asarray(rows, np.float64)
        shape = (frames, *model.data_field(name)[0])
        if array.shape != shape or not frames:
            raise ConfigError(
                f"{name!r} has shape {array.shape} for an episode of {frames} frames; give {shape}"
            )
        if not np.isfinite(array).all():
            raise ConfigError(f"{name!r} has numbers that are not finite; draw the frames before")
        states[name] = array
    return states


def _check_views(views: Mapping[str, NDArray], frames: int) -> None:
    for name, view in views.items():
        if view.dtype != np.uint8 or view.ndim != 4 or (len(view), view.shape[3]) != (frames, 3):
            raise ConfigError(
                f"view {name!r} is {view.dtype} of shape {view.shape}; "
                f"give uint8 of shape ({frames}, height, width, 3)"
            )


def _output(file: str | os.PathLike[str] | None) -> Path | None:
    """A file to write as an absolute path."""
    if file is None:
        return None
    path = Path(file).absolute()
    if not os.access(path.parent, os.W_OK):
        raise RunError(f"cannot write {str(file)!r}; give a file in a folder that can be written")
    return path


def _main() -> None:
    """Draws the job on standard input."""
    parent = os.getppid()
    job: _Job = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with, args=(parent, job.mp4), daemon=True).start()
    try:
        _draw(job)
    except Exception as error:
        kind = "" if isinstance(error, RendererUnavailableError) else f"{type(error).__name__}: "
        sys.exit(f"{kind}{' '.join(str(error).split())}")


def _end_with(parent: int, video: Path | None) -> None:
    """Ends this process when its parent is gone, and deletes the video that nobody waits for.

    The encoder ends when nobody feeds it.
    """
    while os.getppid() == parent:
        time.sleep(0.2)
    if video:
        video.unlink(missing_ok=True)
    os._exit(1)


def _draw(job: _Job) -> None:
    number = len(job.worlds["qpos"])
    chosen = np.unique(np.linspace(0, number - 1, _STRIP_FRAMES).round().astype(int))
    stills = []
    with _encoder(job.mp4, job.fps) if job.mp4 else contextlib.nullcontext() as video:
        for index, image in _frames(job, np.arange(number) if video else chosen):
            if video:
                video.append_data(image)
            if index in chosen:
                stills.append(_with_time(image, index / job.fps))
    if job.png:
        rows = range(0, len(stills), _STRIP_COLUMNS)
        write_montage(job.png, [stills[row : row + _STRIP_COLUMNS] for row in rows])


def _frames(job: _Job, chosen: NDArray) -> Iterator[tuple[int, NDArray]]:
    """The frames of some indices, each with its index, the views beside them."""
    views, most = [View(job.camera, *job.size)], min(len(chosen), MOST)
    pool, _ = open_pool([job.way], job.model, views, for_people=True, most=most)
    for start in range(0, len(chosen), _FRAMES_AT_A_TIME):
        rows = chosen[start : start + _FRAMES_AT_A_TIME]
        ((images, _),) = pool.draw({name: values[rows] for name, values in job.worlds.items()})
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


def _with_time(frame: NDArray, seconds: float) -> NDArray:
    from PIL import Image, ImageDraw, ImageFont

    picture, (height, width, _) = Image.fromarray(frame), frame.shape
    ImageDraw.Draw(picture).text(
        (width * 0.025, height * 0.025),
        f"{seconds:.2f} s",
        font=ImageFont.load_default(height / 16),
        fill="white",
        stroke_width=height / 200,
        stroke_fill="black",
    )
    return np.asarray(picture)


@contextlib.contextmanager
def _encoder(path: Path, fps: float) -> Iterator[Any]:
    """An encoder for a file that browsers play: H.264 in yuv420p."""
    import imageio.v2 as imageio

    writer = imageio.get_writer(
        path,
        format="FFMPEG",
        mode="I",
        fps=fps,
        codec="libx264",
        quality=8,
        macro_block_size=2,
        ffmpeg_log_level="error",
        output_params=["-movflags", "+faststart"],
    )
    with contextlib.closing(writer):
        yield writer


def enlarged(picture: NDArray, side: int) -> NDArray:
    """A picture `(height, width, 3)` as large as fits a square of `side` pixels, unsmoothed."""
    from PIL import Image, ImageOps

    nearest = Image.Resampling.NEAREST
    return np.asarray(ImageOps.contain(Image.fromarray(picture), (side, side), nearest))


def write_montage(path: Path, rows: Sequence[Sequence[NDArray]]) -> None:
    """Writes rows of pictures, `(height, width, 3)` uint8 each, as one PNG with white gaps."""
    from PIL import Image

    def padded(picture: NDArray, below: int, right: int) -> NDArray:
        return np.pad(picture, ((0, below), (0, right), (0, 0)), constant_values=255)

    strips = [np.concatenate([padded(it, _GAP, _GAP) for it in row], axis=1) for row in rows]
    width = max(strip.shape[1] for strip in strips)
    whole = np.concatenate([padded(strip, 0, width - strip.shape[1]) for strip in strips])
    with whole_file(path) as file:
        Image.fromarray(whole[:-_GAP, :-_GAP]).save(file, format="PNG")
