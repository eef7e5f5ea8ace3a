"""Painter: what a renderer is; and a pool of them, one a thread."""

from __future__ import annotations

import abc
import atexit
import contextlib
import functools
import queue
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, ClassVar, TypeAlias, TypeVar

import mujoco
import numpy as np

from worldline.rendering.camera import Camera
from worldline.rendering.scene import Stage

T = TypeVar("T")

NDArray: TypeAlias = np.ndarray[Any, Any]

#: Of a camera: the colours `(n, height, width, 3)` uint8, and the distances `(n, height, width)`
#: float32, m, 0 where there is nothing; None for what it does not see.
Picture: TypeAlias = tuple[NDArray | None, NDArray | None]


class Painter(abc.ABC):
    """A renderer of one model and its cameras, for the thread that makes it.

    Args:
        model: the model.
        cameras: what to draw of each world, in this order.

    Raises:
        Exception: it cannot run on this machine, or not with this model; of any kind.
    """

    most: ClassVar[int]
    """Worlds that it draws at a time."""
    shared: ClassVar[frozenset[str]] = frozenset()
    """Fields of `SEEN` that it takes from the model for all worlds."""

    def __init__(self, model: mujoco.MjModel, cameras: Sequence[Camera]) -> None:
        self.stage = Stage(model)
        self.cameras = tuple(cameras)

    @abc.abstractmethod
    def paint(self, worlds: Sequence[Mapping[str, NDArray]]) -> list[Picture]:
        """Draws worlds, at most `most`; see `Stage.put` for what they are.

        Returns:
            For each camera, what it sees of them; the arrays hold until the next call.
        """

    def close(self) -> None:
        """Gives back what the painter holds, on its own thread."""
        return


class PainterPool:
    """Painters that are all the same, each on a thread of its own, for the rows of a batch.

    Args:
        make: makes a painter, on the thread that it is to paint on.
        number: how many.

    Raises:
        Exception: whatever `make` raises.
    """

    def __init__(self, make: Callable[[], Painter], number: int) -> None:
        threads = [_Thread() for _ in range(number)]
        painters: list[Painter] = []
        self._finalizer = weakref.finalize(self, _stop, threads, painters)
        for thread in threads:
            painters.append(thread.run(make).result())
        self._threads, self._painters = threads, painters
        #: See `Painter.shared`.
        self.shared = painters[0].shared
        # At exit before a graphics library shuts down, which was loaded just now.
        atexit.register(self._finalizer)

    def draw(
        self, worlds: Mapping[str, NDArray], rows: NDArray, pictures: Sequence[Picture]
    ) -> None:
        """Draws rows of a batch into arrays of the whole batch.

        Args:
            worlds: as in `Painter.paint`, `(n, size)` each.
            rows: which of the n.
            pictures: where to, for each camera, n rows.
        """
        chunk = min(self._painters[0].most, -(-len(rows) // len(self._painters)))
        parts = [rows[i : i + chunk] for i in range(0, len(rows), chunk)]

        def draw_some(painter: Painter, parts: Sequence[NDArray]) -> None:
            for part in parts:
                chosen = [{name: x[row] for name, x in worlds.items()} for row in part]
                for mine, all_of_them in zip(painter.paint(chosen), pictures, strict=True):
                    for new, whole in zip(mine, all_of_them, strict=True):
                        if new is not None and whole is not None:
                            whole[part] = new

        number = len(self._painters)
        waiting: list[Future[None]] = [
            thread.run(functools.partial(draw_some, painter, parts[i::number]))
            for i, (thread, painter) in enumerate(zip(self._threads, self._painters, strict=True))
            if parts[i::number]
        ]
        try:
            for future in waiting:
                future.result()
        finally:
            wait(waiting)  # whatever was raised: the arrays may be gone after this


class _Thread:
    """A thread that does one thing after another, and does not keep the process alive."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]
        self._work = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name="worldline-pixels", daemon=True)
        self._thread.start()

    def run(self, function: Callable[[], T]) -> Future[T]:
        """Calls a function on this thread, after what was asked for before."""
        future: Future[T] = Future()
        self._work.put((function, future))
        return future

    def stop(self) -> None:
        """Ends the thread, after what was asked for before."""
        self._work.put(None)
        self._thread.join()

    def _loop(self) -> None:
        while (item := self._work.get()) is not None:
            function, future = item
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
            del item, function, future  # and with them a painter


def _stop(threads: Sequence[_Thread], painters: Sequence[Painter]) -> None:
    """Ends the threads, each after its painter has given back what it holds."""
    for thread, painter in zip(threads, painters, strict=False):
        # At exit another user of a graphics library may have shut it down already.
        with contextlib.suppress(Exception):
            thread.run(painter.close).result()
    for thread in threads:
        thread.stop()
