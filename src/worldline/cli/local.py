"""`--local`: the command line of each of several processes that train as one on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from worldline.parallel.launch import launch

#: The options that are the launcher's, and how many values each has.
_OURS = {"--local": 0, "--processes": 1, "--restarts": 1}


def train_locally(name: str, argv: Sequence[str], settings: Any) -> int:
    """Runs `train` or `resume` in several processes of this machine; gives the exit status.

    Args:
        name: the command.
        argv: its arguments.
        settings: what was read of them, with its `ClusterConfig`.
    """
    cluster, arguments = settings.cluster, [name, *without(argv, _OURS)]
    if name == "resume":
        return launch(lambda: arguments, cluster.processes, cluster.restarts)
    out = settings.run.out
    if out is None:
        from worldline.report.run_folder import default_path

        out = default_path({"task": settings.name, "seed": settings.run.seed})
        arguments += ["--out", str(out)]
    config = Path(out) / "config.json"
    if config.is_file() and not settings.run.resume:  # the run refuses it; there is nothing to keep
        return launch(lambda: arguments, cluster.processes)
    again = [*arguments, *([] if settings.run.resume else ["--resume"])]
    return launch(
        lambda: again if config.is_file() else arguments, cluster.processes, cluster.restarts
    )


def without(argv: Sequence[str], options: dict[str, int]) -> list[str]:
    """The arguments without some options and their values, also as `--option=value`."""
    left, skip = [], 0
    for argument in argv:
        option, has_value, _ = argument.replace("_", "-").partition("=")
        if skip:
            skip -= 1
        elif option in options:
            skip = 0 if has_value else options[option]
        else:
            left.append(argument)
    return left
