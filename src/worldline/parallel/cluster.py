"""Several processes that train as one, on JAX's own runtime for many machines.

All of them run the same program on their own devices, step by step: what one decides by its own
clock or by a signal, all have to know. The first writes the run folder and shows progress.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import sys
from collections.abc import Iterator

import jax
import numpy as np
from jax.sharding import Mesh

from worldline.errors import ConfigError, LostProcessError
from worldline.parallel.mesh import world_mesh

#: For `ClusterConfig.coordinator`: what launched the processes knows it.
_DETECT = "auto"

#: Of what `of_first` passes on, in bytes: a path.
_LONGEST_TEXT = 4096

#: How the collectives of a CPU and of NVIDIA's cards, and JAX's runtime, say that one is gone.
_LOST = re.compile(r"gloo|nccl|coordination service", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """The processes and devices that share the worlds of a run."""

    coordinator: str = ""
    """host:port where process 0 listens, for all processes the same; or auto, under SLURM,
    Kubernetes or Open MPI, which tell this and the next two. Empty: one process."""
    processes: int | None = None
    """How many processes train together, each with as many devices."""
    process: int | None = None
    """Which of them this is, from 0."""
    devices: int = 0
    """How many of this process's devices share the worlds; 0: all."""

    def __post_init__(self) -> None:
        if self.devices < 0:
            raise ConfigError(f"devices is {self.devices}; give 0 for all, or more")
        given = [name for name in ("processes", "process") if getattr(self, name) is not None]
        if self.coordinator in ("", _DETECT):
            if given:
                raise ConfigError(
                    f"{given[0]} is {getattr(self, given[0])}, but there is no coordinator; "
                    "give host:port of process 0"
                )
            return
        if not re.fullmatch(r".+:\d+", self.coordinator):
            raise ConfigError(f"coordinator is {self.coordinator!r}; give host:port, or {_DETECT}")
        if self.processes is None or self.process is None:
            raise ConfigError(
                f"coordinator is {self.coordinator!r}; give processes, and process from 0 for each"
            )
        if not 0 <= self.process < self.processes:
            raise ConfigError(
                f"process is {self.process} of {self.processes}; give 0 to {self.processes - 1}"
            )


def join(config: ClusterConfig) -> Mesh | None:
    """Joins the other processes, if there are any; before anything else of JAX is used.

    Returns:
        The devices of all of them, to share worlds over; None if there is one device alone.

    Raises:
        ConfigError: the processes do not find each other, or one has not so many devices.
    """
    if config.coordinator:
        manual = config.coordinator != _DETECT
        jax.config.update("jax_enable_preemption_service", False)  # SIGTERM is the run's own
        try:
            jax.distributed.initialize(
                config.coordinator if manual else None, config.processes, config.process
            )
        except (ValueError, RuntimeError) as error:
            raise ConfigError(
                f"cannot join the processes at {config.coordinator!r}: {_first_line(error)}"
            ) from error
    local = jax.local_device_count()
    if config.devices > local:
        raise ConfigError(f"devices is {config.devices}, but this process has {local}")
    number = config.devices or local
    first = {index: jax.local_devices(index)[:number] for index in range(jax.process_count())}
    return world_mesh([device for devices in first.values() for device in devices])


def is_first() -> bool:
    """Whether this process writes and shows what all of them do."""
    return jax.process_index() == 0


def of_first(text: str) -> str:
    """What the first process says, of which the others know nothing yet; all of them must ask."""
    if jax.process_count() == 1:
        return text
    from jax.experimental.multihost_utils import broadcast_one_to_all

    said = np.zeros(_LONGEST_TEXT, np.uint8)
    encoded = np.frombuffer(text.encode()[:_LONGEST_TEXT], np.uint8)
    said[: encoded.size] = encoded
    return bytes(np.asarray(broadcast_one_to_all(said))).rstrip(b"\0").decode()


def any_of(*flags: bool) -> tuple[bool, ...]:
    """Whether each flag holds in any process; all of them must ask."""
    if jax.process_count() == 1:
        return flags
    from jax.experimental.multihost_utils import process_allgather

    return tuple(map(bool, process_allgather(np.array(flags)).any(axis=0)))


def check_same(number: int, what: str) -> None:
    """Refuses to go on where processes differ in a number; all of them must ask.

    Raises:
        ConfigError: they do.
    """
    first = of_first(str(number))
    (differs,) = any_of(first != str(number))
    if differs:
        raise ConfigError(
            f"{what} is {number} for process {jax.process_index()}, and {first} for process 0; "
            "give all processes the same run folder, where all see the same files"
        )


@contextlib.contextmanager
def losses_told(resume: str) -> Iterator[None]:
    """Tells in one line that another process is gone, in place of what the network says of it.

    Args:
        resume: how to go on.

    Raises:
        LostProcessError: one of the other processes ended, was killed, or cannot be reached.
    """
    try:
        yield
    except (ValueError, RuntimeError) as error:
        if jax.process_count() == 1 or not _LOST.search(str(error)):
            raise
        raise LostProcessError(
            f"process {jax.process_index()} of {jax.process_count()} has lost another one, which "
            f"has ended, was killed or is out of reach; start all of them again with {resume}"
        ) from error


def leave(status: int) -> None:
    """Ends this process at once if it is one of several: the others, and what JAX does at the end
    of a program, would wait for each other for minutes.
    """
    if jax.distributed.is_initialized() and jax.process_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
