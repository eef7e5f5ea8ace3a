"""Several runs side by side: one table, one picture."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from worldline.errors import RunError
from worldline.report.figures import plot_returns
from worldline.report.progress import short
from worldline.report.run_folder import RunFolder

#: Settings that differ between any two runs and say nothing of how they learn.
_OF_EVERY_RUN = ("out", "resume", "quiet", "video", "track", "command")


def compare_runs(paths: Sequence[str | os.PathLike[str]], picture: Path) -> list[str]:
    """A table of runs, a line each, and a picture of their returns over steps and wall-clock.

    Each run has a column for its steps, its minutes, its last and best evaluation, and for each of
    the settings in which the runs differ.

    Args:
        paths: the run folders.
        picture: the PNG file to write.

    Returns:
        The lines of the table.

    Raises:
        RunError: a path is no run folder, a run has no metrics yet, or the picture cannot be
            written.
    """
    folders = [RunFolder.open(path) for path in paths]
    rows = [folder.read_metrics() for folder in folders]
    for folder, each in zip(folders, rows, strict=True):
        if not each:
            raise RunError(f"{str(folder.path)!r} has no metrics yet; train it for longer")
    names = [str(folder.path) for folder in folders]
    try:
        plot_returns(dict(zip(names, rows, strict=True)), picture)
    except OSError as error:
        raise RunError(
            f"cannot write {str(picture)!r}: {error.strerror}; give --out another file"
        ) from error
    settings = [dict(_flat(folder.config)) for folder in folders]
    differing = [
        name
        for name in dict.fromkeys(name for each in settings for name in each)
        if len({repr(each.get(name)) for each in settings}) > 1
        and name.split(".")[0] not in _OF_EVERY_RUN
    ]
    head = ["run", "steps", "minutes", "last", "best", *differing]
    table = [
        [name, *_reached(each), *(str(own.get(key, "-")) for key in differing)]
        for name, each, own in zip(names, rows, settings, strict=True)
    ]
    widths = [max(map(len, column)) for column in zip(head, *table, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [head, *table]
    ]


def _reached(rows: Sequence[dict[str, float]]) -> list[str]:
    """Steps, minutes, and the last and the best evaluation of a run."""
    returns_of = (row.get("eval/return", math.nan) for row in rows)
    evaluated = [value for value in returns_of if math.isfinite(value)]
    last = rows[-1]
    returns = (evaluated[-1], max(evaluated)) if evaluated else ()
    texts = [short(value) for value in returns] or ["-", "-"]
    return [f"{int(last['step']):,}", f"{last['seconds'] / 60:.1f}", *texts]


def _flat(config: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of a nested configuration by names such as `ppo.learning_rate`."""
    if isinstance(config, dict) and config:
        for key, value in config.items():
            yield from _flat(value, f"{name}.{key}" if name else key)
    else:
        yield name, config
