"""Parses arguments with tyro; an error is one line that names the mend."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
from typing import Any, TypeVar

import tyro

from worldline.errors import ConfigError, did_you_mean

T = TypeVar("T")


def parse(settings: type[T], argv: list[str], prog: str) -> T:
    """Settings from arguments by tyro.

    Args:
        settings: a dataclass.
        argv: the arguments.
        prog: the command, as `worldline eval`.

    Raises:
        ConfigError: an option does not exist, lacks its value or has a wrong one.
        SystemExit: help was asked for, and printed.
    """
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), FORMS:
            args = [_ours(argument) for argument in argv]
            parsed, unknown = tyro.cli(settings, args=args, prog=prog, return_unknown_args=True)
    except SystemExit as exit_:
        if not exit_.code:
            raise
        raise ConfigError(f"{in_one_line(errors.getvalue())}; see `{prog} --help`") from None
    if unknown:
        given = next((a for a in unknown if a.startswith("-")), unknown[0])
        near = did_you_mean(given, _options(settings)) if given.startswith("--") else ""
        raise ConfigError(f"{prog} takes no {given!r}{near or f'; see `{prog} --help`'}")
    return parsed


#: Other libraries' names of our options.
_SYNONYMS = {
    "--lr": "--learning-rate",
    "--num-envs": "--num-worlds",
    "--n-envs": "--num-worlds",
    "--total-timesteps": "--steps",
    "--num-timesteps": "--steps",
    "--gamma": "--discount",
}


def _ours(argument: str) -> str:
    """An argument with our name of the option, where it has another library's."""
    name, equals, value = argument.partition("=")
    return _SYNONYMS.get(name.replace("_", "-"), name) + equals + value


#: How values are read that tyro would read otherwise.
FORMS = tyro.constructors.ConstructorRegistry()


@FORMS.primitive_rule
def _whole_number(kind: Any) -> tyro.constructors.PrimitiveConstructorSpec[int] | None:
    """A whole number, also as 1e6."""
    if kind.type is not int:
        return None

    def read(words: list[str]) -> int:
        with contextlib.suppress(ValueError, OverflowError):
            number = float(words[0])
            if "e" in words[0].lower() and number.is_integer():
                return int(number)
        return int(words[0])

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    )


def in_one_line(box: str) -> str:
    """The first paragraph of an error that tyro prints in a box, without the box and its title."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    rows = [row.strip("│ ") for row in plain.splitlines()[1:]]
    parts = itertools.groupby(rows, key=lambda row: bool(row.strip("╰╯─-")))
    return next((" ".join(part).rstrip(".") for has_words, part in parts if has_words), plain)


def help_of(settings: Any, title: str) -> str:
    """The boxes of a help that have the options of a dataclass, the first under a title."""
    boxes = []
    for box in re.split(r"(?m)^(?=╭)", _help(settings))[1:]:
        rows = [row for row in box.splitlines() if "show this help message" not in row]
        rows = [row for row in rows if row and not re.match(r"│ -h, --help +│", row)]
        if len(rows) > 2:
            boxes.append(rows)
    boxes[0][0] = f"╭─ {title} ".ljust(len(boxes[0][0]) - 1, "─") + "╮"
    return "\n".join(itertools.chain(*boxes))


def _options(settings: Any) -> set[str]:
    """The options that the help for a dataclass names, without `--help`."""
    return set(re.findall(r"--[a-z][\w.-]*", _help(settings))) - {"--help"}


def _help(settings: Any) -> str:
    text = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # with an encoding, tyro draws boxes
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit), FORMS:
        tyro.cli(settings, args=["--help"])
    text.seek(0)
    return text.read()
