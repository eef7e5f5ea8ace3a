"""Training runs of so many environment steps, as processes, one at a time; and what comes back."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import _runs
from _harness import machine, say, scratch_folder, wait_until_quiet
from peers.steps_job import Job

#: How long to wait for a quiet machine before a run.
_PATIENCE_S = 20.0


@dataclasses.dataclass
class Run:
    """One training run, and its evaluations."""

    contender: str
    task: str
    seed: int
    steps: int
    """Environment steps of training."""
    every: int
    """Steps between two evaluations."""
    threads: int
    """Torch's."""
    machine: dict[str, Any] = dataclasses.field(default_factory=machine)
    """What it ran on, and when."""
    evaluations: list[dict[str, float]] = dataclasses.field(default_factory=list)
    """`wall`: s of training since the process began; `steps`; `eval_return`."""
    error: str = ""
    """Why it ended early, if it did."""

    @classmethod
    def of(cls, planned: Planned) -> Run:
        """A run that has not begun."""
        job = planned.job
        return cls(planned.contender, job.task, job.seed, job.steps, job.every, job.threads)

    @property
    def identity(self) -> tuple[Any, ...]:
        """What makes two runs one and the same."""
        return (self.contender, self.task, self.seed, self.steps, self.every, self.threads)

    @property
    def final(self) -> float:
        """The mean return of the last three evaluations: one alone is noisy."""
        last = [e["eval_return"] for e in self.evaluations[-3:]]
        return statistics.mean(last) if last else math.nan

    @property
    def seconds(self) -> float:
        """Of training, evaluations excluded."""
        return self.evaluations[-1]["wall"] if self.evaluations else math.nan

    def first(self, goal: float, axis: str) -> float:
        """Steps, or seconds (`wall`), until an evaluation reached a return; else infinite."""
        return next((e[axis] for e in self.evaluations if e["eval_return"] >= goal), math.inf)


class Planned(NamedTuple):
    """A run to make."""

    contender: str
    job: Job
    """What it is told; its clock starts when its process does."""
    python: str
    """Of the contender's environment."""
    script: Path
    """The worker."""


def in_turn(
    config: Any, plan: Iterable[Planned], after: Callable[[Sequence[Run]], None] = lambda _: None
) -> list[Run]:
    """The planned runs, one at a time; see `_runs.in_turn`."""

    def told(runs: Sequence[Run]) -> None:
        say(f"  return {runs[-1].final:.0f} in {runs[-1].seconds:.0f} s {runs[-1].error}")
        after(runs)

    begun = ((Run.of(planned), functools.partial(_train, planned)) for planned in plan)
    return _runs.in_turn(Run, config, begun, told)


#: Everything so far into the benchmark's file: configuration, runs, findings.
write = functools.partial(_runs.write, Run)


def _train(planned: Planned) -> Iterator[Run]:
    """Makes a run, as a process of its own, without a compilation cache, on a quiet machine."""
    run = Run.of(planned)
    if not wait_until_quiet(_PATIENCE_S):
        say("  others use the machine: the times will be too long")
    job = dataclasses.replace(planned.job, started=time.time())
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [planned.python, str(planned.script), json.dumps(dataclasses.asdict(job))],
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
    yield run


def completed(runs: Iterable[Run], task: str, contender: str) -> list[Run]:
    """The runs of a contender that came to their end."""
    return [
        run
        for run in runs
        if (run.task, run.contender, run.error) == (task, contender, "") and run.evaluations
    ]


def over(ours: float, theirs: float) -> float:
    """How a return stands beside another: their ratio, and above 1 where ours is the higher one,
    whatever their signs.
    """
    return 1 + (ours - theirs) / abs(theirs)
