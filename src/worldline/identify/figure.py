"""The picture of a fit: what was measured and simulated, and the constants with their intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from worldline.identify.fit import Fit
from worldline.report.figures import STYLE
from worldline.types import NDArray

#: The most measured columns and seconds that are drawn.
_MOST_PANELS, _MOST_SECONDS = 6, 20.0
_MEASURED, _BEFORE, _AFTER, _CONSTANT = "#9db4cc", "#d1495b", "#1f5fa8", "#4a4f57"


def plot_fit(path: Path, result: Fit, columns: list[str], period: float) -> None:
    """Draws each measured column over time, and beside them each constant against the model's.

    Args:
        path: the PNG file to write.
        result: the fit.
        columns: the names of what was measured, with their units, `(C,)`.
        period: seconds from one row to the next.

    Raises:
        OSError: the file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    shown = min(len(columns), _MOST_PANELS)
    height = max(1.5 * shown, 0.32 * len(result.parameters)) + 0.9
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, height))
        grid = figure.add_gridspec(shown, 2, width_ratios=[1.7, 1.0])
        first: Any = None
        for index in range(shown):
            axes = figure.add_subplot(grid[index, 0], sharex=first)
            first = first or axes
            _draw_column(axes, result, index, period)
            axes.set_title(columns[index])
            axes.tick_params(labelbottom=index == shown - 1)
        axes.set_xlabel("time, s")
        first.legend(loc="lower right", ncols=3, fontsize=7.5, bbox_to_anchor=(1.0, 0.97))
        _draw_constants(figure.add_subplot(grid[:, 1]), result)
        figure.savefig(path, format="png")


def _draw_column(axes: Any, result: Fit, column: int, period: float) -> None:
    """One measured column of the first segments, with a gap between two of them."""
    length = result.measured.shape[1]
    few = max(1, int(_MOST_SECONDS / (length * period)))

    def line(segments: NDArray) -> NDArray:
        return np.pad(segments[:few], ((0, 0), (0, 1)), constant_values=np.nan).ravel()

    time = period * np.arange(len(result.measured) * length).reshape(-1, length)
    styles = {
        "measured": (result.measured, {"color": _MEASURED, "lw": 4, "alpha": 0.6}),
        "model before": (result.before, {"color": _BEFORE, "lw": 1, "ls": ":"}),
        "model after": (result.after, {"color": _AFTER, "lw": 1}),
    }
    for label, (values, style) in styles.items():
        axes.plot(line(time), line(values[:, :, column]), label=label, **style)


def _draw_constants(axes: Any, result: Fit) -> None:
    """Each constant and its interval, in units of the model's value."""
    sizes = np.array([it.size for it in result.parameters])
    places = np.arange(len(sizes))
    values, (low, high) = result.values / sizes, (result.interval / sizes[:, None]).T
    axes.axvline(1.0, color=_BEFORE, lw=1, ls=":")
    axes.hlines(places, low, high, color=_AFTER, lw=3, alpha=0.5)
    axes.plot(values, places, "o", color=_AFTER, ms=4)
    for place, value, number, upper in zip(places, values, result.values, high, strict=True):
        axes.annotate(
            f"{number:.4g}",
            (max(value, upper), place),
            xytext=(5, -3),
            textcoords="offset points",
            fontsize=8,
            color=_CONSTANT,
            bbox={"fc": "white", "ec": "none", "pad": 0.5},
        )
    axes.set_yticks(places, [_label(it.name, it.stored) for it in result.parameters])
    axes.set_ylim(len(places) - 0.5, -0.5)
    axes.margins(x=0.2)
    axes.set(xlabel="found / model's own", title="constants, with 95% intervals")


def _label(name: str, stored: float) -> str:
    return name if stored else f"{name} (model: 0)"
