"""Reads disturbances and histories of the command line: `--delay 0:2 --noise 0.02 --history 5`."""

from __future__ import annotations

from typing import Any

from worldline.env.disturb import ActionDelay, Disturbance, ObservationNoise, Pushes
from worldline.env.history import frames_by_part
from worldline.env.task import Task
from worldline.errors import ConfigError
from worldline.variation.distributions import Choice, Uniform


def read_disturbances(
    task: Task, delay: str = "", noise: str = "", push: str = ""
) -> tuple[Disturbance, ...]:
    """The disturbances that options of the command line ask for; an empty text is none.

    Args:
        task: the task that is disturbed.
        delay: control steps by which actions are late: `2`, or `0:2` for a draw in each episode.
        noise: `std` of `ObservationNoise`: `0.02`, or for parts of the observation by their names
            `joint_position=0.02,goal=0.1`.
        push: the force in N of pushes on the robot's root body, `20:60`; on another `torso=20:60`.

    Raises:
        ConfigError: an option has another form; or it names no body, and the root has no name.
        TaskError: a number is out of its range.
        ModelError: the model has no such body.
    """
    found: list[Disturbance] = []
    if noise:
        form = "a standard deviation, for example 0.02 or state=0.02"
        parts = dict(part.rpartition("=")[::2] for part in noise.split(","))
        stds: dict[str, float] = {n: _number("noise", v, float, form) for n, v in parts.items()}
        if "" in stds and len(stds) > 1:
            raise ConfigError(f"noise is {noise!r}; give {form}")
        found.append(ObservationNoise(std=stds.get("", stds)))
    if delay:
        form = "whole control steps, for example 2 or 0:2"
        low, high = _ends("delay", delay, int, form)
        found.append(ActionDelay(steps=low if low == high else Choice(range(low, high + 1))))
    if push:
        body, _, force = push.rpartition("=")
        form = "a force in newtons, for example 20:60 or torso=20:60"
        low, high = _ends("push", force, float, form)
        found.append(Pushes(body=body or _root(task), force=Uniform(low, high)))
    return tuple(found)


def read_history(task: Task, text: str) -> dict[str, int]:
    """How many measurements of each part are seen: from `5`, or `joint_position=5,command=2`.

    Raises:
        ConfigError: the text has another form, or a number is out of its range.
        TaskError: the task names no such part.
    """
    if not text:
        return {}
    form = "control steps, for example 5 or joint_position=5"
    parts = dict(part.rpartition("=")[::2] for part in text.split(","))
    numbers = {name: _number("history", value, int, form) for name, value in parts.items()}
    if "" in numbers and len(numbers) > 1:
        raise ConfigError(f"history is {text!r}; give {form}")
    return frames_by_part(task, numbers.get("", numbers))


def _ends(name: str, text: str, kind: Any, form: str) -> tuple[Any, Any]:
    """The ends of a range `low:high`; of a number twice that number."""
    first, _, last = text.partition(":")
    low, high = (_number(name, word, kind, form) for word in (first, last or first))
    if not low <= high:
        raise ConfigError(f"{name} is {text!r}: the first number is larger; give {form}")
    return low, high


def _number(name: str, text: str, kind: Any, form: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(f"{name} contains {text!r}; give {form}") from None


def _root(task: Task) -> str:
    """The name of the body that the first joint of the model moves."""
    mj = task.model.mj
    names = task.model.names("body")
    if mj.njnt and (name := names[mj.body_rootid[mj.jnt_bodyid[0]]]):
        return name
    known = ", ".join(name for name in names if name)
    raise ConfigError(f"the robot's root body has no name; give --push BODY=20:60, of {known}")
