"""Devices: training shared by two processes, and by two local devices, against one.

`python bench/devices.py`, or `worldline bench devices`. Each contender is a run of the command line
with the same total of worlds; a rate is the median over its updates after the first ones. All have
the same cores: two processes have half of them each.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import tyro

from _harness import Finding, Ratio, interleave, machine, save, say, show_findings, use_cores

#: Updates that are not counted: they are compiled, or follow on one that was.
_WARM_UP = 3


@dataclasses.dataclass(frozen=True)
class DevicesBench:
    """Training shared by two processes, and by two local devices, against one."""

    task: str = "gym/half-cheetah"
    """The task, with its own settings of PPO."""
    steps: int = 300_000
    """Environment steps of a run."""
    repeats: int = 3
    """Runs of each."""
    cores: int = 2
    """Cores to use, all together."""
    options: tuple[str, ...] = ()
    """Further options of `worldline train`, such as --num-worlds 512."""
    json: Path | None = None
    """Where to write the results."""


def main() -> None:
    """Measures and prints."""
    config = tyro.cli(DevicesBench)
    cores = use_cores(config.cores)
    measured = interleave(
        {
            "one": lambda: rate(config, cores),
            "two processes": lambda: rate(config, cores, processes=2),
            "two local devices": lambda: rate(config, cores, devices=2),
        },
        config.repeats,
        say,
    )
    findings = [
        Finding(
            what=f"{name} / one",
            value=(ratio := Ratio.of(measured[name], measured["one"])).median,
            shown=str(ratio),
            detail=f"{config.task}, environment steps a second of training, {cores} cores in all",
        )
        for name in ("two processes", "two local devices")
    ]
    show_findings("Devices", findings)
    results = {"machine": machine(), "measured": measured}
    save(config.json, results | {"findings": [finding.json() for finding in findings]})


def rate(config: DevicesBench, cores: int, processes: int = 1, devices: int = 1) -> float:
    """Environment steps a second of a training run, over all its worlds."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [
            sys.executable,
            "-m",
            "worldline.cli",
            "train",
            config.task,
            "--out",
            str(out),
        ]
        command += ["--steps", str(config.steps), "--evaluations", "1", "--eval-episodes", "1"]
        command += ["--no-video", "--quiet", *config.options]
        flags = f"--xla_force_host_platform_device_count={devices}"
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
        cluster = ["--coordinator", f"127.0.0.1:{_free_port()}", "--processes", str(processes)]
        running = [
            subprocess.Popen(
                [*command, *([] if processes == 1 else [*cluster, "--process", str(index)])],
                env=environment,
                stdout=subprocess.DEVNULL,
                preexec_fn=_cores_of(index, cores // processes),
            )
            for index in range(processes)
        ]
        statuses = [process.wait() for process in running]
        if any(statuses):
            raise SystemExit(f"{' '.join(command)} failed")
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    speeds = [row["speed/steps_per_s"] for row in rows[_WARM_UP:]]
    if not speeds:
        raise SystemExit(f"{len(rows)} updates are too few to time; give more --steps")
    return statistics.median(speeds)


def _cores_of(index: int, number: int) -> Callable[[], None]:
    """Keeps a process that is about to start on its own of the cores, where the system can."""

    def keep() -> None:
        if hasattr(os, "sched_setaffinity") and number:
            mine = sorted(os.sched_getaffinity(0))[index * number :][:number]
            os.sched_setaffinity(0, mine)

    return keep


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


if __name__ == "__main__":
    main()
