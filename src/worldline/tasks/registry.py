"""The registry: tasks by name."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from worldline.env.disturb import Disturbance
from worldline.env.env import Env
from worldline.env.task import Task
from worldline.errors import TaskError, did_you_mean
from worldline.physics import Engine
from worldline.tasks.names import TASKS, tasks_of_packages
from worldline.tasks.reference import Found, is_reference, load_reference

#: Name to class, or to where the class is: `"module:Class"`, imported when it is first asked for.
_TASKS: dict[str, type[Task] | str] = {
    name: f"worldline.tasks.{entry.place}" for name, entry in TASKS.items()
}


def list_tasks() -> list[str]:
    """The names of all tasks, sorted."""
    return sorted({*tasks_of_packages(), *_TASKS})


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

    Args:
        name: one of `list_tasks()`; or where the class is, `file.py:Class` or `module:Class`.

    Raises:
        TaskError: there is no such task, or its class cannot be imported.
    """
    found = find_task(name)
    if not isinstance(found, type):
        raise TaskError(f"{name!r} is a function that makes an environment; give a task's class")
    return found


def find_task(name: str) -> Found:
    """The class of a task, or for a reference to one a function that makes an environment.

    Args:
        name: as in `task_class`.

    Raises:
        TaskError: there is no such task, or its class cannot be imported.
    """
    task = _TASKS.get(name) or tasks_of_packages().get(name)
    if task is None and is_reference(name):
        return load_reference(name)
    if task is None:
        hint = did_you_mean(name, list_tasks()) or "; `worldline list` names those there are"
        raise TaskError(f"there is no task {name!r}{hint}")
    if isinstance(task, str):
        module, _, attribute = task.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise TaskError(f"the task {name!r} cannot be imported: {error}") from error
        _check_class(name, found)
        _TASKS[name] = task = found
    return task


def name_of(kind: type[Task]) -> str | None:
    """The name under which a class is registered; None: it is not."""
    place = f"{kind.__module__}:{kind.__qualname__}"
    names = (
        name for name, task in {**tasks_of_packages(), **_TASKS}.items() if task in (kind, place)
    )
    return next(names, None)


def environment(make: Callable[[], Env], name: str) -> Env:
    """What a user's function makes; an environment of Brax or Playground as one of ours.

    Raises:
        TaskError: it is no environment.
    """
    made: object = make()
    if not isinstance(made, Env) and hasattr(made, "reset") and hasattr(made, "action_size"):
        from worldline.tasks.brax import brax_env

        return brax_env(made)
    if not isinstance(made, Env):
        raise TaskError(f"{name!r} makes {made!r}; give a function that makes a worldline.Env")
    return made


def load_task(name: str, **config: Any) -> Task:
    """A task with its configuration.

    Args:
        name: as in `task_class`.
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


def make(
    name: str,
    physics: Engine = "native",
    *,
    disturbances: Sequence[Disturbance] = (),
    **config: Any,
) -> Env:
    """A task on an engine: `Env(load_task(name, **config), physics, disturbances=disturbances)`.

    Args:
        name: one of `list_tasks()`; or where the class is, `file.py:Class` or `module:Class`.
        physics: the engine, as in `Env`.
        disturbances: delays, noise and pushes, as in `Env`.
        config: fields of the task's class; those not given have their defaults.

    Raises:
        TaskError: there is no such task, or it has no such field.
        ModelError: there is no such engine, or it cannot run the task.
    """
    found = find_task(name)
    if isinstance(found, type):
        return Env(load_task(name, **config), physics, disturbances=disturbances)
    if config or disturbances or physics != "native":
        raise TaskError(
            f"{name!r} is a function that makes its environment; leave out the other arguments"
        )
    return environment(found, name)


def _check_class(name: str, task: object) -> None:
    if not (isinstance(task, type) and issubclass(task, Task)):
        raise TaskError(f"the task {name!r} is {task!r}; give a subclass of worldline.Task")
