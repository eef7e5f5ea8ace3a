"""The signals that ask a launcher to stop: a handler for them, for a while."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

#: What Ctrl-C, `kill` and schedulers send.
STOP = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def handled_by(handler: Callable[[int, object], None]) -> Iterator[None]:
    """Inside, `handler(number, frame)` answers each of `STOP`; afterwards who answered before."""
    before = {number: signal.signal(number, handler) for number in STOP}
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)
