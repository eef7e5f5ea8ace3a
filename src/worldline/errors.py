"""What went wrong, with which value, and the mend: in one line each."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WorldlineError(Exception):
    """Base of every error that Worldline raises on purpose."""


class ModelError(WorldlineError, ValueError):
    """A model that MuJoCo or an engine cannot take, or a name that the model lacks."""


class VariationError(WorldlineError, ValueError):
    """A variation with an unknown field or a wrong shape."""


class TaskError(WorldlineError, ValueError):
    """A task that does not exist, or that breaks the contract of `Task`."""


class ActionError(WorldlineError, ValueError):
    """An action with a wrong shape or dtype, or one that is not finite."""


class ConfigError(WorldlineError, ValueError):
    """A configuration value that cannot be used."""


class RunError(WorldlineError, RuntimeError):
    """A run folder that cannot be written, read, or is none."""


class ExportError(WorldlineError, RuntimeError):
    """A policy that another format cannot hold."""


class TrainingDivergedError(WorldlineError, RuntimeError):
    """Training produced numbers that are not finite; the last good state is kept."""


class LostProcessError(WorldlineError, RuntimeError):
    """Another of the processes that train together is gone."""


class ForkedProcessError(WorldlineError, RuntimeError):
    """A process that cannot use JAX, since it was forked from one that does."""


class RendererUnavailableError(WorldlineError, RuntimeError):
    """Something cannot be drawn on this machine; the error says what to install."""


class MissingExtraError(WorldlineError, ImportError):
    """An optional library that is not installed."""

    def __init__(self, what: str, extra: str, then: str = "") -> None:
        commands = " && ".join(filter(None, (install_command(extra), then)))
        super().__init__(f"{what} needs an optional library: {commands}")


def install_command(extra: str) -> str:
    """The command that installs an extra: from the index, or where it is a clone, from there."""
    import importlib.metadata
    import json
    from urllib.parse import urlparse
    from urllib.request import url2pathname

    try:
        origin = importlib.metadata.distribution("worldline").read_text("direct_url.json")
        came = json.loads(origin or "{}")
        if came.get("dir_info", {}).get("editable"):
            return f"pip install --editable '{url2pathname(urlparse(came['url']).path)}[{extra}]'"
    except (importlib.metadata.PackageNotFoundError, ValueError, KeyError):
        pass  # it is not installed, or by a tool that does not say from where
    return f"pip install 'worldline[{extra}]'"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A hint to append to an error: close matches of `name` among `names`, or all of a few."""
    known = sorted({*names} - {""})
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(repr(match) for match in close)}?"
    if 0 < len(known) <= 12:
        return f"; there are {', '.join(known)}"
    return ""
