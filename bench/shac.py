"""SHAC beside PPO: return over environment steps, and over the time that they take.

`python bench/shac.py`, or `worldline bench shac`. See `bench/README.md` for what is timed.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import tyro

from _harness import (
    PEERS,
    Finding,
    say,
    show_findings,
    use_cores,
)
from _learning import draw
from _steps import Planned, Run, completed, in_turn, write
from peers.steps_job import Job

ALGORITHMS = ("shac", "ppo")


@dataclasses.dataclass(frozen=True)
class SHACBench:
    """SHAC beside PPO: return over environment steps, and over the time that they take."""

    tasks: tuple[str, ...] = ("suite/cartpole-swingup", "gym/half-cheetah")
    """Tasks to train."""
    steps: tuple[int, ...] = (400_000, 200_000)
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
    """Where to write the results, after every run; runs that are there are not made again."""


def main(config: SHACBench) -> None:
    """Runs everyone in turn, draws after each run, and prints the table at the end."""
    if len(config.steps) != len(config.tasks):
        sys.exit(
            f"{len(config.steps)} numbers of steps for {len(config.tasks)} tasks; give as many"
        )
    use_cores(config.cores)
    runs = in_turn(
        config,
        (
            planned(config, task, steps, algorithm, seed)
            for task, steps in zip(config.tasks, config.steps, strict=True)
            for seed in config.seeds
            for algorithm in ALGORITHMS  # both a seed: a slow hour slows both
        ),
        after=lambda runs: draw(config.png, runs, config.tasks, ALGORITHMS, ["steps", "wall"]),
    )
    findings = [finding for task in config.tasks for finding in judge(task, runs)]
    write(config, runs, findings)
    show_findings("To the lower of their final returns: PPO's over SHAC's", findings)
    say(f"{config.png}, {config.json}")


def planned(config: SHACBench, task: str, steps: int, algorithm: str, seed: int) -> Planned:
    """One run."""
    every = steps // config.evaluations
    job = Job(task=task, seed=seed, steps=steps, every=every, library=algorithm)
    return Planned(algorithm, job, sys.executable, PEERS / "steps_worldline.py")


def judge(task: str, runs: Sequence[Run]) -> list[Finding]:
    """How many of PPO's steps, and of its seconds, SHAC needs to a return that both end with."""
    shac, ppo = (completed(runs, task, algorithm) for algorithm in ALGORITHMS)
    if not (shac and ppo):
        return []
    theirs, mine = (statistics.median(run.final for run in each) for each in (ppo, shac))
    goal = min(theirs, mine)
    findings = []
    for axis, unit, promised in (("steps", "steps", 1.0), ("wall", "s", None)):
        slow, fast = (
            statistics.median(run.first(goal, axis) for run in each) for each in (ppo, shac)
        )
        findings.append(
            Finding(
                what=f"{task}: {unit} to {goal:.0f}",
                value=slow / fast,
                shown=f"{slow / fast:.2f}",
                detail=f"{slow:,.0f} / {fast:,.0f} {unit}; final returns {theirs:.0f}, {mine:.0f}",
                at_least=promised,
            )
        )
    return findings


if __name__ == "__main__":
    main(tyro.cli(SHACBench))
