"""What a sweep came to: a table, and a picture of its curves and of what they reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from worldline.report.aggregate import Estimate, NDArray, estimate, normalized, spread
from worldline.report.figures import STYLE, thousands
from worldline.report.progress import count, short
from worldline.report.run_folder import RunFolder


class Arm(NamedTuple):
    """The runs of one setting in one task: one for each seed."""

    task: str
    setting: str
    """As `learning-rate=1e-4`; empty where nothing varies."""
    runs: Sequence[Path]
    """The run folder of each seed."""


class Curves(NamedTuple):
    """Evaluations of the runs of an arm."""

    steps: NDArray
    """Environment steps of each evaluation that all runs have, `(n,)`."""
    returns: NDArray
    """`(seeds, n)`"""


def curves_of(arm: Arm) -> Curves:
    """The evaluations of an arm's runs, as far as all have them; runs without any are left out.

    Raises:
        RunError: a path is no run folder.
    """
    found: list[dict[int, float]] = []
    for path in arm.runs:
        rows = RunFolder.open(path).read_metrics()
        own = {int(row["step"]): row.get("eval/return", math.nan) for row in rows}
        found.append({step: value for step, value in own.items() if math.isfinite(value)})
    found = [own for own in found if own]
    steps = sorted(set.intersection(*map(set, found))) if found else []
    returns = np.array([[own[step] for step in steps] for own in found], np.float64)
    return Curves(np.array(steps, np.float64), returns.reshape(len(found), len(steps)))


def table_of(arms: Sequence[Arm], curves: Sequence[Curves]) -> list[str]:
    """A line for each arm, on its last evaluations; with several tasks also for each setting.

    The interval of an interquartile mean is the bootstrap's, 95%.
    """
    head = ["task", "setting", "seeds", "steps", "median", "quartiles", "interquartile mean"]
    rows = []
    for arm, (steps, returns) in zip(arms, curves, strict=True):
        if not returns.size:
            rows.append([arm.task, arm.setting or "-", "0", "-", "-", "-", "-"])
            continue
        middle, mean = spread(returns[:, -1]), estimate([returns[:, -1]])
        quartiles = f"{short(middle.low)} to {short(middle.high)}"
        interval = f"{short(mean.mean)} ({short(mean.low)} to {short(mean.high)})"
        reached = [str(len(returns)), count(steps[-1]), short(middle.median), quartiles, interval]
        rows.append([arm.task, arm.setting or "-", *reached])
    for setting, score in overall(arms, curves).items():
        interval = f"{score.mean:.2f} ({score.low:.2f} to {score.high:.2f})"
        rows.append(["all, as scores", setting or "-", "", "", "", "", interval])
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index < 2 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [head, *rows]
    ]


def overall(arms: Sequence[Arm], curves: Sequence[Curves]) -> dict[str, Estimate]:
    """The interquartile mean of each setting over several tasks, with its interval.

    A score is a last evaluation between the lowest of its task in this sweep, 0, and the highest,
    1. With one task there is none.
    """
    known = [
        (arm, it.returns[:, -1]) for arm, it in zip(arms, curves, strict=True) if it.returns.size
    ]
    tasks = list(dict.fromkeys(arm.task for arm, _ in known))
    if len(tasks) < 2:
        return {}
    scores: dict[str, list[NDArray]] = {}
    for task in tasks:
        own = [(arm.setting, last) for arm, last in known if arm.task == task]
        for (setting, _), score in zip(own, normalized([last for _, last in own]), strict=True):
            scores.setdefault(setting, []).append(score)
    return {setting: estimate(strata) for setting, strata in scores.items()}


def draw_sweep(arms: Sequence[Arm], curves: Sequence[Curves], file: Path) -> None:
    """Draws a row for each task: the curves with their quartiles, and what they reached.

    Args:
        arms: the arms.
        curves: of each arm.
        file: the PNG file to write.

    Raises:
        OSError: the file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    tasks = list(dict.fromkeys(arm.task for arm in arms))
    settings = list(dict.fromkeys(arm.setting for arm in arms))
    height = max(2.9, 0.9 + 0.3 * len(settings))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 0.3 + height * len(tasks)))
        grid = figure.add_gridspec(len(tasks), 2, width_ratios=[1.5, 1])
        for row, task in enumerate(tasks):
            left, right = (figure.add_subplot(grid[row, column]) for column in (0, 1))
            own = [(a, c) for a, c in zip(arms, curves, strict=True) if a.task == task]
            for arm, curve in own:
                if curve.returns.size:
                    index = settings.index(arm.setting)
                    _draw_curve(left, curve, f"C{index}", arm.setting)
                    _draw_estimate(right, curve.returns[:, -1], f"C{index}", index)
            left.set_title(task, fontweight="bold")
            left.set(xlabel="environment steps", ylabel="evaluation: median, quartiles")
            left.xaxis.set_major_formatter(thousands())
            left.set_xlim(left=0)
            right.set_title("interquartile mean, 95% interval, each seed")
            right.set(xlabel="last evaluation")
            right.set_yticks(range(len(settings)), [name or "as it is" for name in settings])
            right.set_ylim(len(settings) - 0.4, -0.6)
        figure.savefig(file, format="png")


def _draw_curve(axes: Any, curve: Curves, colour: str, label: str) -> None:
    low, median, high = np.quantile(curve.returns, (0.25, 0.5, 0.75), axis=0)
    axes.fill_between(curve.steps, low, high, color=colour, alpha=0.18, lw=0)
    axes.plot(curve.steps, median, color=colour, lw=1.8, marker="o", ms=3, label=label)


def _draw_estimate(axes: Any, last: NDArray, colour: str, place: int) -> None:
    mean, low, high = estimate([last])
    axes.barh(place, high - low, left=low, height=0.5, color=colour, alpha=0.3, lw=0)
    axes.plot([mean, mean], [place - 0.25, place + 0.25], color=colour, lw=2.2)
    axes.plot(last, np.full(len(last), place), ".", color=colour, ms=4)
