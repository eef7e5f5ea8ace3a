"""Checkpoints: the whole training state at one moment, in one file, bit for bit.

A checkpoint is a zip of NumPy arrays with a checksum each. The leaves of the state are `0`, `1`,
... in the order of `jax.tree.leaves`; a random key is stored as its data. The file has no names of
classes or attributes. A JSON text `about` has the number of the format, the step, the configuration
and the versions; for each leaf its dtype, its shape and its keys in dicts; and for each part of the
learner, such as `actor`, the numbers of its leaves.

A thread beside the training writes a checkpoint, whole or not at all. If one is damaged, or from
another program or format, a note says so, and the checkpoint before it is used.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from worldline.errors import RunError
from worldline.files import PARTIAL, DamagedArchiveError, read_archive, whole_file
from worldline.keys import is_key
from worldline.types import PyTree

#: Raise this number when the file changes, or the order or the meaning of a state's leaves.
_FORMAT = 2
_FOLDER = "checkpoints"

#: The longest time without a checkpoint. A kill costs this time and the present update at most.
_SAVE_EVERY_S = 300.0

#: A system that asks a run to stop may kill it ten seconds later, before a longer update ends. So a
#: run saves after each update that takes more than this time, within this share of all time.
_LONG_UPDATE_S, _MOST_OF_THE_TIME = 5.0, 0.05


class Moment(NamedTuple):
    """The progress of a run at a checkpoint."""

    step: int
    """Environment steps since the run began."""
    seconds: float
    """Wall-clock time since the run began."""
    score: float | None
    """The return of the evaluation at this step, or None. The checkpoint with the best is kept."""


class Checkpoint(NamedTuple):
    """The content of a checkpoint."""

    state: PyTree
    moment: Moment
    notes: tuple[str, ...]
    """Lines for the user on damaged checkpoints and other versions."""


class CheckpointWriter(AbstractContextManager["CheckpointWriter"]):
    """Writes checkpoints in a thread, one at a time; keeps the last few and the best.

    It is a context manager; its end waits until the last checkpoint is on disk.

    Args:
        run: the run folder; the files go to `checkpoints/` in it. None in a process that writes no
            checkpoints.
        config: the run's resolved configuration, in types that JSON has.
        versions: of the libraries that the numbers depend on.
        parts: the parts of the state that other runs can begin with, as `Learner.parts`.
        keep: how many of the latest stay, beside the one with the highest score.
    """

    def __init__(
        self,
        run: Path | None,
        config: Mapping[str, Any],
        versions: Mapping[str, str],
        parts: Mapping[str, Callable[[Any], PyTree]] | None = None,
        keep: int = 2,
    ) -> None:
        self._folder = run and run / _FOLDER
        self._about = {"format": _FORMAT, "config": dict(config), "versions": dict(versions)}
        self._parts = parts or {}
        self._keep = keep
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None
        self._saved_at = time.monotonic()
        self._cost_s = 0.0

    def save(self, state: PyTree, moment: Moment) -> None:
        """Begins to write a checkpoint; the state may be donated or deleted when this returns.

        Raises:
            RunError: the one before could not be written.
        """
        self.wait()
        began = time.monotonic()
        if self._folder is not None:
            about = {
                **self._about,
                **moment._asdict(),
                "leaves": _descriptions(state),
                "parts": {name: _numbers_of(part, state) for name, part in self._parts.items()},
            }
            path = self._folder / f"step-{moment.step:012}.npz"
            self._writing = self._pool.submit(self._write, path, _arrays(state), about, began)
        self._saved_at = time.monotonic()

    def are_due(self, update_seconds: float) -> bool:
        """Whether to save after an update of this duration.

        True after five minutes without a checkpoint; and after an update of more than five seconds,
        if writing the last checkpoint took at most 5 % of the time since then.
        """
        if self._folder is None:
            return False
        since = time.monotonic() - self._saved_at
        is_writing = self._writing is not None and not self._writing.done()
        affordable = not is_writing and self._cost_s <= _MOST_OF_THE_TIME * since
        return since > _SAVE_EVERY_S or (update_seconds > _LONG_UPDATE_S and affordable)

    def wait(self) -> None:
        """Returns when the last checkpoint is on disk.

        Raises:
            RunError: it could not be written; those before are intact.
        """
        writing, self._writing = self._writing, None
        if writing is None or self._folder is None:
            return
        try:
            writing.result()
        except OSError as error:
            raise RunError(
                f"cannot write a checkpoint to {str(self._folder)!r}: {error.strerror}; free some "
                f"space, then `worldline resume {self._folder.parent}` continues from the last one"
            ) from error

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._pool.shutdown(wait=True)
        if error is None:
            self.wait()

    def _write(
        self, path: Path, arrays: list[np.ndarray[Any, Any]], about: dict[str, Any], began: float
    ) -> None:
        path.parent.mkdir(exist_ok=True)
        named: dict[str, Any] = {str(number): array for number, array in enumerate(arrays)}
        with whole_file(path) as file:
            np.savez(file, about=np.array(json.dumps(about)), **named)
        self._forget(path)
        self._cost_s = time.monotonic() - began

    def _forget(self, newest: Path) -> None:
        """Deletes all checkpoints but the last few and the best, and the partial files of a kill.

        Checkpoints of later steps than the newest stay and do not count: they are damaged, since
        the run did not continue from them.
        """
        for partial in newest.parent.glob(f"*{PARTIAL}"):
            partial.unlink(missing_ok=True)
        files = [file for file in _newest_first(newest.parent) if file.name <= newest.name]
        best = max(files, key=_score)
        for file in files[self._keep :]:
            if file != best:
                file.unlink(missing_ok=True)


def restore(
    run: Path, like: PyTree, config: Mapping[str, Any], versions: Mapping[str, str]
) -> Checkpoint | None:
    """Reads the last undamaged checkpoint of a run; None if the run has no checkpoint.

    Args:
        run: the run folder.
        like: a state of the same shapes, as from `jax.eval_shape(learner.init, key)`.
        config: the part of the configuration that may not change.
        versions: of the libraries that continue the run.

    Raises:
        RunError: all checkpoints are damaged, or the configuration or the state differs.
    """
    if not _newest_first(run / _FOLDER):
        return None
    content, notes = _last_whole(run)
    about = content.about
    before = {name: about["config"].get(name) for name in config}
    _check_config(content.file, before, json.loads(json.dumps(dict(config))))
    state = content.tree(range(len(about["leaves"])), like, "state")
    for name, version in versions.items():
        if about["versions"].get(name) != version:
            notes.append(
                f"made with {name} {about['versions'].get(name)} and going on with {version}: the "
                "numbers may differ in their last bits"
            )
    moment = Moment(about["step"], about["seconds"], about["score"])
    return Checkpoint(state, moment, tuple(notes))


def restore_part(run: Path, name: str, like: PyTree) -> PyTree:
    """Reads one part of the state from a run's last undamaged checkpoint.

    Args:
        run: the run folder.
        name: the name of the part, such as `actor`.
        like: a tree with the structure, shapes and types of the part.

    Raises:
        RunError: there is no checkpoint, it has no such part, or its part has another shape.
    """
    content, _ = _last_whole(run)
    parts = content.about["parts"]
    if name not in parts:
        raise RunError(
            f"the checkpoint {str(content.file)!r} has no part {name!r}: it was made by another "
            f"algorithm; give --init-parts of {', '.join(parts) or 'another run'}"
        )
    return content.tree(parts[name], like, name)


class _DamagedError(Exception):
    """A file cannot be read as a checkpoint of this format; the text completes "FILE is"."""


class _Content(NamedTuple):
    """The arrays of a checkpoint, and the description of them."""

    file: Path
    about: dict[str, Any]
    arrays: list[np.ndarray[Any, Any]]

    def tree(self, numbers: Any, like: PyTree, what: str) -> PyTree:
        """The leaves with these numbers as a tree of the structure, shapes and types of `like`."""
        saved = [self.about["leaves"][number] for number in numbers]
        here, paths = _descriptions(like), jax.tree.leaves_with_path(like)
        named = [
            f"{leaf} ({jax.tree_util.keystr(path, simple=True, separator='.')!r})"
            for leaf, (path, _) in zip(here, paths, strict=True)
        ]
        pairs = itertools.zip_longest(saved, here, named, fillvalue="nothing")
        for number, (there, leaf, name) in enumerate(pairs):
            if there != leaf:
                raise RunError(
                    f"the {what} in the checkpoint {str(self.file)!r} does not fit: array {number} "
                    f"of its {len(saved)} is {there}, but array {number} of the {len(here)} of "
                    f"this training is {name}; give the settings, the algorithm and the task of "
                    "the checkpoint"
                )
        leaves = [
            _as_leaf(self.arrays[number], leaf)
            for number, leaf in zip(numbers, jax.tree.leaves(like), strict=True)
        ]
        return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _last_whole(run: Path) -> tuple[_Content, list[str]]:
    """The last undamaged checkpoint of a run, and notes on those after it."""
    damaged = []
    for file in _newest_first(run / _FOLDER):
        try:
            content = _read(file)
        except _DamagedError as error:
            damaged.append(f"{str(file)!r} is {error}")
            continue
        return content, [f"{what}; using the checkpoint before it" for what in damaged]
    if damaged:
        raise RunError(f"{str(run)!r} has no complete checkpoint: {damaged[0]}")
    raise RunError(f"{str(run)!r} has no checkpoint yet; give a run that has written one")


def _read(file: Path) -> _Content:
    try:
        content = read_archive(file)
        about = json.loads(str(content["about"]))
        if about["format"] != _FORMAT:
            raise _DamagedError(
                f"of format {about['format']}, but this version reads format {_FORMAT}; "
                "train it again, or continue with the version that made it"
            )
        arrays = [content[str(number)] for number in range(len(about["leaves"]))]
        about["step"], about["seconds"], about["score"], about["config"], about["versions"]
        about["parts"].items()
    except (OSError, DamagedArchiveError) as error:
        raise _DamagedError(f"truncated or damaged ({error})") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _DamagedError("not a checkpoint of Worldline, or damaged") from error
    return _Content(file, about, arrays)


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.npz"), reverse=True)


def _score(file: Path) -> float:
    """The score of a checkpoint; minus infinity if it has none."""
    try:
        score = json.loads(str(read_archive(file, ["about"])["about"]))["score"]
    except Exception:  # damaged, in whatever way
        score = None
    return -np.inf if score is None else float(score)


def _descriptions(tree: PyTree) -> list[str]:
    """The type and shape of each leaf, with its key in dicts: `float32[4, 3] of body_mass`."""
    found = []
    for path, leaf in jax.tree.leaves_with_path(tree):
        keys = [str(step.key) for step in path if isinstance(step, jax.tree_util.DictKey)]
        inside = f" of {'/'.join(keys)}" if keys else ""
        found.append(f"{leaf.dtype}{list(leaf.shape)}{inside}")
    return found


def _numbers_of(part: Callable[[Any], PyTree], state: PyTree) -> list[int]:
    """The numbers of the leaves of a part of the state."""
    leaves, structure = jax.tree.flatten(state)
    return jax.tree.leaves(part(jax.tree.unflatten(structure, range(len(leaves)))))


def _arrays(state: PyTree) -> list[np.ndarray[Any, Any]]:
    """Copies of the state's leaves in NumPy; a random key becomes its data."""
    leaves = jax.tree.leaves(state)
    words = [jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in leaves]
    # JAX (0.10) cannot fetch what is empty and spread over devices: the state of no actuators.
    return [np.array(word) if word.size else np.zeros(word.shape, word.dtype) for word in words]


def _as_leaf(array: np.ndarray[Any, Any], like: Any) -> Any:
    """An array from a file with the type of `like`: the file has no bfloat16 and no keys."""
    if is_key(like):
        return jax.random.wrap_key_data(jnp.array(array))
    return jnp.array(array.view(like.dtype))


def _check_config(file: Path, before: Any, now: Any) -> None:
    for name, old, new in differences(before, now):
        raise RunError(
            f"{name} is {new!r}, but the checkpoint {str(file)!r} was made with {old!r}; "
            "give the same value, or begin a new run from it with --init-from"
        )


def differences(before: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The values that differ between two configurations as JSON has them: name, before, now."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            place = f"{name}.{key}" if name else key
            yield from differences(before.get(key), now.get(key), place)
    elif before != now:
        yield name, before, now
