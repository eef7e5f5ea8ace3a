"""Named robots, each trained for its budget of time, beside a peer; and what randomisation buys.

`python bench/robots.py`, or `worldline bench robots`. See `bench/README.md`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import tyro

import _runs
from _harness import (
    PEERS,
    SCRATCH,
    Finding,
    MissingPeerError,
    machine,
    peer_python,
    say,
    show_findings,
    show_table,
    use_cores,
)
from _robot_courses import COURSES, Course, Robot
from _trials import UNFINISHED, evaluations, our_settings, steps_per_second
from peers.protocol import Job, Settings
from worldline.tuning import tune_process

Part: TypeAlias = Literal["learning", "peer", "robustness"]

#: The task whose policies are tried in other worlds, and how they are trained.
SHIFTED = "playground/go1-joystick-flat"
RANDOMISED = "worldline, domain playground"


@dataclasses.dataclass(frozen=True)
class RobotsBench:
    """Named robots, each trained for its budget of time, beside a peer; what randomisation buys."""

    parts: tuple[Part, ...] = ("learning", "peer", "robustness")
    """What to run: our training; the peer's, with the same settings and time; evaluation in other
    worlds."""
    only: tuple[str, ...] = ()
    """The tasks to train, without `playground/`; by default all."""
    seeds: tuple[int, ...] = ()
    """One run each; by default three for the Go1 and the G1 on flat ground, and one for others."""
    minutes: float = 0.0
    """Of training, a run, from the start of its process; 0: the task's own budget."""
    policies: int = 12
    """How many policies of a run are measured, at equal distances of time."""
    cores: int = 2
    """Cores for everyone."""
    json: Path = Path(".bench/robots.json")
    """Where to write the results, after every run; a run that is there is not made again."""
    keep: Path = Path(".bench/robots")
    """Where to keep the last policy of each run of ours: `<task>-<seed>.npz`."""


@dataclasses.dataclass
class Run:
    """One training run, and what its policies were worth."""

    task: str
    contender: str
    seed: int
    terms: dict[str, Any]
    """Budget and settings."""
    machine: dict[str, Any] = dataclasses.field(default_factory=machine)
    """What it ran on, and when."""
    evaluations: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """`wall`: s since the process began, without the time to keep policies; `steps`; and what
    `_robots.evaluate` measures."""
    shifts: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    """The same of the last policy in other worlds, by their names."""
    error: str = ""
    """Why it ended early, if it did."""

    @property
    def identity(self) -> str:
        """What makes two runs one and the same, also when one of them comes from a file."""
        terms = json.dumps(self.terms, sort_keys=True)
        return json.dumps([self.task, self.contender, self.seed, terms])

    @property
    def last(self) -> dict[str, Any]:
        """The last evaluation."""
        return self.evaluations[-1] if self.evaluations else {}

    @property
    def steps_per_second(self) -> float:
        """Between the first policy, when all is compiled, and the last."""
        return steps_per_second(self.evaluations)


def main(config: RobotsBench) -> None:
    """Runs everyone in turn, prints the tables and writes the results."""
    use_cores(config.cores)
    robots = chosen(config.only)
    runs = _runs.in_turn(Run, config, plan(config, robots), lambda runs: say(story(runs[-1])))
    findings = [f for robot, course in robots.items() for f in judge(robot, course, runs)]
    _runs.write(Run, config, runs, findings)
    show_runs(robots, runs)
    for robot in robots:
        show_shifts(robot, [run for run in runs if run.task == robot and run.shifts])
    if findings:
        show_findings("What was promised", findings)


def chosen(only: Sequence[str]) -> dict[Robot, Course]:
    """The courses with these names, or all."""
    names = [name if "/" in name else f"playground/{name}" for name in only]
    if unknown := sorted({*names} - COURSES.keys()):
        raise SystemExit(f"error: no course is called {', '.join(unknown)}; there are {[*COURSES]}")
    return {name: COURSES[name] for name in names or COURSES}


def plan(
    config: RobotsBench, robots: dict[Robot, Course]
) -> Iterator[tuple[Run, Callable[[], Iterable[Run]]]]:
    """The runs, those of a seed in a row, since a slow hour then slows them all."""
    for task, course in robots.items():
        budget = 60 * (config.minutes or course.minutes)
        for seed in config.seeds or course.seeds:
            for worker in contenders(config, task, seed):
                job = Job(
                    task=task,
                    seed=seed,
                    budget=budget,
                    interval=budget / config.policies,
                    started=0.0,
                    settings=peer_settings(task, course) if worker.peer else None,
                    task_options={**course.rewards, **({} if worker.peer else course.task_options)},
                    ppo={} if worker.peer else dict(course.ppo),
                    domain=worker.domain,
                )
                terms = dataclasses.asdict(job) | ({"shifted": True} if worker.shifted else {})
                run = Run(task, worker.name, seed, terms)
                yield run, functools.partial(train, worker, job, run, config.keep)


def peer_settings(task: Robot, course: Course) -> Settings:
    """Ours, with as many steps in an update, of no more simulations than EnvPool has room for."""
    ours = our_settings(task, **course.ppo)
    fewer = math.ceil(ours.num_envs / course.most_simulations)
    return dataclasses.replace(
        ours, num_envs=ours.num_envs // fewer, num_steps=ours.num_steps * fewer
    )


@dataclasses.dataclass(frozen=True)
class Worker:
    """Somebody who trains."""

    name: str
    peer: bool = False
    domain: str = ""
    shifted: bool = False
    """Whether the last policy is tried in other worlds."""

    def command(self) -> list[str]:
        """Interpreter and worker."""
        if self.peer:
            return [peer_python("envpool"), str(PEERS / "robots_envpool.py")]
        return [sys.executable, str(PEERS / "robots_worldline.py")]


def contenders(config: RobotsBench, task: str, seed: int) -> Iterator[Worker]:
    """Who trains on a task; in other worlds are tried the runs of the first seed."""
    first = (config.seeds or COURSES[task].seeds)[0]
    tried = task == SHIFTED and seed == first and "robustness" in config.parts
    if "learning" in config.parts or tried:
        yield Worker("worldline", shifted=tried)
    if "peer" in config.parts:
        try:
            peer_python("envpool")
            yield Worker("envpool", peer=True)
        except MissingPeerError as error:
            say(f"without envpool: {error}")
    if tried:
        yield Worker(RANDOMISED, domain="playground", shifted=True)


def train(worker: Worker, job: Job, run: Run, kept: Path) -> Iterator[Run]:
    """Runs one contender, keeps its last policy and measures all; yields the run now and then."""
    run.error = UNFINISHED
    yield run
    SCRATCH.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        cache = Path(folder) / "cache"
        job = dataclasses.replace(job, folder=folder, started=time.time())
        run.evaluations += evaluations(worker, job, cache, run)
        if run.evaluations and not (worker.peer or worker.domain):
            keep(run, kept)
        measure(run, worker.shifted)
    if run.error == UNFINISHED:
        run.error = "" if run.evaluations else "no policy came"
    yield run


def keep(run: Run, folder: Path) -> None:
    """Copies the last policy of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    name = run.task.removeprefix("playground/")
    shutil.copy(run.last["policy"], folder / f"{name}-{run.seed}.npz")


def measure(run: Run, shifted: bool) -> None:
    """Measures all policies of a run in the task's full model, and the last in other worlds."""
    import worldline
    from _robots import evaluate, read_policy
    from _shifts import shifts

    env = worldline.make(run.task)
    others = dict(shifts(env)) if shifted else {}
    for name, options in COURSES[run.task].elsewhere.items():
        others[name] = (worldline.make(run.task, **options), None)
    for evaluation in run.evaluations:
        policy = read_policy(Path(evaluation.pop("policy")), env)
        evaluation.update(evaluate(env, policy))
        if evaluation is run.last:
            for name, (there, domain) in others.items():
                run.shifts[name] = evaluate(there, policy, domain)


def story(run: Run) -> str:
    """A run in a line."""
    found = {k: f"{v:.3g}" for k, v in run.last.items() if k not in ("total", "wall", "steps")}
    shown = ", ".join(f"{name} {value}" for name, value in found.items())
    return f"  {shown}; {run.steps_per_second:,.0f} steps/s {run.error}"


def judge(task: Robot, course: Course, runs: Iterable[Run]) -> list[Finding]:
    """What was promised of a task: medians over seeds of the last policies."""
    of_task = [run for run in runs if run.task == task and run.evaluations]
    ours, peers = (
        [run for run in of_task if run.contender == name] for name in ("worldline", "envpool")
    )
    findings = []
    for name, promised in course.promised.items() if ours else ():
        value = median(ours, name)
        bound = {"at_least" if course.more_is_better(name) else "at_most": promised}
        detail = f"all: {_seconds(course.soonest(run.evaluations for run in ours))}"
        findings.append(
            Finding(
                what=f"{task}: {name}", value=value, shown=f"{value:.3f}", detail=detail, **bound
            )
        )
    if course.promised and ours and peers:
        mine, theirs = (course.soonest(run.evaluations for run in them) for them in (ours, peers))
        findings.append(
            Finding(
                what=f"{task}: time until all is reached, ours / envpool's",
                value=mine / theirs,
                shown=f"{mine / theirs:.3g}",
                detail=f"{_seconds(mine)} / {_seconds(theirs)}",
                at_most=1.0,
            )
        )
    for name in course.measures if ours and peers else ():
        mine, theirs = median(ours, name), median(peers, name)
        ratio = mine / theirs if theirs else math.nan
        bound = {"at_least" if course.more_is_better(name) else "at_most": 1.0}
        findings.append(
            Finding(
                what=f"{task}: {name}, ours / envpool's",
                value=ratio,
                shown=f"{ratio:.3g}",
                detail=f"{mine:.3g} / {theirs:.3g}",
                **bound,
            )
        )
    return findings


def _seconds(time: float) -> str:
    return f"{time:.0f} s" if math.isfinite(time) else "never"


def median(runs: Iterable[Run], name: str) -> float:
    """Over seeds, of what the last policies measured."""
    return statistics.median(run.last[name] for run in runs)


def show_runs(robots: dict[Robot, Course], runs: Iterable[Run]) -> None:
    """A line for each run: its last policy in the full model."""
    columns = ("linear", "angular", "lifted", "return", "ended")
    rows = []
    for task in robots:
        for run in (run for run in runs if run.task == task):
            values = [f"{run.last[name]:.3f}" if name in run.last else "" for name in columns]
            speed, minutes = f"{run.steps_per_second:,.0f}", f"{run.terms['budget'] / 60:g}"
            rows.append((task, run.contender, str(run.seed), minutes, *values, speed))
    titles = ("", "", "seed", "minutes", "error, m/s", "error, rad/s", "lifts", "return", "falls")
    show_table("The last policy, in the full model", (*titles, "steps/s"), rows)


def show_shifts(task: Robot, tried: Sequence[Run]) -> None:
    """A line for each world: errors and falls of the last policies there."""
    names = dict.fromkeys(name for run in tried for name in run.shifts)
    rows = [
        (name, *(_errors(run.shifts[name]) if name in run.shifts else "" for run in tried))
        for name in names
    ]
    if tried:
        columns = (f"{run.contender}, seed {run.seed}" for run in tried)
        show_table(f"{task}: error m/s, rad/s, and share of falls", ("", *columns), rows)


def _errors(found: dict[str, float]) -> str:
    return f"{found['linear']:.3f}, {found['angular']:.3f}, {found['ended']:.0%}"


if __name__ == "__main__":
    tune_process()
    main(tyro.cli(RobotsBench))
