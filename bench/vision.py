"""What is learned through cameras, and how soon: trainings from nothing compiled, to their end.

    worldline bench vision                                   # every course, one run after the other
    worldline bench vision --courses balance swingup --seeds 0

Each run is a `worldline train` of its own, as a user's is, with an empty compilation cache; seconds
count from its start, evaluations included. Prints a table, and draws each course's curves. It takes
hours: each result is written to a file at once, and what is found there, of the same command, is
not trained again.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shlex
import shutil
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
    SCRATCH,
    Finding,
    machine,
    save,
    say,
    show_findings,
    show_table,
    use_cores,
    wait_until_quiet,
)

#: How long to wait for a quiet machine before a run.
_PATIENCE_S = 20.0


@dataclasses.dataclass(frozen=True)
class Course:
    """A task with the command that learns it, and what is promised."""

    command: str
    """What `worldline train` is given beside a seed and a folder."""
    seeds: tuple[int, ...] = (0, 1, 2)
    goal: float | None = None
    """The return of whole, deterministic episodes that is promised."""
    within: float | None = None
    """Seconds that we aim at for the goal."""
    success: float | None = None
    """The share of episodes that is to succeed, as the task's metric `success` says; 0: it is
    measured, and nothing promised."""


_POLE = (
    "--algorithm sac --critic-obs state --action-repeat 8 --num-worlds 16 --unroll-length 8 "
    "--batch-size 128 --learning-starts 1000 --learning-rate 1e-3"
)
_BALANCE = (
    f"suite/cartpole-balance --pixels fixed {_POLE} --episode-length 200 --discount 0.95 "
    "--replay-capacity 10_000 --evaluations 16 --steps 8192"
)
_SWINGUP = (
    f"suite/cartpole-swingup --pixels fixed=32x32 --last-action {_POLE} --episode-length 500 "
    "--discount 0.97 --replay-capacity 100_000 --evaluations 32 --steps 65_536"
)
_REACH = (
    "suite/reacher-easy --pixels fixed=48x48 --last-action --algorithm sac --critic-obs state "
    "--action-repeat 4 --num-worlds 16 --unroll-length 8 --batch-size 128 --learning-starts 1000 "
    "--learning-rate 1e-3 --episode-length 250 --discount 0.97 --replay-capacity 50_000 "
    "--evaluations 24 --steps 24_576"
)
_PICK = "arm/pick-cube --pixels front=48x48 wrist=32x32 --frames 1 --evaluations 40 --steps 600_000"
COURSES: dict[str, Course] = {
    "balance": Course(_BALANCE, goal=900, within=240),
    "balance-shifted": Course(f"{_BALANCE} --random-shift 4", goal=900),
    "swingup": Course(_SWINGUP, goal=700, within=1200),
    "reacher-easy": Course(_REACH),
    "pick-cube": Course("arm/pick-cube", success=0.8),
    "pick-cube-pixels": Course(_PICK, seeds=(0, 1), success=0.0),
}


@dataclasses.dataclass(frozen=True)
class VisionBench:
    """What is learned through cameras, and how soon."""

    courses: tuple[str, ...] = tuple(COURSES)
    """What to learn."""
    seeds: tuple[int, ...] | None = None
    """One run each; None: as each course says."""
    cores: int = 2
    """Cores for a run."""
    png: Path = Path(".bench/vision.png")
    """Where to draw the curves, after every run."""
    json: Path = Path(".bench/vision.json")
    """Where to write the results, after every run; runs that are there are not made again."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.courses if name not in COURSES]
        if unknown:
            sys.exit(f"there is no course {unknown[0]!r}; there are {', '.join(COURSES)}")


@dataclasses.dataclass
class Run:
    """One training, and its evaluations."""

    course: str
    seed: int
    command: str
    evaluations: list[dict[str, float]]
    """`seconds` since the process began; `steps`; `return`, the mean of deterministic episodes."""
    seconds: float
    """Of the whole run, with its video and its end."""
    success: float | None
    """The share of episodes in which the best policy succeeds; None: the task does not say."""
    machine: dict[str, Any] = dataclasses.field(default_factory=machine)
    """What it ran on, and when."""

    @property
    def identity(self) -> tuple[str, int, str]:
        """What makes two runs one and the same."""
        return (self.course, self.seed, self.command)

    @property
    def best(self) -> float:
        """The highest return: that of the policy which a run keeps."""
        return max(each["return"] for each in self.evaluations)

    @property
    def last(self) -> float:
        """The return of the policy at its end."""
        return self.evaluations[-1]["return"]

    def first(self, goal: float) -> float:
        """Seconds until an evaluation reached a return; infinite if none did."""
        return next((e["seconds"] for e in self.evaluations if e["return"] >= goal), math.inf)


def main(config: VisionBench) -> None:
    """Trains in turn, draws after each run, and prints the tables at the end."""
    use_cores(config.cores)
    held = _held(config.json)
    runs: list[Run] = []
    try:
        for name in config.courses:
            course = COURSES[name]
            for seed in course.seeds if config.seeds is None else config.seeds:
                say(f"{name}, seed {seed}")
                run = held.get((name, seed, course.command)) or _train(name, course, seed)
                say(f"  best {run.best:.0f}, last {run.last:.0f}, {run.seconds:.0f} s")
                held[run.identity] = run
                runs.append(run)
                save(config.json, {"runs": [dataclasses.asdict(each) for each in held.values()]})
                draw(config.png, runs)
    except KeyboardInterrupt:
        say("interrupted")
    show_runs(runs)
    show_findings("Promised", [f for name in config.courses for f in judge(name, runs)])
    say(f"{config.png}, {config.json}")


def _held(path: Path) -> dict[Any, Run]:
    """The runs in a file of results, if it is there."""
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    return {run.identity: run for run in (Run(**each) for each in runs)}


def _train(name: str, course: Course, seed: int) -> Run:
    """A run as a process of its own, on a quiet machine, with nothing compiled before."""
    if not wait_until_quiet(_PATIENCE_S):
        say("  others use the machine: the times will be too long")
    folder = SCRATCH / "vision" / f"{name}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    worldline = str(Path(sys.executable).with_name("worldline"))
    own = ["--seed", str(seed), "--out", str(folder)]
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": cache}
        began = time.perf_counter()
        done = subprocess.run(
            [worldline, "train", *shlex.split(course.command), *own],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"worldline train {course.command}:\n{done.stderr}")
    shutil.rmtree(folder / "checkpoints")  # gigabytes: they hold what SAC remembers
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    evaluations = [
        {"seconds": row["seconds"], "steps": row["step"], "return": row["eval/return"]}
        for row in rows
        if "eval/return" in row
    ]
    success = None if course.success is None else successes(folder)
    return Run(name, seed, course.command, evaluations, seconds, success)


def successes(folder: Path, episodes: int = 64) -> float:
    """The share of new episodes in which a run's best policy succeeds at some time."""
    import jax

    import worldline
    from worldline.report.run_folder import RunFolder
    from worldline.train.stored import environment_of

    worlds = worldline.Worlds(environment_of(RunFolder.open(folder)), episodes)
    policy = worldline.load_policy(folder)

    def step(carry: Any, _: None) -> tuple[Any, Any]:
        state, memory = carry
        action, memory = policy.step(state.obs, memory, None)
        state, taken = worlds.step(state, action)
        return (state, memory), taken.metrics["success"]

    @jax.jit
    def play(key: Any) -> Any:
        start = (worlds.reset(key), policy.start(episodes))
        return jax.lax.scan(step, start, length=worlds.episode_length)[1]

    return float((play(jax.random.key(2**31)) > 0).any(axis=0).mean())


def judge(name: str, runs: Iterable[Run]) -> list[Finding]:
    """What is promised of a course, by the median of its seeds."""
    course, mine = COURSES[name], [run for run in runs if run.course == name]
    if not mine:
        return []
    found = []
    if course.goal is not None:
        times = [run.first(course.goal) for run in mine]
        found.append(
            Finding(
                what=f"{name}: s to {course.goal:g} from cold start",
                value=statistics.median(times),
                shown=f"{statistics.median(times):.0f}",
                detail=", ".join(f"{each:.0f}" for each in times),
                at_most=course.within,
            )
        )
    if course.success is not None:
        shares = [run.success or 0.0 for run in mine]
        found.append(
            Finding(
                what=f"{name}: episodes that succeed",
                value=statistics.median(shares),
                shown=f"{statistics.median(shares):.0%}",
                detail=", ".join(f"{each:.0%}" for each in shares),
                at_least=course.success or None,
            )
        )
    return found


def show_runs(runs: Sequence[Run]) -> None:
    """A line for each run."""
    rows = [
        (
            run.course,
            str(run.seed),
            f"{run.best:.0f}",
            f"{run.last:.0f}",
            f"{run.evaluations[-1]['steps']:,.0f}",
            f"{run.seconds:.0f}",
        )
        for run in runs
    ]
    columns = ("course", "seed", "best return", "last return", "steps", "seconds in all")
    show_table("Learned through cameras", columns, rows)


def draw(png: Path, runs: Sequence[Run]) -> None:
    """A panel for each course: return over seconds, a line a seed."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(run.course for run in runs))
    columns = min(3, len(names))
    figure, grid = plt.subplots(
        -(-len(names) // columns), columns, squeeze=False, layout="constrained",
        figsize=(4.2 * columns, 3.2 * -(-len(names) // columns)),
    )  # fmt: skip
    for panel in grid.flat[len(names) :]:
        panel.set_visible(False)
    for panel, name in zip(grid.flat, names, strict=False):
        for run in (run for run in runs if run.course == name):
            x, y = (
                [e[axis] / scale for e in run.evaluations]
                for axis, scale in (("seconds", 60), ("return", 1))
            )
            panel.plot(x, y, label=f"seed {run.seed}")
        if (goal := COURSES[name].goal) is not None:
            panel.axhline(goal, color="grey", linestyle=":")
        panel.set_title(name)
        panel.set_xlabel("minutes since the process began")
        panel.grid(alpha=0.3)
    for row in grid:
        row[0].set_ylabel("return, deterministic")
    grid[0, 0].legend(fontsize="small")
    png.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(png, dpi=140)
    plt.close(figure)


if __name__ == "__main__":
    main(tyro.cli(VisionBench))
