"""Learning curves over wall-clock, beside a peer's: a picture and a table.

`python bench/curves.py`, or `worldline bench curves`. See `bench/README.md` for what is timed.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import tyro

from _harness import Finding, say, show_findings, show_table, use_cores
from _trials import (
    OURS,
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


@dataclasses.dataclass(frozen=True)
class CurvesBench:
    """Learning curves over wall-clock, beside a peer's: a picture and a table."""

    tasks: tuple[str, ...] = ("gym/ant", "gym/hopper", "gym/walker2d", "gym/humanoid")
    """Tasks to train."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One run each, of each contender."""
    minutes: float = 5.0
    """Of training, a run."""
    interval: float = 10.0
    """Least seconds between two evaluations."""
    peers: tuple[Peer | Literal["none"], ...] = ("envpool",)
    """Other libraries to run."""
    settings: tuple[Whose, ...] = ("published",)
    """Whose settings the peers train with: one run each."""
    cores: int = 2
    """Cores for everyone."""
    png: Path = Path(".bench/curves.png")
    """Where to draw the curves."""
    json: Path = Path(".bench/curves.json")
    """Where to write the results, after every evaluation; a run that is there is not made again."""


def main(config: CurvesBench) -> None:
    """Runs everyone in turn, draws after each run, and prints the tables at the end."""
    use_cores(config.cores)
    everyone = contenders(config.peers, config.settings)
    runs = in_turn(
        config,
        seed_by_seed(everyone, [terms(config, task) for task in config.tasks], config.seeds),
        after=lambda runs: show(config, runs, everyone),
    )
    findings = [f for task in config.tasks for f in judge(task, runs, everyone)]
    write(config, runs, findings)
    show_runs(config, runs, everyone)
    show_findings("Ahead of the best peer: difference in return", findings)
    say(f"{config.png}, {config.json}")


def terms(config: CurvesBench, task: str) -> Terms:
    """What holds for all contenders of a task."""
    return Terms(task=task, budget=60 * config.minutes, interval=config.interval)


def show(config: CurvesBench, runs: Sequence[Run], everyone: Sequence[Contender]) -> None:
    """The last run in a line, and all in the picture."""
    last = runs[-1]
    say(f"  return {last.final:.0f}; {last.steps_per_second:,.0f} steps/s {last.error}")
    draw(config, runs, everyone)


def judge(task: str, runs: Sequence[Run], everyone: Sequence[Contender]) -> list[Finding]:
    """How far we are ahead of the best peer."""
    ours = _of(runs, task, OURS)
    peers = {c.name: _of(runs, task, c.name) for c in everyone if c.name != OURS}
    peers = {name: theirs for name, theirs in peers.items() if theirs}
    if not (ours and peers):
        return []
    best = max(peers, key=lambda name: _final(peers[name]))
    mine, theirs = _final(ours), _final(peers[best])
    return [
        Finding(
            what=f"{task}: our return - {best}'s",
            value=mine - theirs,
            shown=f"{mine - theirs:.0f}",
            detail=f"{mine:.0f} - {theirs:.0f}",
            at_least=0.0,
        )
    ]


def show_runs(config: CurvesBench, runs: Sequence[Run], everyone: Sequence[Contender]) -> None:
    """A line for each task and contender."""
    rows = []
    for task in config.tasks:
        for contender in everyone:
            mine = _of(runs, task, contender.name)
            if mine:
                each = ", ".join(f"{run.final:.0f}" for run in mine)
                speed = median_speed(mine)
                row = (task, contender.name, f"{_final(mine):.0f} ({each})", f"{speed:,.0f}")
                rows.append(row)
    title = f"After {config.minutes:g} minutes of training"
    columns = ("", "", "return: median over seeds (and each)", "steps/s")
    show_table(title, columns, rows)


def draw(config: CurvesBench, runs: Sequence[Run], everyone: Sequence[Contender]) -> None:
    """A panel a task: return over wall-clock; the seeds' median a line, their range a band."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    panels = len(config.tasks)
    figure, grid = plt.subplots(
        1, panels, figsize=(4.2 * panels, 3.6), squeeze=False, layout="constrained"
    )
    for panel, task in zip(grid[0], config.tasks, strict=True):
        for index, contender in enumerate(everyone):
            mine = [run for run in _of(runs, task, contender.name) if run.evaluations]
            if mine:
                _draw_one(panel, mine, contender.name, f"C{index}")
        panel.set_title(task)
        panel.set_xlabel("seconds of training since the process began")
        panel.grid(alpha=0.3)
    grid[0, 0].set_ylabel("return, deterministic")
    grid[0, 0].legend(fontsize="small")
    config.png.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(config.png, dpi=140)
    plt.close(figure)


def _draw_one(panel: Any, runs: Sequence[Run], name: str, color: str) -> None:
    import numpy as np

    walls = [[e["wall"] for e in run.evaluations] for run in runs]
    returns = [[e["eval_return"] for e in run.evaluations] for run in runs]
    # Seeds are evaluated at different moments: compare them where all have a past and a future.
    times = np.linspace(max(w[0] for w in walls), min(w[-1] for w in walls), 200)
    curves = np.array([np.interp(times, w, r) for w, r in zip(walls, returns, strict=True)])
    panel.plot(times, np.median(curves, axis=0), color=color, label=f"{name} ({len(runs)} seeds)")
    panel.fill_between(times, curves.min(0), curves.max(0), color=color, alpha=0.2, linewidth=0)


def _of(runs: Iterable[Run], task: str, contender: str) -> list[Run]:
    return [run for run in runs if run.task == task and run.contender == contender]


def _final(runs: Iterable[Run]) -> float:
    return statistics.median(run.final for run in runs)


if __name__ == "__main__":
    main(tyro.cli(CurvesBench))
