"""Several processes of this machine that train as one: starts them, and starts them again.

It waits, and does no training of its own; so it needs no JAX.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from worldline.errors import ConfigError
from worldline.parallel.cores import usable_cores
from worldline.parallel.signals import handled_by

#: Seconds in which the others notice that one of them is gone, and end.
_PATIENCE_S = 20.0
#: What a process is told to end with when its parent is gone (`prctl`, Linux).
_PR_SET_PDEATHSIG = 1
_NODES = Path("/sys/devices/system/node")

#: The arguments of the command that a process runs, without those of the cluster.
Arguments = Sequence[str]


class Ended(NamedTuple):
    """How the processes ended."""

    status: int
    """0, or the exit status of the process that failed first; 128 and the signal's number where a
    signal killed it."""
    why: str
    """A line on that process; empty where all went well."""


def launch(
    command: Callable[[], Arguments], processes: int, restarts: int = 0, program: Arguments = ()
) -> int:
    """Runs a command in several processes that share the cores of this one; waits for their end.

    The first Ctrl-C or SIGTERM asks the run to stop and save; the second ends it. If one process
    fails or is killed, so do the others.

    Args:
        command: gives the arguments to begin with, and again after a failure those to go on with.
        processes: how many.
        restarts: how often to go on after a failure.
        program: what runs them, by default the `worldline` command.

    Returns:
        The exit status.

    Raises:
        ConfigError: there are more processes than cores.
    """
    program = program or (sys.executable, "-m", "worldline.cli")
    cores = shares(cores_by_node(), processes)
    return keep_running(lambda words: _run([*program, *words], cores), command, restarts)


def keep_running(
    run: Callable[[list[str]], tuple[Ended, bool]], command: Callable[[], Arguments], restarts: int
) -> int:
    """Runs a command until it ends well, at most so many times again; gives the exit status.

    Args:
        run: runs its processes, and says how they ended and whether a signal asked for that.
        command: as in `launch`.
        restarts: as in `launch`.
    """
    for left in range(restarts, -1, -1):
        ended, stopped = run(list(command()))
        if not ended.status or stopped:
            break
        again = (
            f"; starting again from the last checkpoint ({left - 1} restarts left)" if left else ""
        )
        print(f"{ended.why}{again}", file=sys.stderr, flush=True)  # noqa: T201
    return ended.status


def shares(cores: Sequence[int], processes: int) -> list[list[int]]:
    """The cores of each process: equally many, neighbours in the order given.

    Raises:
        ConfigError: there are more processes than cores.
    """
    each = len(cores) // processes
    if not each:
        raise ConfigError(
            f"processes is {processes}, but this machine lets you use {len(cores)} cores; give "
            f"{len(cores)} at most"
        )
    return [list(cores[i * each : (i + 1) * each]) for i in range(processes)]


def cores_by_node(nodes: Path = _NODES) -> list[int]:
    """The cores that this process may use; those that share a memory (NUMA) are neighbours."""
    node: dict[int, int] = {}
    for file in nodes.glob("node*/cpulist"):
        number = int(file.parent.name.removeprefix("node"))
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", file.read_text()):
            node |= dict.fromkeys(range(int(first), int(last or first) + 1), number)
    return sorted(usable_cores(), key=lambda core: (node.get(core, 0), core))


def _run(command: list[str], cores: list[list[int]]) -> tuple[Ended, bool]:
    """Runs the processes until all have ended; and whether that was asked for by a signal."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cluster = ["--coordinator", f"127.0.0.1:{port}", "--processes", str(len(cores)), "--process"]
    with contextlib.ExitStack() as stack:
        # The first shows what all do. Of the others only what they say at a failure is shown.
        said = [stack.enter_context(tempfile.TemporaryFile()) for _ in cores]
        running: list[subprocess.Popen[bytes]] = []
        with _signals_for(running) as stopped:
            for index, mine in enumerate(cores):
                process = subprocess.Popen(
                    [*command, *cluster, str(index)],
                    stdout=subprocess.DEVNULL if index else None,
                    stderr=said[index] if index else None,
                    preexec_fn=_of_launcher(os.getpid(), mine),
                )
                running.append(process)
            first = _wait(running)
        if first is None:
            return Ended(0, ""), bool(stopped)
        code = running[first].returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        why = f"process {first} of {len(cores)} {how}{last_line(said[first])}"
        return Ended(code if code > 0 else 128 - code, why), bool(stopped)


def _wait(running: list[subprocess.Popen[bytes]]) -> int | None:
    """The number of the process that failed first, once all have ended; None if none did."""
    first, deadline = None, float("inf")
    while None in (codes := [process.poll() for process in running]):
        failed = [i for i, code in enumerate(codes) if code]
        if first is None and failed:
            # One that was killed rather than ended: the others end since it is gone.
            first = min(failed, key=lambda i: running[i].returncode)
            deadline = time.monotonic() + _PATIENCE_S
        if time.monotonic() > deadline:
            for process in running:
                process.kill()
        time.sleep(0.05)
    failed = [i for i, process in enumerate(running) if process.returncode]
    return min(failed, key=lambda i: running[i].returncode) if first is None and failed else first


@contextlib.contextmanager
def _signals_for(running: list[subprocess.Popen[bytes]]) -> Iterator[list[int]]:
    """Hands signals on: the first request to the first process, which tells the others; the next
    ones to all. Gives the list of those that came.
    """
    came: list[int] = []

    def hand_on(number: int, _: object) -> None:
        if not running:
            sys.exit(128 + number)
        for process in running if came else running[:1]:
            process.send_signal(number)
        came.append(number)

    with handled_by(hand_on):
        yield came


def _of_launcher(launcher: int, cores: list[int]) -> Callable[[], None]:
    """What a process does before its program: it takes its cores, and ends with the launcher.

    It leaves the terminal's process group, whose Ctrl-C is for the launcher to hand on.
    """
    libc = ctypes.CDLL(None)

    def begin() -> None:
        os.setpgid(0, 0)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != launcher:
            os._exit(1)

    return begin


def last_line(said: IO[bytes]) -> str:
    """The last line that a process said, after a colon; empty if it said nothing."""
    said.seek(0)
    lines = said.read().decode(errors="replace").strip().splitlines()
    return f": {lines[-1]}" if lines else ""
