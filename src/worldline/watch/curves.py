"""Curves: a plot with several lines on the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: The colours of the lines of a plot; there are no more lines than colours.
COLOURS = (
    "#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#17becf",
    "#7f7f7f", "#bcbd22", "#393b79", "#637939",
)  # fmt: skip


def add_plot(gui: Any, title: str, names: Sequence[str], *, over: str, height: int) -> Any:
    """A plot of lines, still without data.

    Args:
        gui: viser's.
        title: what stands above it.
        names: of the lines.
        over: what the places are, for the legend.
        height: pixels.

    Returns:
        viser's handle; its `data` is the places, `(n,)`, and an array `(n,)` for each line.
    """
    from viser import uplot

    empty = np.array([0.0, 1.0])
    series = [uplot.Series(label=over)]
    series += [
        uplot.Series(label=name, stroke=colour, width=1.5)
        for name, colour in zip(names, COLOURS, strict=False)
    ]
    return gui.add_uplot(
        (empty, *(np.full(2, np.nan) for _ in series[1:])),
        tuple(series),
        title=title,
        height=height,
        scales={"x": uplot.Scale(time=False, auto=True), "y": uplot.Scale(auto=True)},
        legend=uplot.Legend(show=1 < len(names) <= 6),
    )
