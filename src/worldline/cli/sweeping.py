"""`worldline sweep`: trains over tasks, settings and seeds, and reports the results.

It starts `worldline train` for each run, and does no training of its own.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from worldline.cli.local import without
from worldline.cli.parsing import parse
from worldline.errors import ConfigError, RunError, did_you_mean
from worldline.files import whole_file
from worldline.parallel.jobs import Done, run_jobs
from worldline.report.follow import RunFollower
from worldline.report.run_folder import RunFolder
from worldline.report.sweep import Arm, Curves, curves_of, draw_sweep, table_of
from worldline.settings import Count, check_settings


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Train over tasks, settings and seeds. The result is one table and one picture.

    You can also give all options of `worldline train`; they apply to every run. If a sweep was
    stopped, the same command continues it: finished runs are skipped, and a run that was killed
    continues from its last checkpoint.
    """

    out: Path
    """The folder of the sweep: it gets a run folder for each run, sweep.txt and sweep.png."""
    seeds: str = "0-4"
    """The seeds: a range such as 0-4, or a list such as 1,5,7. Consecutive seeds train at the same
    time, in one compiled program."""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set"), tyro.conf.UseAppendAction] = ()
    """Values of an option of `worldline train`, for example learning-rate=1e-4,3e-4. With several
    --set, every combination is trained. With --optuna, give a range, for example
    learning-rate=1e-5:1e-2:log."""
    jobs: Count = 1
    """The number of runs at the same time; each gets an equal share of the cores."""
    apart: bool = False
    """Train each seed in its own process."""
    optuna: str = ""
    """Let Optuna propose the values. It stores its trials here, for example sqlite:///sweep.db."""
    trials: Count = 20
    """The number of settings that Optuna proposes in total."""

    def __post_init__(self) -> None:
        check_settings(self)


#: How many values each option of ours takes; others are those of `worldline train`.
_OURS = {
    "--out": 1,
    "--seeds": 1,
    "--set": 1,
    "--jobs": 1,
    "--apart": 0,
    "--optuna": 1,
    "--trials": 1,
}

#: Options of `worldline train` that a sweep gives.
_GIVEN = ("--seed", "--resume", "--local", "--processes", "--restarts", "--quiet")

#: Values of an option by its name.
Setting = Mapping[str, str]


class Plan(NamedTuple):
    """What is swept."""

    tasks: Sequence[str]
    seeds: Sequence[int]
    arguments: Sequence[str]
    """The options of every run."""
    config: Sweep


class Job(NamedTuple):
    """A run to make: of one seed, or of several in a row."""

    folder: Path
    arguments: Sequence[str]
    """What `worldline` is given."""


def sweep(argv: Sequence[str], program: Sequence[str] = ()) -> int:
    """Runs the command.

    Args:
        argv: its arguments.
        program: what trains, by default the `worldline` command.

    Returns:
        The exit status: 1 where a run failed, 0 also after Ctrl-C.
    """
    plan = read_plan(argv)
    _keep(plan)
    train = program or (sys.executable, "-m", "worldline.cli")
    if plan.config.optuna:
        from worldline.cli.proposals import search

        arms, failed = search(plan, lambda settings: run_arms(plan, settings, train))
    else:
        points = _grid(plan.config.settings)
        arms, failed = run_arms(plan, points, train)
    _conclude(plan, arms)
    return 1 if failed else 0


def read_plan(argv: Sequence[str]) -> Plan:
    """What a command line asks for, checked as far as it can be before the first run.

    Raises:
        ConfigError, TaskError: a task, an option or a value that there is not.
    """
    from worldline.tasks.reference import is_reference
    from worldline.tasks.registry import list_tasks

    others = without(argv, _OURS)
    kept = iter(others)
    ours, upcoming = [], next(kept, None)
    for argument in argv:  # what `without` left out
        if argument == upcoming:
            upcoming = next(kept, None)
        else:
            ours.append(argument)
    if {"-h", "--help"} & set(others):
        parse(Sweep, ["--help"], "worldline sweep TASK ...")
    known = set(list_tasks())
    tasks = [it for it in others if it in known or is_reference(it)]
    if not tasks:
        hint = next((did_you_mean(it, known) for it in others if not it.startswith("-")), "")
        raise ConfigError(f"worldline sweep needs a TASK, for example gym/ant{hint}")
    config = parse(Sweep, ours, "worldline sweep")
    arguments = [it for it in others if it not in tasks]
    given = [it for it in arguments if it.partition("=")[0].replace("_", "-") in _GIVEN]
    if given:
        raise ConfigError(
            f"worldline sweep sets {given[0]} itself; do not give it; see `worldline sweep --help`"
        )
    plan = Plan(list(dict.fromkeys(tasks)), seeds_of(config.seeds), arguments, config)
    _check(plan)
    return plan


def _check(plan: Plan) -> None:
    """Reads the options of a run for each value, as `worldline train` will."""
    from worldline.cli.arguments import train_settings

    for task, text in itertools.product(plan.tasks, plan.config.settings or ("",)):
        name, values = values_of(text) if text else ("", [""])
        if plan.config.optuna and text:
            from worldline.cli.proposals import range_of

            values = [str(range_of(name, values).low)]
        for value in values if task == plan.tasks[0] else values[:1]:  # it takes a moment each
            train_settings(task, [*plan.arguments, *_options({name: value} if name else {})])


def seeds_of(text: str) -> list[int]:
    """Seeds from `0-4` or `1,5,7`, in order.

    Raises:
        ConfigError: it is neither.
    """
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ConfigError(
                f"seeds is {text!r}; give a range, for example 0-4, or a list, for example 1,5,7"
            )
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return sorted(set(found))


def values_of(text: str) -> tuple[str, list[str]]:
    """An option and its values, from `learning-rate=1e-4,3e-4`.

    Raises:
        ConfigError: it is not of this form.
    """
    name, equals, values = text.partition("=")
    found = [value.strip() for value in values.split(",")]
    if not equals or not name.strip("-") or not all(found):
        raise ConfigError(
            f"set is {text!r}; give an option and values, for example learning-rate=1e-4,3e-4"
        )
    return name.strip("-").replace("_", "-"), found


def _grid(texts: Sequence[str]) -> list[Setting]:
    """Every combination of the values of some options."""
    axes = dict(map(values_of, texts))
    return [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]


def name_of(setting: Setting) -> str:
    """A setting in words: `learning-rate=1e-4, discount=0.99`."""
    return ", ".join(f"{name}={value}" for name, value in setting.items())


def _options(setting: Setting) -> Iterator[str]:
    for name, value in setting.items():
        yield from (f"--{name}", *value.split())


def run_arms(
    plan: Plan, settings: Sequence[Setting], program: Sequence[str]
) -> tuple[list[Arm], list[str]]:
    """Trains each task with each setting and seed, as far as that is not done.

    Returns:
        The arms, and a line for each run that failed.
    """
    arms, jobs = [], []
    for task, setting in itertools.product(plan.tasks, settings):
        own, runs = _jobs_of(plan, task, setting)
        arms.append(Arm(task, name_of(setting), runs))
        jobs += [job for job in own if not _is_done(job.folder)]
    total = sum(len(_groups(plan)) for _ in arms)
    if total > len(jobs):
        _say(f"{total - len(jobs)} of {total} runs are already done")
    failed: list[str] = []

    def ended(done: Done) -> None:
        folder = jobs[done.number].folder
        if done.status:
            failed.append(f"{folder} failed with {done.status}{done.why}")
        state = "is done" if _is_done(folder) else "has stopped"
        _say(failed[-1] if done.status else f"{folder} {state}")

    with _Display(jobs) as display:
        commands = [[*program, *job.arguments] for job in jobs]
        if not run_jobs(commands, plan.config.jobs, ended, display.show):
            _say("stopped; the same command continues the sweep")
    return arms, failed


def _jobs_of(plan: Plan, task: str, setting: Setting) -> tuple[list[Job], list[Path]]:
    """The runs of a task with a setting, and the run folder of each seed."""
    place = plan.config.out / _as_file(task) / (_as_file(name_of(setting)) or "as-it-is")
    jobs, runs = [], []
    for first, count in _groups(plan):
        last = first + count - 1
        folder = place / (f"seed-{first}" if count == 1 else f"seeds-{first}-{last}")
        own = [
            "--seed",
            str(first),
            "--seeds",
            str(count),
            "--out",
            str(folder),
            "--resume",
            "--quiet",
        ]
        jobs.append(Job(folder, ["train", task, *plan.arguments, *_options(setting), *own]))
        runs += [folder] if count == 1 else [folder / f"seed-{s}" for s in range(first, last + 1)]
    return jobs, runs


def _groups(plan: Plan) -> list[tuple[int, int]]:
    """The first seed of each run, and how many it has."""
    if plan.config.apart:
        return [(seed, 1) for seed in plan.seeds]
    rows = itertools.groupby(enumerate(plan.seeds), key=lambda it: it[1] - it[0])
    groups = [[seed for _, seed in row] for _, row in rows]
    return [(group[0], len(group)) for group in groups]


def _as_file(text: str) -> str:
    """A text as the name of a file."""
    return re.sub(r"[^\w.=,+-]+", "-", text).strip("-")


def _is_done(folder: Path) -> bool:
    return _share(folder) >= 1.0


def _share(folder: Path) -> float:
    """How much of a run is done, from 0 to 1."""
    if not (folder / "config.json").is_file():
        return 0.0
    run = RunFollower(RunFolder.open(folder))
    run.poll()
    done, total = run.steps
    return min(1.0, done / total) if math.isfinite(total) else 0.0


def _keep(plan: Plan) -> None:
    """Writes what is swept; refuses a folder of other runs.

    Raises:
        RunError: the folder has a sweep with other options for its runs, or cannot be written.
    """
    file = plan.config.out / "sweep.json"
    mine = {"arguments": list(plan.arguments)}
    try:
        if file.is_file():
            known: dict[str, Any] = json.loads(file.read_text())
            if known != mine:
                raise RunError(
                    f"the sweep in {str(file.parent)!r} has the options "
                    f"{' '.join(known.get('arguments', ())) or 'none'!r}; give the same options, "
                    "or another --out"
                )
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as opened:
            opened.write(json.dumps(mine).encode())
    except (OSError, ValueError) as error:
        raise RunError(f"cannot write {str(file)!r}: {error}; give another --out") from error


def _conclude(plan: Plan, arms: Sequence[Arm]) -> None:
    """Prints and writes the table, and draws the picture."""
    begun = [
        Arm(a.task, a.setting, [r for r in a.runs if (r / "config.json").is_file()]) for a in arms
    ]
    curves: list[Curves] = [curves_of(arm) for arm in begun]
    lines = table_of(begun, curves)
    for line in lines:
        print(line)  # noqa: T201
    picture, table = plan.config.out / "sweep.png", plan.config.out / "sweep.txt"
    try:
        table.write_text("\n".join(lines) + "\n")
        if any(it.returns.size for it in curves):
            draw_sweep(begun, curves, picture)
    except OSError as error:
        raise RunError(
            f"cannot write {str(picture)!r}: {error.strerror}; free some disk space"
        ) from error
    print(f"  table    {table}\n  picture  {picture}")  # noqa: T201


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


class _Display:
    """A bar over all runs, on a terminal.

    Args:
        jobs: the runs.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (BarColumn(24), TimeElapsedColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._jobs, self._shares, self._looks = jobs, [0.0] * len(jobs), 0

    def show(self, running: list[int]) -> None:
        """Shows how far the runs are; it looks every other second or so."""
        self._looks += 1
        if self._looks % 20 != 1:
            return
        for index, job in enumerate(self._jobs):
            if self._shares[index] < 1:
                self._shares[index] = _share(job.folder)
        names = ", ".join(f"{self._jobs[it].folder} {self._shares[it]:.0%}" for it in running)
        self._bar.update(self._work, completed=sum(self._shares), description=names)

    def __enter__(self) -> _Display:
        self._bar.start()
        self._work = self._bar.add_task("", total=max(1, len(self._jobs)))
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
