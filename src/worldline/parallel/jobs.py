"""Jobs: independent processes of this machine, some at a time, each with cores of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, NamedTuple

from worldline.parallel.launch import cores_by_node, last_line, shares
from worldline.parallel.signals import handled_by

#: Seconds between two looks at the processes.
_LOOK_S = 0.1

#: What becomes a job: it takes its cores, and gets a signal when the launcher is gone (1 is
#: `PR_SET_PDEATHSIG` of Linux). It is in a process group of its own, since the terminal's Ctrl-C is
#: for the launcher to hand on.
_BEGIN = """
import ctypes, os, sys
launcher, number, cores, *command = sys.argv[1:]
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, map(int, cores.split(",")))
    ctypes.CDLL(None).prctl(1, int(number))
if os.getppid() != int(launcher):
    sys.exit(1)
os.execvp(command[0], command)
"""


class Done(NamedTuple):
    """A job that has ended."""

    number: int
    """Which one."""
    status: int
    """Its exit status; negative where a signal killed it."""
    why: str
    """The last line that it wrote to standard error, after a colon; empty if there was none."""


def run_jobs(
    commands: Sequence[Sequence[str]],
    at_once: int,
    ended: Callable[[Done], None] = lambda done: None,
    look: Callable[[list[int]], None] = lambda running: None,
) -> bool:
    """Runs commands, some at a time, until all have ended; one that fails does not stop the others.

    The first Ctrl-C or SIGTERM asks those that run to stop and save, and no other begins; each
    further one is handed on to them.

    Args:
        commands: programs with their arguments.
        at_once: how many run at a time; each has an equal share of the cores.
        ended: is told of each that has ended.
        look: is called again and again with the numbers of those that run.

    Returns:
        Whether no signal came; after one, jobs may be left that have not begun or ended early.

    Raises:
        ConfigError: `at_once` is more than there are cores.
    """
    free = shares(cores_by_node(), at_once)
    waiting = list(range(len(commands)))
    running: dict[int, _Running] = {}
    with _handing_on(running) as came:
        while running or (waiting and not came):
            while waiting and free and not came:
                index = waiting.pop(0)
                running[index] = _begin(commands[index], free.pop(0))
            for index, job in list(running.items()):
                status = job.process.poll()
                if status is not None:
                    del running[index]
                    free.append(job.cores)
                    ended(Done(index, status, last_line(job.said) if status else ""))
                    job.said.close()
            look(list(running))
            time.sleep(_LOOK_S)
    return not came


class _Running(NamedTuple):
    process: subprocess.Popen[bytes]
    cores: list[int]
    said: IO[bytes]


def _begin(command: Sequence[str], cores: list[int]) -> _Running:
    said = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed when the job has ended
    process = subprocess.Popen(
        with_cores(command, cores), stdout=subprocess.DEVNULL, stderr=said, process_group=0
    )
    return _Running(process, cores, said)


def with_cores(
    command: Sequence[str], cores: Sequence[int], end: signal.Signals = signal.SIGTERM
) -> list[str]:
    """A command that runs another one on some cores, and gets the signal `end` when the process
    that starts it is gone.
    """
    begin = [sys.executable, "-SEc", _BEGIN, str(os.getpid()), str(int(end))]
    return [*begin, ",".join(map(str, cores)), *command]


@contextlib.contextmanager
def _handing_on(running: dict[int, _Running]) -> Iterator[list[int]]:
    """Hands signals on to all that run; gives the list of those that came."""
    came: list[int] = []

    def hand_on(number: int, _: object) -> None:
        came.append(number)
        for job in list(running.values()):
            job.process.send_signal(number)
        if not running:
            sys.exit(128 + number)

    with handled_by(hand_on):
        yield came
