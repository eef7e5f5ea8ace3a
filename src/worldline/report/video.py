"""An episode as a video and a picture, on any machine."""

from __future__ import annotations

import copy
import ctypes.util
import dataclasses
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import mujoco
import numpy as np

from worldline.errors import ConfigError, RunError, WorldlineError
from worldline.model import Model
from worldline.rendering.viewpoint import CameraPath, camera_path
from worldline.report.draw import Job

NDArray: TypeAlias = np.ndarray[Any, Any]
Renderer: TypeAlias = Literal["auto", "egl", "osmesa", "glfw", "rays"]

_INSTALL = "for MuJoCo's own renderer: apt-get install libegl1 libgl1-mesa-dri libopengl0"
_TIME_LIMIT_S = 600

#: What each renderer is called, beside its own name; for two, also the library that it needs.
_NAMES = {"egl": "EGL", "osmesa": "OSMesa", "glfw": "GLFW", "rays": "casting rays"}


class RenderUnavailableError(WorldlineError, RuntimeError):
    """An episode that cannot be drawn on this machine, with what to install."""


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
    renderer: Renderer = "auto",
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
        RenderUnavailableError: the renderer asked for does not work, or the video encoder fails.
    """
    states = _states(model, {"qpos": qpos, **(inputs or {})})
    if min(size) < 2 or any(side % 2 for side in size):
        raise ConfigError(f"a video of {size[0]} x {size[1]} pixels cannot be; give even numbers")
    path = camera_path(model, camera or {}, states["qpos"], timestep)
    stride = max(1, round(1 / (timestep * fps)))
    job = Job(
        model=drawn_model(model, variation or {}, path),
        states={name: rows[::stride] for name, rows in states.items()},
        views={name: view[::stride] for name, view in _views(views or {}, len(qpos)).items()},
        camera=dataclasses.replace(path, lookat=path.lookat[::stride]),
        fps=1 / (timestep * stride),
        size=size,
        mp4=_output(mp4),
        png=_output(png),
    )
    note = _draw_with_any(job, renderer)
    return Clip(mp4=_path(job.mp4), png=_path(job.png), note=note)


def _draw_with_any(job: Job, renderer: Renderer) -> str:
    """Runs the job with the first renderer that works; how that went, in one line."""
    reason = "no EGL or OSMesa library was found"
    for backend in backends(renderer):
        failure = _draw(job, backend)
        if failure is None and backend != "rays":
            return f"rendered by MuJoCo with {_NAMES.get(backend, backend)}"
        if failure is None:
            why = "" if _rays_chosen(renderer) else f", since {reason}; {_INSTALL}"
            return f"rendered by casting rays{why}"
        reason = f"{_NAMES.get(backend, backend)} failed ({failure})"
    raise RenderUnavailableError(f"the episode cannot be drawn: {reason}; {_INSTALL}")


def _rays_chosen(renderer: Renderer) -> bool:
    """Whether the user wants no graphics library."""
    chosen = os.environ.get("MUJOCO_GL", "").strip().lower()
    off = chosen in ("disable", "disabled", "off", "false", "0")
    return renderer == "rays" or (renderer == "auto" and off)


def backends(renderer: Renderer) -> list[str]:
    """The renderers to try, best first: values of `MUJOCO_GL`, and `rays`."""
    if _rays_chosen(renderer):
        return ["rays"]
    if renderer != "auto":
        return [renderer]
    chosen = os.environ.get("MUJOCO_GL", "").strip().lower()
    if chosen in ("glfw", "glx", "egl", "osmesa", "cgl", "wgl"):
        return [chosen, "rays"]
    if sys.platform != "linux":
        return ["wgl" if sys.platform == "win32" else "cgl", "rays"]
    found = [name for name in ("egl", "osmesa") if ctypes.util.find_library(_NAMES[name])]
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        found.append("glfw")
    return [*found, "rays"]


def _draw(job: Job, backend: str) -> str | None:
    """Draws in a process of its own; what went wrong, or None."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment["MUJOCO_GL"] = "disable" if backend == "rays" else backend
    environment.pop("PYOPENGL_PLATFORM", None)
    program = "import sys; from worldline.report.draw import main; sys.exit(main())"
    try:
        result = subprocess.run(
            [sys.executable, "-P", "-c", program],
            input=pickle.dumps(dataclasses.replace(job, rays=backend == "rays")),
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


def _path(file: str | None) -> Path | None:
    return Path(file) if file else None


def _output(file: str | os.PathLike[str] | None) -> str | None:
    """A file to write as an absolute path."""
    if file is None:
        return None
    path = Path(file).absolute()
    if not os.access(path.parent, os.W_OK):
        raise RunError(f"cannot write {str(file)!r}; give a file in a folder that can be written")
    return str(path)


def drawn_model(model: Model, variation: Mapping[str, Any], path: CameraPath) -> mujoco.MjModel:
    """A copy of the model to draw: with the world's own constants, on a floor that does not end."""
    drawn = copy.copy(model.mj)
    for field, value in variation.items():
        shape = model.constant(field).shape
        if not field.startswith("opt."):
            getattr(drawn, field)[...] = np.reshape(value, shape)
    floors = np.flatnonzero(
        (drawn.geom_type == mujoco.mjtGeom.mjGEOM_PLANE)
        & (drawn.body_weldid[drawn.geom_bodyid] == 0)
        & (drawn.geom_size[:, :2] > 0).all(axis=1)
    )
    for floor in floors:
        away = np.abs(path.lookat - drawn.geom_pos[floor])[:, :2].max()
        if away > 0.5 * drawn.geom_size[floor, :2].min() > path.distance:
            _make_endless(drawn, int(floor))
    return drawn


def _make_endless(drawn: mujoco.MjModel, floor: int) -> None:
    """Gives a plane no edges: physics has none, but a robot that ran far would hang in the air."""
    material = drawn.geom_matid[floor]
    if material >= 0 and not drawn.mat_texuniform[material]:
        drawn.mat_texrepeat[material] /= 2 * drawn.geom_size[floor, :2]
        drawn.mat_texuniform[material] = True
    drawn.geom_size[floor, :2] = 0
