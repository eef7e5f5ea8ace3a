"""Renderers on threads of their own, and the choice of one that works on this machine."""

from __future__ import annotations

import atexit
import contextlib
import functools
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from typing import Any, Literal, TypeAlias, TypeVar

import mujoco
import numpy as np

from worldline import warp_library
from worldline.errors import (
    ConfigError,
    RendererUnavailableError,
    did_you_mean,
    install_command,
)
from worldline.parallel.cores import usable_cores
from worldline.rendering import opengl, raycast, warp
from worldline.rendering.base import Picture, Renderer, View
from worldline.rendering.scene import NDArray, World

T = TypeVar("T")

#: How cameras may be drawn: `"auto"` is Warp on an NVIDIA card, else OpenGL, else Warp.
CameraRenderer: TypeAlias = Literal["auto", "opengl", "warp"]

#: The ways to draw without OpenGL. With `opengl.backends()`, these are all ways.
WARP, RAYS = "warp", "rays"

GET_OPENGL = "apt-get install libegl1 libgl1-mesa-dri libopengl0"
GET = f"for OpenGL: {GET_OPENGL}; for MuJoCo Warp: {install_command('pixels')}"

_NAMES = {"egl": "EGL", "osmesa": "OSMesa", "glfw": "GLFW", "cgl": "CGL", RAYS: "ray casting"}


class RendererPool:
    """Several renderers of one kind, each on a thread of its own.

    Args:
        make: makes a renderer, on the thread that it is to draw on.
        number: how many.

    Raises:
        Exception: whatever `make` raises.
    """

    def __init__(self, make: Callable[[], Renderer], number: int) -> None:
        threads = [_Thread() for _ in range(number)]
        renderers: list[Renderer] = []
        self._finalizer = weakref.finalize(self, _stop, threads, renderers)
        for thread in threads:
            renderers.append(thread.run(make).result())
        self._threads, self._renderers = threads, renderers
        #: How many renderers there are.
        self.number = number
        #: Names from `scene.CONSTANTS` that cannot differ between worlds.
        self.shared = renderers[0].shared
        # At exit before a graphics library shuts down, which was loaded just now.
        atexit.register(self._finalizer)

    def draw(self, worlds: World, rows: NDArray | None = None) -> list[Picture]:
        """Draws a batch of n worlds.

        Args:
            worlds: a world's arrays, with n in front of each.
            rows: the indices of the worlds to draw; None: all.

        Returns:
            A picture of n worlds for each view; blank where a world is not drawn.
        """
        number, views = len(worlds["qpos"]), self._renderers[0].views
        rows = np.arange(number) if rows is None else rows
        pictures = [view.blank(number) for view in views]
        chunk = max(1, min(self._renderers[0].most, -(-len(rows) // len(self._renderers))))
        parts = [rows[i : i + chunk] for i in range(0, len(rows), chunk)]

        def draw_some(renderer: Renderer, parts: Sequence[NDArray]) -> None:
            for part in parts:
                drawn = renderer.draw(
                    [{name: x[row] for name, x in worlds.items()} for row in part]
                )
                for mine, all_of_them in zip(drawn, pictures, strict=True):
                    for new, whole in zip(mine, all_of_them, strict=True):
                        if new is not None and whole is not None:
                            whole[part] = new

        every = len(self._renderers)
        waiting: list[Future[None]] = [
            thread.run(functools.partial(draw_some, renderer, parts[i::every]))
            for i, (thread, renderer) in enumerate(zip(self._threads, self._renderers, strict=True))
            if parts[i::every]
        ]
        try:
            for future in waiting:
                future.result()
        finally:
            wait(waiting)  # whatever was raised: the arrays may be gone after this
        return pictures

    def close(self) -> None:
        """Gives back what the renderers hold, and ends their threads."""
        self._finalizer()


def name_of(way: str) -> str:
    """The name of a way to draw, for people."""
    return _NAMES.get(way, way)


def camera_ways(renderer: CameraRenderer) -> list[str]:
    """The ways to draw what a policy sees, fastest first.

    Raises:
        ConfigError: there is no such renderer.
    """
    if renderer not in (known := ("auto", "opengl", "warp")):
        raise ConfigError(f"there is no renderer {renderer!r}{did_you_mean(renderer, known)}")
    ways = {"opengl": opengl.backends(), "warp": [WARP]}
    if renderer != "auto":
        return ways[renderer]
    # On a CPU Mesa's OpenGL is faster than Warp.
    on_card = warp_library.installed() and warp_library.has_nvidia()
    return ways["warp"] + ways["opengl"] if on_card else ways["opengl"] + ways["warp"]


def open_pool(
    ways: Iterable[str],
    model: mujoco.MjModel,
    views: Sequence[View],
    *,
    for_people: bool = False,
    most: int | None = None,
) -> tuple[RendererPool, str]:
    """Opens renderers of the first way to draw that works, on the cores that this process may use.

    Args:
        ways: of `opengl.backends()`, `WARP` and `RAYS`, in the order to try them.
        model: the model that all worlds share.
        views: what to draw of each world.
        for_people: whether the pictures are for people, as in `OpenGLRenderer`.
        most: the largest number of renderers; None: one for each core.

    Returns:
        The pool, and a line that names what draws.

    Raises:
        RendererUnavailableError: nothing works; with the reason of each.
    """
    failures = []
    for way in ways:
        try:
            make, threads, note = _maker(way, for_people)
            threads = min(threads, most or threads)
            pool = RendererPool(functools.partial(make, model, views), threads)
            return pool, note.format(threads=threads)
        except Exception as error:  # a driver may fail in any way
            failures.append(" ".join(str(error).split()) or type(error).__name__)
    raise RendererUnavailableError("; ".join(failures) or "no OpenGL library was found")


def _maker(way: str, for_people: bool) -> tuple[Callable[..., Renderer], int, str]:
    """The function that makes a renderer, how many can work at a time, and a note for people."""
    cores = len(usable_cores())
    if way == RAYS:
        return raycast.RayRenderer, cores, "ray casting ({threads} threads)"
    if way == WARP:
        if not warp_library.installed():
            raise RendererUnavailableError("MuJoCo Warp is not installed")
        if warp_library.has_nvidia():
            return warp.WarpRenderer, 1, "MuJoCo Warp's ray tracer (NVIDIA)"
        return warp.WarpRenderer, cores, "MuJoCo Warp's ray tracer (CPU, {threads} threads)"
    make = functools.partial(opengl.OpenGLRenderer, backend=way, for_people=for_people)
    return make, cores, f"MuJoCo's OpenGL renderer ({name_of(way)}, {{threads}} threads)"


class _Thread:
    """A thread that calls functions one after another, and does not keep the process alive."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]
        self._work = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name="worldline-drawing", daemon=True)
        self._thread.start()

    def run(self, function: Callable[[], T]) -> Future[T]:
        """Calls a function on this thread, after the earlier ones."""
        future: Future[T] = Future()
        self._work.put((function, future))
        return future

    def stop(self) -> None:
        """Ends the thread after the earlier calls."""
        self._work.put(None)
        self._thread.join()

    def _loop(self) -> None:
        while (item := self._work.get()) is not None:
            function, future = item
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
            del item, function, future  # and with them a renderer


def _stop(threads: Sequence[_Thread], renderers: Sequence[Renderer]) -> None:
    """Ends the threads, each after its renderer has given back what it holds."""
    for thread, renderer in zip(threads, renderers, strict=False):
        # At exit another user of a graphics library may have shut it down already.
        with contextlib.suppress(Exception):
            thread.run(renderer.close).result()
    for thread in threads:
        thread.stop()
