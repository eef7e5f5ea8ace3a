"""Planned runs, made one at a time, and the file of results that keeps them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from _harness import Finding, save, say


class Kept(Protocol):
    """A run: a dataclass, of which a file keeps the fields."""

    task: str
    contender: str
    seed: int
    error: str
    """Why it ended early, if it did; such a run is made again."""

    @property
    def identity(self) -> Hashable:
        """What makes two runs one and the same, also when one of them comes from a file."""


R = TypeVar("R", bound=Kept)


def in_turn(
    kind: Callable[..., R],
    config: Any,
    plan: Iterable[tuple[R, Callable[[], Iterable[R]]]],
    after: Callable[[Sequence[R]], None],
) -> list[R]:
    """The planned runs, one at a time. Those that the configuration's file holds are taken from it.

    Args:
        kind: the class of the runs.
        config: of the benchmark; its file `json` is written each time there is more of a run.
        plan: what to run, in this order: each run before it begins, and what makes it. That gives
            the run each time there is more of it, last at its end.
        after: called with the runs so far, each time there is one more.

    Returns:
        The runs; those that came to their end, if the user interrupts.
    """
    held = _held(kind, config.json)
    runs: list[R] = []
    try:
        for run, make in plan:
            say(f"{run.task}, seed {run.seed}: {run.contender}")
            known = held.get(run.identity)
            for grown in [known] if known else make():
                write(kind, config, [*runs, grown], [])
            runs.append(grown)
            after(runs)
    except KeyboardInterrupt:
        say("interrupted")
    return runs


def write(
    kind: Callable[..., R], config: Any, runs: Iterable[R], findings: Iterable[Finding]
) -> None:
    """Everything so far, into the file that the benchmark's configuration names.

    Runs that the file holds beside these stay there.
    """
    settings = {k: v for k, v in dataclasses.asdict(config).items() if not isinstance(v, Path)}
    everything = _held(kind, config.json) | {run.identity: run for run in runs}
    results = {
        "config": settings,
        "runs": plain(everything.values()),
        "findings": [finding.json() for finding in findings],
    }
    save(config.json, results)


def plain(runs: Iterable[Any]) -> list[dict[str, Any]]:
    """Runs for a file."""
    return [dataclasses.asdict(run) for run in runs]


def _held(kind: Callable[..., R], path: Path) -> dict[Hashable, R]:
    """The runs in a file of results, if it is there, that came to their end."""
    if not path.exists():
        return {}
    runs = [kind(**run) for run in json.loads(path.read_text())["runs"]]
    return {run.identity: run for run in runs if not run.error}
