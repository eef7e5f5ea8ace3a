"""The `worldline` command."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from worldline.errors import ConfigError, WorldlineError, did_you_mean

_HELP = (
    "`worldline COMMAND --help` shows the options of a command. The options of `train` depend on "
    "the TASK: `worldline train TASK --help`."
)

#: Each command, its argument, and the line on it in the usage. The class in `cli.commands` that has
#: its options and does its work has the same name; `train`, `sweep` and `bench` read theirs
#: otherwise.
COMMANDS = {
    "train": ("TASK", "train a policy; write curves, a video and the policy to a run folder"),
    "sweep": ("TASK ...", "train over tasks, settings and seeds; write a table and a picture"),
    "resume": ("RUN", "continue a run that was stopped or killed"),
    "eval": ("RUN", "evaluate the policy of a run in new episodes"),
    "render": ("RUN", "make a video of the policy of a run"),
    "watch": ("RUN ...", "show a run, a task or an MJCF live in the browser"),
    "record": ("RUN", "record episodes of the policy of a run as a Minari dataset"),
    "compare": ("RUN ...", "compare runs: a table and a picture"),
    "export": ("RUN", "write a policy as ONNX with a program for a robot; or a page that shows it"),
    "identify": ("MODEL LOG", "find masses, damping and friction from a log of the robot"),
    "init": ("ROBOT", "write a Python file with a task for your robot, ready to train"),
    "list": ("", "list the tasks, or what can vary in one task"),
    "bench": ("NAME", "measure a published figure again, with other libraries (needs a clone)"),
}

#: What takes seconds to import, of what a command uses; for the others it is `worldline.train.run`.
_HEAVY = {
    "identify": "worldline.identify.run",
    "init": "worldline.cli.scaffold",
    "watch": "worldline.watch.watcher",
}

#: The commands that do without JAX, and so answer at once.
_LIGHT = ("compare", "list")

#: The commands that ask for signals themselves, once there is something to save.
_STOPPING = ("train", "resume")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        argv: the arguments, by default those of the process.

    Returns:
        The exit status: 0, also after a training that Ctrl-C ended; 2 after an error of one line;
        130 for a command that Ctrl-C broke off in the middle of its work.
    """
    name, *rest = [*(sys.argv[1:] if argv is None else argv)] or ["--help"]
    _replace_closed_streams()
    try:
        with _on_signals(signal.SIG_DFL):
            status = _run(name, rest)
            sys.stdout.flush()
        return status
    except WorldlineError as error:
        print(f"error: {error}", file=sys.stderr)
        return _leave(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _leave(130)
    except BrokenPipeError:  # the reader of a pipe has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(name: str, argv: list[str]) -> int:
    if name in ("-h", "--help", "help"):
        lines = "\n".join(f"  {f'{it} {what}':20}{does}" for it, (what, does) in COMMANDS.items())
        print(f"usage: worldline COMMAND ...\n\n{lines}\n\n{_HELP}")
    elif name == "--version":
        from worldline import __version__

        print(f"worldline {__version__}")
    elif name == "bench":
        return _bench(argv)
    elif name == "sweep":
        from worldline.cli.sweeping import sweep

        return sweep(argv)
    elif name in COMMANDS:
        return _run_with_settings(name, argv)
    else:
        raise ConfigError(f"there is no command {name!r}{did_you_mean(name, COMMANDS)}")
    return 0


def _run_with_settings(name: str, argv: list[str]) -> int:
    """Reads the settings, sets up the process, and runs the command.

    Wrong settings end the command before the rest is imported, which takes seconds. Until then, and
    in training until there is a run folder, a signal ends the process at once: nothing is to be
    cleaned up, and an exception in the middle of an import may get lost.
    """
    from worldline.cli import commands
    from worldline.cli.parsing import parse

    if name == "train":
        from worldline.cli.arguments import take_task, train_settings

        settings = train_settings(*take_task(argv))
    else:
        settings = parse(getattr(commands, name.capitalize()), argv, f"worldline {name}")
    if name in _STOPPING and settings.cluster.launcher:
        from worldline.cli.local import train_in_processes

        return train_in_processes(name, argv, settings)
    if name not in _LIGHT:
        from worldline.tuning import tune_process

        tune_process()
        importlib.import_module(_HEAVY.get(name, "worldline.train.run"))
    with _on_signals(signal.SIG_DFL if name in _STOPPING else signal.default_int_handler):
        settings.execute()
    return 0


def _bench(argv: list[str]) -> int:
    folder = Path(__file__).resolve().parents[3] / "bench"
    names = sorted(f.stem for f in folder.glob("*.py") if not f.stem.startswith("_"))
    if not names:
        raise ConfigError(
            "the benchmarks are not in the installed package; run this in a clone of the repository"
        )
    name, *rest = argv or [""]
    if name in ("-h", "--help"):
        print(f"usage: worldline bench NAME ...\n\nNAME is one of {', '.join(names)}.")
        return 0
    if name not in names:
        raise ConfigError(f"there is no benchmark {name!r}{did_you_mean(name, names)}")
    return subprocess.call([sys.executable, str(folder / f"{name}.py"), *rest])


def _replace_closed_streams() -> None:
    """Opens what the process began without, such as standard output after `>&-`, on nothing.

    Otherwise the next file to be opened, a checkpoint say, would take its number, and get what
    libraries print.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


def _leave(status: int) -> int:
    """Returns the exit status of a failure; one of several processes ends at once instead."""
    if "worldline.parallel.cluster" in sys.modules:
        from worldline.parallel.cluster import leave

        leave(status)
    return status


@contextlib.contextmanager
def _on_signals(handler: Any) -> Iterator[None]:
    """Handles Ctrl-C and SIGTERM in one way: `default_int_handler` raises KeyboardInterrupt."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
