"""Several processes that train as one, on JAX's own runtime for many machines.

All processes run the same program on their own devices, step by step. What one decides by its clock
or by a signal, all must know. The first process writes the run folder and shows progress.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from worldline.errors import ConfigError, LostProcessError
from worldline.parallel.config import DETECT, ClusterConfig
from worldline.parallel.mesh import world_mesh
from worldline.parallel.roles import Roles, cpus, take_role
from worldline.types import Array

#: The longest text that processes tell each other, such as a path; bytes.
_LONGEST_TEXT = 4096

#: Words in the errors of gloo (on a CPU), NCCL (on NVIDIA cards) and JAX when a process is gone.
_LOST = re.compile(r"gloo|nccl|coordination service", re.IGNORECASE)


def join(config: ClusterConfig) -> Mesh | Roles | None:
    """Joins the other processes, if there are any. Call it before anything else of JAX.

    Returns:
        The devices of all of them, to share worlds over; None if there is one device alone. Where
        some processes act and others learn, which of them do.

    Raises:
        ConfigError: the processes do not find each other, or one has not so many devices.
    """
    if config.coordinator:
        _wait_for_the_core()
        manual = config.coordinator != DETECT
        jax.config.update("jax_enable_preemption_service", False)  # SIGTERM is the run's own
        try:
            jax.distributed.initialize(
                config.coordinator if manual else None, config.processes, config.process
            )
        except (ValueError, RuntimeError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise ConfigError(
                f"cannot join the processes at {config.coordinator!r}: {reason}"
            ) from error
    if config.actors:
        return take_role(config)
    local = jax.local_device_count()
    if config.devices > local:
        raise ConfigError(f"devices is {config.devices}, but this process has {local}")
    number = config.devices or local
    first = {index: jax.local_devices(index)[:number] for index in range(jax.process_count())}
    return world_mesh([device for devices in first.values() for device in devices])


def _wait_for_the_core() -> None:
    """Has the threads of this process, if they wake up, wait until their core is free.

    Gloo's thread for messages would else take the core from the thread that holds its lock, and
    ask for the lock until the next tick of Linux's clock: 4 ms for each message on one core.
    """
    with contextlib.suppress(AttributeError, OSError):  # another system, or it is not allowed
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def is_first() -> bool:
    """Whether this process writes and shows what all of them do."""
    return jax.process_index() == 0


def process_count() -> int:
    """How many processes train together; some may have no accelerator, but all have a CPU."""
    try:
        return jax.process_count("cpu")
    except RuntimeError:  # JAX was told not to use it
        return jax.process_count()


def of_first(text: str) -> str:
    """The text of the first process, in every process. All processes must call it."""
    return texts_of_all(text)[0]


def texts_of_all(text: str) -> list[str]:
    """The texts of all processes, in every process. All must call it.

    Args:
        text: of this process, 4096 bytes; the rest is cut off.
    """
    if process_count() == 1:
        return [text]
    said = np.zeros(_LONGEST_TEXT, np.uint8)
    encoded = np.frombuffer(text.encode()[:_LONGEST_TEXT], np.uint8)
    said[: encoded.size] = encoded
    return [bytes(row).rstrip(b"\0").decode(errors="ignore") for row in _of_all(said)]


def any_of(*flags: bool) -> tuple[bool, ...]:
    """Whether each flag is true in any process. All processes must call it."""
    if process_count() == 1:
        return flags
    return tuple(map(bool, np.any(_of_all(np.array(flags)), axis=0).tolist()))


def _of_all(mine: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The arrays of all processes, `(N, ...)`, in every process. They travel between CPUs."""
    each = cpus()
    mesh = Mesh(np.array(each), ("processes",))
    by_process = NamedSharding(mesh, P("processes"))
    own = [jax.device_put(mine[None], mesh.local_devices[0])]
    shares = jax.make_array_from_single_device_arrays((len(each), *mine.shape), by_process, own)
    gathered = _gathering(NamedSharding(mesh, P()))(shares)
    return np.asarray(gathered.addressable_data(0))


@functools.lru_cache
def _gathering(everywhere: NamedSharding) -> Callable[[Array], Array]:
    return jax.jit(lambda shares: shares, out_shardings=everywhere)


def check_same(value: str, what: str) -> None:
    """Checks that all processes have the same value. All processes must call it.

    Raises:
        ConfigError: they have different ones.
    """
    first = of_first(value)
    (differs,) = any_of(first != value)
    if differs:
        raise ConfigError(
            f"{what} is {value} for process {jax.process_index()}, but {first} for process 0; "
            "give all processes the same run folder, on a disk that all of them can read"
        )


@contextlib.contextmanager
def report_lost_process(resume: str) -> Iterator[None]:
    """Raises an error of one line when another process is gone, in place of the network's error.

    Args:
        resume: the command with which to continue.

    Raises:
        LostProcessError: one of the other processes ended, was killed, or cannot be reached.
    """
    try:
        yield
    except (ValueError, RuntimeError) as error:
        if process_count() == 1 or not _LOST.search(str(error)):
            raise
        raise LostProcessError(
            f"process {jax.process_index()} of {process_count()} has lost another process, "
            f"which has ended or cannot be reached; start all processes again with {resume}"
        ) from error


def leave(status: int) -> None:
    """Ends this process at once if it is one of several: the others, and what JAX does at the end
    of a program, would wait for each other for minutes.
    """
    if jax.distributed.is_initialized() and process_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
