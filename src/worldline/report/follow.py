"""Follow: the metrics of a run that another process may still be writing, as columns."""

from __future__ import annotations

import json
import math
import time
from typing import Any, TypeAlias

import numpy as np

from worldline.report.run_folder import RunFolder

NDArray: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

#: Rows over which the pace is measured, at most.
_PACE_ROWS = 20

#: A run without news for so many rows' time, and for so many seconds at least, is called quiet.
_QUIET_ROWS, _QUIET_S = 10, 60.0


class RunFollower:
    """Reads the rows that a run has added to `metrics.jsonl` since the last look.

    Args:
        folder: the run folder; it may have no metrics yet.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._forget()

    def _forget(self) -> None:
        self._columns: dict[str, list[float]] = {"step": [], "seconds": []}
        self._read, self._file, self._written = 0, 0, 0.0
        self._total = math.nan

    def poll(self) -> bool:
        """Reads what is new, and says whether there was anything.

        A line that is not what a run writes is left out. A run that was resumed has replaced the
        file, which is then read from its beginning.
        """
        try:
            stat = self.folder.metrics_file.stat()
            if stat.st_ino != self._file or stat.st_size < self._read:
                self._forget()
                self._file = stat.st_ino
            if stat.st_size == self._read:
                return False
            with self.folder.metrics_file.open("rb") as file:
                file.seek(self._read)
                added = file.read()
        except OSError:
            return False
        whole = added[: added.rfind(b"\n") + 1]
        self._read, self._written = self._read + len(whole), stat.st_mtime
        for line in whole.splitlines():
            self._add(line)
        self._total = float(self.folder.config.get("steps", math.nan))  # a resumed run's may differ
        return bool(whole)

    def _add(self, line: bytes) -> None:
        try:
            row = {n: math.nan if x is None else float(x) for n, x in json.loads(line).items()}
            row["step"], row["seconds"]
        except (ValueError, AttributeError, KeyError, TypeError):
            return
        count = len(self)
        for name in row.keys() - self._columns.keys():
            self._columns[name] = [math.nan] * count
        for name, column in self._columns.items():
            column.append(row.get(name, math.nan))

    def __len__(self) -> int:
        return len(self._columns["step"])

    @property
    def names(self) -> list[str]:
        """The names of the metrics so far, in alphabetical order."""
        return sorted(self._columns.keys() - {"step", "seconds"})

    def curve(self, name: str, over: str = "step") -> tuple[NDArray, NDArray]:
        """The finite values of a metric, `(n,)`, and where they are, `(n,)`.

        Args:
            name: the metric; one that the run does not have is empty.
            over: `step` or `seconds`.
        """
        y = np.asarray(self._columns.get(name, [math.nan] * len(self)))
        x, there = np.asarray(self._columns[over]), np.isfinite(y)
        return x[there], y[there]

    def last(self, name: str) -> float:
        """The last finite value of a metric; NaN if there is none."""
        values = self.curve(name)[1]
        return float(values[-1]) if len(values) else math.nan

    @property
    def steps(self) -> tuple[int, float]:
        """Environment steps so far, and those of the whole run; NaN where that is not known."""
        return int(self._columns["step"][-1]) if len(self) else 0, self._total

    @property
    def seconds_left(self) -> float:
        """Time to the end at the pace of the last rows, s; NaN where it is not known."""
        steps, seconds = (self._columns[name][-_PACE_ROWS:] for name in ("step", "seconds"))
        if len(steps) < 2 or steps[-1] <= steps[0]:
            return math.nan
        pace = (steps[-1] - steps[0]) / max(seconds[-1] - seconds[0], 1e-9)
        return max(self._total - steps[-1], 0.0) / pace

    @property
    def quiet_for(self) -> float:
        """How long there has been no news of a run that is not at its end, s; 0 where that is as
        usual.
        """
        done, total = self.steps
        seconds = self._columns["seconds"][-_PACE_ROWS:]
        if len(seconds) < 2 or done >= total:
            return 0.0
        usual = (seconds[-1] - seconds[0]) / (len(seconds) - 1)
        silent = time.time() - self._written
        return silent if silent > max(_QUIET_S, _QUIET_ROWS * usual) else 0.0
