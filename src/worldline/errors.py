"""The errors. Each message is one line: what is wrong, with which value, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WorldlineError(Exception):
    """Base of every error that Worldline raises on purpose."""


class ModelError(WorldlineError, ValueError):
    """A model that MuJoCo or an engine does not support, or a name that the model does not have."""


class VariationError(WorldlineError, ValueError):
    """A variation with an unknown field or a wrong shape."""


class TaskError(WorldlineError, ValueError):
    """A task that does not exist, or that breaks the rules of `Task`."""


class ActionError(WorldlineError, ValueError):
    """An action with a wrong shape or dtype, or one that is not finite."""


class ConfigError(WorldlineError, ValueError):
    """A configuration value that cannot be used."""


class RunError(WorldlineError, RuntimeError):
    """A folder that is not a run folder, or that cannot be read or written."""


class ExportError(WorldlineError, RuntimeError):
    """A policy that the other file format cannot represent."""


class TrainingDivergedError(WorldlineError, RuntimeError):
    """Training produced numbers that are not finite; the last good state is kept."""


class LostProcessError(WorldlineError, RuntimeError):
    """In a training with several processes, another process has ended."""


class ForkedProcessError(WorldlineError, RuntimeError):
    """A process that cannot use JAX, because it was forked from a process that uses it."""


class RendererUnavailableError(WorldlineError, RuntimeError):
    """No renderer works on this machine; the error says what to install."""


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
