"""An episode as a video and a picture, on any machine."""

from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from worldline.errors import ConfigError, RendererUnavailableError, RunError
from worldline.model import Model
from worldline.rendering import opengl
from worldline.rendering.pool import GET_OPENGL, RAYS, name_of
from worldline.rendering.scene import NDArray
from worldline.rendering.viewpoint import camera_path
from worldline.report.draw import Job

VideoRenderer: TypeAlias = Literal["auto", "egl", "osmesa", "glfw", "rays"]

_INSTALL = f"for MuJoCo's own renderer: {GET_OPENGL}"
_TIME_LIMIT_S = 600


@dataclasses.dataclass(frozen=True)
class Clip:
    """What `render_episode` made."""

    mp4: Path | None
    """The video."""
    png: Path | None
    """A few of its frames."""
    note: str
    """How it was drawn, in one line for a person; with what to install for a better picture."""


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
        raise ConfigError(f"a video of {size[0]} x {size[1]} pixels cannot be; give even numbers")
    path = camera_path(model, camera or {}, states["qpos"], timestep)
    stride = max(1, round(1 / (timestep * fps)))
    job = Job(
        model=model.mj,
        states={name: rows[::stride] for name, rows in states.items()},
        constants={
            name: np.reshape(value, model.constant(name).shape)
            for name, value in (variation or {}).items()
        },
        views={name: view[::stride] for name, view in _views(views or {}, len(qpos)).items()},
        camera=dataclasses.replace(path, lookat=path.lookat[::stride]),
        fps=1 / (timestep * stride),
        size=size,
        mp4=_output(mp4),
        png=_output(png),
    )
    return Clip(mp4=job.mp4, png=job.png, note=_draw_with_any(job, renderer))


def _draw_with_any(job: Job, renderer: VideoRenderer) -> str:
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


def _run(job: Job) -> str | None:
    """Runs a job in a process of its own; what went wrong, or None."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment["MUJOCO_GL"] = "disable" if job.way == RAYS else job.way
    environment.pop("PYOPENGL_PLATFORM", None)
    program = "import sys; from worldline.report.draw import main; sys.exit(main())"
    try:
        result = subprocess.run(
            [sys.executable, "-P", "-c", program],
            input=pickle.dumps(job),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            timeout=_TIME_LIMIT_S,
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


def _views(views: Mapping[str, NDArray], frames: int) -> dict[str, NDArray]:
    """Pictures to show beside the scene, checked."""
    for name, view in views.items():
        if view.dtype != np.uint8 or view.ndim != 4 or (len(view), view.shape[3]) != (frames, 3):
            raise ConfigError(
                f"view {name!r} is {view.dtype} of shape {view.shape}; "
                f"give uint8 of shape ({frames}, height, width, 3)"
            )
    return dict(views)


def _output(file: str | os.PathLike[str] | None) -> Path | None:
    """A file to write as an absolute path."""
    if file is None:
        return None
    path = Path(file).absolute()
    if not os.access(path.parent, os.W_OK):
        raise RunError(f"cannot write {str(file)!r}; give a file in a folder that can be written")
    return path
