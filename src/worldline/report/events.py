"""The numbers of a run as TensorBoard reads them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: The longest time that numbers stay in memory.
_FLUSH_EVERY_S = 10.0


class EventFile:
    """A file of TensorBoard's in a folder, written without a thread: a full disk is an `OSError`.

    Args:
        folder: the folder; it is made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        from tensorboardX.event_file_writer import EventsWriter

        folder.mkdir(exist_ok=True)
        self._writer: Any = EventsWriter(str(folder / "events"))
        self._flushed = time.monotonic()

    def write(self, values: Mapping[str, float], step: int, wall_time: float | None = None) -> None:
        """Appends numbers by name.

        Args:
            values: the numbers.
            step: environment steps so far.
            wall_time: seconds since 1970; None: now.
        """
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar

        now = time.time() if wall_time is None else wall_time
        for name, value in values.items():
            self._writer.write_event(Event(wall_time=now, step=step, summary=scalar(name, value)))
        if time.monotonic() - self._flushed > _FLUSH_EVERY_S:
            self._writer.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        """Closes the file. What the disk no longer takes, `metrics.jsonl` has."""
        with contextlib.suppress(OSError):
            self._writer.close()
