"""Progress: what a training run shows while it runs."""

from __future__ import annotations

import datetime
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Self, TextIO

import numpy as np


class ProgressDisplay(AbstractContextManager["ProgressDisplay"]):
    """Shows the progress of a run: a live bar on a terminal, a line now and then in a log.

    ```
    with ProgressDisplay(total_steps=4_000_000) as display:
        for progress in run(...):
            display.update(progress.step, progress.metrics)
    ```

    Args:
        total_steps: environment steps of the whole run, over all worlds.
        quiet: show nothing.
        stream: the stream to write to; standard error by default.
        interval: seconds between two lines where the stream is not a terminal. The first and the
            last step's lines are always written.
    """

    def __init__(
        self,
        total_steps: int,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        interval: float = 5.0,
    ) -> None:
        self._total = total_steps
        self._quiet = quiet
        self._stream = sys.stderr if stream is None else stream
        self._interval = interval
        self._bar: Any = None
        self._first: tuple[int, float] | None = None
        self._last_line = -math.inf
        self._return = self._best = math.nan

    def update(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Shows the step and the metrics that the run has reached.

        Args:
            step: environment steps so far.
            metrics: named numbers, of which are shown `train/return_recent` (or else
                `train/return`), `eval/return` and `speed/steps_per_s`; those missing or not finite
                keep their last value.
        """
        if self._quiet:
            return
        now = time.monotonic()
        self._first = self._first or (step, now)
        latest = _finite(metrics.get("train/return"), self._return)
        self._return = _finite(metrics.get("train/return_recent"), latest)
        self._best = float(np.fmax(self._best, _finite(metrics.get("eval/return"), math.nan)))
        status = self._status(step, now, metrics)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=step, status=status)
        elif step >= self._total or now - self._last_line >= self._interval:
            self._last_line = now
            share = f"{100 * min(step / max(self._total, 1), 1):3.0f}%"
            self._print(f"{share} {count(step)} of {count(self._total)} steps, {status}")

    def note(self, text: str) -> None:
        """Writes a line of its own; the bar stays below it."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            self._print(text)

    def __enter__(self) -> Self:
        if self._quiet:
            return self
        if not _is_terminal(self._stream):
            self._print(f"compiling for a run of {count(self._total)} steps")
        else:
            self._bar = _bar(self._stream)
            self._bar.add_task("", total=self._total, status="starting")
            self._bar.start()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _print(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()

    def _status(self, step: int, now: float, metrics: Mapping[str, Any]) -> str:
        """Speed, returns and time left, where they are known."""
        assert self._first is not None
        steps, seconds = step - self._first[0], now - self._first[1]
        pace = steps / seconds if steps and seconds else math.nan
        shown: list[tuple[str, Callable[[float], str], float]] = [
            ("{} steps/s", count, _finite(metrics.get("speed/steps_per_s"), pace)),
            ("return {}", short, self._return),
            ("best evaluation {}", short, self._best),
            ("{} left", duration, (self._total - step) / pace),
        ]
        known = [words.format(form(x)) for words, form, x in shown if not math.isnan(x)]
        return ", ".join(known) or "starting"


class DrawingProgress(AbstractContextManager["DrawingProgress"]):
    """Shows how far a video is, once it takes longer than two seconds.

    ```
    with DrawingProgress() as show:
        render_episode(..., progress=show)
    ```

    Args:
        quiet: show nothing.
        stream: the stream to write to; standard error by default.
        patience: seconds before anything is shown.
        interval: seconds between two lines where the stream is not a terminal.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        patience: float = 2.0,
        interval: float = 5.0,
    ) -> None:
        self._quiet, self._interval, self._ended = quiet, interval, False
        self._stream = sys.stderr if stream is None else stream
        self._lock = threading.Lock()
        self._bar: Any = None
        self._last_line: float | None = None
        self._timer = threading.Timer(patience, self._show, ("playing the episode",))
        self._timer.daemon = True

    def __call__(self, done: int, total: int) -> None:
        """Shows that so many of all frames are drawn."""
        if not self._timer.is_alive():
            self._show(f"{done} of {total} frames", done, total)

    def _show(self, words: str, done: int = 0, total: int | None = None) -> None:
        with self._lock:
            if self._quiet or self._ended:
                return
            if _is_terminal(self._stream):
                if self._bar is None:
                    self._bar = _bar(self._stream)
                    self._bar.add_task("", total=None, status="video: ")
                    self._bar.start()
                self._bar.update(
                    self._bar.task_ids[0], completed=done, total=total, status=f"video: {words}"
                )
                return
            now = time.monotonic()
            if self._last_line is None or now - self._last_line >= self._interval:
                self._last_line = now
                self._stream.write(f"video: {words}\n")
                self._stream.flush()

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._bar is not None:
                self._bar.stop()


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _bar(stream: TextIO) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    return Progress(
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[status]}"),
        console=Console(file=stream),
        refresh_per_second=4,
    )


def _finite(value: Any, otherwise: float) -> float:
    """A metric as a number, or `otherwise` where it is missing or not finite."""
    number = math.nan if value is None else float(value)
    return number if math.isfinite(number) else otherwise


def count(value: float) -> str:
    """A large number in three digits: 950, 65.2k, 4.00M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


def short(value: float) -> str:
    """A return with three significant digits, and with all those before the point."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """A time as a clock shows it: 0:00:42, 1:02:07."""
    return str(datetime.timedelta(seconds=max(round(seconds), 0)))
