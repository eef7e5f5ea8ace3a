"""The configuration of a cluster, which is read before JAX is imported."""

from __future__ import annotations

import dataclasses
import re

from worldline.errors import ConfigError
from worldline.settings import Count, Number, check_settings

#: The `ClusterConfig.coordinator` that asks the launcher of the processes, such as SLURM.
DETECT = "auto"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """The processes and devices that share the worlds of a run."""

    coordinator: str = ""
    """For a training with several processes: the host:port of process 0. Under SLURM, Kubernetes or
    Open MPI, give auto."""
    processes: Count | None = None
    """The number of processes that train together. Each must have the same number of devices."""
    process: Number | None = None
    """The number of this process, from 0."""
    devices: Number = 0
    """The number of devices that this process uses. 0: all."""
    local: bool = False
    """Start all processes on this machine, each with its part of the cores."""
    restarts: Number = 0
    """With local: if a process fails or is killed, continue from the last checkpoint, up to this
    number of times."""

    def __post_init__(self) -> None:
        check_settings(self)
        if self.local:
            self._check_local()
            return
        if self.restarts:
            raise ConfigError(
                f"restarts is {self.restarts}, which works only with local; give local"
            )
        given = [name for name in ("processes", "process") if getattr(self, name) is not None]
        if self.coordinator in ("", DETECT):
            if given:
                raise ConfigError(
                    f"{given[0]} is {getattr(self, given[0])}, but there is no coordinator; "
                    "give host:port of process 0"
                )
            return
        if not re.fullmatch(r".+:\d+", self.coordinator):
            raise ConfigError(f"coordinator is {self.coordinator!r}; give host:port, or {DETECT}")
        if self.processes is None or self.process is None:
            raise ConfigError(
                f"coordinator is {self.coordinator!r}; also give processes, and the process number "
                "of each, from 0"
            )
        if not 0 <= self.process < self.processes:
            raise ConfigError(
                f"process is {self.process} of {self.processes}; give 0 to {self.processes - 1}"
            )

    def _check_local(self) -> None:
        if self.processes is None:
            raise ConfigError("local needs the number of processes; give processes")
        if self.coordinator or self.process is not None:
            raise ConfigError("local sets the coordinator and the process number; do not give them")
