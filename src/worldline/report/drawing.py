"""The process that draws an episode.

A graphics driver that crashes ends that process and not the training, and Python's OpenGL bindings
work with one driver in a process. It reads a pickled `Job` from standard input and writes the job's
files, each whole or not at all. On standard output it says how many frames are done, and at the end
what it left out to be quick. If it fails, it writes a line to standard error and exits with status
1. It ends when the process that started it is gone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import mujoco
import numpy as np

from worldline.errors import RendererUnavailableError
from worldline.rendering.base import View
from worldline.rendering.frames import MOST
from worldline.rendering.pool import RAYS, RendererPool, open_pool
from worldline.rendering.scene import NDArray
from worldline.rendering.simple import FEW_FACES, drawn_faces, simplified, without_shadows
from worldline.report.pictures import grid_shape, in_grid, with_time, with_views, write_montage

_TIME_LIMIT_S = 600
_STRIP_FRAMES, _STRIP_COLUMNS, _STRIP_HEIGHT = 8, 4, 320
_FRAMES_AT_A_TIME = 64
#: How long a drawing that is broken off may take to end, seconds.
_PATIENCE_S = 10.0
#: Whether nobody waits for this process's drawing any more. It ends between two frames: an encoder
#: that is cut off as it starts writes its file yet.
_BROKEN_OFF = threading.Event()

#: Called with the frames that are drawn and how many there are.
Progress: TypeAlias = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Plan:
    """How well to draw."""

    size: tuple[int, int]
    """Height and width of a frame, in pixels."""
    every: int = 1
    """Draw one of so many frames."""
    simple: bool = False
    """Draw meshes with fewer triangles."""
    shadows: bool = True
    """Draw shadows and smooth edges."""


@dataclasses.dataclass(frozen=True)
class Job:
    """What to draw, how, and into which files."""

    model: mujoco.MjModel
    worlds: list[dict[str, NDArray]]
    """Each world at all T frames, from `rendering.frames.filmed`; beside each other in a grid."""
    camera: int
    """The camera of the model; -1 for the free camera of each frame."""
    fps: float
    """Frames a second."""
    sizes: tuple[tuple[int, int], ...]
    """Heights and widths that a frame may have, in pixels, the best first."""
    steps: tuple[int, ...]
    """It may draw one of so many frames; the best, 1, first."""
    budget_s: float
    """Seconds that drawing may take before it is done more cheaply."""
    mp4: Path | None
    """The video to write."""
    png: Path | None
    """The picture to write."""
    views: dict[str, NDArray]
    """Pictures to show beside each frame, from top to bottom, `(T, height, width, 3)` uint8."""
    way: str = ""
    """The way to draw: one of `opengl.backends()`, or `RAYS`."""


def run(job: Job, progress: Progress | None = None) -> tuple[str | None, str]:
    """Runs a job in a process of its own.

    Returns:
        What went wrong, or None; and what was left out to be quick, in words.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment["MUJOCO_GL"] = "disable" if job.way == RAYS else job.way
    environment.pop("PYOPENGL_PLATFORM", None)
    program = "from worldline.report.drawing import _main; _main()"
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors:
        pickle.dump(job, given)
        given.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,  # Ctrl-C is for this process to answer
        )
        said, is_late = _listen(process, progress)
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
    if is_late:
        return f"not done after {_TIME_LIMIT_S} s", said
    if process.returncode < 0:
        return f"crashed with signal {-process.returncode}", said
    if process.returncode:
        return (lines[-1] if lines else f"exit status {process.returncode}"), said
    return None, said


def _listen(process: subprocess.Popen[bytes], progress: Progress | None) -> tuple[str, bool]:
    """Hears what the process says until it ends; its plan, and whether it took too long."""
    late, said = threading.Event(), ""

    def stop() -> None:
        late.set()
        _break_off(process)

    timer = threading.Timer(_TIME_LIMIT_S, stop)
    timer.daemon = True
    timer.start()
    assert process.stdout is not None
    try:
        with process.stdout as lines:
            for line in lines:
                word, _, rest = line.decode(errors="replace").strip().partition(" ")
                if word == "frames" and progress:
                    done, _, total = rest.partition(" ")
                    progress(int(done), int(total))
                said = rest if word == "plan" else said
        process.wait()
    except BaseException:
        _break_off(process)
        raise
    finally:
        timer.cancel()
    return said, late.is_set()


def _break_off(process: subprocess.Popen[bytes]) -> None:
    """Ends a drawing. It ends its encoder first, which would write the video yet if left alone."""
    process.terminate()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _main() -> None:
    """Draws the job on standard input."""
    signal.signal(signal.SIGTERM, lambda *_: _BROKEN_OFF.set())
    parent = os.getppid()
    job: Job = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with, args=(parent, job.mp4), daemon=True).start()
    try:
        _say("plan", draw(job))
    except BaseException as error:  # the encoder has ended, and nobody waits for what it left
        if job.mp4:
            job.mp4.unlink(missing_ok=True)
        kind = "" if isinstance(error, RendererUnavailableError) else f"{type(error).__name__}: "
        sys.exit(f"{kind}{' '.join(str(error).split())}")


def _say(*words: object) -> None:
    """Tells the process that waits for this one, if it still does."""
    if _BROKEN_OFF.is_set():
        sys.exit("broken off")
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def _end_with(parent: int, video: Path | None) -> None:
    """Breaks off the drawing when its parent is gone, so that the video is deleted.

    A graphics driver that does not answer is left after some seconds, and then the encoder, which
    nobody feeds any more, ends by itself.
    """
    while os.getppid() == parent:
        time.sleep(0.2)
    _BROKEN_OFF.set()
    time.sleep(_PATIENCE_S)
    if video:
        video.unlink(missing_ok=True)
    os._exit(1)


def draw(job: Job) -> str:
    """Draws a job; what was left out to be quick, in words."""
    total = len(job.worlds[0]["qpos"])
    chosen = np.unique(np.linspace(0, total - 1, _STRIP_FRAMES).round().astype(int))
    plan, pool = _affordable(job, len(chosen) if job.mp4 is None else total)
    filmed = np.arange(0, total, plan.every) if job.mp4 else chosen[:0]
    stills, rows = [], np.union1d(filmed, chosen)
    film = _encoder(job.mp4, job.fps / plan.every) if job.mp4 else contextlib.nullcontext()
    with contextlib.closing(pool), film as video:
        for number, (index, image) in enumerate(_frames(job, pool, rows)):
            if video and index in filmed:
                video.append_data(image)
            if index in chosen:
                stills.append(with_time(image, index / job.fps, _STRIP_HEIGHT))
            _say("frames", number + 1, len(rows))
    if job.png:
        starts = range(0, len(stills), _STRIP_COLUMNS)
        write_montage(job.png, [stills[i : i + _STRIP_COLUMNS] for i in starts])
    return _in_words(job, plan)


def plans(job: Job) -> Iterator[Plan]:
    """Ways to draw, each cheaper than the one before.

    Simpler meshes are hardly seen and help most, so they come first.
    """
    plan = Plan(job.sizes[0])
    yield plan
    by_opengl = job.way != RAYS
    if by_opengl and drawn_faces(job.model) > FEW_FACES:
        yield (plan := dataclasses.replace(plan, simple=True))
    for size in job.sizes[1:-1]:
        yield (plan := dataclasses.replace(plan, size=size))
    if by_opengl:
        yield (plan := dataclasses.replace(plan, shadows=False))
    if len(job.sizes) > 1:
        yield (plan := dataclasses.replace(plan, size=job.sizes[-1]))
    for every in job.steps[1:]:
        yield (plan := dataclasses.replace(plan, every=every))


def _affordable(job: Job, frames: int) -> tuple[Plan, RendererPool]:
    """A plan, and renderers for it.

    It is the first for which the time of its first frames promises to keep the budget, or the last.
    """
    pool, drawn, pace = None, None, 0.0
    for plan in plans(job):
        look, number = dataclasses.replace(plan, every=1), -(-frames // plan.every)
        if pool is None or look != drawn:
            if pool is not None:
                pool.close()
            pool, drawn = _open(job, plan, frames), look
            pace = _seconds_a_frame(job, pool, job.budget_s / number)
        if pace * number <= job.budget_s:
            break
    assert pool is not None
    return plan, pool


def _open(job: Job, plan: Plan, frames: int) -> RendererPool:
    """Renderers for a plan, each world in a cell of the grid."""
    model = simplified(job.model) if plan.simple else job.model
    model = model if plan.shadows else without_shadows(model)
    rows, columns = grid_shape(len(job.worlds))
    height, width = plan.size[0] // rows // 2 * 2, plan.size[1] // columns // 2 * 2
    most = min(frames * len(job.worlds), MOST)
    views = [View(job.camera, height, width)]
    return open_pool([job.way], model, views, for_people=True, most=most)[0]


def _seconds_a_frame(job: Job, pool: RendererPool, enough: float) -> float:
    """How long a frame takes when as many are drawn as there are renderers.

    If that is more than `enough`, the frames are drawn again: the first ones may have waited.
    """
    worlds, times = _together(job, np.zeros(pool.number, int)), []
    for _ in range(2):
        began = time.perf_counter()
        pool.draw(worlds)
        times.append((time.perf_counter() - began) / pool.number)
        if times[0] <= enough:
            break
    return min(times)


def _together(job: Job, rows: NDArray) -> dict[str, NDArray]:
    """The worlds at some frames as one batch, all frames of the first world first."""
    names = job.worlds[0]
    return {name: np.concatenate([world[name][rows] for world in job.worlds]) for name in names}


def _frames(job: Job, pool: RendererPool, chosen: NDArray) -> Iterator[tuple[int, NDArray]]:
    """The frames of some indices, each with its index, the views beside them."""
    block = max(1, _FRAMES_AT_A_TIME // len(job.worlds))
    block = min(block, max(4 * pool.number, 1))  # so that something is heard of it now and then
    for start in range(0, len(chosen), block):
        rows = chosen[start : start + block]
        ((images, _),) = pool.draw(_together(job, rows))
        assert images is not None
        cells = images.reshape(len(job.worlds), len(rows), *images.shape[1:])
        for place, row in enumerate(rows.tolist()):
            image = in_grid(list(cells[:, place]))
            yield row, with_views(image, [view[row] for view in job.views.values()])


def _in_words(job: Job, plan: Plan) -> str:
    """What of the best plan was left out."""
    words = []
    if plan.simple:
        words.append("meshes simplified")
    if not plan.shadows:
        words.append("no shadows")
    if plan.size != job.sizes[0]:
        words.append(f"{_size(plan.size)} instead of {_size(job.sizes[0])} pixels")
    if plan.every > 1:
        words.append(f"{job.fps / plan.every:.3g} instead of {job.fps:.3g} frames per second")
    return ", ".join(words)


def _size(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"


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
