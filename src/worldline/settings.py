"""Settings: what the fields of a configuration may be, said once, beside each field.

A configuration is a frozen dataclass. `check_settings` compares each field with its annotation:

    num_worlds: Count            # a whole number from 1
    discount: Share              # a number in [0, 1]
    activation: Literal["relu", "tanh"]

A number without a range of its own fits 32 bits, and no real number is NaN.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import numbers
import os
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from worldline.errors import ConfigError

_LARGEST_32_BITS = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Range:
    """What a number may be, as a note of `Annotated`."""

    low: float
    """The least value."""
    high: float
    """The largest value."""
    above: bool = False
    """Whether it must be more than `low`."""

    def __contains__(self, value: float) -> bool:
        least = self.low < value if self.above else self.low <= value
        return least and value <= self.high and math.isfinite(value)

    def asked(self, value: float) -> str:
        """What to give in place of a value."""
        low, high = _text(self.low), _text(self.high)
        if self.high < _LARGEST_32_BITS:
            return f"more than {low}, and {high} at most" if self.above else f"{low} to {high}"
        if not math.isfinite(value):
            return "a finite number"
        if value > self.high:
            return f"{high} at most"
        return f"more than {low}" if self.above else f"{low} or more"


#: How many of something there are, at least one.
Count: TypeAlias = Annotated[int, Range(1, _LARGEST_32_BITS)]
#: How many of something there are, perhaps none.
Number: TypeAlias = Annotated[int, Range(0, _LARGEST_32_BITS)]
#: Environment steps, over all worlds.
Steps: TypeAlias = Annotated[int, Range(0, 10**15)]
#: Units of a layer of a network.
Units: TypeAlias = Annotated[int, Range(1, 2**20)]
#: A seed; JAX would silently drop its higher bits.
Seed: TypeAlias = Annotated[int, Range(0, 2**32 - 1)]
#: A number in [0, 1].
Share: TypeAlias = Annotated[float, Range(0, 1)]
#: A number in (0, 1].
PositiveShare: TypeAlias = Annotated[float, Range(0, 1, above=True)]
#: The logarithm of a standard deviation.
LogStd: TypeAlias = Annotated[float, Range(-20, 5)]
#: A number that is more than 0.
Positive: TypeAlias = Annotated[float, Range(0, math.inf, above=True)]
#: A number that is 0 or more.
NotNegative: TypeAlias = Annotated[float, Range(0, math.inf)]
#: Any number that is finite.
Finite: TypeAlias = Annotated[float, Range(-math.inf, math.inf)]

_LARGEST: float = float(np.finfo(np.float32).max)
_WHOLE = Range(-_LARGEST_32_BITS - 1, _LARGEST_32_BITS)


def check_settings(config: Any) -> None:
    """Checks each field of a dataclass against its annotation.

    Fields of other types than numbers, truth values, texts, literals, abstract classes,
    dataclasses, tuples and mappings of these, and `None`, are left to those who read them.

    Raises:
        ConfigError: a field has another type, or a number is out of its range; the error has the
            field, the value and what to give.
    """
    kind: Any = type(config)
    for name, hint in _hints(kind).items():
        value = getattr(config, name)
        for wrong, wanted in _problems(value, hint):
            inside = "" if wrong is value else f", in which {wrong!r} cannot be"
            raise ConfigError(f"{name} is {value!r}{inside}; give {wanted}")


def _hints(kind: Any) -> dict[str, Any]:
    """The annotations of a dataclass's fields; none where they name what is not there."""
    try:
        hints = get_type_hints(kind, include_extras=True)
    except NameError:
        return {}
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _problems(value: Any, hint: Any, bounds: Range | None = None) -> Iterator[tuple[Any, str]]:
    """The values, of one and what is in it, that an annotation excludes, and what it asks for."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hasattr(value, "dtype") and not isinstance(value, np.generic):
        return  # an array
    if origin is Annotated:
        ranges = (note for note in arguments[1:] if isinstance(note, Range))
        yield from _problems(value, arguments[0], next(ranges, None))
    elif origin in (Union, types.UnionType):
        found = [list(_problems(value, option)) for option in arguments]
        if all(found):
            yield value, " or ".join(dict.fromkeys(wanted for each in found for _, wanted in each))
    elif origin is Literal:
        if not any(value == one and type(value) is type(one) for one in arguments):
            yield value, " or ".join(map(repr, arguments))
    elif origin is tuple:
        yield from _in_tuple(value, arguments)
    elif origin in (Mapping, dict):
        if not isinstance(value, Mapping):
            yield value, "a mapping from names"
            return
        for name, item in value.items():
            yield from _problems(name, arguments[0])
            yield from _problems(item, arguments[1])
    elif hint in _SIMPLE and (wanted := _wanted(value, hint, bounds)):
        yield value, wanted
    elif _is_checked(hint) and not isinstance(value, hint):
        yield value, f"a {hint.__name__}"


def _is_checked(hint: Any) -> bool:
    """Whether a value must be of this class: an abstract one, or one that holds settings."""
    return inspect.isabstract(hint) or (isinstance(hint, type) and dataclasses.is_dataclass(hint))


def _in_tuple(value: Any, arguments: tuple[Any, ...]) -> Iterator[tuple[Any, str]]:
    """The problems of a tuple: of any length, as `tuple[int, ...]`, or of one, as `tuple[int]`."""
    if not isinstance(value, tuple | list):
        yield value, "several, as a tuple"
        return
    hints = arguments[:1] * len(value) if arguments[-1:] == (...,) else arguments
    if len(hints) != len(value):
        yield value, f"{len(hints)} values"
        return
    for item, hint in zip(value, hints, strict=True):
        yield from _problems(item, hint)


#: What counts as a value of a type, and what is asked for in place of another.
_SIMPLE: dict[Any, tuple[Any, str]] = {
    bool: (bool, "True or False"),
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    str: (str, "a text"),
    Path: ((str, os.PathLike), "a path"),
    type(None): (type(None), "None"),
}


def _wanted(value: Any, kind: Any, bounds: Range | None) -> str:
    """What is asked for in place of a value, where a simple type is; empty if it is right."""
    counted, words = _SIMPLE[kind]
    if not isinstance(value, counted) or (isinstance(value, bool) and kind is not bool):
        return words
    if kind is float and _LARGEST < abs(value) < math.inf:
        return f"{_LARGEST:.2g} at most"
    if kind is float and isinstance(value, numbers.Integral) and int(value) not in _WHOLE:
        return f"{float(value):g}"  # JAX would take it for a whole number
    if kind is float and bounds is None:
        return words if math.isnan(value) else ""
    if kind in (int, float):
        bounds, number = bounds or _WHOLE, kind(value)
        return "" if number in bounds else bounds.asked(number)
    return words if kind is Path and not str(value) else ""


def _text(bound: float) -> str:
    return str(int(bound)) if math.isfinite(bound) and bound == int(bound) else f"{bound:g}"
