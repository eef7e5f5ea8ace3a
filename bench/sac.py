"""SAC: return over environment steps, and the time they take, beside Stable-Baselines3 and SBX.

`python bench/sac.py`, or `worldline bench sac`. See `bench/README.md` for what is timed.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import tyro

from _harness import (
    PEERS,
    Finding,
    MissingPeerError,
    peer_python,
    say,
    show_findings,
    show_table,
    use_cores,
)
from _learning import draw
from _steps import Planned, Run, completed, in_turn, over, write
from peers.steps_job import Job

Peer: TypeAlias = Literal["sb3", "sbx"]
OURS = "worldline"


@dataclasses.dataclass(frozen=True)
class SACBench:
    """SAC: return over environment steps, and the time they take, beside other libraries."""

    tasks: tuple[str, ...] = ("gym/half-cheetah", "gym/hopper")
    """Tasks to train."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One run each, of each contender."""
    steps: int = 100_000
    """Environment steps of a run."""
    evaluations: int = 20
    """How often a run is evaluated, evenly over its steps."""
    peers: tuple[Peer | Literal["none"], ...] = ("sb3", "sbx")
    """Other libraries to run."""
    cores: int = 2
    """Cores for everyone."""
    png: Path = Path(".bench/sac.png")
    """Where to draw the curves, after every run."""
    json: Path = Path(".bench/sac.json")
    """Where to write the results, after every run; runs that are there are not made again."""


def main(config: SACBench) -> None:
    """Runs everyone in turn, draws after each run, and prints the tables at the end."""
    use_cores(config.cores)
    everyone = [OURS, *installed(config.peers)]
    runs = in_turn(
        config,
        (
            planned(config, task, contender, seed)
            for task in config.tasks
            for seed in config.seeds
            for contender in everyone  # all a seed: a slow hour slows them all
        ),
        after=lambda runs: draw(config.png, runs, config.tasks, everyone, ["steps", "wall"]),
    )
    findings = [finding for task in config.tasks for finding in judge(task, runs, everyone)]
    write(config, runs, findings)
    show_runs(config, runs, everyone)
    show_findings("What was promised", findings)
    say(f"{config.png}, {config.json}")


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


def planned(config: SACBench, task: str, contender: str, seed: int) -> Planned:
    """One run."""
    ours = contender == OURS
    job = Job(
        task=task,
        seed=seed,
        steps=config.steps,
        every=config.steps // config.evaluations,
        threads=config.cores,
        library="sac" if ours else contender,
    )
    if ours:
        return Planned(contender, job, sys.executable, PEERS / "steps_worldline.py")
    return Planned(contender, job, peer_python(contender), PEERS / "sac_sb3.py")


def judge(task: str, runs: Sequence[Run], everyone: Sequence[str]) -> list[Finding]:
    """Our return beside each peer's at equal steps, and how much sooner we have it."""
    ours, findings = completed(runs, task, OURS), []
    for peer in everyone:
        theirs = completed(runs, task, peer)
        if peer == OURS or not (ours and theirs):
            continue
        mine, its = (statistics.median(run.final for run in each) for each in (ours, theirs))
        findings.append(
            Finding(
                what=f"{task}: our return / {peer}'s at equal steps",
                value=over(mine, its),
                shown=f"{over(mine, its):.2f}",
                detail=f"{mine:.0f} / {its:.0f}",
                at_least=1.0,
            )
        )
        seconds = statistics.median(run.seconds for run in theirs)
        sooner = statistics.median(run.first(its, "wall") for run in ours)
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
            mine = completed(runs, task, contender)
            if mine:
                each = ", ".join(f"{run.final:.0f}" for run in mine)
                final = statistics.median(run.final for run in mine)
                seconds = statistics.median(run.seconds for run in mine)
                speed = f"{config.steps / seconds:,.0f}"
                rows.append((task, contender, f"{final:.0f} ({each})", f"{seconds:.0f}", speed))
    title = f"SAC after {config.steps:,} environment steps"
    columns = ("", "", "return: median over seeds (and each)", "s of training", "steps/s")
    show_table(title, columns, rows)


if __name__ == "__main__":
    main(tyro.cli(SACBench))
