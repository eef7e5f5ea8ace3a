"""Ctrl-C and SIGTERM as a request: the first ends a run well, a second one ends it at once."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

#: Signals closer together than this are one request: `timeout` and some launchers send two.
_ONE_REQUEST_S = 0.3


@contextlib.contextmanager
def graceful_stop() -> Iterator[Callable[[], bool]]:
    """Turns a first Ctrl-C or SIGTERM into a True from the function that it gives.

    A second one ends the process there and then, with the exit status that the signal has in a
    shell: 130 for Ctrl-C. For use in the main thread of a program of one's own, not in a notebook.
    """
    stop = threading.Event()
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    # A handler in Python waits until the main thread returns from XLA, which may take as long as
    # an update does; Python tells this socket of a signal as soon as it arrives.
    watcher = threading.Thread(target=_watch, args=(reader, stop), daemon=True)
    watcher.start()
    handlers = {number: signal.signal(number, _ignore) for number in _SIGNALS}
    wakeup = signal.set_wakeup_fd(writer.fileno())
    try:
        yield stop.is_set
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        writer.close()
        watcher.join()
        reader.close()


def _watch(reader: socket.socket, stop: threading.Event) -> None:
    """Reads the numbers of signals as they arrive, until the other end is closed."""
    first = 0.0
    while received := reader.recv(1):
        number = received[0]
        if number not in _SIGNALS:
            continue
        if not stop.is_set():
            first = time.monotonic()
            stop.set()
            _say("stopping after this update, to save what was learned; Ctrl-C again stops at once")
        elif time.monotonic() - first > _ONE_REQUEST_S:
            _say("stopped" + "\x1b[?25h" * sys.stderr.isatty())  # a progress bar hides the cursor
            os._exit(128 + number)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - what a signal does, a person must see


def _ignore(*_: object) -> None:
    """A handler that does nothing; without one, the socket is not told."""
