"""From arguments to settings: tyro's parsing, with complaints in one line that name the mend."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import re
from collections.abc import Iterator
from typing import Annotated, Any, TypeVar

import tyro

from worldline.errors import ConfigError, TaskError, did_you_mean

T = TypeVar("T")

HELP = ("-h", "--help")

_ANY_TASK = """\
Train a policy for a TASK; `worldline list` names them. Each has defaults and further options of
its own: see `worldline train TASK --help`."""

_ANY_ALGORITHM = """

`--algorithm NAME` chooses how it learns, by default ppo, and with it what can be set."""


def take_task(argv: list[str]) -> tuple[str | None, list[str]]:
    """The task among the arguments, wherever it stands, and the other arguments."""
    from worldline.tasks.registry import list_tasks

    known = [index for index, argument in enumerate(argv) if argument in list_tasks()]
    # One that is misspelt is the first argument that is no option, nor follows one.
    follows = [a.startswith("-") and "=" not in a for a in ("", *argv)]
    alone = [i for i, argument in enumerate(argv) if argument[:1] != "-" and not follows[i]]
    for index in (*known, *alone):
        return argv[index], argv[:index] + argv[index + 1 :]
    if set(HELP) & set(argv):
        return None, argv
    raise TaskError("worldline train needs a TASK, such as gym/ant; `worldline list` names them")


def train_settings(name: str | None, argv: list[str]) -> Any:
    """`run`, `algorithm`, `cluster` and `task` from the arguments, over the task's own defaults."""
    from worldline.learn.algorithms import find_algorithm
    from worldline.parallel.cluster import ClusterConfig
    from worldline.tasks.registry import task_class
    from worldline.train.config import TrainConfig

    chosen, rest = _take_algorithm(argv)
    task = None if name is None else task_class(name)
    defaults = {} if task is None else task.defaults
    config = find_algorithm(chosen).config
    unprefixed = tyro.conf.arg(name="")
    run = TrainConfig(**defaults.get("train", {}))
    algorithm = config(**defaults.get(chosen, {}))
    fields: list[Any] = [
        ("run", Annotated[TrainConfig, unprefixed], dataclasses.field(default=run)),
        ("algorithm", Annotated[config, unprefixed], dataclasses.field(default=algorithm)),
    ]
    cluster = Annotated[ClusterConfig, unprefixed]
    fields.append(("cluster", cluster, dataclasses.field(default=ClusterConfig())))
    if task is not None:
        fields.append(("task", task))
    settings = dataclasses.make_dataclass("Settings", fields, frozen=True, kw_only=True)
    settings.__doc__ = (f"Train a policy for {name}." if name else _ANY_TASK) + _ANY_ALGORITHM
    return parse(settings, rest, f"worldline train {name or 'TASK'}")


def _take_algorithm(argv: list[str]) -> tuple[str, list[str]]:
    """The algorithm among the arguments, and the other arguments.

    It decides which options there are, and so is read before them.
    """
    for index, argument in enumerate(argv):
        option, is_one, value = argument.partition("=")
        if option == "--algorithm":
            after = index + 1 if is_one else index + 2
            value = value if is_one else "".join(argv[index + 1 : after])
            return value, argv[:index] + argv[after:]
    return "ppo", argv


def parse(settings: type[T], argv: list[str], prog: str) -> T:
    """Settings from arguments by tyro, with its boxed complaints as errors of one line."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            parsed, unknown = tyro.cli(
                settings,
                args=argv,
                prog=prog,
                return_unknown_args=True,
            )
    except SystemExit as exit_:
        if not exit_.code:  # help was asked for, and given
            raise
        raise ConfigError(f"{_unboxed(complaint.getvalue())}; see `{prog} --help`") from None
    if unknown:
        given = next((a for a in unknown if a.startswith("-")), unknown[0])
        near = did_you_mean(given, _options(settings)) if given.startswith("--") else ""
        raise ConfigError(f"{prog} takes no {given!r}{near or f'; see `{prog} --help`'}")
    return parsed


def _unboxed(box: str) -> str:
    """What tyro says in a box, from under the title to the first rule, in one line."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    rows = [row.strip("│ ") for row in plain.splitlines()[1:]]
    parts = itertools.groupby(rows, key=lambda row: bool(row.strip("╰╯─-")))
    return next((" ".join(part).rstrip(".") for has_words, part in parts if has_words), plain)


def _options(settings: Any, prefix: str = "--") -> Iterator[str]:
    """The options that stand for the fields of a dataclass that have defaults."""
    for field in dataclasses.fields(settings):
        kind: Any = getattr(field.type, "__origin__", field.type)  # what an Annotated type is of
        if dataclasses.is_dataclass(kind):
            yield from _options(kind, f"{prefix}task." if field.name == "task" else prefix)
        elif field.default is not field.default_factory:
            yield prefix + field.name.replace("_", "-")
