"""Processes that train as one, started on a Ray cluster: placement and restarts, nothing else.

Ray chooses the machines, and says when one is gone. Each process is the `worldline` command, and
joins the others as any process does. This module waits, and needs no JAX.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from worldline.errors import ConfigError, MissingExtraError
from worldline.parallel.jobs import with_cores
from worldline.parallel.launch import Arguments, Ended, cores_by_node, keep_running, last_line
from worldline.parallel.signals import handled_by

#: Seconds in which Ray must have found cores for all processes.
_PLACED_WITHIN_S = 60.0
#: Seconds in which the others notice that one of them is gone, and end.
_PATIENCE_S = 20.0
#: Seconds between two looks at the processes.
_LOOK_S = 0.5


def launch_on_ray(
    command: Callable[[], Arguments], processes: int, cores: int, restarts: int, address: str
) -> int:
    """Runs a command in several processes on a Ray cluster; waits for their end.

    The working directory must be there on all machines, as must be Worldline. If a process fails
    or is killed, or its machine is lost, so do the others end; they begin again where Ray has room.

    Args:
        command: gives the arguments to begin with, and again after a failure those to go on with.
        processes: how many. They are spread over the machines.
        cores: that each process reserves and uses.
        restarts: how often to go on after a failure.
        address: of the cluster, host:port; auto: the one of this machine.

    Returns:
        The exit status.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigError: there is no such cluster, or it has too few cores.
    """
    ray = _ray()
    try:
        ray.init(address=address, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"cannot reach a Ray cluster at {address!r}: {reason}") from error
    try:
        group = _place(ray, processes, cores)
        return keep_running(lambda words: _run(ray, group, words, cores), command, restarts)
    finally:
        ray.shutdown()


def _ray() -> Any:
    try:
        import ray
        import ray.exceptions
        import ray.util.placement_group
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise MissingExtraError("--ray", "ray") from error
    return ray


def _place(ray: Any, processes: int, cores: int) -> Any:
    """Reserves the cores of all processes."""
    group = ray.util.placement_group([{"CPU": cores}] * processes, strategy="SPREAD")
    try:
        ray.get(group.ready(), timeout=_PLACED_WITHIN_S)
    except ray.exceptions.GetTimeoutError as error:
        there = ray.cluster_resources().get("CPU", 0)
        raise ConfigError(
            f"{processes} processes of {cores} cores do not fit into this Ray cluster, which has "
            f"{there:g} cores; give fewer --processes or --ray-cores"
        ) from error
    return group


def _run(ray: Any, group: Any, words: list[str], cores: int) -> tuple[Ended, bool]:
    """Runs the processes until all have ended; and whether that was asked for by a signal."""
    number = group.bundle_count
    strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
    kind = ray.remote(Worker)
    workers = [
        kind.options(
            num_cpus=cores,
            max_concurrency=2,  # one runs, the other stops it
            scheduling_strategy=strategy(group, placement_group_bundle_index=index),
        ).remote()
        for index in range(number)
    ]
    try:
        places = ray.get([worker.place.remote() for worker in workers])
        coordinator = f"{places[0][0]}:{places[0][2]}"
        cluster = ["--coordinator", coordinator, "--processes", str(number), "--process"]
        before: Counter[str] = Counter()  # of each machine, the processes that are there already
        calls = []
        for index, (_, machine, _) in enumerate(places):
            arguments = [*words, *cluster, str(index)]
            calls.append(
                workers[index].run.remote(
                    arguments, str(Path.cwd()), before[machine] * cores, cores, index == 0
                )
            )
            before[machine] += 1
        with _signals_for(workers) as stopped:
            return _wait(ray, calls), bool(stopped)
    except ray.exceptions.RayError as error:
        return Ended(1, _lost(0, number, error)), False
    finally:
        for worker in workers:
            ray.kill(worker)


def _wait(ray: Any, calls: list[Any]) -> Ended:
    """How the processes end: all well, or how the first ended that did not."""
    waiting, ended = list(calls), None
    patience = None
    while waiting and (patience is None or patience > 0):
        done, waiting = ray.wait(waiting, timeout=_LOOK_S)
        patience = None if patience is None else patience - _LOOK_S
        for call in done:
            found = _end(ray, calls.index(call), len(calls), call)
            # One that is gone rather than ended: the others end since it is gone.
            if found.status and (ended is None or (ended.status == 2 and found.status != 2)):
                ended, patience = found, _PATIENCE_S if patience is None else patience
    return ended or Ended(0, "")


def _end(ray: Any, index: int, number: int, call: Any) -> Ended:
    try:
        status, said = ray.get(call)
    except ray.exceptions.RayError as error:
        return Ended(1, _lost(index, number, error))
    if not status:
        return Ended(0, "")
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with {status}"
    return Ended(status if status > 0 else 128 - status, f"process {index} of {number} {how}{said}")


def _lost(index: int, number: int, error: Exception) -> str:
    reason = str(error).strip().partition("\n")[0]
    return f"Ray has lost process {index} of {number}: {reason}"


@contextlib.contextmanager
def _signals_for(workers: list[Any]) -> Iterator[list[int]]:
    """Hands signals on: the first request to the first process, which tells the others; the next
    ones to all. Gives the list of those that came.
    """
    came: list[int] = []

    def hand_on(number: int, _: object) -> None:
        for worker in workers if came else workers[:1]:
            worker.stop.remote(number)
        came.append(number)

    with handled_by(hand_on):
        yield came


class Worker:
    """On a machine of the cluster: one process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def place(self) -> tuple[str, str, int]:
        """The address of this machine, its name in the cluster, and a port that is free."""
        ray = _ray()
        with socket.socket() as free:
            free.bind(("", 0))
            port = int(free.getsockname()[1])
        return ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id(), port

    def run(
        self, arguments: list[str], folder: str, first_core: int, cores: int, shows: bool
    ) -> tuple[int, str]:
        """Runs the command; gives its exit status, and the last line that it said at a failure.

        Args:
            arguments: of `worldline`.
            folder: where.
            first_core: the first of this machine's cores to use.
            cores: how many.
            shows: whether what it says is shown.
        """
        mine = cores_by_node()
        own = [mine[(first_core + index) % len(mine)] for index in range(cores)]
        command = [sys.executable, "-m", "worldline.cli", *arguments]
        with tempfile.TemporaryFile() as said:
            self._process = subprocess.Popen(
                # Killed with its worker: saving would keep the others, which begin again, waiting.
                with_cores(command, own, signal.SIGKILL),
                cwd=folder,
                stdout=None if shows else subprocess.DEVNULL,
                stderr=None if shows else said,
                process_group=0,
            )
            status = self._process.wait()
            return status, last_line(said) if status else ""

    def stop(self, number: int) -> None:
        """Sends the process a signal."""
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, number)
