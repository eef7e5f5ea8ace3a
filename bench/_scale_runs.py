"""Starts the processes of `worldline bench scale` on their cores, and hears from them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from _network import DelayedNetwork, address
from _scale_worker import Job
from worldline.parallel.jobs import with_cores
from worldline.parallel.launch import last_line

_WORKER = Path(__file__).with_name("_scale_worker.py")
#: Seconds after which a job has failed.
_LIMIT_S = 300.0


class FailedError(Exception):
    """A process of a job failed, or took too long."""


def run(
    job: Job,
    cores: Sequence[int],
    cache: Path,
    *,
    processes: int = 1,
    delay: float | None = None,
    devices: int = 1,
) -> Any:
    """What the first process of a job says, once all have ended. All are killed on the way out.

    Args:
        job: for each of them.
        cores: for one process, all of them; of several, each has one, in turn.
        cache: where JAX keeps compiled programs.
        processes: how many.
        delay: seconds that the network between them takes; None: the machine's own network.
        devices: virtual ones of each process.

    Raises:
        FailedError: one of them failed, or took too long.
    """
    with contextlib.ExitStack() as stack:
        network = None
        if delay is not None:
            network = stack.enter_context(DelayedNetwork(processes, delay))
        host = address(0) if network else "127.0.0.1"
        coordinator = f"{host}:{_free_port()}" if processes > 1 else ""
        said, answer = [], stack.enter_context(tempfile.TemporaryFile())
        running: list[subprocess.Popen[bytes]] = []
        for index in range(processes):
            mine = dataclasses.replace(
                job, process=index, processes=processes, coordinator=coordinator
            )
            own = list(cores) if processes == 1 else [cores[index % len(cores)]]
            worker = [sys.executable, str(_WORKER), json.dumps(dataclasses.asdict(mine))]
            command, inherited = with_cores(worker, own, signal.SIGKILL), []
            if network:
                command, file = network.command(index, command)
                inherited = [file]
            said.append(stack.enter_context(tempfile.TemporaryFile()))
            process = subprocess.Popen(
                command,
                env=_environment(cache, devices),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if index else answer,
                stderr=said[index],
                pass_fds=inherited,
            )
            stack.callback(_end, process)
            running.append(process)
        _wait(running, said)
        answer.seek(0)
        return json.loads(answer.read().splitlines()[-1])


def _wait(running: Sequence[subprocess.Popen[bytes]], said: Sequence[IO[bytes]]) -> None:
    """Waits until all have ended well."""
    deadline = time.monotonic() + _LIMIT_S
    while True:
        statuses = [process.poll() for process in running]
        for index, status in enumerate(statuses):
            if status:
                raise FailedError(f"process {index} ended with {status}{last_line(said[index])}")
        if None not in statuses:
            return
        if time.monotonic() > deadline:
            raise FailedError(f"no end after {_LIMIT_S:g} s{last_line(said[0])}")
        time.sleep(0.05)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _environment(cache: Path, devices: int) -> dict[str, str]:
    flags = f"--xla_force_host_platform_device_count={devices}"
    more = {"XLA_FLAGS": flags, "JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PLATFORMS": "cpu"}
    return {**os.environ, **more}


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
