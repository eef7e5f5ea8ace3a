"""How soon a policy is good, from the start of the process, against other libraries' PPO.

`python bench/train.py`, or `worldline bench train`. See `bench/README.md` for what is timed.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import tyro

from _harness import Finding, say, show_findings, show_table, use_cores
from _trials import (
    OURS,
    Cache,
    Contender,
    Peer,
    Run,
    Terms,
    Whose,
    contenders,
    in_turn,
    median_speed,
    seed_by_seed,
    write,
)

Task: TypeAlias = Literal["gym/half-cheetah", "gym/inverted-pendulum"]


@dataclasses.dataclass(frozen=True)
class TrainBench:
    """How soon a policy is good, from the start of the process, against other libraries' PPO."""

    tasks: tuple[Task, ...] = ("gym/half-cheetah", "gym/inverted-pendulum")
    """Tasks to train."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One run each, of each contender."""
    budget: float = 180.0
    """Seconds of training after which a run ends, if it has not reached the last goal before."""
    peers: tuple[Peer | Literal["none"], ...] = ("sb3", "sbx", "envpool")
    """Other libraries to run."""
    settings: tuple[Whose, ...] = ("published", "ours")
    """Whose settings the peers train with: one run each."""
    cores: int = 2
    """Cores for everyone."""
    json: Path = Path(".bench/train.json")
    """Where to write the results, after every evaluation; a run that is there is not made again."""


@dataclasses.dataclass(frozen=True)
class Course:
    """The returns to reach in a task, and how it is run."""

    goals: dict[float, float | None]
    """Return to the seconds we have promised for it, if we have."""
    interval: float
    """Least seconds between two evaluations."""
    cache: Cache
    beats_peers: bool = False
    """Whether we have promised to be no later than the best peer."""


COURSES: dict[str, Course] = {
    "gym/half-cheetah": Course({2000: 20.0, 5000: 45.0, 7000: 90.0}, interval=2.0, cache="cold"),
    "gym/inverted-pendulum": Course({950: None}, interval=0.5, cache="warm", beats_peers=True),
}


def main(config: TrainBench) -> None:
    """Runs everyone in turn, prints the tables and writes the results."""
    use_cores(config.cores)
    everyone = contenders(config.peers, config.settings)
    runs = in_turn(
        config,
        seed_by_seed(everyone, [terms(config, task) for task in config.tasks], config.seeds),
        after=lambda runs: say("  " + story(runs[-1])),
    )
    findings = [f for task in config.tasks for f in judge(task, runs, everyone)]
    write(config, runs, findings)
    for task in config.tasks:
        show_runs(task, runs, everyone)
    show_findings("What was promised", findings)


def terms(config: TrainBench, task: Task) -> Terms:
    """What holds for all contenders of a task."""
    course = COURSES[task]
    return Terms(
        task=task,
        budget=config.budget,
        interval=course.interval,
        goal=max(course.goals),
        cache=course.cache,
    )


def story(run: Run) -> str:
    """A run in a line."""
    goals = COURSES[run.task].goals
    times = [f"{goal:g} after {_seconds(run.time_to(goal))}" for goal in goals]
    best = max((e["eval_return"] for e in run.evaluations), default=math.nan)
    return f"{', '.join(times)}; best {best:.0f}; {run.steps_per_second:,.0f} steps/s {run.error}"


def show_runs(task: str, runs: Iterable[Run], everyone: Sequence[Contender]) -> None:
    """A table of a task: a line for each contender."""
    course = COURSES[task]
    rows = []
    for contender in everyone:
        mine = [r for r in runs if r.task == task and r.contender == contender.name]
        if not mine:
            continue
        best = [max((e["eval_return"] for e in r.evaluations), default=math.nan) for r in mine]
        speed = median_speed(mine)
        cells = [_times(mine, goal) for goal in course.goals]
        rows.append((contender.name, *cells, f"{statistics.median(best):.0f}", f"{speed:,.0f}"))
    goals = [f"return {goal:g} after" for goal in course.goals]
    title = f"{task}: median over seeds (and each), s of training; JAX's cache is {course.cache}"
    show_table(title, ("", *goals, "best return", "steps/s"), rows)


def judge(task: str, runs: Iterable[Run], everyone: Sequence[Contender]) -> list[Finding]:
    """What was promised of a task."""
    of_task = [r for r in runs if r.task == task]
    ours = [r for r in of_task if r.contender == OURS]
    if not ours:
        return []
    course, findings = COURSES[task], []
    for goal, promised in course.goals.items():
        if promised is not None:
            value = _median_time(ours, goal)
            total = _median_time(ours, goal, "total")
            findings.append(
                Finding(
                    what=f"{task}: return {goal:g}, s",
                    value=value,
                    shown=_seconds(value),
                    detail=f"{_seconds(total)} with evaluations",
                    at_most=promised,
                )
            )
    names = [c.name for c in everyone if c.name != OURS]
    peers = {n: [r for r in of_task if r.contender == n] for n in names}
    peers = {name: theirs for name, theirs in peers.items() if theirs}
    for goal in course.goals if peers else ():
        best = min(peers, key=lambda name: _median_time(peers[name], goal))
        mine, theirs = _median_time(ours, goal), _median_time(peers[best], goal)
        value = mine / theirs if math.isfinite(mine) else math.inf
        findings.append(
            Finding(
                what=f"{task}: our time to {goal:g} / the best peer's",
                value=value,
                shown=f"{value:.3g}" if math.isfinite(theirs) else "no peer got there",
                detail=f"{_seconds(mine)} / {_seconds(theirs)} ({best})",
                at_most=1.0 if course.beats_peers else None,
            )
        )
    return findings


def _median_time(runs: Iterable[Run], goal: float, clock: str = "wall") -> float:
    return statistics.median(run.time_to(goal, clock) for run in runs)


def _times(runs: Sequence[Run], goal: float) -> str:
    each = ", ".join(_seconds(run.time_to(goal)) for run in runs)
    return f"{_seconds(_median_time(runs, goal))} ({each})"


def _seconds(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "never"


if __name__ == "__main__":
    main(tyro.cli(TrainBench))
