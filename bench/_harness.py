"""What the benchmarks share: the machine, peers' processes, ratios, tables and results as JSON."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "bench" / "peers"
#: Environments, caches and results; not under version control.
SCRATCH = ROOT / ".bench"


class MissingPeerError(Exception):
    """A peer whose environment has not been made yet."""


def use_cores(count: int) -> int:
    """Keeps this process, and all that it starts, on its first `count` cores, where the system can.

    Call it before JAX starts its threads. Returns the number of cores in use.
    """
    if not hasattr(os, "sched_setaffinity"):
        return os.cpu_count() or 1
    cores = sorted(os.sched_getaffinity(0))[:count]
    os.sched_setaffinity(0, cores)
    return len(cores)


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    names = ("worldline", "jax", "mujoco", "gymnasium", "numpy")
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in names},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "unknown")


def peer_python(peer: str) -> str:
    """The interpreter of a peer's environment.

    Raises:
        MissingPeerError: it has not been made.
    """
    windows = sys.platform == "win32"
    python = SCRATCH / "venvs" / peer / ("Scripts/python.exe" if windows else "bin/python")
    if not python.exists():
        raise MissingPeerError(f"{peer} is not installed: run python bench/peers/venvs.py {peer}")
    return str(python)


def scratch_folder() -> Path:
    """Where processes run, so that what they leave behind is in nobody's way."""
    SCRATCH.mkdir(exist_ok=True)
    return SCRATCH


class StepWorker:
    """A process that steps a peer when told to: see `serve_steps` in `peers/protocol.py`.

    Args:
        command: how to start it.
        env_steps: environment steps in one of its batched steps.
        seconds: how long each timing should take.
        trial: batched steps to find out how many that is, and the fewest of a timing.
    """

    def __init__(
        self, command: Sequence[str], env_steps: int, seconds: float, trial: int = 8
    ) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=scratch_folder(),
        )
        self._env_steps = env_steps
        assert self._process.stdout is not None
        if not any(line == "ready\n" for line in self._process.stdout):  # peers' imports print
            raise RuntimeError(f"{' '.join(command)} does not start")
        self._steps = max(trial, round(trial * seconds / self._seconds(trial)))

    def rate(self) -> float:
        """Environment steps a second."""
        return self._steps * self._env_steps / self._seconds(self._steps)

    def memory_after(self, steps: int) -> float:
        """The process's resident memory after more steps, MiB (Linux only)."""
        self._seconds(steps)
        return self._mebibytes("VmRSS")

    def peak_memory_after(self, steps: int) -> float:
        """The most resident memory that the process ever had, with more steps, MiB (Linux only)."""
        self._seconds(steps)
        return self._mebibytes("VmHWM")

    def close(self) -> None:
        """Ends the process at once: it keeps nothing, and to tidy up takes JAX up to a minute."""
        self._process.kill()
        self._process.wait()

    def _mebibytes(self, field: str) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(field))
        return int(line.split()[1]) / 1024

    def _seconds(self, steps: int) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def interleave(
    contenders: Mapping[str, Callable[[], float]], repeats: int, progress: Callable[[str], None]
) -> dict[str, list[float]]:
    """Measures all contenders in turn, over and over, so that a slow minute slows them all.

    Every other round goes backwards: what is measured second has no lasting favour or disfavour.
    A measurement beside which somebody else used the machine is taken again, as long as there is
    patience left; how many were not says the last line of progress.
    """
    measured: dict[str, list[float]] = {name: [] for name in contenders}
    patience, disturbed = _PATIENCE_S, 0
    for repeat in range(repeats):
        for name, measure in list(contenders.items())[:: -1 if repeat % 2 else 1]:
            progress(f"{name}, {repeat + 1} of {repeats}")
            began = time.monotonic()
            while True:
                quiet = wait_until_quiet(patience)
                value = measure()
                quiet = quiet and _busy() < _QUIET
                if quiet or time.monotonic() - began > patience:
                    break
                progress("the machine is busy: once more")
            measured[name].append(value)
            disturbed += not quiet
            patience -= 0.0 if quiet else time.monotonic() - began
    if disturbed:
        taken = repeats * len(contenders)
        progress(f"others used the machine during {disturbed} of {taken} measurements")
    return measured


#: The share of the machine's cores that others may use during a measurement.
_QUIET = 0.1
#: How long, in all, to wait for a quiet machine.
_PATIENCE_S = 120.0


def wait_until_quiet(limit: float) -> bool:
    """Waits until others leave the machine alone, for `limit` seconds at most; whether they do."""
    end = time.monotonic() + limit
    while _busy() > _QUIET:
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return True


def _busy(seconds: float = 0.15) -> float:
    """The share of the cores in use while this process sleeps; 0 where the system does not tell."""

    def times() -> tuple[int, int]:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        numbers = [int(field) for field in fields]
        return sum(numbers), numbers[3] + numbers[4]  # all, and idle or waiting for a disk

    try:
        total, idle = times()
        time.sleep(seconds)
        later, later_idle = times()
    except OSError:
        return 0.0
    return 1.0 - (later_idle - idle) / max(1, later - total)


@dataclasses.dataclass(frozen=True)
class Ratio:
    """Ours over theirs, pair by pair: the two neighbours in time."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ours: Iterable[float], theirs: Iterable[float]) -> Ratio:
        """The ratios of two series of measurements."""
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        return cls(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.low:.3g} to {self.high:.3g})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """A line of a table: a number, and what the project has promised about it."""

    what: str
    value: float
    shown: str
    """The value as the table shows it."""
    detail: str = ""
    at_least: float | None = None
    at_most: float | None = None

    @property
    def target(self) -> str:
        """The promise in words; empty for none."""
        if self.at_least is not None:
            return f"at least {self.at_least:g}"
        return "" if self.at_most is None else f"at most {self.at_most:g}"

    @property
    def met(self) -> bool | None:
        """Whether the promise is kept; None without one."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.at_most is None else self.value <= self.at_most

    def json(self) -> dict[str, Any]:
        """The finding for a file."""
        return {**dataclasses.asdict(self), "target": self.target, "met": self.met}


def show_findings(title: str, findings: Iterable[Finding]) -> None:
    """Prints findings as a table with their targets."""
    rows = [
        (f.what, f.shown, f.detail, f.target, {True: "yes", False: "NO", None: ""}[f.met])
        for f in findings
    ]
    show_table(title, ("", "measured", "", "target", "met"), rows)


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    # A log has no width of its own; 160 columns hold the widest of these tables.
    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(table)


def say(text: str) -> None:
    """Progress: what happens now, on standard error."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def save(path: Path | None, results: Mapping[str, Any]) -> None:
    """Writes results as JSON, whole or not at all; None: nowhere."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        json.dump(results, file, indent=2)
    Path(file.name).replace(path)
