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
    actors: Number = 0
    """The number of processes that only act, while the first processes learn from the rollout
    before (see the guide to many devices). 0: all processes do both. Only for PPO."""
    learners: Count | None = None
    """With actors: the number of processes that learn, by default one. The number of actors must be
    a multiple of it."""
    local: bool = False
    """Start all processes on this machine, each with its part of the cores."""
    ray: str = ""
    """Start all processes on the Ray cluster at this address: host:port, or auto. Needs the extra
    ray."""
    ray_cores: Count = 1
    """With ray: the number of cores of each process."""
    restarts: Number = 0
    """With local or ray: if a process fails or is killed, continue from the last checkpoint, up to
    this number of times."""

    @property
    def launcher(self) -> str:
        """What starts the processes: local, ray, or empty."""
        return "local" if self.local else "ray" if self.ray else ""

    def __post_init__(self) -> None:
        check_settings(self)
        self._check_roles()
        if self.launcher:
            self._check_launcher()
            return
        if self.restarts:
            raise ConfigError(
                f"restarts is {self.restarts}, which works only with local or ray; give one of them"
            )
        given = [name for name in ("processes", "process") if getattr(self, name) is not None]
        if self.actors and not self.coordinator:
            raise ConfigError(
                f"actors is {self.actors}, which are processes: give local or ray to start them, "
                "or coordinator and process"
            )
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

    def _check_roles(self) -> None:
        """Completes `learners` and `processes` where there are actors."""
        if not self.actors:
            if self.learners is not None:
                raise ConfigError(f"learners is {self.learners}, and needs actors: how many act")
            return
        learners = self.learners or 1
        if self.actors % learners:
            raise ConfigError(
                f"{learners} learners do not divide {self.actors} actors; give each equally many"
            )
        total = self.actors + learners
        if self.processes not in (None, total):
            raise ConfigError(
                f"processes is {self.processes}, but {learners} learners and {self.actors} actors "
                f"are {total}; leave it out"
            )
        if self.devices > 1:
            raise ConfigError(f"devices is {self.devices}: with actors each process uses one")
        object.__setattr__(self, "learners", learners)
        if self.coordinator != DETECT:
            object.__setattr__(self, "processes", total)

    def _check_launcher(self) -> None:
        if self.local and self.ray:
            raise ConfigError("local and ray both start the processes; give one of them")
        if self.processes is None:
            raise ConfigError(f"{self.launcher} needs the number of processes; give processes")
        if self.coordinator or self.process is not None:
            raise ConfigError(
                f"{self.launcher} sets the coordinator and the process number; do not give them"
            )
