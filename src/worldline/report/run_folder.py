"""The run folder: what a training run leaves behind, in files that outlive this library."""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, Self

from worldline.errors import ConfigError, RunError, did_you_mean
from worldline.files import PARTIAL, whole_file
from worldline.parallel.cores import usable_cores
from worldline.report.events import EventFile
from worldline.report.figures import plot_curves

#: The libraries whose versions decide what a run's numbers were.
_LIBRARIES = ("worldline", "jax", "jaxlib", "mujoco", "numpy")

#: The process that writes to the folder locks this file; the system unlocks it when that dies.
_LOCK_FILE = ".lock"

#: JSON has no word for these numbers; in a configuration they are written as strings.
_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class RunFolder(AbstractContextManager["RunFolder"]):
    """A folder with all files of a run.

    ```
    config.json      the resolved configuration, the command, the git commit, the versions
    task.py          a copy of the file with the task, where that is not a registered one
    metrics.jsonl    one JSON object a line: step, seconds, and named numbers
    checkpoints/     the whole training state, to go on from
    policy.npz       the policy of the last evaluation
    tensorboard/     the same numbers for `tensorboard --logdir`
    curves.png       learning curves
    episode.mp4      an evaluation episode; episode.png: a few of its frames; episode.html: a page
                     that plays it in a browser, with the extra viewer
    inputs.png       of a policy that sees: what it saw, as it is and as it was learned from
    seed-3/          of a run of several seeds: a run folder for each
    ```

    Make one with `create` or `open`. It is a context manager; leaving it closes its files.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        #: The metrics, one JSON object a line.
        self.metrics_file = path / "metrics.jsonl"
        #: Where `plot` draws the learning curves.
        self.curves_file = path / "curves.png"
        #: The video of an episode, for `render_episode`, and the picture of it.
        self.video_file, self.strip_file = path / "episode.mp4", path / "episode.png"
        #: The same episode as a page, for `write_page`.
        self.page_file = path / "episode.html"
        #: The picture of what a policy saw, for `write_inputs`.
        self.inputs_file = path / "inputs.png"
        self._lock: Any = None
        self._metrics: IO[str] | None = None
        self._tensorboard: EventFile | None = None

    @classmethod
    def create(cls, path: str | os.PathLike[str] | None, config: Mapping[str, Any]) -> Self:
        """A new run folder with its configuration in it, for this process alone to write to.

        Args:
            path: the folder, which must be new or empty; None for
                `runs/<task>-<time>-s<seed>` with `config["task"]` and `config["seed"]`.
            config: the resolved configuration: nested mappings, sequences, numbers and strings.

        Raises:
            RunError: the folder holds something already, or cannot be written.
            ConfigError: a value of `config` that JSON cannot hold.
        """
        content = {
            "config": _to_json(config),
            "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "command": sys.argv,
            "git": git_commit(),
            "versions": library_versions(),
        }
        folder = default_path(config) if path is None else Path(path)
        run = cls(folder)
        with contextlib.ExitStack() as stack, _writing(folder):
            stack.enter_context(run)  # closed again if something fails
            folder.mkdir(parents=True, exist_ok=True)
            _check_empty(folder)
            run.lock()
            _check_empty(folder)  # of two that came at the same time, the second sees the first's
            run._write_config(content)
            stack.pop_all()
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """A run folder that exists.

        Raises:
            RunError: there is no run folder; the error names runs beside it with similar names. Or
                a link in it leads out of it: a stranger's folder could have other files written.
        """
        folder = Path(path)
        if not (folder / "config.json").is_file():
            siblings = [file.parent for file in folder.parent.glob("*/config.json")]
            hint = did_you_mean(str(folder), map(str, siblings))
            what = "no config.json" if folder.is_dir() else "no such folder"
            raise RunError(
                f"{str(folder)!r} is not a run folder: {what}; "
                f"give a folder that `worldline train` made{hint}"
            )
        inside = folder.resolve()
        for file in folder.rglob("*"):
            if file.is_symlink() and not file.resolve().is_relative_to(inside):
                raise RunError(
                    f"{str(file)!r} is a link to a place outside of the run folder; replace it by "
                    "the file itself, or delete it"
                )
        run = cls(folder)
        run._read_config()
        return run

    def lock(self) -> None:
        """Lets this process alone write to the folder, until `close`.

        Raises:
            RunError: another run is writing to it, or it cannot be written.
        """
        from filelock import FileLock, Timeout

        lock = FileLock(self.path / _LOCK_FILE)
        with _writing(self.path):
            try:
                lock.acquire(timeout=0)
            except Timeout:
                raise RunError(
                    f"another run is writing to {str(self.path)!r}; wait for it, or give another "
                    "folder"
                ) from None
        self._lock = lock

    @property
    def config(self) -> dict[str, Any]:
        """The configuration that `create` was given, with lists for tuples and arrays."""
        config: dict[str, Any] = _from_json(self._read_config()["config"])
        return config

    def replace_config(self, **changes: Any) -> None:
        """Writes other values of the configuration to `config.json`.

        Raises:
            RunError: it cannot be written.
        """
        content = self._read_config()
        content["config"] |= _to_json(changes)
        with _writing(self.path):
            self._write_config(content)

    def keep(self, file: Path, name: str) -> None:
        """Copies a file into the folder.

        Raises:
            RunError: it cannot be read or written.
        """
        with _writing(self.path), whole_file(self.path / name) as copy:
            copy.write(file.read_bytes())

    @property
    def versions(self) -> dict[str, str]:
        """What made the run: the versions of Python and of the libraries, the number of cores."""
        return dict(self._read_config()["versions"])

    def write_metrics(self, step: int, seconds: float, metrics: Mapping[str, Any]) -> None:
        """Appends numbers to `metrics.jsonl` and to TensorBoard; they are on disk when it returns.

        Args:
            step: environment steps so far, over all worlds.
            seconds: wall-clock since the start of the run.
            metrics: name to number (a float, or an array of shape `()`). One that is not finite
                is written as null, and not to TensorBoard.

        Raises:
            RunError: the disk is full, or the folder is gone.
        """
        numbers = {name: float(value) for name, value in metrics.items()}
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
        line: dict[str, Any] = {"step": int(step), "seconds": round(float(seconds), 3)}
        line |= {name: finite.get(name) for name in numbers}
        with _writing(self.metrics_file):
            if self._metrics is None:
                self._metrics = _append(self.metrics_file)
            self._metrics.write(json.dumps(line, allow_nan=False) + "\n")
            self._metrics.flush()
            self._scalars().write(finite, int(step))

    def rewind(self, step: int) -> None:
        """Deletes the numbers of later steps than `step`, for a run that continues from there.

        TensorBoard's files are written again from `metrics.jsonl`: after a kill they lack the last
        numbers, which were in memory.

        Raises:
            RunError: the folder cannot be written.
        """
        self.close_files()
        if not self.metrics_file.exists():
            return
        rows = [row for row in self.read_metrics() if row["step"] <= step]
        with _writing(self.metrics_file):
            kept = self.metrics_file.read_text().splitlines(keepends=True) if rows else []
            with whole_file(self.metrics_file) as file:
                file.write("".join(kept[: len(rows)]).encode())
            shutil.rmtree(self.path / "tensorboard", ignore_errors=True)
        with _writing(self.path):
            for row in rows:  # on the clock as if it had not stopped
                wall = time.time() - rows[-1]["seconds"] + row["seconds"]
                clock = ("step", "seconds")
                finite = {n: v for n, v in row.items() if n not in clock and math.isfinite(v)}
                self._scalars().write(finite, int(row["step"]), wall)

    def read_metrics(self) -> list[dict[str, float]]:
        """All lines written so far; null comes back as nan. No metrics yet is an empty list.

        A last line that was cut off, by a kill or because it is being written, is left out.

        Raises:
            RunError: another line is not what `write_metrics` writes.
        """
        try:
            text = self.metrics_file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RunError(
                f"{str(self.metrics_file)!r} cannot be read: {error.strerror}"
            ) from error
        rows = []
        for number, line in enumerate(text.split("\n")[:-1], start=1):
            try:
                row = {name: _number(value) for name, value in json.loads(line).items()}
                rows.append({"step": row["step"], "seconds": row["seconds"], **row})
            except (ValueError, AttributeError, KeyError, TypeError) as error:
                raise RunError(
                    f"line {number} of {str(self.metrics_file)!r} is damaged; delete that line"
                ) from error
        return rows

    def plot(self) -> Path:
        """Draws the learning curves of the run so far to `curves.png`.

        Raises:
            RunError: there is nothing to draw yet, or the file cannot be written.
        """
        rows = self.read_metrics()
        if not rows:
            raise RunError(f"{str(self.path)!r} has no metrics to draw; train it for longer")
        config = self._read_config()["config"]
        title = str(config.get("task", self.path.name))
        if (seeds := config.get("seeds", 1)) > 1:
            title += f", {seeds} seeds"
        elif "seed" in config:
            title += f", seed {config['seed']}"
        with _writing(self.curves_file):
            plot_curves(rows, self.curves_file, title)
        return self.curves_file

    def close(self) -> None:
        """Closes the files, and lets others write to the folder."""
        self.close_files()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def close_files(self) -> None:
        """Closes the files. Writing again opens them again."""
        for file in (self._metrics, self._tensorboard):
            if file is not None:
                file.close()
        self._metrics = self._tensorboard = None

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    def _read_config(self) -> dict[str, Any]:
        file = self.path / "config.json"
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            {**content["config"]}, {**content["versions"]}  # mappings, or a TypeError
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunError(
                f"{str(self.path)!r} is not a run folder: its config.json is damaged; "
                "give a folder that `worldline train` made"
            ) from error
        return dict(content)

    def _write_config(self, content: Mapping[str, Any]) -> None:
        with whole_file(self.path / "config.json") as file:
            file.write((json.dumps(content, indent=2, allow_nan=False) + "\n").encode())

    def _scalars(self) -> EventFile:
        """The TensorBoard writer, made when first needed: its import would delay a run's start."""
        if self._tensorboard is None:
            self._tensorboard = EventFile(self.path / "tensorboard")
        return self._tensorboard


def library_versions() -> dict[str, str]:
    """What the last bits of a run depend on, here and now: the versions of Python and of the
    libraries, and the number of cores, among which XLA divides its sums.
    """
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {**versions, "python": platform.python_version(), "cores": _cores()}


def git_commit() -> str:
    """The commit of the present folder, with `-dirty` where files differ; empty without git."""
    command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return asked.stdout.strip()


def _cores() -> str:
    """How many cores XLA takes this process to have: `NPROC`, or those that it may use."""
    return os.environ.get("NPROC") or str(len(usable_cores()))


def _check_empty(folder: Path) -> None:
    # A process that was killed as it began may have left these.
    begun = {_LOCK_FILE, f"config.json{PARTIAL}"}
    if any(file.name not in begun for file in folder.iterdir()):
        raise RunError(f"the folder {str(folder)!r} is not empty; give --out a new one")


def default_path(config: Mapping[str, Any]) -> Path:
    """A folder under `runs/` that does not exist yet."""
    task = str(config.get("task", "run")).replace("/", "-")
    path = Path("runs") / f"{task}-{time.strftime('%Y%m%d-%H%M%S')}-s{config.get('seed', 0)}"
    others = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(free for free in itertools.chain([path], others) if not free.exists())


def _append(path: Path) -> IO[str]:
    """Opens a file of lines for appending, without the rest of a line that a kill cut off."""
    with path.open("ab+") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
    return path.open("a", encoding="utf-8")


def _number(value: Any) -> float:
    """A number of `metrics.jsonl`; null is one that was not finite."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return value


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Raises a `RunError` where a file or folder cannot be written."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write {str(path)!r}: {error.strerror or error}; give --out a folder that can "
            "be written"
        ) from error


def _to_json(value: Any, name: str = "") -> Any:
    """A configuration value as JSON has it: arrays as lists, paths and `inf` as strings."""
    if isinstance(value, Mapping):
        return {str(key): _to_json(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return _to_json(value.tolist(), name)
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        items = sorted(value) if isinstance(value, set | frozenset) else value
        return [_to_json(item, name) for item in items]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ConfigError(
        f"the configuration's {name[1:]!r} is a {type(value).__name__}, which a file cannot store; "
        "give numbers, strings, lists or dicts"
    )


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _from_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value
