"""`--local`, `--ray`: the command line of each of several processes that train as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from worldline.parallel.config import ClusterConfig
from worldline.parallel.launch import Arguments, launch

#: The options that are the launcher's, and how many values each has.
_OURS = {"--local": 0, "--ray": 1, "--ray-cores": 1, "--processes": 1, "--restarts": 1}


def train_in_processes(name: str, argv: Sequence[str], settings: Any) -> int:
    """Runs `train` or `resume` in several processes; gives the exit status.

    Args:
        name: the command.
        argv: its arguments.
        settings: what was read of them, with its `ClusterConfig`.
    """
    cluster, arguments = settings.cluster, [name, *without(argv, _OURS)]
    if name == "resume":
        return _launch(cluster, lambda: arguments, cluster.restarts)
    out = settings.run.out
    if out is None:
        from worldline.report.run_folder import default_path

        out = default_path({"task": settings.name, "seed": settings.run.seed})
        arguments += ["--out", str(out)]
    config = Path(out) / "config.json"
    if config.is_file() and not settings.run.resume:  # the run refuses it; there is nothing to keep
        return _launch(cluster, lambda: arguments, 0)
    again = [*arguments, *([] if settings.run.resume else ["--resume"])]
    return _launch(cluster, lambda: again if config.is_file() else arguments, cluster.restarts)


def _launch(cluster: ClusterConfig, command: Callable[[], Arguments], restarts: int) -> int:
    processes = cluster.processes or 1
    if cluster.local:
        return launch(command, processes, restarts)
    from worldline.parallel.on_ray import launch_on_ray

    return launch_on_ray(command, processes, cluster.ray_cores, restarts, cluster.ray)


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
