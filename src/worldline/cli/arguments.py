"""Parses arguments with tyro; an error is one line that names the mend."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import itertools
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import tyro

from worldline.cli.commands import train
from worldline.env.config import EnvConfig
from worldline.env.env import Env
from worldline.env.task import Task
from worldline.errors import ConfigError, TaskError, did_you_mean
from worldline.learn.algorithms import find_algorithm
from worldline.parallel.cluster import ClusterConfig
from worldline.rendering.camera import read_cameras
from worldline.tasks.registry import list_tasks, task_class
from worldline.train.config import TrainConfig
from worldline.variation.options import read_draws

T = TypeVar("T")

_ANY_TASK = """\
Train a policy for a TASK; `worldline list` shows their names. Each task has its own defaults and
options: see `worldline train TASK --help`."""

_ANY_ALGORITHM = """

`--algorithm NAME` is ppo (the default), sac or shac. Each has its own options."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvSettings:
    """The environment of a run, as the command line describes it."""

    physics: str = "native"
    """The physics engine: native (MuJoCo on the CPU), mjx, warp or fake."""
    action_repeat: int = 1
    """Repeat each action for so many control steps of the task. Rewards add up; images are drawn
    once."""
    last_action: bool = False
    """Show the policy its last action."""
    visible: bool = False
    """Show the policy the values of the context features."""
    pixels: tuple[str, ...] = ()
    """Train from cameras of the model: their names, as fixed, or front=84x84 (height x width; by
    default 64x64). The policy sees the images in place of the state, unless actor_obs names both.
    """
    frames: int = 3
    """The number of latest images that the policy sees."""
    depth: bool = False
    """Show the policy distances too."""
    renderer: Literal["auto", "opengl", "warp"] = "auto"
    """The program that draws the images for the policy."""

    def environment(self, task: Task, draws: Sequence[str] = ()) -> Env:
        """Makes the environment.

        Args:
            task: the task.
            draws: `TrainConfig.context`; the environment gets its features.
        """
        names = tuple(read_draws(draws))
        config = EnvConfig(
            physics=self.physics,
            action_repeat=self.action_repeat,
            last_action=self.last_action,
            context=names,
            visible=names if self.visible else (),
            cameras=read_cameras(self.pixels, stack=self.frames, depth=self.depth),
            renderer=self.renderer,
        )
        return Env.from_config(task, config)


def take_task(argv: list[str]) -> tuple[str | None, list[str]]:
    """The task among the arguments, in any position, and the other arguments.

    The task is None if the arguments ask for help without one.

    Raises:
        TaskError: the arguments have no task.
    """
    known = [index for index, argument in enumerate(argv) if argument in list_tasks()]
    # A misspelt task is the first argument that is no option and does not follow one.
    follows = [a.startswith("-") and "=" not in a for a in ("", *argv)]
    alone = [i for i, argument in enumerate(argv) if argument[:1] != "-" and not follows[i]]
    for index in (*known, *alone):
        return argv[index], argv[:index] + argv[index + 1 :]
    if {"-h", "--help"} & set(argv):
        return None, argv
    raise TaskError("worldline train needs a TASK, such as gym/ant; `worldline list` names them")


def train_settings(name: str | None, argv: list[str]) -> Any:
    """The settings of `worldline train` from arguments and the task's own defaults.

    Args:
        name: the task; None to show the help for all tasks.
        argv: the other arguments.

    Returns:
        A dataclass with the attributes `name`, `task` (a `Task`), `env` (`EnvSettings`), `run`
        (`TrainConfig`), `algorithm` (its configuration) and `cluster` (`ClusterConfig`). Its method
        `execute` trains.

    Raises:
        TaskError, ConfigError: there is no such task, algorithm, option or value.
    """
    # The algorithm decides which other options there are, so it is read before them.
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--algorithm", default="ppo", nargs="?", const="")
    known, rest = first.parse_known_args(argv)
    chosen = known.algorithm
    task = None if name is None else task_class(name)
    defaults = {} if task is None else task.defaults
    algorithm = find_algorithm(chosen).config
    parts = {
        "env": EnvSettings(),
        "run": TrainConfig(**defaults.get("train", {})),
        "algorithm": algorithm(**defaults.get(chosen, {})),
        "cluster": ClusterConfig(),
    }
    fields: list[Any] = [
        (
            part,
            Annotated[type(default), tyro.conf.arg(name="")],
            dataclasses.field(default=default),
        )
        for part, default in parts.items()
    ]
    if task is not None:
        fields.append(("task", task))
    namespace = {"name": name, "execute": train}  # attributes and no options
    kind = dataclasses.make_dataclass(
        "Settings", fields, frozen=True, kw_only=True, namespace=namespace
    )
    kind.__doc__ = (f"Train a policy for {name}." if name else _ANY_TASK) + _ANY_ALGORITHM
    return parse(kind, rest, f"worldline train {name or 'TASK'}")


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
        with contextlib.redirect_stderr(errors):
            parsed, unknown = tyro.cli(settings, args=argv, prog=prog, return_unknown_args=True)
    except SystemExit as exit_:
        if not exit_.code:
            raise
        raise ConfigError(f"{in_one_line(errors.getvalue())}; see `{prog} --help`") from None
    if unknown:
        given = next((a for a in unknown if a.startswith("-")), unknown[0])
        near = did_you_mean(given, _options(settings)) if given.startswith("--") else ""
        raise ConfigError(f"{prog} takes no {given!r}{near or f'; see `{prog} --help`'}")
    return parsed


def in_one_line(box: str) -> str:
    """The first paragraph of an error that tyro prints in a box, without the box and its title."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    rows = [row.strip("│ ") for row in plain.splitlines()[1:]]
    parts = itertools.groupby(rows, key=lambda row: bool(row.strip("╰╯─-")))
    return next((" ".join(part).rstrip(".") for has_words, part in parts if has_words), plain)


def _options(settings: Any) -> set[str]:
    """The options that the help for a dataclass names, without `--help`."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        tyro.cli(settings, args=["--help"])
    return set(re.findall(r"--[a-z][\w.-]*", text.getvalue())) - {"--help"}
