"""References: a task by where its code is, `file.py:Class` or `package.module:Class`.

A run folder records where the class of its task is, with a copy of the file. Its code runs again
only where that file is still in place and unchanged, or where the user trusts what is there.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from worldline.env.env import Env
from worldline.env.task import Task
from worldline.errors import TaskError, did_you_mean

#: What a reference names: a task's class, or a function without arguments that makes an `Env`.
Found: TypeAlias = type[Task] | Callable[[], Env]

_FILE = re.compile(r"(?P<place>.+\.py)(?::(?P<name>[A-Za-z_]\w*))?")
_MODULE = re.compile(r"(?P<place>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_]\w*)")

#: How the module of a file is called in this process.
_OF_FILE = "_worldline_file_"


def is_reference(text: str) -> bool:
    """Whether a text is a reference, `file.py`, `file.py:Name` or `module:Name`."""
    return bool(_FILE.fullmatch(text) or _MODULE.fullmatch(text))


def load_reference(reference: str) -> Found:
    """The class of a task, or the function that makes an `Env`, at a reference.

    `file.py` without a name is the only task that is defined in the file. `brax:ant` is Brax's
    environment of that name. A file is run as
    `python file.py` runs it, but its `__name__` is another; the folder of a file, and the present
    folder for a module, join the places where Python looks for modules.

    Raises:
        TaskError: nothing is there, or it is neither; or its code raises an error, which the
            message names with its line.
    """
    if of_file := _FILE.fullmatch(reference):
        module = _module_of(Path(of_file["place"]))
        return _named(module, of_file["name"] or _only_task(module, reference), reference)
    of_module = _MODULE.fullmatch(reference)
    if of_module is None:
        raise TaskError(f"{reference!r} does not name a task; give file.py:Class or module:Class")
    if of_module["place"] == "brax":
        from worldline.tasks.brax import brax_by_name

        return functools.partial(brax_by_name, of_module["name"])
    _look_in(Path.cwd())
    return _named(_imported(of_module["place"], reference), of_module["name"], reference)


@dataclasses.dataclass(frozen=True)
class Code:
    """Where the class of a task is, for the record of a run."""

    file: str
    """The file, absolute."""
    name: str
    """The name of the class in it."""
    sha256: str
    """Of the file, in hexadecimal."""
    module: str = ""
    """The module's name where the class is imported by it; empty: the file is run."""


def code_of(kind: type[Task]) -> Code | None:
    """Where the code of a class is; None where no file defines it by name."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    if file is None or not Path(file).is_file() or getattr(module, kind.__name__, None) is not kind:
        return None
    alone = kind.__module__ == "__main__" or kind.__module__.startswith(_OF_FILE)
    path = Path(file).resolve()
    return Code(str(path), kind.__name__, _sum(path), "" if alone else kind.__module__)


def load_code(code: Code, copy: Path, *, trust: bool = False) -> type[Task]:
    """The class of the task that a run was made with.

    Args:
        code: the record of the run.
        copy: the copy of the file in the run folder.
        trust: use the copy if the file is no longer there, or has changed.

    Raises:
        TaskError: it is no longer there, or has changed, and the copy is not trusted.
    """
    file = Path(code.file)
    in_place = file.is_file() and not file.resolve().is_relative_to(copy.parent.resolve())
    if in_place and _sum(file) == code.sha256:
        module = _module_in(file, code.module) if code.module else _module_of(file)
    elif trust and copy.is_file():
        module = _module_of(copy)
    else:
        what = "has changed since" if in_place else "is no longer there"
        raise TaskError(
            f"the task {code.name!r} of this run is in {code.file!r}, which {what}; if you trust "
            f"the copy {str(copy)!r}, give --trust-code (in Python trust_code=True) to run it"
        )
    found = _named(module, code.name, str(file))
    if not isinstance(found, type):
        raise TaskError(f"{code.name!r} in {code.file!r} is no longer a task class; restore it")
    return found


def _sum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _look_in(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _module_of(file: Path) -> ModuleType:
    """Runs a file as a module, once in a process."""
    path = file.resolve()
    if not path.is_file():
        raise TaskError(f"there is no file {str(file)!r} with a task; check the path")
    main = sys.modules["__main__"]
    if getattr(main, "__file__", None) and Path(str(main.__file__)).resolve() == path:
        return main
    name = f"{_OF_FILE}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look themselves up there
        _look_in(path.parent)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise TaskError(f"{str(file)!r} cannot be run: {_where(error)}") from error
    return sys.modules[name]


def _module_in(file: Path, name: str) -> ModuleType:
    """Imports a module by its name, if that is the name of this file."""
    parts = (file.parent if file.name == "__init__.py" else file.with_suffix("")).parts
    names = tuple(name.split("."))
    if parts[-len(names) :] != names:
        raise TaskError(f"{str(file)!r} is not the file of a module {name!r}; restore config.json")
    _look_in(Path(*parts[: -len(names)]))
    return _imported(name, name)


def _imported(name: str, reference: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise TaskError(f"{reference!r} cannot be imported: {_where(error)}") from error


def _where(error: Exception) -> str:
    """An error of a user's code in one line, with the file and the line where it arose."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    last = f", at line {frames[-1].lineno} of {frames[-1].filename}" if frames[1:] else ""
    return f"{type(error).__name__}: {error}{last}"


def _only_task(module: ModuleType, reference: str) -> str:
    own = [name for name, each in vars(module).items() if _is_task(each, module)]
    if len(own) != 1:
        names = f" among {', '.join(own)}" if own else ""
        raise TaskError(f"{reference!r} has {len(own)} tasks; choose one{names}: {reference}:Name")
    return own[0]


def _is_task(value: object, module: ModuleType) -> bool:
    return (
        isinstance(value, type)
        and issubclass(value, Task)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
    )


def _named(module: ModuleType, name: str, reference: str) -> Found:
    found = getattr(module, name, None)
    if isinstance(found, type) and issubclass(found, Task):
        return found
    if found is None:
        there = [n for n, each in vars(module).items() if _is_task(each, module)]
        raise TaskError(f"{reference!r} has no {name!r}{did_you_mean(name, there)}")
    if isinstance(found, type) or not callable(found):
        raise TaskError(
            f"{name!r} of {reference!r} is {found!r}; give a subclass of worldline.Task, or a "
            "function without arguments that makes a worldline.Env"
        )
    made: Callable[[], Env] = found
    return made
