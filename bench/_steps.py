"""Training runs of so many environment steps, as processes, one at a time; and what comes back."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from _harness import Finding, machine, save, say, scratch_folder, wait_until_quiet
from peers.steps_job import Job

#: How long to wait for a quiet machine before a run.
_PATIENCE_S = 20.0


@dataclasses.dataclass
class Run:
    """One training run, and its evaluations."""

    task: str
    contender: str
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

    @property
    def seconds(self) -> float:
        """Of training, evaluations excluded."""
        return self.evaluations[-1]["wall"] if self.evaluations else math.nan

    def first(self, goal: float, axis: str) -> float:
        """Steps, or seconds (`wall`), until an evaluation reached a return; else infinite."""
        return next((e[axis] for e in self.evaluations if e["eval_return"] >= goal), math.inf)


def quiet_start() -> None:
    """Waits for a quiet machine; call it before a job's clock starts."""
    if not wait_until_quiet(_PATIENCE_S):
        say("  others use the machine: the times will be too long")


def train(contender: str, job: Job, python: str, script: Path) -> Run:
    """One run, as a process of its own, without a compilation cache."""
    run = Run(job.task, contender, job.seed)
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [python, str(script), json.dumps(dataclasses.asdict(job))],
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


def completed(runs: Iterable[Run], task: str, contender: str) -> list[Run]:
    """The runs of a contender that came to their end."""
    return [
        run
        for run in runs
        if (run.task, run.contender, run.error) == (task, contender, "") and run.evaluations
    ]


def write(config: Any, runs: Iterable[Run], findings: Iterable[Finding]) -> None:
    """Everything so far, into the file that the benchmark's configuration names."""
    settings = {k: v for k, v in dataclasses.asdict(config).items() if not isinstance(v, Path)}
    results = {
        "machine": machine(),
        "config": settings,
        "runs": [dataclasses.asdict(run) for run in runs],
        "findings": [finding.json() for finding in findings],
    }
    save(config.json, results)
