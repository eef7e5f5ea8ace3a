"""Scale: what one process does, what several send each other, and what that predicts for many.

`python bench/scale.py`, or `worldline bench scale`. See `bench/README.md` for what is measured. It
writes its numbers and pictures into a page of the documentation, if told to.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import tyro

from _cost import Cost, cost, network_between, work_of
from _harness import Finding, machine, save, say, show_findings, use_cores, wait_until_quiet
from _scale_page import draw_hosts, draw_worlds, parts, written
from _scale_runs import FailedError, run
from _scale_worker import Job

#: Bytes of the two messages whose times give a network's bandwidth and the software's time.
_SIZES = (1024, 2**18)
#: How long to wait for a quiet machine before a job, seconds.
_PATIENCE_S = 5.0
#: Processes that do not take long, and are measured without a longer latency too.
_FEW = 4
#: How far a prediction may be off.
_WITHIN = 0.15


@dataclasses.dataclass(frozen=True)
class ScaleBench:
    """What one process does, what several send each other, and what that predicts for many."""

    tasks: tuple[str, ...] = ("gym/half-cheetah", "gym/humanoid")
    """The tasks, with their own settings of PPO."""
    processes: tuple[int, ...] = (1, 2, 4, 8)
    """Processes that share updates. The task's number of worlds is that of each process."""
    delay: float = 1.0
    """Milliseconds that each packet takes more between processes. Needs Linux, and root or user
    namespaces."""
    most_worlds: int = 16384
    """Worlds of one process: 1, 4, 16, ... up to this number."""
    seconds: float = 5.0
    """How long to measure each thing."""
    cores: int = 2
    """Cores to use, all together."""
    quick: bool = False
    """Try everything, with one small task and short updates. The numbers are of no use."""
    only: tuple[Literal["alone", "messages", "network", "train", "worlds"], ...] = ()
    """Measure only these; by default everything."""
    redraw: bool = False
    """Measure nothing: write the page and the pictures from the file of results."""
    json: Path | None = None
    """The file of results. What it has already is not measured again."""
    page: Path | None = None
    """The page whose marked parts to write."""
    images: Path | None = None
    """The folder for the pictures."""

    def __post_init__(self) -> None:
        if self.redraw and self.json is None:
            raise SystemExit("--redraw needs the file of results; give --json FILE")
        if self.cores < 1 or self.most_worlds < 1 or self.delay < 0 or min(self.processes) < 1:
            raise SystemExit("--cores, --most-worlds and --processes are 1 or more, --delay 0")
        if self.quick:
            small = {"tasks": ("gym/inverted-pendulum",), "processes": (1, 2)}
            for name, value in (small | {"most_worlds": 16, "seconds": 0.3}).items():
                object.__setattr__(self, name, value)

    def settings(self) -> dict[str, Any]:
        """What changes numbers, as it is in a file of results."""
        names = ("delay", "seconds", "cores", "quick")
        return {name: getattr(self, name) for name in names}

    @property
    def world_counts(self) -> list[int]:
        """The numbers of worlds of one process."""
        return [4**i for i in range(20) if 4**i <= self.most_worlds]


class Measurements:
    """What has been measured, by name; each thing is in the file as soon as it is known."""

    def __init__(self, config: ScaleBench) -> None:
        self._config = config
        self.results: dict[str, Any] = {"settings": config.settings(), "measured": {}}
        if config.json is not None and config.json.exists():
            self.results = json.loads(config.json.read_text())
            if self.results["settings"] != config.settings():
                raise SystemExit(
                    f"{config.json} has results of other settings, {self.results['settings']}; "
                    "give another file, or remove it"
                )
        self.measured: dict[str, Any] = self.results["measured"]

    def take(self, name: str, measure: Callable[[], Any]) -> None:
        """Measures something, unless it is known. What fails is said, and left out."""
        asked = not self._config.only or name.partition(" ")[0] in self._config.only
        if name in self.measured or not asked:
            return
        say(name)
        if not self._config.quick and not wait_until_quiet(_PATIENCE_S):
            say("  others use the machine")
        try:
            self.measured[name] = measure()
        except FailedError as error:
            say(f"  left out: {error}")
            return
        self.results |= {"machine": machine()}
        save(self._config.json, self.results)


def main(config: ScaleBench) -> None:
    """Measures, prints, and writes the page and the pictures."""
    cores = use_cores(config.cores)
    kept = Measurements(config)
    if not config.redraw:
        with tempfile.TemporaryDirectory() as cache:
            measure(config, kept, Path(cache))
    found = dict(predictions(config, kept.measured))
    findings = list(judge(config, found))
    if findings:
        show_findings(f"Updates shared by processes on {cores} cores", findings)
    kept.results |= {"findings": [finding.json() for finding in findings]}
    if not config.redraw:
        save(config.json, kept.results)
    if config.page is not None:
        text = config.page.read_text()
        for name, part in parts(config, kept.results, found).items():
            text = written(text, name, part)
        config.page.write_text(text)
    if config.images is not None:
        config.images.mkdir(parents=True, exist_ok=True)
        for draw, name in ((draw_hosts, "hosts"), (draw_worlds, "worlds")):
            try:
                draw(config.images / f"scale-{name}.png", config, kept.measured, found)
            except KeyError as error:
                say(f"scale-{name}.png is not drawn: {error.args[0]} is not measured")


def measure(config: ScaleBench, kept: Measurements, cache: Path) -> None:
    """Everything that is not known yet: first what predicts, last what takes longest."""
    everything = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    cores = everything[: config.cores]
    for task in config.tasks:
        of_task = Job(kind="", task=task, worlds=worlds_of(config, task), short=config.quick)
        alone = dataclasses.replace(of_task, kind="alone", seconds=config.seconds)
        kept.take(f"alone {task}", lambda job=alone: run(job, cores[:1], cache))
        sent = dataclasses.replace(of_task, kind="messages")
        kept.take(f"messages {task}", lambda job=sent: run(job, cores, cache, devices=2))
    reduce = Job(kind="reduce", sizes=_SIZES, updates=20)
    for name, delay in (("own", None), ("carried", 0.0)):
        kept.take(
            f"network {name}",
            lambda delay=delay: run(reduce, cores, cache, processes=2, delay=delay),
        )
    few = [number for number in config.processes if number <= _FEW]
    for number in few:
        measure_updates(config, kept, cores, cache, number)
    for task in config.tasks:
        for count in config.world_counts:
            job = Job(kind="worlds", task=task, worlds=count, seconds=config.seconds / 3)
            kept.take(f"worlds {task} {count}", lambda job=job: run(job, cores, cache))
    for number in sorted(set(config.processes).difference(few)):
        measure_updates(config, kept, cores, cache, number)


def measure_updates(
    config: ScaleBench, kept: Measurements, cores: Sequence[int], cache: Path, number: int
) -> None:
    """Updates of so many processes; of many of them, only with the longer latency."""
    for task in config.tasks:
        for name, delay in (("own", None), ("carried", config.delay / 1e3)):
            if (number == 1 and name == "carried") or (number > _FEW and name == "own"):
                continue
            job = Job(
                kind="train",
                task=task,
                worlds=worlds_of(config, task),
                short=config.quick,
                updates=updates_of(config, kept.measured, task, number, name),
            )
            kept.take(
                f"train {task} {number} {name}",
                lambda job=job, delay=delay: run(
                    job, cores[:number], cache, processes=number, delay=delay
                ),
            )


def worlds_of(config: ScaleBench, task: str) -> int:
    """The worlds of each process: the task's own number."""
    import worldline
    from worldline.learn.ppo import PPOConfig

    if config.quick:
        return 16
    return int(PPOConfig(**worldline.make(task).task.defaults.get("ppo", {})).num_worlds)


def updates_of(
    config: ScaleBench, measured: dict[str, Any], task: str, processes: int, name: str
) -> int:
    """Updates that take about as long as a measurement should, 4 at least."""
    try:
        expected = prediction(config, measured, task, processes, name).total
    except KeyError:  # it could not be measured
        return 4
    return max(4, round(config.seconds / expected))


def prediction(
    config: ScaleBench, measured: dict[str, Any], task: str, processes: int, name: str
) -> Cost:
    """The cost of an update on this machine.

    Raises:
        KeyError: what it follows from has not been measured.
    """
    network = network_between(measured, name, config.delay / 1e3 if name == "carried" else 0.0)
    return cost(work_of(measured, task), processes, config.cores, network)


@dataclasses.dataclass(frozen=True)
class Check:
    """What the model predicts of updates, and what was measured."""

    predicted: Cost
    measured: float
    """The median, seconds."""

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured / self.predicted.total


def predictions(
    config: ScaleBench, measured: dict[str, Any]
) -> list[tuple[tuple[str, int, str], Check]]:
    """By task, processes and network: those that were measured."""
    found = []
    for task in config.tasks:
        for number in config.processes:
            for name in ("own", "carried"):
                took = measured.get(f"train {task} {number} {name}")
                from_what = {f"alone {task}", f"messages {task}", f"network {name}"}
                if took and from_what <= measured.keys():
                    predicted = prediction(config, measured, task, number, name)
                    found.append(((task, number, name), Check(predicted, statistics.median(took))))
    return found


def judge(config: ScaleBench, found: dict[tuple[str, int, str], Check]) -> list[Finding]:
    """Measured times beside predicted ones."""
    findings = []
    for (task, number, name), check in found.items():
        asked = name == "carried" and number == 4
        where = f", {config.delay:g} ms" if name == "carried" else ""
        findings.append(
            Finding(
                what=f"{task}, {number} process{'es' * (number > 1)}{where}: off by",
                value=abs(check.ratio - 1),
                shown=f"{check.ratio - 1:+.0%}",
                detail=f"{check.measured:.3f} s measured, {check.predicted.total:.3f} s predicted",
                at_most=_WITHIN if asked else None,
            )
        )
    return findings


if __name__ == "__main__":
    try:
        main(tyro.cli(ScaleBench))
    except KeyboardInterrupt:  # the processes are gone; what is measured is in the file
        say("interrupted")
        sys.exit(130)
