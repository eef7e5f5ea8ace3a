"""Checkpoints: all that a training run is at one moment, in one file, bit for bit.

A checkpoint is a zip of NumPy arrays, one a leaf of the training state under the leaf's own path,
with a JSON text `about`. It is written beside the training, whole or not at all, and every array
carries a checksum. One that is damaged or another program's is told apart, and the one before it
is used.
"""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from worldline.errors import RunError
from worldline.files import PARTIAL, whole_file
from worldline.types import PyTree

_FORMAT = 1
_FOLDER = "checkpoints"

#: A checkpoint is due after so many seconds without one; and after every update that takes so long
#: that who asks a run to stop, and allows it ten seconds, may not see its end.
_SAVE_EVERY_S, _LONG_UPDATE_S = 300.0, 5.0


class Moment(NamedTuple):
    """Where a run stood when a checkpoint was made."""

    step: int
    """Environment steps since the run began."""
    seconds: float
    """Wall-clock time since the run began."""
    score: float | None
    """What the last evaluation gave, if one was due; the best is kept."""


class Checkpoint(NamedTuple):
    """What comes back."""

    state: PyTree
    moment: Moment
    notes: tuple[str, ...]
    """What the user should know: which checkpoints were damaged, which versions differ."""


class CheckpointWriter:
    """Writes checkpoints of a run beside it, one at a time; keeps the last few and the best.

    It is a context manager; leaving it waits for the last one to be on disk.

    Args:
        run: the run folder; the files go to `checkpoints/` in it. None in a process that leaves
            writing to another one.
        config: the run's resolved configuration, of what JSON can hold.
        versions: of the libraries that make the numbers.
        keep: how many of the latest stay, beside the one with the highest score.
    """

    def __init__(
        self,
        run: Path | None,
        config: Mapping[str, Any],
        versions: Mapping[str, str],
        keep: int = 2,
    ) -> None:
        self._folder = run and run / _FOLDER
        self._about = {"format": _FORMAT, "config": dict(config), "versions": dict(versions)}
        self._keep = keep
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None
        self._saved_at = time.monotonic()

    def save(self, state: PyTree, moment: Moment) -> None:
        """Begins to write a checkpoint; the state may be given away when this returns.

        Raises:
            RunError: the one before could not be written.
        """
        self.wait()
        if self._folder is not None:
            self._writing = self._pool.submit(self._write, self._folder, _arrays(state), moment)
        self._saved_at = time.monotonic()

    def are_due(self, update_seconds: float) -> bool:
        """Whether to save now, after an update that took so long."""
        late = time.monotonic() - self._saved_at > _SAVE_EVERY_S
        return late or update_seconds > _LONG_UPDATE_S

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
                f"cannot write a checkpoint to {str(self._folder)!r}: {error.strerror}; make room, "
                f"then `worldline resume {self._folder.parent}` goes on from the one before"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=True)
        if error is None:
            self.wait()

    def _write(self, folder: Path, arrays: dict[str, np.ndarray[Any, Any]], moment: Moment) -> None:
        folder.mkdir(exist_ok=True)
        types = {name: str(array.dtype) for name, array in arrays.items()}
        about = json.dumps({**self._about, **moment._asdict(), "types": types})
        path = folder / f"step-{moment.step:012}.npz"
        with whole_file(path) as file:
            np.savez(file, about=np.array(about), **arrays)  # type: ignore[arg-type]
        self._forget(folder, path)

    def _forget(self, folder: Path, newest: Path) -> None:
        """Deletes all checkpoints but the last few and the best, and what a kill left half done.

        Those of later steps were damaged, or the run would have gone on from them: they do not
        count.
        """
        for partial in folder.glob(f"*{PARTIAL}"):
            partial.unlink(missing_ok=True)
        files = [file for file in _newest_first(folder) if file.name <= newest.name]
        best = max(files, key=_score)
        for file in files[self._keep :]:
            if file != best:
                file.unlink(missing_ok=True)


def restore(
    run: Path, like: PyTree, config: Mapping[str, Any], versions: Mapping[str, str]
) -> Checkpoint | None:
    """The last checkpoint of a run that is whole; None if none was written yet.

    Args:
        run: the run folder.
        like: a state of the same shapes, as from `jax.eval_shape(learner.init, key)`.
        config: the part of the configuration that may not change.
        versions: of the libraries to go on with.

    Raises:
        RunError: none is whole, or it was made with another configuration.
    """
    if not _newest_first(run / _FOLDER):
        return None
    content, notes = _last_whole(run)
    about = content.about
    before = {name: about["config"].get(name) for name in config}
    _check_config(content.file, before, json.loads(json.dumps(dict(config))))
    names = name_leaves(like)
    unknown = content.arrays.keys() - set(jax.tree.leaves(names))
    if unknown:
        raise RunError(
            f"the checkpoint {str(content.file)!r} has a {min(unknown)!r} that this run has not: "
            "it was made by another algorithm, task or version"
        )
    state = jax.tree.map(content.leaf, names, like)
    for name, version in versions.items():
        if about["versions"].get(name) != version:
            notes.append(
                f"made with {name} {about['versions'].get(name)} and going on with {version}: the "
                "numbers may differ in their last bits"
            )
    moment = Moment(about["step"], about["seconds"], about["score"])
    return Checkpoint(state, moment, tuple(notes))


def restore_part(run: Path, names: PyTree, like: PyTree) -> PyTree:
    """A part of the state in a run's last whole checkpoint, whatever the rest of it is.

    Args:
        run: the run folder.
        names: the part of `name_leaves(state)`.
        like: the part as it is in the state to put it in.

    Raises:
        RunError: there is no checkpoint, or the part has another shape in it.
    """
    content, _ = _last_whole(run)
    return jax.tree.map(content.leaf, names, like)


def name_leaves(state: PyTree) -> PyTree:
    """The state with each leaf's path in its place: `learning.networks.critic.weights.0`."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: jax.tree_util.keystr(path, simple=True, separator="."), state
    )


class _DamagedError(Exception):
    """No whole checkpoint of ours; says what it is."""


class _Content(NamedTuple):
    """What is in a checkpoint."""

    file: Path
    about: dict[str, Any]
    arrays: dict[str, np.ndarray[Any, Any]]

    def leaf(self, name: str, like: Any) -> Any:
        """The array of a name, as one of the shape and type of `like`."""
        if name not in self.arrays:
            raise RunError(
                f"the checkpoint {str(self.file)!r} has no {name!r}, which this run needs: "
                "it was made by another algorithm, task or version"
            )
        value = jnp.asarray(self.arrays[name])
        if _is_key(like):
            value = jax.random.wrap_key_data(value)
        if (value.shape, value.dtype) != (like.shape, like.dtype):
            raise RunError(
                f"{name!r} is {value.dtype}{list(value.shape)} in the checkpoint "
                f"{str(self.file)!r} and {like.dtype}{list(like.shape)} here; "
                "give the settings that it was made with"
            )
        return value


def _last_whole(run: Path) -> tuple[_Content, list[str]]:
    """The last checkpoint of a run that is whole, and what is wrong with those after it."""
    damaged = []
    for file in _newest_first(run / _FOLDER):
        try:
            content = _read(file)
        except _DamagedError as error:
            damaged.append(f"{str(file)!r} is {error}")
            continue
        return content, [f"{what}; the checkpoint before it is used" for what in damaged]
    if damaged:
        raise RunError(f"{str(run)!r} has no whole checkpoint: {damaged[0]}")
    raise RunError(f"{str(run)!r} has no checkpoint; give a run that has come to its first one")


def _read(file: Path) -> _Content:
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as content:
            about = json.loads(str(content["about"]))
            arrays = {name: content[name] for name in content.files if name != "about"}
        if about["format"] != _FORMAT:
            raise _DamagedError(f"of format {about['format']}, and this version reads {_FORMAT}")
        for name, kind in about["types"].items():
            arrays[name] = arrays[name].view(jnp.dtype(kind))  # NumPy forgets bfloat16
        about["step"], about["seconds"], about["score"], about["config"], about["versions"]
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise _DamagedError(f"truncated or damaged ({error})") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _DamagedError("no checkpoint of Worldline's, or a damaged one") from error
    return _Content(file, about, arrays)


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.npz"), reverse=True)


def _score(file: Path) -> float:
    """The score of a checkpoint; one without is below all that have one."""
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as content:
            score = json.loads(str(content["about"]))["score"]
    except Exception:  # damaged, in whatever way
        score = None
    return -np.inf if score is None else float(score)


def _arrays(state: PyTree) -> dict[str, np.ndarray[Any, Any]]:
    """Copies of the state's leaves under their paths; keys as the words they are made of."""
    names, leaves = jax.tree.leaves(name_leaves(state)), jax.tree.leaves(state)
    words = [jax.random.key_data(leaf) if _is_key(leaf) else leaf for leaf in leaves]
    # JAX (0.10) cannot fetch what is empty and spread over devices: the state of no actuators.
    return {
        name: np.array(word) if word.size else np.zeros(word.shape, word.dtype)
        for name, word in zip(names, words, strict=True)
    }


def _is_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _check_config(file: Path, before: Any, now: Any, name: str = "") -> None:
    """Refuses a configuration with another value than the checkpoint's, and names it."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            _check_config(file, before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif before != now:
        raise RunError(
            f"{name} is {now!r}, but the checkpoint {str(file)!r} was made with {before!r}; "
            "give that, or begin a new run from it with --init-from"
        )
