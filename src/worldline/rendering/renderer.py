"""Which renderer draws: the choice by what is there, and the line that names it."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import mujoco

from worldline import warp_library
from worldline.errors import ConfigError, WorldlineError, did_you_mean
from worldline.model import Model
from worldline.rendering import opengl, warp
from worldline.rendering.camera import Camera
from worldline.rendering.painter import Painter, PainterPool

Renderer: TypeAlias = Literal["auto", "opengl", "warp"]

_GET_WARP = "pip install 'worldline[pixels]'"
_GET_OPENGL = "apt-get install libegl1 libgl1-mesa-dri libopengl0"
_BACKENDS = {"egl": "EGL", "osmesa": "OSMesa", "cgl": "CGL", "glfw": "GLFW"}


class RendererUnavailableError(WorldlineError, RuntimeError):
    """Cameras that cannot be drawn on this machine, with what to install."""


class _Way(NamedTuple):
    """A way to draw."""

    make: Callable[[mujoco.MjModel, Sequence[Camera]], Painter]
    painters: int
    note: str


def open_renderer(
    model: Model, cameras: Sequence[Camera], renderer: Renderer
) -> tuple[PainterPool, str]:
    """Painters of the first renderer that works, and a line that names it.

    The line is also written to standard error, once in a process.

    Raises:
        ConfigError: there is no such renderer.
        RendererUnavailableError: none works.
    """
    ways = {"opengl": _opengl, "warp": _warp}
    if renderer != "auto" and renderer not in ways:
        hint = did_you_mean(renderer, ("auto", *ways))
        raise ConfigError(f"there is no renderer {renderer!r}{hint}")
    failures = []
    for name in _order() if renderer == "auto" else (renderer,):
        try:
            way = ways[name]()
            pool = PainterPool(functools.partial(way.make, model.mj, cameras), way.painters)
        except Exception as error:  # a driver may fail in any way
            failures.append(" ".join(str(error).split()) or type(error).__name__)
            continue
        _say_once(f"pixels are drawn by {way.note}")
        return pool, way.note
    raise RendererUnavailableError(f"cameras cannot be drawn: {'; '.join(failures)}")


def _order() -> tuple[str, ...]:
    """Fastest first: on a CPU that is OpenGL, with which Mesa draws on the CPU too."""
    on_card = warp_library.installed() and warp_library.has_nvidia()
    return ("warp", "opengl") if on_card else ("opengl", "warp")


def _opengl() -> _Way:
    """MuJoCo's OpenGL renderer, a context on each core."""
    backend = opengl.backend()
    if backend is None:
        raise RendererUnavailableError(f"OpenGL has no EGL or OSMesa library, {_GET_OPENGL}")
    cores = _cores()
    note = f"MuJoCo's OpenGL renderer ({_BACKENDS[backend]}, {cores} threads)"
    return _Way(functools.partial(opengl.OpenGLPainter, backend=backend), cores, note)


def _warp() -> _Way:
    """MuJoCo Warp: on its card, or on each core."""
    if not warp_library.installed():
        raise RendererUnavailableError(f"MuJoCo Warp is not installed, {_GET_WARP}")
    if warp_library.has_nvidia():
        return _Way(warp.WarpPainter, 1, "MuJoCo Warp's ray tracer (NVIDIA)")
    cores = _cores()
    return _Way(warp.WarpPainter, cores, f"MuJoCo Warp's ray tracer (CPU, {cores} threads)")


def _cores() -> int:
    """The number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@functools.cache
def _say_once(line: str) -> None:
    sys.stderr.write(line + "\n")
