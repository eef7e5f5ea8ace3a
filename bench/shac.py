"""SHAC beside PPO: return over environment steps, and over the time that they take.

`python bench/shac.py`, or `worldline bench shac`. See `bench/README.md` for what is timed.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tyro

from _harness import (
    PEERS,
    Finding,
    machine,
    save,
    say,
    scratch_folder,
    show_findings,
    use_cores,
    wait_until_quiet,
)
from peers.sac_job import Job

ALGORITHMS = ("shac", "ppo")

#: How long to wait for a quiet machine before a run.
_PATIENCE_S = 20.0


@dataclasses.dataclass(frozen=True)
class SHACBench:
    """SHAC beside PPO: return over environment steps, and over the time that they take."""

    tasks: tuple[str, ...] = ("suite/cartpole-swingup", "gym/half-cheetah")
    """Tasks to train."""
    steps: tuple[int, ...] = (400_000, 1_000_000)
    """Environment steps of a run, for each of the tasks."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One run each, of each algorithm."""
    evaluations: int = 20
    """How often a run is evaluated, evenly over its steps."""
    cores: int = 2
    """Cores for everyone."""
    png: Path = Path(".bench/shac.png")
    """Where to draw the curves, after every run."""
    json: Path = Path(".bench/shac.json")
    """Where to write the results, after every run."""


@dataclasses.dataclass
class Run:
    """One training run, and its evaluations."""

    task: str
    algorithm: str
    seed: int
    evaluations: list[dict[str, float]] = dataclasses.field(default_factory=list)
    """`wall`: s of training since the process began; `steps`; `eval_return`."""
    error: str = ""
    """Why it ended early, if it did."""

    @property
    def final(self) -> float:
        """The mean return of the last three evaluations: one alone is noisy."""
        last = [e["eval_return"] for e in self.evaluations[-3:]]
        return statistics.mean(last) if last else math.nan

    def first(self, goal: float, axis: str) -> float:
        """Steps, or seconds (`wall`), until an evaluation reached a return; else infinite."""
        return next((e[axis] for e in self.evaluations if e["eval_return"] >= goal), math.inf)


def main(config: SHACBench) -> None:
    """Runs everyone in turn, draws after each run, and prints the table at the end."""
    if len(config.steps) != len(config.tasks):
        sys.exit(
            f"{len(config.steps)} numbers of steps for {len(config.tasks)} tasks; give as many"
        )
    use_cores(config.cores)
    runs: list[Run] = []
    try:
        for task, steps in zip(config.tasks, config.steps, strict=True):
            for seed in config.seeds:  # both a seed: a slow hour slows both
                for algorithm in ALGORITHMS:
                    say(f"{task}, seed {seed}: {algorithm}")
                    runs.append(train(config, task, steps, algorithm, seed))
                    say(f"  return {runs[-1].final:.0f} {runs[-1].error}")
                    write(config, runs, [])
                    draw(config, runs)
    except KeyboardInterrupt:
        say("interrupted")
    finally:
        findings = [finding for task in config.tasks for finding in judge(task, runs)]
        write(config, runs, findings)
        show_findings("To the return that PPO ends with: PPO's over SHAC's", findings)
        say(f"{config.png}, {config.json}")


def train(config: SHACBench, task: str, steps: int, algorithm: str, seed: int) -> Run:
    """One run, as a process of its own."""
    run = Run(task, algorithm, seed)
    if not wait_until_quiet(_PATIENCE_S):
        say("  others use the machine: the times will be too long")
    job = Job(
        task=task,
        seed=seed,
        steps=steps,
        every=steps // config.evaluations,
        started=time.time(),
        library=algorithm,
    )
    # No compilation cache for either.
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                str(PEERS / "shac_worldline.py"),
                json.dumps(dataclasses.asdict(job)),
            ],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=scratch_folder(),
            env=environment,
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    run.evaluations.append(json.loads(line))
            if process.wait() != 0:
                log.seek(0)
                lines = [line for line in log.read().splitlines() if line.strip()] or ["no message"]
                run.error = f"exit status {process.returncode}: {lines[-1]}"
        finally:
            process.kill()
            process.wait()
    return run


def judge(task: str, runs: Sequence[Run]) -> list[Finding]:
    """How many of PPO's steps, and of its seconds, SHAC needs to PPO's final return."""
    shac, ppo = (_of(runs, task, algorithm) for algorithm in ALGORITHMS)
    if not (shac and ppo):
        return []
    goal = statistics.median(run.final for run in ppo)
    mine = statistics.median(run.final for run in shac)
    findings = []
    for axis, unit, promised in (("steps", "steps", 1.0), ("wall", "s", None)):
        theirs, ours = (
            statistics.median(run.first(goal, axis) for run in each) for each in (ppo, shac)
        )
        findings.append(
            Finding(
                what=f"{task}: {unit} to {goal:.0f}",
                value=theirs / ours,
                shown=f"{theirs / ours:.2f}",
                detail=f"{theirs:,.0f} / {ours:,.0f} {unit}; final returns {goal:.0f}, {mine:.0f}",
                at_least=promised,
            )
        )
    return findings


def draw(config: SHACBench, runs: Sequence[Run]) -> None:
    """Return over environment steps, and over seconds; a row a task, a line a run."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    rows = len(config.tasks)
    figure, grid = plt.subplots(
        rows, 2, figsize=(9, 3.2 * rows), squeeze=False, sharey="row", layout="constrained"
    )
    for panels, task in zip(grid, config.tasks, strict=True):
        for panel, axis in zip(panels, ("steps", "wall"), strict=True):
            _draw_one(panel, task, axis, runs)
        panels[0].set_ylabel(f"{task}\nreturn, deterministic")
    grid[-1, 0].set_xlabel("environment steps")
    grid[-1, 1].set_xlabel("seconds of training since the process began")
    grid[0, 0].legend(fontsize="small")
    config.png.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(config.png, dpi=140)
    plt.close(figure)


def _draw_one(panel: Any, task: str, axis: str, runs: Sequence[Run]) -> None:
    for index, algorithm in enumerate(ALGORITHMS):
        for number, run in enumerate(_of(runs, task, algorithm)):
            x, y = ([e[name] for e in run.evaluations] for name in (axis, "eval_return"))
            label = algorithm.upper() if number == 0 else None
            panel.plot(x, y, color=f"C{index}", alpha=0.7, label=label)
    panel.grid(alpha=0.3)


def write(config: SHACBench, runs: Iterable[Run], findings: Iterable[Finding]) -> None:
    """Everything so far, into a file."""
    results = {
        "machine": machine(),
        "config": {**dataclasses.asdict(config), "png": None, "json": None},
        "runs": [dataclasses.asdict(run) for run in runs],
        "findings": [finding.json() for finding in findings],
    }
    save(config.json, results)


def _of(runs: Iterable[Run], task: str, algorithm: str) -> list[Run]:
    """The runs that came to their end."""
    return [
        run
        for run in runs
        if (run.task, run.algorithm, run.error) == (task, algorithm, "") and run.evaluations
    ]


if __name__ == "__main__":
    main(tyro.cli(SHACBench))
