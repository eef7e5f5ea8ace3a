"""What devices send each other in a compiled program, read from the program's text."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

#: A message between devices. An asynchronous one has a start, which counts, and an end.
_KINDS = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter|collective-broadcast"
_COLLECTIVE = re.compile(rf"^(?:ROOT )?\S+ = (.*?) ({_KINDS})(?:-start)?\(")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*)?\{$")
_WHILE = re.compile(r" while\(.*?\bbody=%?([\w.\-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CALLED = re.compile(r"\b(?:calls|to_apply|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
_ARRAY = re.compile(r"\b(pred|bf16|[a-z]\d+)\[([\d,]*)\]")


@dataclasses.dataclass(frozen=True)
class Collective:
    """A message that all devices take part in."""

    kind: str
    """Such as all-reduce."""
    bytes: int
    """Of its result, which every device has afterwards."""
    times: int
    """How often a run of the program sends it."""


class _Call(NamedTuple):
    name: str
    times: int


def collectives(text: str) -> list[Collective]:
    """The messages of a program, in the order of its text; those in a loop count each time.

    Args:
        text: of a compiled program of XLA, `compiled.as_text()`.

    Raises:
        ValueError: there is a message in a loop whose number of rounds the program does not know;
            or the text is not that of a program.
    """
    computations = dict(_computations(text))
    if "" not in computations:
        raise ValueError("the text has no ENTRY computation; give compiled.as_text()")

    def of(name: str) -> list[Collective]:
        found: list[Collective] = []
        for line in computations.get(name, ()):
            sent = _COLLECTIVE.match(line)
            if sent:
                found.append(Collective(sent[2], _bytes(sent[1], line), 1))
            for call in _calls(line):
                inner = of(call.name)
                if inner and call.times < 0:
                    raise ValueError(
                        f"the loop {call.name} sends messages, it is not known how often"
                    )
                found += [dataclasses.replace(c, times=c.times * call.times) for c in inner]
        return found

    return of("")


def _computations(text: str) -> Iterator[tuple[str, list[str]]]:
    """The computations of a program by name, with their lines; the first to run is called ""."""
    name, lines = "", []
    for line in map(str.strip, text.splitlines()):
        begins = _COMPUTATION.match(line)
        if begins:
            name, lines = "" if begins[1] else begins[2], []
        elif line == "}":
            yield name, lines
        else:
            lines.append(line)


def _calls(line: str) -> Iterator[_Call]:
    """What a line calls; times is -1 where a loop does not know how often."""
    loop = _WHILE.search(line)
    if loop:
        trips = _TRIPS.search(line)
        yield _Call(loop[1], int(trips[1]) if trips else -1)
        return
    if _COLLECTIVE.match(line):  # it calls the sum of two numbers
        return
    names = _CALLED.findall(line)
    for branches in _BRANCHES.findall(line):
        names += [name.strip().lstrip("%") for name in branches.split(",")]
    for name in names:
        yield _Call(name, 1)


def _bytes(result: str, line: str) -> int:
    """The size of what a message gives: an array, or a tuple of them.

    The tuple of a start has what is sent as well, before what comes.
    """
    sizes = [
        math.prod(int(n) for n in shape.split(",") if n) * _item(kind)
        for kind, shape in _ARRAY.findall(result)
    ]
    if "-start(" in line and result.startswith("(") and len(sizes) > 1:
        sizes = sizes[len(sizes) // 2 :]
    return sum(sizes)


def _item(kind: str) -> int:
    """Bytes of a number, such as 4 of f32."""
    return 1 if kind == "pred" else max(1, int(re.sub(r"\D", "", kind[1:])) // 8)
