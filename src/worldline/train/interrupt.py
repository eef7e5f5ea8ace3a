"""Ctrl-C and SIGTERM: the first asks a run to stop and save, a second one ends it at once."""

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
    """Gives a function that returns True after a first Ctrl-C or SIGTERM.

    A second one ends the process at once, with the signal's exit status in a shell: 130 for Ctrl-C.
    It works in the main thread of a program, not in a notebook.
    """
    stop = threading.Event()
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    # A handler in Python runs only when the main thread returns from XLA, up to an update later;
    # Python writes to this socket as soon as a signal arrives.
    watcher = threading.Thread(target=_watch, args=(reader, stop), daemon=True)
    watcher.start()
    # Without a handler Python does not write there.
    handlers = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
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
    """Reads the numbers of arriving signals until the other end of the socket is closed."""
    first = 0.0
    while received := reader.recv(1):
        number = received[0]
        if number not in _SIGNALS:
            continue
        if not stop.is_set():
            first = time.monotonic()
            stop.set()
            _say("stopping after this update to save the run; press Ctrl-C again to stop at once")
        elif time.monotonic() - first > _ONE_REQUEST_S:
            _say("stopped" + "\x1b[?25h" * sys.stderr.isatty())  # a progress bar hides the cursor
            os._exit(128 + number)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - the user must see the effect of a signal
