"""The settings of the commands, from which tyro makes their options and help."""

# Without `from __future__ import annotations`: nested settings are found by their types.

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import tyro

from worldline.parallel.cluster import ClusterConfig


@dataclasses.dataclass(frozen=True)
class ResumeSettings:
    """Continue a run that was stopped or killed, exactly, from its last checkpoint."""

    run: tyro.conf.Positional[Path]
    """The run folder."""
    steps: int | None = None
    """Environment steps of the whole run; by default as it was configured."""
    quiet: bool = False
    """Show no progress."""
    cluster: Annotated[ClusterConfig, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=ClusterConfig
    )


@dataclasses.dataclass(frozen=True)
class EvalSettings:
    """Evaluate a run's policy on fresh episodes."""

    run: tyro.conf.Positional[Path]
    """The run folder."""
    episodes: int = 20
    """Episodes, each in a world of its own; with a context, at each point of the grid."""
    seed: int = 1
    """Decides the starts of the episodes."""
    domain: str = ""
    """The domain that each episode's physics is drawn from, as in `worldline train`."""
    context: tuple[str, ...] = ()
    """Context features and their values, as gravity=-5:-15:11 (11 values) or friction=0.5,1. The
    result is a table, and with one or two features a picture."""


@dataclasses.dataclass(frozen=True)
class RenderSettings:
    """Make a video and a strip of pictures of a run's policy."""

    run: tyro.conf.Positional[Path]
    """The run folder, where the files go."""
    seconds: float = 10.0
    """The longest duration of the episode."""
    seed: int = 1
    """Decides the start of the episode."""
    stochastic: bool = False
    """Draw the actions; by default each is the most likely one."""


@dataclasses.dataclass(frozen=True)
class ExportSettings:
    """Write a run's policy as an ONNX file, its normaliser and action bounds included."""

    run: tyro.conf.Positional[Path]
    """The run folder."""
    out: Path | None = None
    """The file; by default policy.onnx in the run folder."""


@dataclasses.dataclass(frozen=True)
class InitSettings:
    """Write a task file for a robot of your own, which trains at once and is yours to fill in."""

    mjcf: tyro.conf.Positional[Path]
    """The robot's MJCF file."""
    out: Path | None = None
    """The Python file to write; by default named after the MJCF, in this folder."""
    motors: bool = False
    """Put a motor on every hinge and slide of a model without actuators."""


@dataclasses.dataclass(frozen=True)
class ListSettings:
    """List the tasks: sizes of observation and action, actions a second, steps an episode."""

    fields: str = ""
    """The name of a task: list its domains, context features and model fields instead."""


#: The settings of each command by its name, without `train`, whose options depend on the task.
SETTINGS: dict[str, type[Any]] = {
    "resume": ResumeSettings,
    "eval": EvalSettings,
    "render": RenderSettings,
    "export": ExportSettings,
    "init": InitSettings,
    "list": ListSettings,
}
