"""The `worldline` command."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from worldline.errors import ConfigError, WorldlineError, did_you_mean

_HELP = "`worldline COMMAND --help` tells more; `worldline train TASK --help` shows every setting."

#: Each command, its argument, and the line on it in the usage. The class in `cli.commands` that has
#: its options and does its work has the same name; `train` and `bench` read theirs otherwise.
COMMANDS = {
    "train": ("TASK", "train a policy, and leave a run folder with curves and a video"),
    "resume": ("RUN", "go on with a run that was stopped or killed, from its last checkpoint"),
    "eval": ("RUN", "evaluate a run's policy on fresh episodes"),
    "render": ("RUN", "make a video and a strip of pictures of a run's policy"),
    "export": ("RUN", "write a run's policy as an ONNX file"),
    "init": ("MJCF", "write a task file for a robot of your own, ready to train"),
    "list": ("", "the tasks"),
    "bench": ("NAME", "a published figure, measured here against its peers (from a checkout)"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        argv: the arguments, by default those of the process.

    Returns:
        The exit status: 0, also after a training that Ctrl-C ended; 2 after an error of one line;
        130 for a command that Ctrl-C broke off.
    """
    name, *rest = [*(sys.argv[1:] if argv is None else argv)] or ["--help"]
    try:
        with _sigterm_as_ctrl_c():
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
        lines = "\n".join(f"  {f'{it} {what}':15}{does}" for it, (what, does) in COMMANDS.items())
        print(f"usage: worldline COMMAND ...\n\n{lines}\n\n{_HELP}")
    elif name == "--version":
        from worldline import __version__

        print(f"worldline {__version__}")
    elif name == "bench":
        return _bench(argv)
    elif name in COMMANDS:
        _run_with_settings(name, argv)
    else:
        raise ConfigError(f"there is no command {name!r}{did_you_mean(name, COMMANDS)}")
    return 0


def _run_with_settings(name: str, argv: list[str]) -> None:
    """Reads the settings, sets up the process, and runs the command.

    Wrong settings end the command before the rest is imported, which takes seconds.
    """
    from worldline.cli import arguments, commands

    if name == "train":
        settings = arguments.train_settings(*arguments.take_task(argv))
    else:
        kind = getattr(commands, name.capitalize())
        settings = arguments.parse(kind, argv, f"worldline {name}")

    from worldline.tuning import tune_process

    tune_process()
    settings.execute()


def _bench(argv: list[str]) -> int:
    """Runs a benchmark of the checkout and returns its exit status."""
    folder = Path(__file__).resolve().parents[3] / "bench"
    names = sorted(f.stem for f in folder.glob("*.py") if not f.stem.startswith("_"))
    if not names:
        raise ConfigError("the benchmarks are in the source; run this from a checkout of Worldline")
    name, *rest = argv or [""]
    if name in ("-h", "--help"):
        print(f"usage: worldline bench NAME ...\n\nNAME is one of {', '.join(names)}.")
        return 0
    if name not in names:
        raise ConfigError(f"there is no benchmark {name!r}{did_you_mean(name, names)}")
    return subprocess.call([sys.executable, str(folder / f"{name}.py"), *rest])


def _leave(status: int) -> int:
    """Returns the exit status of a failure; one of several processes ends at once instead."""
    if "worldline.parallel.cluster" in sys.modules:
        from worldline.parallel.cluster import leave

        leave(status)
    return status


@contextlib.contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Makes SIGTERM raise KeyboardInterrupt as Ctrl-C does, so that a command can clean up."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
