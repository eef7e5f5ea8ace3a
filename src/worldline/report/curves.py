"""Learning curves: the metrics of a run as one figure."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

#: Metrics of the large panels: mean return in training, and of evaluation with its deviation.
_TRAIN, _EVAL, _EVAL_STD = "train/return", "eval/return", "eval/return_std"

#: Titles of the small panels of known metrics, in the order of the panels. A panel may hold two.
_TITLES = {
    "train/episode_length": "episode length",
    "eval/length": "episode length",
    "loss/policy": "policy loss",
    "loss/value": "value loss",
    "loss/entropy": "entropy loss",
    "ppo/kl": "KL divergence",
    "ppo/clip_fraction": "clip fraction",
    "ppo/explained_variance": "explained variance",
    "ppo/learning_rate": "learning rate",
    "speed/steps_per_s": "steps per second",
    "train/diverged": "diverged worlds",
}

_EVAL_COLOUR, _TRAIN_COLOUR, _OTHER_COLOUR = "#1f5fa8", "#9db4cc", "#4a4f57"
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.edgecolor": "#8a9099",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e8eb",
    "grid.linewidth": 0.7,
    "xtick.color": "#5b616b",
    "ytick.color": "#5b616b",
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.dpi": 150,
}
_COLUMNS = 4


def plot_curves(
    rows: Sequence[Mapping[str, float]], path: str | os.PathLike[str], title: str = ""
) -> None:
    """Draws a run: return against steps and wall-clock above, every other metric below.

    Evaluation returns are the strong line, with a band of one standard deviation over episodes;
    the return in training is the light one.

    Args:
        rows: what `RunFolder.read_metrics` gives; each with `step`, `seconds` and named numbers.
        path: the PNG file to write.
        title: what the figure is of.

    Raises:
        OSError: the file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    steps, seconds = _column(rows, "step"), _column(rows, "seconds")
    clock, unit = _clock(seconds)
    panels = _panels(rows)
    panel_rows = math.ceil(len(panels) / _COLUMNS)
    heights = [3.3] + [1.55] * panel_rows
    with mpl.rc_context(_STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06)
        figure = Figure(figsize=(10, 0.5 + sum(heights)), layout=layout)
        grid = figure.add_gridspec(1 + panel_rows, _COLUMNS, height_ratios=heights)
        half = _COLUMNS // 2
        left = figure.add_subplot(grid[0, :half])
        right = figure.add_subplot(grid[0, half:], sharey=left)
        _draw_returns(left, steps, rows)
        _draw_returns(right, clock, rows)
        left.set(xlabel="environment steps", ylabel="return of an episode")
        left.xaxis.set_major_formatter(_thousands())
        right.set(xlabel=f"wall-clock ({unit})")
        right.tick_params(labelleft=False)
        if left.get_legend_handles_labels()[0]:
            left.legend(loc="best")
        for index, (name, keys) in enumerate(panels.items()):
            axes = figure.add_subplot(grid[1 + index // _COLUMNS, index % _COLUMNS])
            _draw_panel(axes, name, steps, {key: _column(rows, key) for key in keys})
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        left.set_title(_summary(rows), color=_OTHER_COLOUR)
        figure.savefig(os.fspath(path), format="png")


def _column(rows: Sequence[Mapping[str, float]], name: str) -> np.ndarray[Any, Any]:
    """One metric of every row, nan where a row lacks it, `(len(rows),)`."""
    return np.array([row.get(name, math.nan) for row in rows], np.float64)


def _clock(seconds: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], str]:
    """Times in a unit in which they are small numbers."""
    longest = np.max(seconds, initial=0.0)
    for unit, size in (("h", 3600), ("min", 60)):
        if longest >= 5 * size:
            return seconds / size, unit
    return seconds, "s"


def _panels(rows: Sequence[Mapping[str, float]]) -> dict[str, list[str]]:
    """The small panels: title to the metrics in it, those known first."""
    names = {name for row in rows for name in row} - {"step", "seconds", _TRAIN, _EVAL, _EVAL_STD}
    panels: dict[str, list[str]] = {}
    for name in [*(known for known in _TITLES if known in names), *sorted(names - set(_TITLES))]:
        values = _column(rows, name)
        nothing = not np.isfinite(values).any()
        if nothing or (name == "train/diverged" and not np.nansum(values)):
            continue
        panels.setdefault(_TITLES.get(name, name.replace("_", " ")), []).append(name)
    return panels


def _draw_returns(axes: Any, x: np.ndarray[Any, Any], rows: Sequence[Mapping[str, float]]) -> None:
    """Return in training and evaluation against `x`."""
    train, mean, std = (_column(rows, name) for name in (_TRAIN, _EVAL, _EVAL_STD))
    seen = np.isfinite(train)
    if seen.any():
        marker = "o" if seen.sum() == 1 else ""
        axes.plot(
            x[seen], train[seen], color=_TRAIN_COLOUR, lw=1.2, marker=marker, label="training"
        )
    seen = np.isfinite(mean)
    if seen.any():
        x, mean, std = x[seen], mean[seen], np.nan_to_num(std[seen])
        axes.fill_between(x, mean - std, mean + std, color=_EVAL_COLOUR, alpha=0.18, lw=0)
        axes.plot(
            x, mean, color=_EVAL_COLOUR, lw=1.8, marker="o", ms=3.5, label="evaluation (mean ± std)"
        )
    axes.set_xlim(left=0)


def _draw_panel(
    axes: Any, title: str, steps: np.ndarray[Any, Any], columns: Mapping[str, np.ndarray[Any, Any]]
) -> None:
    """One or two metrics against environment steps."""
    for name, values in columns.items():
        seen = np.isfinite(values)
        evaluation = name.startswith("eval/")
        marker = "o" if evaluation or seen.sum() == 1 else ""
        colour = _EVAL_COLOUR if evaluation else _OTHER_COLOUR
        if len(columns) > 1 and not evaluation:
            colour = _TRAIN_COLOUR
        axes.plot(steps[seen], values[seen], color=colour, lw=1.1, marker=marker, ms=2)
    _scale(axes, np.concatenate(list(columns.values())))
    axes.set_title(title)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(_thousands())
    axes.tick_params(labelsize=7.5, length=2)


def _scale(axes: Any, values: np.ndarray[Any, Any]) -> None:
    """A logarithmic axis for positive values over decades; else one that spikes do not squash."""
    values = values[np.isfinite(values)]
    low, high = np.percentile(values, (1, 99))
    if low > 0 and high / low > 100:
        axes.set_yscale("log")
        return
    axes.yaxis.set_major_formatter(_thousands() if np.abs(values).max() >= 1e4 else "{x:g}")
    axes.locator_params(axis="y", nbins=4)
    margin = 0.15 * (high - low)
    if values.max() > high + 2 * margin > low or values.min() < low - 2 * margin < high:
        axes.set_ylim(low - margin, high + margin)


def _thousands(places: int | None = None) -> Any:
    from matplotlib.ticker import EngFormatter

    return EngFormatter(sep="", places=places)


def _summary(rows: Sequence[Mapping[str, float]]) -> str:
    """The last evaluation (else the last training return) in words."""
    for name, what in ((_EVAL, "evaluation"), (_TRAIN, "training")):
        seen = [row for row in rows if math.isfinite(row.get(name, math.nan))]
        if seen:
            step, second, value = (seen[-1][key] for key in ("step", "seconds", name))
            time, unit = _clock(np.array([second]))
            number = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
            steps = f"{_thousands(2)(step)} steps"
            return f"{what} return {number} after {steps} and {time[0]:.0f} {unit}"
    return ""
