"""Figures: the learning curves of a run, and a policy's return over contexts."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from worldline.errors import ConfigError
from worldline.rendering.scene import NDArray
from worldline.report.progress import short

#: Metrics of the large panels: mean return in training, and of evaluation with its deviation.
_TRAIN, _EVAL, _EVAL_STD = "train/return", "eval/return", "eval/return_std"
#: The running mean of the first, which is for those who read numbers.
_RECENT = "train/return_recent"

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
_RANGE_COLOUR = "#d1495b"
#: How all figures of Worldline look, for `matplotlib.rc_context`.
STYLE: dict[Any, Any] = {
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
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.constrained_layout.h_pad": 0.06,
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

    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: np.array([row.get(name, math.nan) for row in rows]) for name in names}
    panels, steps = _panels(columns), columns["step"]
    clock, unit = _clock(columns["seconds"])
    panel_rows = math.ceil(len(panels) / _COLUMNS)
    heights = [3.3] + [1.55] * panel_rows
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 0.5 + sum(heights)))
        grid = figure.add_gridspec(1 + panel_rows, _COLUMNS, height_ratios=heights)
        half = _COLUMNS // 2
        left = figure.add_subplot(grid[0, :half])
        right = figure.add_subplot(grid[0, half:], sharey=left)
        _draw_returns(left, steps, columns)
        _draw_returns(right, clock, columns)
        left.set(xlabel="environment steps", ylabel="return of an episode")
        left.xaxis.set_major_formatter(thousands())
        right.set(xlabel=f"wall-clock ({unit})")
        right.tick_params(labelleft=False)
        if left.lines:
            left.legend(loc="best")
        for index, (name, keys) in enumerate(panels.items()):
            axes = figure.add_subplot(grid[1 + index // _COLUMNS, index % _COLUMNS])
            _draw_panel(axes, name, steps, {key: columns[key] for key in keys})
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        left.set_title(_summary(columns), color=_OTHER_COLOUR)
        figure.savefig(path, format="png")


def plot_returns(
    runs: Mapping[str, Sequence[Mapping[str, float]]], path: str | os.PathLike[str]
) -> None:
    """Draws the returns of several runs against steps and wall-clock.

    The strong lines are evaluations, the light ones returns in training.

    Args:
        runs: the name of each run, and what `RunFolder.read_metrics` gives.
        path: the PNG file to write.

    Raises:
        OSError: the file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 4.2))
        left, right = figure.subplots(1, 2, sharey=True)
        longest = max((row["seconds"] for rows in runs.values() for row in rows), default=0.0)
        _, unit = _clock(np.array([longest]))
        size = {"h": 3600.0, "min": 60.0, "s": 1.0}[unit]
        for index, (name, rows) in enumerate(runs.items()):
            for axes, key, scale in ((left, "step", 1.0), (right, "seconds", size)):
                x = np.array([row[key] for row in rows]) / scale
                train, mean = (
                    np.array([row.get(metric, math.nan) for row in rows])
                    for metric in (_TRAIN, _EVAL)
                )
                _line(axes, x, train, color=f"C{index}", lw=0.8, alpha=0.35)
                _line(axes, x, mean, color=f"C{index}", lw=1.8, marker="o", ms=3, label=name)
        left.set(xlabel="environment steps", ylabel="return of an episode", xlim=(0, None))
        left.xaxis.set_major_formatter(thousands())
        right.set(xlabel=f"wall-clock ({unit})", xlim=(0, None))
        left.legend(loc="best", fontsize=7.5)
        figure.savefig(path, format="png")


def _clock(seconds: NDArray) -> tuple[NDArray, str]:
    """Times in a unit in which they are small numbers."""
    longest = np.max(seconds, initial=0.0)
    for unit, size in (("h", 3600), ("min", 60)):
        if longest >= 5 * size:
            return seconds / size, unit
    return seconds, "s"


def _panels(columns: Mapping[str, NDArray]) -> dict[str, list[str]]:
    """The small panels: each title with the metrics in it, the known ones first."""
    names = columns.keys() - {"step", "seconds", _TRAIN, _RECENT, _EVAL, _EVAL_STD}
    panels: dict[str, list[str]] = {}
    for name in [*(known for known in _TITLES if known in names), *sorted(names - _TITLES.keys())]:
        never = name == "train/diverged" and not np.nansum(columns[name])
        if np.isfinite(columns[name]).any() and not never:
            panels.setdefault(_TITLES.get(name, name.replace("_", " ")), []).append(name)
    return panels


def _draw_returns(axes: Any, x: NDArray, columns: Mapping[str, NDArray]) -> None:
    nothing = np.full(len(x), math.nan)
    train, mean, std = (columns.get(name, nothing) for name in (_TRAIN, _EVAL, _EVAL_STD))
    _line(axes, x, train, color=_TRAIN_COLOUR, lw=1.2, label="training")
    seen = np.isfinite(mean)
    low, high = mean - np.nan_to_num(std), mean + np.nan_to_num(std)
    axes.fill_between(x[seen], low[seen], high[seen], color=_EVAL_COLOUR, alpha=0.18, lw=0)
    label = "evaluation (mean ± std)"
    _line(axes, x, mean, color=_EVAL_COLOUR, lw=1.8, marker="o", ms=3.5, label=label)
    axes.set_xlim(left=0)


def _draw_panel(axes: Any, title: str, steps: NDArray, columns: Mapping[str, NDArray]) -> None:
    for name, values in columns.items():
        evaluation = name.startswith("eval/")
        other = _TRAIN_COLOUR if len(columns) > 1 else _OTHER_COLOUR
        colour, marker = (_EVAL_COLOUR, "o") if evaluation else (other, "")
        _line(axes, steps, values, color=colour, lw=1.1, marker=marker, ms=2)
    _scale(axes, np.concatenate(list(columns.values())))
    axes.set_title(title)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(thousands())
    axes.tick_params(labelsize=7.5, length=2)


def _line(axes: Any, x: NDArray, y: NDArray, marker: str = "", **style: Any) -> None:
    """Draws the finite values of `y`; a single one as a dot."""
    seen = np.isfinite(y)
    if seen.any():
        axes.plot(x[seen], y[seen], marker="o" if seen.sum() == 1 else marker, **style)


def _scale(axes: Any, values: np.ndarray[Any, Any]) -> None:
    """A logarithmic axis for positive values over decades; else one that spikes do not squash."""
    values = values[np.isfinite(values)]
    low, high = np.percentile(values, (1, 99))
    if low > 0 and high / low > 100:
        axes.set_yscale("log")
        return
    axes.yaxis.set_major_formatter(thousands() if np.abs(values).max() >= 1e4 else "{x:g}")
    axes.locator_params(axis="y", nbins=4)
    margin = 0.15 * (high - low)
    if values.max() > high + 2 * margin > low or values.min() < low - 2 * margin < high:
        axes.set_ylim(low - margin, high + margin)


def thousands(places: int | None = None) -> Any:
    """Writes the numbers of an axis as 65k and 1.2M."""
    from matplotlib.ticker import EngFormatter

    return EngFormatter(sep="", places=places)


def _summary(columns: Mapping[str, NDArray]) -> str:
    """The last evaluation (else the last training return) in words."""
    for name, what in ((_EVAL, "evaluation"), (_TRAIN, "training")):
        seen = np.flatnonzero(np.isfinite(columns.get(name, ())))
        if seen.size:
            step, second, value = (columns[key][seen[-1]] for key in ("step", "seconds", name))
            time, unit = _clock(second)
            steps = f"{thousands(2)(step)} steps"
            return f"{what} return {short(value)} after {steps} and {time:.0f} {unit}"
    return ""


def plot_contexts(
    axes: Mapping[str, NDArray],
    returns: NDArray,
    path: str | os.PathLike[str],
    title: str = "",
    trained: Mapping[str, tuple[float, float]] | None = None,
) -> None:
    """Draws the mean return at every point of a grid of one or two features.

    Args:
        axes: the values of each feature.
        returns: `(*axes, episodes)`.
        path: the PNG file to write.
        title: what the figure is of.
        trained: the lowest and the highest value of features that training drew, to be marked.

    Raises:
        ConfigError: more than two features.
        OSError: the file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    if len(axes) > 2:
        raise ConfigError(f"a picture has two axes, not {', '.join(axes)}; give one or two")
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 4.2))
        panel = figure.add_subplot(title=title)
        draw = _draw_line if len(axes) == 1 else _draw_map
        draw(panel, axes, returns, trained or {})
        figure.savefig(path, format="png")


def _draw_line(panel: Any, axes: Mapping[str, NDArray], returns: NDArray, trained: Any) -> None:
    """Draws the mean return over one feature, with a band of one standard deviation."""
    ((name, values),) = axes.items()
    mean, std = returns.mean(axis=-1), returns.std(axis=-1)
    panel.fill_between(values, mean - std, mean + std, color=_EVAL_COLOUR, alpha=0.2, linewidth=0)
    panel.plot(values, mean, color=_EVAL_COLOUR, marker="o", markersize=3)
    if name in trained:
        panel.axvspan(*trained[name], color=_RANGE_COLOUR, alpha=0.2, label="training", linewidth=0)
        panel.legend()
    panel.set(xlabel=name, ylabel="return")


def _draw_map(panel: Any, axes: Mapping[str, NDArray], returns: NDArray, trained: Any) -> None:
    """Draws the mean return over two features as colours."""
    (x_name, x), (y_name, y) = axes.items()
    mesh = panel.pcolormesh(_edges(x), _edges(y), returns.mean(axis=-1).T, cmap="viridis")
    panel.figure.colorbar(mesh, ax=panel, label="return")
    if x_name in trained or y_name in trained:
        left, right = trained.get(x_name, panel.get_xlim())
        low, high = trained.get(y_name, panel.get_ylim())
        around = [left, right, right, left, left], [low, low, high, high, low]
        panel.plot(*around, color=_RANGE_COLOUR, linewidth=2, label="training")
        panel.legend(loc="upper right", frameon=True)
    panel.set(xlabel=x_name, ylabel=y_name)


def _edges(values: NDArray) -> NDArray:
    """The edges of cells around values in order."""
    if len(values) == 1:
        return np.array([values[0] - 0.5, values[0] + 0.5])
    middle = (values[1:] + values[:-1]) / 2
    first, last = 2 * values[0] - middle[0], 2 * values[-1] - middle[-1]
    return np.concatenate([[first], middle, [last]])
