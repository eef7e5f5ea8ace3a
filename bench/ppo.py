"""PPO beside Brax's, in Brax's own environments with equal settings: return over environment steps.

`python bench/ppo.py`, or `worldline bench ppo`. That speed is not bought with learning: what is
compared is what so many steps have taught, not the time. See `bench/README.md`.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path

import tyro

from _harness import PEERS, Finding, peer_python, say, show_findings, use_cores
from _learning import draw
from _steps import Planned, Run, completed, in_turn, over, write
from peers.steps_job import Job

CONTENDERS = ("brax", "worldline")


@dataclasses.dataclass(frozen=True)
class PPOBench:
    """PPO beside Brax's, in Brax's own environments with equal settings."""

    tasks: tuple[str, ...] = ("inverted_double_pendulum", "reacher")
    """Brax's environments."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One run each, of each contender."""
    steps: int = 500_000
    """Environment steps of a run."""
    evaluations: int = 10
    """How often a run is evaluated, evenly over its steps."""
    cores: int = 2
    """Cores for everyone."""
    png: Path = Path(".bench/ppo.png")
    """Where to draw the curves, after every run."""
    json: Path = Path(".bench/ppo.json")
    """Where to write the results, after every run; runs that are there are not made again."""


def main(config: PPOBench) -> None:
    """Runs both in turn, draws after each run, and prints the table at the end."""
    use_cores(config.cores)
    runs = in_turn(
        config,
        (
            planned(config, task, contender, seed)
            for task in config.tasks
            for seed in config.seeds
            for contender in CONTENDERS
        ),
        after=lambda runs: draw(config.png, runs, config.tasks, CONTENDERS, ["steps"]),
    )
    findings = [finding for task in config.tasks for finding in judge(task, runs)]
    write(config, runs, findings)
    show_findings("PPO in Brax's environments, at equal steps and settings", findings)
    say(f"{config.png}, {config.json}")


def planned(config: PPOBench, task: str, contender: str, seed: int) -> Planned:
    """One run, in Brax's environment; both contenders are in it."""
    every = config.steps // config.evaluations
    job = Job(task=task, seed=seed, steps=config.steps, every=every, library=contender)
    return Planned(contender, job, peer_python("brax"), PEERS / "ppo_in_brax.py")


def judge(task: str, runs: Sequence[Run]) -> list[Finding]:
    """Our return over Brax's: at the end, and the mean of the whole curve."""
    theirs, ours = (completed(runs, task, contender) for contender in CONTENDERS)
    if not (theirs and ours):
        return []
    findings = []
    for what, value in (("final return", last), ("mean of the curve", mean)):
        mine, its = (statistics.median(map(value, each)) for each in (ours, theirs))
        each = ", ".join(f"{value(run):.0f}" for run in ours)
        other = ", ".join(f"{value(run):.0f}" for run in theirs)
        findings.append(
            Finding(
                what=f"{task}: our {what} / Brax's",
                value=over(mine, its),
                shown=f"{over(mine, its):.2f}",
                detail=f"{mine:.0f} ({each}) / {its:.0f} ({other})",
                at_least=1.0,
            )
        )
    return findings


def last(run: Run) -> float:
    """The return at the end of a run."""
    return run.final


def mean(run: Run) -> float:
    """The mean over a run's evaluations: high where it learned early."""
    return statistics.mean(e["eval_return"] for e in run.evaluations)


if __name__ == "__main__":
    main(tyro.cli(PPOBench))
