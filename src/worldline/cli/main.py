"""The command line: train, resume, eval, render, export, init, list, bench."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from worldline.errors import ConfigError, WorldlineError, did_you_mean

_USAGE = """\
usage: worldline COMMAND ...

  train TASK     train a policy, and leave a run folder with curves and a video
  resume RUN     go on with a run that was stopped or killed, from its last checkpoint
  eval RUN       evaluate a run's policy on fresh episodes
  render RUN     make a video and a strip of pictures of a run's policy
  export RUN     write a run's policy as an ONNX file
  init MJCF      write a task file for a robot of your own, ready to train
  list           the tasks
  bench NAME     a published figure, measured here against its peers (from a checkout)

`worldline COMMAND --help` tells more; `worldline train TASK --help` shows every setting."""

_COMMANDS = ("train", "resume", "eval", "render", "export", "init", "list", "bench")


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
        print(_USAGE)
    elif name == "--version":
        from worldline import __version__

        print(f"worldline {__version__}")
    elif name == "bench":
        return _bench(argv)
    elif name in _COMMANDS:
        _run_with_settings(name, argv)
    else:
        raise ConfigError(f"there is no command {name!r}{did_you_mean(name, _COMMANDS)}")
    return 0


def _run_with_settings(name: str, argv: list[str]) -> None:
    """Reads the settings, sets up the process, and runs the command.

    The imports take seconds; so wrong settings end the command before the rest is imported.
    """
    from worldline.cli.arguments import parse, take_task, train_settings
    from worldline.cli.settings import SETTINGS

    if name == "train":
        settings = train_settings(*take_task(argv))
    else:
        settings = parse(SETTINGS[name], argv, f"worldline {name}")

    from worldline.cli.commands import COMMANDS
    from worldline.tuning import tune_process

    tune_process()
    COMMANDS[name](settings)


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


if __name__ == "__main__":
    sys.exit(main())
