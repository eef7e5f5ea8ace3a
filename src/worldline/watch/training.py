"""Training: the curves of runs that may still be training, overlaid, with how far they are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from worldline.report import RunFolder
from worldline.report.follow import NDArray, RunFollower
from worldline.report.progress import count, duration, short
from worldline.watch.curves import add_plot

#: Points of a curve at most; more would take longer to send than to see.
_POINTS = 300

#: What the curves may be drawn over: the column of each, and the sizes of its units.
_OVER = {
    "steps": ("step", {"steps": 1.0, "thousand steps": 1e3, "million steps": 1e6}),
    "time": ("seconds", {"s": 1.0, "min": 60.0, "h": 3600.0}),
}

#: The plots that are always there: the title of each, and its metrics, of which the first that a
#: run has is drawn.
_PLOTS = {
    "return in training": ("train/return_recent", "train/return"),
    "evaluation": ("eval/return",),
    "steps per second": ("speed/steps_per_s",),
}

#: What the last plot shows at first, if a run has it.
_FIRST_CHOICE = "ppo/kl"


class TrainingTab:
    """Curves of runs, followed while they train in other processes.

    Args:
        gui: viser's.
        runs: their folders by their names.
        post: has the loop do something between two looks at the runs.
    """

    def __init__(
        self,
        gui: Any,
        runs: Mapping[str, RunFolder],
        post: Callable[[Callable[[], object]], None],
    ) -> None:
        self._runs = {name: RunFollower(folder) for name, folder in runs.items()}
        for run in self._runs.values():
            run.poll()
        self._news = gui.add_markdown(self._progress())
        self._over = gui.add_dropdown("Curves over", tuple(_OVER))
        self._over.on_update(lambda _: post(self._draw))
        self._plots = {title: self._added(gui, title) for title in _PLOTS}
        self._metric = gui.add_dropdown("Metric", (_FIRST_CHOICE,))
        self._metric.on_update(lambda _: post(self._draw))
        self._chosen = self._added(gui, _FIRST_CHOICE)
        self._offer()
        self._draw()

    def _added(self, gui: Any, title: str) -> Any:
        return add_plot(gui, title, list(self._runs), over="at", height=150)

    def refresh(self) -> None:
        """Shows what is new."""
        news = [run.poll() for run in self._runs.values()]
        if any(news):
            self._offer()
            self._draw()
        text = self._progress()
        if self._news.content != text:
            self._news.content = text

    def _offer(self) -> None:
        """Offers the metrics that there are."""
        names = tuple(dict.fromkeys(name for run in self._runs.values() for name in run.names))
        if names and tuple(self._metric.options) != names:
            kept = self._metric.value if self._metric.value in names else names[0]
            self._metric.options = names
            self._metric.value = kept

    def _draw(self) -> None:
        column, units = _OVER[self._over.value]
        ends = (run.last(column) for run in self._runs.values())
        longest = max((end for end in ends if math.isfinite(end)), default=0.0)
        unit, size = [(u, s) for u, s in units.items() if s == 1 or longest >= 2 * s][-1]
        for title, metrics in _PLOTS.items():
            self._draw_one(self._plots[title], f"{title}, over {unit}", metrics, column, size)
        name = self._metric.value
        self._draw_one(self._chosen, f"{name}, over {unit}", (name,), column, size)

    def _draw_one(
        self, plot: Any, title: str, metrics: tuple[str, ...], column: str, size: float
    ) -> None:
        curves = []
        for run in self._runs.values():
            name = next((name for name in metrics if name in run.names), metrics[0])
            x, y = run.curve(name, column)
            curves.append((x / size, y))
        if plot.title != title:
            plot.title = title
        data = overlaid(curves, _POINTS)
        height = fitting(np.concatenate(data[1:]), plot.scales["y"].get("range"))
        if height != plot.scales["y"].get("range"):
            # The page would take NaN, which curves have at their ends, for a height.
            plot.scales = {**plot.scales, "y": {"auto": False, "range": height}}
        plot.data = data

    def _progress(self) -> str:
        """How far each run is."""
        return "\n\n".join(itertools.starmap(_line, self._runs.items()))


def _line(name: str, run: RunFollower) -> str:
    """How far a run is, in words."""
    done, total = run.steps
    if not len(run):
        return f"**{name}**: no numbers yet"
    of_all = f" of {count(total)}" if math.isfinite(total) else ""
    left, quiet = run.seconds_left, run.quiet_for
    if done >= total:
        state = "finished"
    elif quiet:
        state = f"no update for {duration(quiet)}"
    else:
        state = f"{duration(left)} left" if math.isfinite(left) else "just started"
    evaluations = run.curve("eval/return")[1]
    known = [
        ("evaluation {}", short(evaluations[-1]) if len(evaluations) else ""),
        ("best {}", short(evaluations.max()) if len(evaluations) else ""),
        (
            "{} steps/s",
            count(speed) if math.isfinite(speed := run.last("speed/steps_per_s")) else "",
        ),
    ]
    numbers = ", ".join(words.format(value) for words, value in known if value)
    return f"**{name}**: {count(done)}{of_all} steps, {state}  \n{numbers}"


def named(runs: Sequence[RunFolder]) -> dict[str, RunFolder]:
    """Different runs by short names: the last parts of their paths, as many as tell them apart."""
    by_path = {run.path.resolve(): run for run in runs}
    for parts in itertools.count(1):
        found = {"/".join(path.parts[-parts:]): run for path, run in by_path.items()}
        if len(found) == len(by_path):
            break
    return found


def overlaid(curves: Sequence[tuple[NDArray, NDArray]], most: int) -> tuple[NDArray, ...]:
    """Curves at common places, as a plot takes them: the places, `(n,)`, and each curve there.

    Between its own points a curve is a straight line; before its first and after its last it is
    NaN, which is not drawn.

    Args:
        curves: of each the places, in order, and the values.
        most: points of each curve at most; its last one is always among them.
    """
    few = [(x[_chosen(len(x), most)], y[_chosen(len(y), most)]) for x, y in curves]
    places = np.unique(np.concatenate([x for x, _ in few]))
    if len(places) < 2:  # a plot needs an extent
        places = places.sum() + np.array([0.0, 1.0])
    values = [
        np.interp(places, x, y, left=math.nan, right=math.nan) if len(x) else places * math.nan
        for x, y in few
    ]
    return places, *values


def fitting(values: NDArray, range_: tuple[float, float] | None) -> tuple[float, float]:
    """The lowest and the highest value of an axis: as they are while they fit, else new ones.

    So a page does not draw its axes anew, and forget what a person has zoomed to, at each point.

    Args:
        values: `(n,)`; those that are not finite do not count.
        range_: what it is now.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return range_ or (0.0, 1.0)
    low, high = float(finite.min()), float(finite.max())
    if range_ and range_[0] <= low and high <= range_[1]:
        fills = high - low > 0.5 * (range_[1] - range_[0])
        return range_ if fills or high == low else fitting(values, None)
    margin = 0.1 * (high - low) or 0.5 * abs(high) or 0.5
    return low - margin, high + margin


def _chosen(total: int, most: int) -> list[int]:
    """The numbers of so many of all points, evenly, with the last one."""
    every = max(1, math.ceil(total / most))
    return [*range(total - 1, -1, -every)][::-1]
