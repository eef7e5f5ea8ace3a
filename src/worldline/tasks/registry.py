"""The registry: tasks by name."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from worldline.env.env import Env
from worldline.env.task import Task
from worldline.errors import TaskError, did_you_mean
from worldline.physics import Engine
from worldline.tasks.names import TASKS

#: Name to class, or to where the class is: `"module:Class"`, imported when it is first asked for.
_TASKS: dict[str, type[Task] | str] = {
    name: f"worldline.tasks.{entry.place}" for name, entry in TASKS.items()
}


def list_tasks() -> list[str]:
    """The names of all tasks, sorted."""
    return sorted(_TASKS)


def register(name: str, task: type[Task] | str) -> None:
    """Gives a task a name under which `make`, and the command line, find it.

    Args:
        name: such as `"robot/reach"`; not taken yet.
        task: a subclass of `Task`, or `"module:Class"`, which is imported when it is needed.

    Raises:
        TaskError: the name is taken, or `task` is neither.
    """
    if name in _TASKS:
        raise TaskError(f"the task {name!r} exists already; choose another name")
    if isinstance(task, str):
        module, _, attribute = task.partition(":")
        if not (module and attribute):
            raise TaskError(f"the task {name!r} is at {task!r}; give 'module:Class'")
    else:
        _check_class(name, task)
    _TASKS[name] = task


def task_class(name: str) -> type[Task]:
    """The class of a task.

    Raises:
        TaskError: there is no such task, or its class cannot be imported.
    """
    if name not in _TASKS:
        hint = did_you_mean(name, _TASKS) or "; `worldline list` names those there are"
        raise TaskError(f"there is no task {name!r}{hint}")
    task = _TASKS[name]
    if isinstance(task, str):
        module, _, attribute = task.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise TaskError(f"the task {name!r} cannot be imported: {error}") from error
        _check_class(name, found)
        _TASKS[name] = task = found
    return task


def load_task(name: str, **config: Any) -> Task:
    """A task with its configuration.

    Args:
        name: one of `list_tasks()`.
        config: fields of the task's class; those not given have their defaults.

    Raises:
        TaskError: there is no such task, it has no such field, or one without a default is missing.
    """
    cls = task_class(name)
    options = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for given in config:
        if given not in options:
            raise TaskError(f"{name} has no option {given!r}{did_you_mean(given, options)}")
    for option, field in options.items():
        without_default = field.default is field.default_factory is dataclasses.MISSING
        if without_default and option not in config:
            raise TaskError(f"{name} needs the option {option!r}, which has no default")
    return cls(**config)


def make(name: str, physics: Engine = "native", **config: Any) -> Env:
    """A task on an engine: `Env(load_task(name, **config), physics)`.

    Args:
        name: one of `list_tasks()`.
        physics: the engine, as in `Env`.
        config: fields of the task's class; those not given have their defaults.

    Raises:
        TaskError: there is no such task, or it has no such field.
        ModelError: there is no such engine, or it cannot run the task.
    """
    return Env(load_task(name, **config), physics)


def _check_class(name: str, task: object) -> None:
    if not (isinstance(task, type) and issubclass(task, Task)):
        raise TaskError(f"the task {name!r} is {task!r}; give a subclass of worldline.Task")
