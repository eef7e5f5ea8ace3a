"""An episode as a video and a picture, on any machine."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from worldline.errors import ConfigError, RendererUnavailableError, RunError
from worldline.model import Model
from worldline.rendering import opengl
from worldline.rendering.frames import camera_index, filmed
from worldline.rendering.pool import GET_OPENGL, RAYS, name_of
from worldline.rendering.scene import NDArray
from worldline.report.drawing import Job, Progress, run

VideoRenderer: TypeAlias = Literal["auto", "egl", "osmesa", "glfw", "rays"]

_INSTALL = f"for MuJoCo's own renderer: {GET_OPENGL}"

#: Frames a second where nobody asks for others, and of how many one may be drawn to be quick.
_FPS, _STEPS = 30.0, (1, 2, 3)
#: Sizes of a frame where nobody asks for one, the best first; rays are slow.
_SIZES = ((720, 1280), (480, 854), (320, 480))
_SIZES_OF_RAYS = ((320, 480), (240, 360))
#: A video takes about so long at most, unless it is asked to look better; s.
_BUDGET_S = 20.0


@dataclasses.dataclass(frozen=True)
class Clip:
    """What `render_episode` made."""

    mp4: Path | None
    """The video."""
    png: Path | None
    """A few of its frames."""
    note: str
    """How it was drawn, in one line for a person: what was left out to be quick, and what to
    install for a better picture."""


@dataclasses.dataclass(frozen=True)
class Take:
    """An episode of one world, to be drawn."""

    qpos: NDArray
    """The configuration at every control step, `(T, nq)`."""
    variation: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The world's own constants, as in `PhysicsState.variation`."""
    inputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Further MjData fields to show, `(T, ...)` each, such as `mocap_pos`."""


def render_episode(
    model: Model,
    qpos: NDArray,
    mp4: str | os.PathLike[str] | None = None,
    png: str | os.PathLike[str] | None = None,
    *,
    timestep: float,
    camera: Mapping[str, Any] | None = None,
    fps: float | None = None,
    size: tuple[int, int] | None = None,
    variation: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    views: Mapping[str, NDArray] | None = None,
    beside: Sequence[Take] = (),
    renderer: VideoRenderer = "auto",
    progress: Progress | None = None,
) -> Clip:
    """Draws an episode, in real time, in a process of its own.

    MuJoCo's renderer draws it through the first of EGL, OSMesa and GLFW that works (`MUJOCO_GL`
    chooses one); where none does, rays are cast instead, which needs no graphics library.

    A video has 720 lines and 30 frames a second where it is drawn in 20 s, by the time of its first
    frames. Where it is not, meshes are simplified, shadows left out, and frames made smaller and
    fewer, in this order, and the note says so. What is asked for stays.

    Args:
        model: the model.
        qpos: the configuration at every control step, `(T, nq)`.
        mp4: the video to write (H.264, plays in browsers), or None.
        png: the picture to write, eight frames with their times, or None.
        timestep: seconds between two rows of `qpos`.
        camera: where to look from, as in `Task.camera`; by default beside the robot.
        fps: at most so many frames a second, in as many as divide the control steps; None: 30, or
            fewer.
        size: height and width of a frame in pixels, both even; None: 720 x 1280, or smaller.
        variation: the world's own constants, as in `PhysicsState.variation`.
        inputs: further MjData fields to show, `(T, ...)` each, such as `mocap_pos`.
        views: pictures to show beside the scene, `(T, height, width, 3)` uint8 each: what a policy
            saw, from `worldline.report.inputs.seen_frames`.
        beside: episodes of other worlds, to show in a grid with this one. One that ends earlier
            stands still at its end.
        renderer: a renderer to use, and no other: `"egl"`, `"osmesa"`, `"glfw"` or `"rays"`.
        progress: called with the frames that are drawn and how many there are, now and then.

    Returns:
        The files, and a line that says how they were drawn.

    Raises:
        ConfigError: an array with a wrong shape or numbers that are not finite, or a bad size.
        TaskError: a camera attribute that does not exist.
        ModelError: a camera or a body that the model does not have.
        RunError: a folder that cannot be written.
        RendererUnavailableError: the renderer asked for does not work, or the video encoder fails.
    """
    takes = [Take(qpos, variation or {}, inputs or {}), *beside]
    if size is not None and (min(size) < 2 or any(side % 2 for side in size)):
        raise ConfigError(f"size is {size}; a video needs an even height and an even width")
    _check_views(views or {}, len(qpos))
    camera = camera or {}
    worlds = _filmed(model, camera, takes, timestep)
    stride = max(1, round(1 / (timestep * (fps or _FPS))))
    job = Job(
        model=model.mj,
        worlds=[{name: rows[::stride] for name, rows in world.items()} for world in worlds],
        camera=camera_index(model, camera),
        views={
            n: _held(view, len(worlds[0]["qpos"]))[::stride] for n, view in (views or {}).items()
        },
        fps=1 / (timestep * stride),
        sizes=_SIZES if size is None else (size,),
        steps=_STEPS if fps is None else (1,),
        budget_s=_BUDGET_S,
        mp4=_output(mp4),
        png=_output(png),
    )
    with _until_whole(job.mp4) as partial:
        job_of_file = dataclasses.replace(job, mp4=partial)
        note = _draw_with_any(job_of_file, renderer, size is None, progress)
    return Clip(mp4=job.mp4, png=job.png, note=note)


def _filmed(
    model: Model, camera: Mapping[str, Any], takes: Sequence[Take], timestep: float
) -> list[dict[str, NDArray]]:
    """The worlds of all takes, each with as many rows as the longest take."""
    worlds = []
    for take in takes:
        states = _states(model, {"qpos": take.qpos, **take.inputs})
        constants = {
            name: np.reshape(value, model.constant(name).shape)
            for name, value in take.variation.items()
        }
        worlds.append(filmed(model, camera, states, constants, timestep))
    longest = max(len(world["qpos"]) for world in worlds)
    return [{name: _held(rows, longest) for name, rows in world.items()} for world in worlds]


def _held(rows: NDArray, length: int) -> NDArray:
    """Rows with the last one repeated up to a length."""
    return rows[np.minimum(np.arange(length), len(rows) - 1)]


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


def _draw_with_any(
    job: Job, renderer: VideoRenderer, any_size: bool, progress: Progress | None
) -> str:
    """Runs the job with the first renderer that works; how that went, in one line."""
    reason = "no EGL or OSMesa library was found"
    wants_rays = renderer == RAYS or (renderer == "auto" and opengl.disabled())
    for way in [*opengl.backends(), RAYS] if renderer == "auto" else [renderer]:
        sizes = _SIZES_OF_RAYS if any_size and way == RAYS else job.sizes
        failure, left_out = run(dataclasses.replace(job, way=way, sizes=sizes), progress)
        quick = f" ({left_out}, to save time)" if left_out else ""
        if failure is None and way != RAYS:
            return f"rendered by MuJoCo with {name_of(way)}{quick}"
        if failure is None:
            why = "" if wants_rays else f", since {reason}; {_INSTALL}"
            return f"rendered by ray casting{quick}{why}"
        reason = f"{name_of(way)} failed ({failure})"
    raise RendererUnavailableError(f"the episode cannot be drawn: {reason}; {_INSTALL}")


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
