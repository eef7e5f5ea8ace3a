"""Reads contexts from the command line: `gravity=-12:-8`, `friction=0.5,1`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from worldline.errors import ConfigError
from worldline.variation.distributions import Choice, Distribution, Uniform

#: The values of a feature on a grid, `(n,)`.
Axis: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


def read_draws(options: Sequence[str]) -> dict[str, Distribution]:
    """The distribution of each feature: `low:high` is uniform, `a,b,c` a choice, `a` a constant.

    Raises:
        ConfigError: an option has another form.
    """
    draws: dict[str, Distribution] = {}
    for option in options:
        name, text = _split(option, draws)
        if ":" not in text:
            draws[name] = Choice(_numbers(option, text.split(",")))
            continue
        ends = _numbers(option, text.split(":"))
        if len(ends) != 2:
            raise ConfigError(f"{option!r} is not a range; give {name}=low:high")
        draws[name] = Uniform(*ends)
    return draws


def read_grid(options: Sequence[str]) -> dict[str, Axis]:
    """The values of each feature: `first:last:count` gives evenly spaced values; or `a,b,c`.

    Raises:
        ConfigError: an option has another form.
    """
    grid: dict[str, Axis] = {}
    for option in options:
        name, text = _split(option, grid)
        if ":" not in text:
            grid[name] = np.array(_numbers(option, text.split(",")))
            continue
        first, *last, count = _numbers(option, text.split(":"))
        if len(last) != 1 or count < 1 or count % 1:
            raise ConfigError(f"{option!r} has no number of values; give {name}=first:last:count")
        grid[name] = np.linspace(first, last[0], int(count))
    return grid


def _split(option: str, before: Any) -> tuple[str, str]:
    name, equals, text = option.partition("=")
    if not (name and equals and text):
        raise ConfigError(f"{option!r} is not a context; give a feature and values: gravity=-12:-8")
    if name in before:
        raise ConfigError(f"the context {name!r} is given twice; give it once")
    return name, text


def _numbers(option: str, words: Sequence[str]) -> list[float]:
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        raise ConfigError(
            f"{option!r} has a value that is not a number; give, for example, gravity=-12:-8"
        ) from None
    if not np.isfinite(numbers).all():
        raise ConfigError(f"{option!r} has a value that is not finite; give finite numbers")
    return numbers
