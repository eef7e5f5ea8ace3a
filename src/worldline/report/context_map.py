"""A picture of a policy's return over contexts: a line over one feature, a heat map over two."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from worldline.errors import ConfigError

NDArray: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

_COLOUR, _TRAINED = "#1f5fa8", "#d1495b"


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
    from matplotlib.figure import Figure

    if len(axes) > 2:
        raise ConfigError(f"a picture has two axes, not {', '.join(axes)}; give one or two")
    figure = Figure(figsize=(6.4, 4.2), layout="constrained", dpi=150)
    panel = figure.add_subplot()
    draw = _draw_line if len(axes) == 1 else _draw_map
    draw(panel, axes, returns, trained or {})
    panel.set_title(title, loc="left", fontsize=10)
    figure.savefig(path)


def _draw_line(panel: Any, axes: Mapping[str, NDArray], returns: NDArray, trained: Any) -> None:
    ((name, values),) = axes.items()
    mean, std = returns.mean(axis=-1), returns.std(axis=-1)
    panel.fill_between(values, mean - std, mean + std, color=_COLOUR, alpha=0.2, linewidth=0)
    panel.plot(values, mean, color=_COLOUR, marker="o", markersize=3)
    if name in trained:
        panel.axvspan(*trained[name], color=_TRAINED, alpha=0.2, label="training", linewidth=0)
        panel.legend(frameon=False)
    panel.set_xlabel(name)
    panel.set_ylabel("return")
    panel.grid(alpha=0.3)


def _draw_map(panel: Any, axes: Mapping[str, NDArray], returns: NDArray, trained: Any) -> None:
    (x_name, x), (y_name, y) = axes.items()
    mesh = panel.pcolormesh(_edges(x), _edges(y), returns.mean(axis=-1).T, cmap="viridis")
    panel.figure.colorbar(mesh, ax=panel, label="return")
    if x_name in trained or y_name in trained:
        left, right = trained.get(x_name, panel.get_xlim())
        low, high = trained.get(y_name, panel.get_ylim())
        around = [left, right, right, left, left], [low, low, high, high, low]
        panel.plot(*around, color=_TRAINED, linewidth=2, label="training")
        panel.legend(loc="upper right", fontsize=8)
    panel.set_xlabel(x_name)
    panel.set_ylabel(y_name)


def _edges(values: NDArray) -> NDArray:
    """The edges of cells around values in order."""
    if len(values) == 1:
        return np.array([values[0] - 0.5, values[0] + 0.5])
    middle = (values[1:] + values[:-1]) / 2
    first, last = 2 * values[0] - middle[0], 2 * values[-1] - middle[-1]
    return np.concatenate([[first], middle, [last]])
