"""SAC: return over environment steps, and the time they take, beside Stable-Baselines3 and SBX.

`python bench/sac.py`, or `worldline bench sac`. See `bench/README.md` for what is timed.
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
from typing import Literal, TypeAlias

import tyro

from _harness import (
    PEERS,
    Finding,
    MissingPeerError,
    machine,
    peer_python,
    save,
    say,
    scratch_folder,
    show_findings,
    show_table,
    use_cores,
    wait_until_quiet,
)
from peers.sac_job import Job

Peer: TypeAlias = Literal["sb3", "sbx"]
OURS = "worldline"

#: How long to wait for a quiet machine before a run.
_PATIENCE_S = 20.0


@dataclasses.dataclass(frozen=True)
class SACBench:
    """SAC: return over environment steps, and the time they take, beside other libraries."""

    tasks: tuple[str, ...] = ("gym/half-cheetah", "gym/hopper")
    """Tasks to train."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One run each, of each contender."""
    steps: int = 200_000
    """Environment steps of a run."""
    evaluations: int = 20
    """How often a run is evaluated, evenly over its steps."""
    peers: tuple[Peer | Literal["none"], ...] = ("sb3", "sbx")
    """Other libraries to run."""
    cores: int = 2
    """Cores for everyone."""
    json: Path | None = Path(".bench/sac.json")
    """Where to write the results, after every run."""


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

    def time_to(self, goal: float) -> float:
        """Seconds until an evaluation reached a return; infinite if none did."""
        return next((e["wall"] for e in self.evaluations if e["eval_return"] >= goal), math.inf)


def main(config: SACBench) -> None:
    """Runs everyone in turn, prints the tables and writes the results."""
    use_cores(config.cores)
    everyone = [OURS, *installed(config.peers)]
    runs: list[Run] = []
    try:
        for task in config.tasks:
            for seed in config.seeds:  # all contenders a seed: a slow hour slows them all
                for contender in everyone:
                    say(f"{task}, seed {seed}: {contender}")
                    run = train(config, task, contender, seed)
                    runs.append(run)
                    say(f"  return {run.final:.0f} in {run.seconds:.0f} s {run.error}")
                    write(config, runs, [])
    except KeyboardInterrupt:
        say("interrupted")
    finally:
        findings = [f for task in config.tasks for f in judge(task, runs, everyone)]
        write(config, runs, findings)
        show_runs(config, runs, everyone)
        show_findings("What was promised", findings)


def installed(peers: Iterable[Peer | Literal["none"]]) -> list[str]:
    """The peers that can be run here."""
    found: list[str] = []
    for peer in peers:
        if peer == "none":
            continue
        try:
            peer_python(peer)
        except MissingPeerError as error:
            say(f"without {peer}: {error}")
            continue
        found.append(peer)
    return found


def train(config: SACBench, task: str, contender: str, seed: int) -> Run:
    """One run, as a process of its own."""
    run = Run(task, contender, seed)
    if not wait_until_quiet(_PATIENCE_S):
        say("  others use the machine: the times will be too long")
    ours = contender == OURS
    python = sys.executable if ours else peer_python(contender)
    script = PEERS / ("sac_worldline.py" if ours else "sac_sb3.py")
    job = Job(
        task=task,
        seed=seed,
        steps=config.steps,
        every=config.steps // config.evaluations,
        started=time.time(),
        threads=config.cores,
        library=contender,
    )
    # No compilation cache, for us as for SBX.
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


def judge(task: str, runs: Sequence[Run], everyone: Sequence[str]) -> list[Finding]:
    """Our return beside each peer's at equal steps, and how much sooner we have it."""
    ours, findings = _of(runs, task, OURS), []
    for peer in everyone:
        theirs = _of(runs, task, peer)
        if peer == OURS or not (ours and theirs):
            continue
        mine, its = (statistics.median(run.final for run in each) for each in (ours, theirs))
        findings.append(
            Finding(
                what=f"{task}: our return / {peer}'s at equal steps",
                value=mine / its,
                shown=f"{mine / its:.2f}",
                detail=f"{mine:.0f} / {its:.0f}",
                at_least=1.0,
            )
        )
        seconds = statistics.median(run.seconds for run in theirs)
        sooner = statistics.median(run.time_to(its) for run in ours)
        findings.append(
            Finding(
                what=f"{task}: {peer}'s time / ours to the return it ends with",
                value=seconds / sooner,
                shown=f"{seconds / sooner:.1f}",
                detail=f"{seconds:.0f} s / {sooner:.0f} s",
                at_least=3.0 if peer == "sb3" else None,
            )
        )
    return findings


def show_runs(config: SACBench, runs: Sequence[Run], everyone: Sequence[str]) -> None:
    """A line for each task and contender."""
    rows = []
    for task in config.tasks:
        for contender in everyone:
            mine = _of(runs, task, contender)
            if mine:
                each = ", ".join(f"{run.final:.0f}" for run in mine)
                final = statistics.median(run.final for run in mine)
                seconds = statistics.median(run.seconds for run in mine)
                speed = f"{config.steps / seconds:,.0f}"
                rows.append((task, contender, f"{final:.0f} ({each})", f"{seconds:.0f}", speed))
    title = f"SAC after {config.steps:,} environment steps"
    columns = ("", "", "return: median over seeds (and each)", "s of training", "steps/s")
    show_table(title, columns, rows)


def write(config: SACBench, runs: Iterable[Run], findings: Iterable[Finding]) -> None:
    """Everything so far, into a file."""
    results = {
        "machine": machine(),
        "config": {**dataclasses.asdict(config), "json": None},
        "runs": [dataclasses.asdict(run) for run in runs],
        "findings": [finding.json() for finding in findings],
    }
    save(config.json, results)


def _of(runs: Iterable[Run], task: str, contender: str) -> list[Run]:
    """The runs that came to their end."""
    return [
        run
        for run in runs
        if (run.task, run.contender, run.error) == (task, contender, "") and run.evaluations
    ]


if __name__ == "__main__":
    main(tyro.cli(SACBench))
