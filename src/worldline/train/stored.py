"""The configuration of a run in its folder: storing it, and restoring objects from it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from worldline.env.config import EnvConfig
from worldline.env.disturb import DISTURBANCES, undisturbed
from worldline.env.env import Env
from worldline.env.task import Task
from worldline.errors import ConfigError, ModelError, RunError, TaskError, VariationError
from worldline.learn.algorithms import find_algorithm, name_of_algorithm
from worldline.rendering.camera import Camera
from worldline.report import RunFolder
from worldline.tasks.reference import Code, code_of, load_code
from worldline.tasks.registry import name_of, task_class
from worldline.tasks.terrain.config import Terrain
from worldline.train.config import TrainConfig
from worldline.variation.as_data import KINDS, from_data, to_data

T = TypeVar("T")

#: The objects that a file holds as data, by name.
_KINDS = {**KINDS, **DISTURBANCES, "camera": Camera}

#: The options of tasks that a file holds as data, by name.
_OPTIONS = {"terrain": Terrain}

#: The copy of the file with the task, in the folder of a run whose task is not registered.
TASK_FILE = "task.py"

#: The module with the task of all of Brax's environments.
_OF_BRAX = "worldline.tasks.brax"


def saved_config(folder: RunFolder) -> dict[str, Any]:
    """The configuration in a run folder, with tuples where JSON has lists.

    Raises:
        RunError: the folder is not that of a training run, or a part of it is missing.
    """
    config: dict[str, Any] = as_tuples(folder.config)
    parts = {
        "task": str, "code": dict, "options": dict, "env": dict, "not_rebuilt": str,
        "algorithm": str,
    }  # fmt: skip
    for name, kind in parts.items():
        if not isinstance(config.get(name), kind):
            raise RunError(
                f"{str(folder.path)!r} is not a training run: its config.json has no {name!r}; "
                "give a folder that `worldline train` made"
            )
    known = {*parts, config["algorithm"], *(each.name for each in dataclasses.fields(TrainConfig))}
    for name in sorted(config.keys() - known):
        raise RunError(
            f"{name!r} in the config.json of {str(folder.path)!r} is unknown; delete it, or use "
            "the version of worldline that wrote it"
        )
    return config


def algorithm_of(folder: RunFolder) -> Any:
    """Makes the configuration of a run's algorithm again.

    Raises:
        RunError: the folder does not describe it completely.
    """
    config = saved_config(folder)
    name = config["algorithm"]
    with _damage(folder):
        return _made(find_algorithm(name).config, config.get(name), name)


def run_config(folder: RunFolder, steps: int | None, quiet: bool) -> TrainConfig:
    """Makes the `TrainConfig` of a run again, with other `steps` unless None.

    Raises:
        RunError: the folder does not describe it completely.
        ConfigError: `steps` is out of its range.
    """
    saved = saved_config(folder)
    names = {field.name for field in dataclasses.fields(TrainConfig)}
    known = {name: value for name, value in saved.items() if name in names}
    with _damage(folder):
        if isinstance(known.get("init_from"), str):
            known["init_from"] = Path(known["init_from"])
        if "domain" in known:
            known["domain"] = from_data(known["domain"])
        config = _made(TrainConfig, known, "the run")
    return dataclasses.replace(config, quiet=quiet, steps=config.steps if steps is None else steps)


@contextlib.contextmanager
def _damage(folder: RunFolder) -> Iterator[None]:
    """Turns what is wrong with a configuration that was stored into a `RunError`."""
    try:
        yield
    except (ConfigError, TaskError, ModelError, VariationError, TypeError) as error:
        version = folder.versions.get("worldline")
        raise RunError(
            f"the config.json of {str(folder.path)!r} (worldline {version}) does not fit: {error}"
        ) from error


def _made(kind: Callable[..., T], saved: Any, what: str) -> T:
    """Makes a dataclass from the values of all its fields, and of no others."""
    names = {field.name for field in dataclasses.fields(cast(Any, kind)) if field.init}
    saved = saved if isinstance(saved, Mapping) else {}
    for name in sorted(names ^ saved.keys()):
        raise ConfigError(f"{name!r} of {what} is {'missing' if name in names else 'unknown'}")
    return kind(**saved)


def environment_of(folder: RunFolder, *, trust_code: bool = False) -> Env:
    """Makes the environment of a run again.

    Args:
        folder: the run folder.
        trust_code: run the copy of the task's file in the folder, if the file is no longer where it
            was or has changed.

    Raises:
        RunError: the folder does not describe it completely, this version has no such task, or the
            task has other options; or its code would have to be trusted.
    """
    config = saved_config(folder)
    if config["not_rebuilt"]:
        raise RunError(
            f"{str(folder.path)!r} does not store its environment: {config['not_rebuilt']}; make "
            "the environment in Python, and give it as env="
        )
    with _damage(folder):
        return made_again(config, folder.path / TASK_FILE, trust_code=trust_code)


def made_again(saved: Mapping[str, Any], copy: Path, *, trust_code: bool = False) -> Env:
    """Makes the environment again that `described` describes, with tuples where JSON has lists.

    Args:
        saved: the description.
        copy: a copy of the task's file.
        trust_code: as in `environment_of`.

    Raises:
        ConfigError, ModelError, TaskError, VariationError: it does not fit this version.
    """
    registered = saved["code"].get("task")
    if isinstance(registered, str):
        for name in sorted(saved["code"].keys() - {"task"}):
            raise ConfigError(f"{name!r} of the task's code is unknown")
        kind = task_class(registered)
    else:
        code = _made(Code, saved["code"], "the task's code")
        kind = load_code(code, copy, trust=trust_code)
    task = _made(kind, _options_from(saved["options"]), "the task")
    return Env.from_config(task, _env_config(saved["env"]))


def check_environment(folder: RunFolder, env: Env) -> None:
    """Checks that an environment has the configuration of a run's.

    Raises:
        RunError: it differs; the error has the name and both values.
    """
    with _damage(folder):
        before, now = _env_config(saved_config(folder)["env"]), env.config
    for field in dataclasses.fields(before):
        old, new = (to_data(getattr(c, field.name), _KINDS) for c in (before, now))
        if old != new:
            raise RunError(
                f"{str(folder.path)!r} was trained with {field.name} {old!r}, but the given env "
                f"has {new!r}; give an env with the same {field.name}"
            )


def _env_config(saved: Mapping[str, Any]) -> EnvConfig:
    """Makes the `EnvConfig` from its part of the result of `saved_config`."""
    return _made(EnvConfig, from_data(saved, _KINDS), "the environment")


def resolved_config(task: str, env: Env, config: TrainConfig, algorithm: Any) -> dict[str, Any]:
    """The whole configuration of a run, for its folder.

    Raises:
        ConfigError: its domain has a function, which no file can hold.
    """
    name = name_of_algorithm(algorithm)
    return {
        "task": task,
        **described(env),
        **dataclasses.asdict(dataclasses.replace(config, domain="", resume=False)),
        "domain": to_data(config.domain),
        "out": None,
        "algorithm": name,
        name: dataclasses.asdict(algorithm),
    }


def described(env: Env) -> dict[str, Any]:
    """What an environment is made of, for a file: JSON, if its task's options are."""
    plain = undisturbed(env.task)[0]
    kind = type(plain)
    # Brax's environments have no names in the registry: the record says where their class is.
    own_place = f"{kind.__module__}:{kind.__name__}" if kind.__module__ == _OF_BRAX else None
    registered = name_of(kind) or own_place
    code = code_of(kind)
    own = dataclasses.asdict(code) if code else {}
    return {
        "code": {"task": registered} if registered else own,
        "options": {name: _as_data(value) for name, value in _options(plain).items()},
        "env": to_data(vars(env.config), _KINDS),
        "not_rebuilt": _not_rebuilt(plain, env.config, code is not None),
    }


def keep_code(folder: RunFolder) -> None:
    """Copies the file of a task that is not registered into the run folder, for the record."""
    file = folder.config["code"].get("file")
    if file is not None:
        folder.keep(Path(file), TASK_FILE)


def _options(task: Task) -> dict[str, Any]:
    return {f.name: getattr(task, f.name) for f in dataclasses.fields(task) if f.init}


def _options_from(saved: Mapping[str, Any]) -> dict[str, Any]:
    """A task's options from a file."""

    def made(value: Any) -> Any:
        ours = isinstance(value, Mapping) and value.get("type") in _OPTIONS
        return from_data(value, _OPTIONS) if ours else value

    return {name: made(value) for name, value in saved.items()}


def _as_data(value: Any) -> Any:
    """An option for a file; of an object that no file can hold, such as an environment, its kind.

    Such a run is not rebuilt from its folder.
    """
    if type(value) in _OPTIONS.values():
        return to_data(value, _OPTIONS)
    plain = value is None or isinstance(value, bool | int | float | str | bytes | os.PathLike)
    several = isinstance(value, Mapping | Sequence | set | frozenset) or hasattr(value, "tolist")
    return value if plain or several else f"a {type(value).__name__}"


def _not_rebuilt(task: Task, config: EnvConfig, has_code: bool) -> str:
    """Why the environment cannot be made again from a file; empty where it can."""
    if config.not_stored:
        return f"a file cannot store {config.not_stored[0]}"
    name = type(task).__name__
    if not has_code:
        return f"the class of its task, {name}, is not in a file; put it into a Python file"
    options = _options(task)
    data = {
        name: _as_data(value) if type(value) in _OPTIONS.values() else value
        for name, value in options.items()
    }
    try:
        if _options_from(as_tuples(json.loads(json.dumps(data)))) == options:
            return ""
    except TypeError:
        pass
    return f"a file cannot store the options of its task, {name}"


def as_tuples(value: Any) -> Any:
    """A JSON value with a tuple for every list."""
    if isinstance(value, dict):
        return {key: as_tuples(item) for key, item in value.items()}
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value
