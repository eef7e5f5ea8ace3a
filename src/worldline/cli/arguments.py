"""The arguments of `worldline train`: the task, and the options that it and its algorithm have."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import tyro

from worldline.cli.commands import train
from worldline.cli.parsing import FORMS, help_of, parse
from worldline.env.config import EnvConfig
from worldline.env.env import Env
from worldline.env.options import read_disturbances, read_history
from worldline.env.task import Task
from worldline.errors import TaskError
from worldline.learn.algorithms import find_algorithm
from worldline.parallel.config import ClusterConfig
from worldline.rendering.camera import read_cameras
from worldline.tasks.reference import is_reference
from worldline.tasks.registry import environment, find_task, list_tasks
from worldline.train.config import TrainConfig
from worldline.variation.domain import AbstractDomain
from worldline.variation.options import read_draws

_ANY_TASK = """\
Train a policy for a TASK; `worldline list` lists the tasks. Each task has its own defaults and
options: see `worldline train TASK --help`."""

_MOST_USED = """

`--algorithm NAME` is ppo (the default), sac or shac. Each has its own options. The most used
options are:

    --steps 1e6   --seed 1   --seeds 4   --out runs/mine   --resume   --no-video
    --num-worlds 256   --learning-rate 3e-4   --domain medium   --physics native"""

#: The titles of the groups of options in the help.
_GROUPS = {
    "run": "the run",
    "env": "the environment",
    "task": "the task",
    "algorithm": "the algorithm",
    "cluster": "several processes and devices",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvSettings:
    """The environment of a run, as the command line describes it."""

    physics: str = "native"
    """The physics engine: native (MuJoCo on the CPU), mjx, warp or fake."""
    action_repeat: int = 1
    """Repeat each action for this number of control steps of the task. The rewards are added;
    images are drawn once."""
    last_action: bool = False
    """Add the last action to the observation."""
    visible: bool = False
    """Add the values of the context features to the observation."""
    pixels: tuple[str, ...] = ()
    """Train from cameras of the model. Give their names, for example fixed, or front=84x84 (height
    x width; by default 64x64). The policy reads the images in place of the state, unless actor_obs
    names both."""
    frames: int = 3
    """The number of latest images in the observation."""
    depth: bool = False
    """Add depth images to the observation."""
    renderer: Literal["auto", "opengl", "warp"] = "auto"
    """The renderer that draws the images for the policy."""
    delay: str = ""
    """Delay the actions by this number of control steps: 2; or 0:2, drawn for each episode."""
    noise: str = ""
    """Add noise with this standard deviation to the observation: 0.02; or to parts of it, each in
    its own unit: joint_position=0.02,command=0.1. `worldline list --fields TASK` shows the parts.
    """
    push: str = ""
    """Push the robot's root body with this force in N, for 0.1 s every 2 to 4 s: 20:60; or push
    another body: torso=20:60."""
    history: str = ""
    """Put this number of latest measurements into the observation: 5; or only for some parts:
    joint_position=5."""

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
            disturbances=read_disturbances(task, self.delay, self.noise, self.push),
            history=read_history(task, self.history),
        )
        return Env.from_config(task, config)


def take_task(argv: list[str]) -> tuple[str | None, list[str]]:
    """The task among the arguments, in any position, and the other arguments.

    The task is None if the arguments ask for help without one.

    Raises:
        TaskError: the arguments have no task.
    """
    tasks = list_tasks()
    known = [i for i, argument in enumerate(argv) if argument in tasks or is_reference(argument)]
    # A misspelt task is the first argument that is no option and does not follow one.
    follows = [a.startswith("-") and "=" not in a for a in ("", *argv)]
    alone = [i for i, argument in enumerate(argv) if argument[:1] != "-" and not follows[i]]
    for index in (*known, *alone):
        return argv[index], argv[:index] + argv[index + 1 :]
    if {"-h", "--help"} & set(argv):
        return None, argv
    raise TaskError(
        "worldline train needs a TASK, for example gym/ant or your_file.py:YourTask; `worldline "
        "list` lists the named tasks"
    )


def train_settings(name: str | None, argv: list[str]) -> Any:
    """The settings of `worldline train` from arguments and the task's own defaults.

    Args:
        name: the task, or a reference to one; None to show the help for all tasks.
        argv: the other arguments.

    Returns:
        A dataclass with the attributes `name`, `run` (`TrainConfig`), `algorithm` (its
        configuration) and `cluster` (`ClusterConfig`). Its method `environment` makes the `Env`,
        and `execute` trains. Where the task is a class, it has also `task` and `env`
        (`EnvSettings`), from which the environment is made.

    Raises:
        TaskError, ConfigError: there is no such task, algorithm, option or value.
    """
    # The algorithm decides which other options there are, so it is read before them.
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--algorithm", default="ppo", nargs="?", const="")
    known, rest = first.parse_known_args(argv)
    chosen = known.algorithm
    found = None if name is None else find_task(name)
    task = found if isinstance(found, type) else None
    env = environment(found, str(name)) if found and not isinstance(found, type) else None
    defaults = getattr(task or (env and env.task), "defaults", {})
    algorithm = find_algorithm(chosen).config
    parts = {
        **({} if env else {"env": EnvSettings()}),
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
    made = _of_task if env is None else lambda settings: env
    namespace = {"name": name, "execute": train, "environment": made}  # attributes and no options
    kind = dataclasses.make_dataclass(
        "Settings", fields, frozen=True, kw_only=True, namespace=namespace
    )
    prog = f"worldline train {name or 'TASK'}"
    if {"-h", "--help"} & set(rest):
        sys.stdout.write(_help(fields, name, prog))
        raise SystemExit(0)
    return parse(kind, rest, prog)


def _help(fields: list[Any], name: str | None, prog: str) -> str:
    """The options in groups, after the most used ones."""
    about = f"Train a policy for {name}." if name else _ANY_TASK
    lines = [f"usage: {prog} [OPTIONS]\n\n{about}{_MOST_USED}\n"]
    for part, title in _GROUPS.items():
        options = [field for field in fields if field[0] == part]
        lines += [help_of(dataclasses.make_dataclass("Group", [each]), title) for each in options]
    return "\n".join(lines) + "\n"


def _of_task(settings: Any) -> Env:
    made: Env = settings.env.environment(settings.task, settings.run.context)
    return made


@FORMS.primitive_rule
def _name_of_domain(kind: Any) -> tyro.constructors.PrimitiveConstructorSpec[str] | None:
    """A domain by its name; a `Domain` itself is for Python."""
    if kind.type != str | AbstractDomain:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="STR",
        instance_from_str=lambda words: words[0],
        is_instance=lambda value: isinstance(value, str),
        str_from_instance=lambda value: [value],
    )
