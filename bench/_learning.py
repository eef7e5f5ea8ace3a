"""Learning curves of the runs that `_steps` makes, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from matplotlib.ticker import EngFormatter

from _steps import Run, completed

Axis: TypeAlias = Literal["steps", "wall"]
LABELS: dict[Axis, str] = {
    "steps": "environment steps",
    "wall": "seconds of training since the process began",
}


def draw(
    png: Path,
    runs: Sequence[Run],
    tasks: Sequence[str],
    contenders: Sequence[str],
    axes: Sequence[Axis],
) -> None:
    """Return over environment steps, or over seconds: a column a task, a row an axis, a line a run.

    Args:
        png: where to.
        runs: those that came to their end are drawn.
        tasks: a column each.
        contenders: a colour each.
        axes: a row each.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(
        len(axes), len(tasks), figsize=(4.5 * len(tasks), 3.2 * len(axes)), squeeze=False,
        sharey="col", layout="constrained",
    )  # fmt: skip
    for row, axis in zip(grid, axes, strict=True):
        for panel, task in zip(row, tasks, strict=True):
            _draw_one(panel, [completed(runs, task, each) for each in contenders], axis)
            panel.set_xlabel(LABELS[axis])
        row[0].set_ylabel("return, deterministic")
    for panel, task in zip(grid[0], tasks, strict=True):
        panel.set_title(task)
    lines = [grid[0][0].plot([], [], color=f"C{i}", label=c)[0] for i, c in enumerate(contenders)]
    grid[0][0].legend(handles=lines, fontsize="small")
    png.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(png, dpi=140)
    plt.close(figure)


def _draw_one(panel: Any, of_contenders: Sequence[Sequence[Run]], axis: Axis) -> None:
    for index, runs in enumerate(of_contenders):
        for run in runs:
            x, y = ([e[name] for e in run.evaluations] for name in (axis, "eval_return"))
            panel.plot(x, y, color=f"C{index}", alpha=0.7)
    panel.grid(alpha=0.3)
    if axis == "steps":
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))  # 200k
