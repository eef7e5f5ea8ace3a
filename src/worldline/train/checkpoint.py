"""Checkpoints: the whole training state at one moment, bit for bit.

A checkpoint is a zip of NumPy arrays with a checksum each. The leaves of the state are `0`, `1`,
... in the order of `jax.tree.leaves`; a random key is stored as its data. The file has no names of
classes or attributes. A JSON text `about` has the number of the format, the step, the configuration
and the versions; for each leaf its dtype, its shape and its keys in dicts; and for each part of the
learner, such as `actor`, the numbers of its leaves.

Where several processes train as one, each writes its share of the leaves that are divided over them
(see `worldline.train.shares`). The first process writes all else, and what there is of shares, into
the file of the checkpoint when all shares are on disk. Without this file there is no checkpoint.

A thread beside the training writes a checkpoint, whole or not at all. If one is damaged, or from
another program or format, a note says so, and the checkpoint before it is used.
"""

from __future__ import annotations

import errno
import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from worldline.errors import RunError
from worldline.files import PARTIAL, read_archive, whole_file
from worldline.keys import is_key
from worldline.parallel.cluster import any_of, is_first, process_count, texts_of_all
from worldline.train.saved import (
    FOLDER,
    FORMAT,
    Content,
    descriptions,
    last_whole,
    newest_first,
)
from worldline.train.shares import (
    Block,
    block_of,
    divided,
    forget_shares,
    share_file,
    write_share,
)
from worldline.types import NDArray, PyTree

#: The longest time without a checkpoint. A kill costs this time and the present update at most.
_SAVE_EVERY_S = 300.0

#: A system that asks a run to stop may kill it ten seconds later, before a longer update ends. So a
#: run saves after each update that takes more than this time, within this share of all time.
_LONG_UPDATE_S, _MOST_OF_THE_TIME = 5.0, 0.05


#: Writes the file of a checkpoint, when it is told of the shares.
_Write: TypeAlias = Callable[[list[dict[str, Any]]], None]


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

    It is a context manager; its end waits until the last checkpoint is on disk. Where several
    processes train as one, each has a writer, and all call the same methods of it.

    Args:
        run: the run folder; the files go to `checkpoints/` in it. All processes must see it.
        config: the run's resolved configuration, in types that JSON has.
        versions: of the libraries that the numbers depend on.
        parts: the parts of the state that other runs can begin with, as `Learner.parts`.
        keep: how many of the latest stay, beside the one with the highest score.
    """

    def __init__(
        self,
        run: Path,
        config: Mapping[str, Any],
        versions: Mapping[str, str],
        parts: Mapping[str, Callable[[Any], PyTree]] | None = None,
        keep: int = 2,
    ) -> None:
        self._folder = run / FOLDER
        self._about = {"format": FORMAT, "config": dict(config), "versions": dict(versions)}
        self._parts = parts or {}
        self._keep = keep
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._share: Future[dict[str, Any]] | None = None
        self._rest: _Write | None = None
        self._writing: Future[None] | None = None
        self._saved_at = time.monotonic()
        self._cost_s = 0.0

    def save(self, state: PyTree, moment: Moment, at_once: bool = False) -> None:
        """Begins to write a checkpoint; the state may be donated or deleted when this returns.

        Args:
            state: the training state; of several processes, each has its part of its arrays. None:
                other processes have this one's part.
            moment: the progress of the run.
            at_once: several processes wait until their shares are on disk, and the first one until
                the checkpoint is. Otherwise they go on, and a later `agree`, `save` or `wait`
                completes it.

        Raises:
            RunError: the one before could not be written.
        """
        self.wait()
        began = time.monotonic()
        words = _words(state)
        blocks = divided(words)
        path = self._folder / f"step-{moment.step:012}.npz"
        rest = self._rest_of(state, words, moment, path, blocks, began) if is_first() else None
        if rest is not None and process_count() == 1:
            self._writing = self._pool.submit(rest, [])
        else:
            mine = [block_of(words, block) for block in blocks.get(jax.process_index(), [])]
            self._share = self._pool.submit(_write_share, path, mine)
            self._rest = rest
            if at_once:
                self.wait()
        self._saved_at = time.monotonic()

    def agree(self, stop: bool, update_seconds: float) -> tuple[bool, bool]:
        """Whether to stop, and whether to save, after an update; for all processes the same.

        Args:
            stop: whether this process is asked to stop.
            update_seconds: the duration of the update.

        Raises:
            RunError: a process could not write its share of the last checkpoint.
        """
        unwritten = self._share is not None and not self._share.done()
        due = is_first() and self.are_due(update_seconds)
        stop, due, unwritten = any_of(stop, due, unwritten)
        if not unwritten:
            self._complete()
        return stop, due

    def are_due(self, update_seconds: float) -> bool:
        """Whether to save after an update of this duration.

        True after five minutes without a checkpoint; and after an update of more than five seconds,
        if writing the last checkpoint took at most 5 % of the time since then.
        """
        since = time.monotonic() - self._saved_at
        is_written = self._share is None and (self._writing is None or self._writing.done())
        affordable = is_written and self._cost_s <= _MOST_OF_THE_TIME * since
        return since > _SAVE_EVERY_S or (update_seconds > _LONG_UPDATE_S and affordable)

    def wait(self) -> None:
        """Returns when what this process writes of the last checkpoint is on disk.

        Raises:
            RunError: it could not be written; those before are intact.
        """
        self._complete()
        writing, self._writing = self._writing, None
        try:
            if writing is not None:
                writing.result()
        except OSError as error:
            raise self._cannot_write(error.strerror or str(error), error.errno) from error

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            if error is None:
                self.wait()
        finally:
            self._pool.shutdown(wait=True)

    def _rest_of(
        self,
        state: PyTree,
        words: list[Any],
        moment: Moment,
        path: Path,
        blocks: dict[int, list[Block]],
        began: float,
    ) -> _Write:
        """Writes, when it is told of the shares, what is not in them."""
        about = {
            **self._about,
            **moment._asdict(),
            "leaves": descriptions(state),
            "parts": {name: _numbers_of(part, state) for name, part in self._parts.items()},
        }
        inside = {block.leaf for of_one in blocks.values() for block in of_one}
        arrays = {str(i): _array(word) for i, word in enumerate(words) if i not in inside}
        return functools.partial(self._write, path, arrays, about, blocks, began)

    def _complete(self) -> None:
        """When all processes have their shares on disk, the first one writes the rest."""
        if self._share is None:
            return
        share, self._share = self._share.result(), None
        rest, self._rest = self._rest, None
        told = [json.loads(text) for text in texts_of_all(json.dumps(share))]
        for process, one in enumerate(told):
            if "error" in one:
                raise self._cannot_write(f"process {process}: {one['error']}", one["errno"])
        if rest is not None:
            self._writing = self._pool.submit(rest, told)

    def _cannot_write(self, what: str, number: int | None) -> RunError:
        full = number in (errno.ENOSPC, errno.EDQUOT)
        mend = "free some space" if full else "make it a folder that this run can write"
        return RunError(
            f"cannot write a checkpoint to {str(self._folder)!r}: {what}; {mend}, then "
            f"`worldline resume {self._folder.parent}` continues from the last one"
        )

    def _write(
        self,
        path: Path,
        arrays: dict[str, Any],
        about: dict[str, Any],
        blocks: dict[int, list[Block]],
        began: float,
        shares: list[dict[str, Any]],
    ) -> None:
        """Writes the file of a checkpoint, when its shares are on disk."""
        path.parent.mkdir(exist_ok=True)
        if blocks:
            about["shares"] = [
                shares[process] | {"blocks": [(block.leaf, block.box) for block in of_one]}
                for process, of_one in blocks.items()
            ]
        names = [share["file"] for share in about.get("shares", [])]
        for name in names:
            if not path.with_name(name).exists():
                raise FileNotFoundError(errno.ENOENT, f"{name}, of another process, is not there")
        with whole_file(path) as file:
            np.savez(file, about=np.array(json.dumps(about)), **arrays)
        self._forget(path)
        forget_shares(path, names)
        self._cost_s = time.monotonic() - began

    def _forget(self, newest: Path) -> None:
        """Deletes all checkpoints but the last few and the best, and the partial files of a kill.

        Checkpoints of later steps than the newest stay and do not count: they are damaged, since
        the run did not continue from them.
        """
        for partial in newest.parent.glob(f"step-*{PARTIAL}"):
            partial.unlink(missing_ok=True)
        files = [file for file in newest_first(newest.parent) if file.name <= newest.name]
        best = max(files, key=_score)
        for file in files[self._keep :]:
            if file != best:
                file.unlink(missing_ok=True)


def restore(
    run: Path, like: PyTree, config: Mapping[str, Any], versions: Mapping[str, str]
) -> Checkpoint | None:
    """Reads the last undamaged checkpoint of a run; None if the run has no checkpoint.

    Of several processes, all must call it. It does not matter how many wrote the checkpoint.

    Args:
        run: the run folder.
        like: a state of the same shapes, as from `jax.eval_shape(learner.init, key)`. An array that
            is to lie on the devices of a mesh has a `NamedSharding`, as from
            `worldline.learn.placement.on_mesh`: then a process reads its own part of it alone.
        config: the part of the configuration that may not change.
        versions: of the libraries that continue the run.

    Raises:
        RunError: all checkpoints are damaged, or the configuration or the state differs.
        ConfigError: another process sees another checkpoint as the last one.
    """

    def read(content: Content) -> PyTree:
        before = {name: content.about["config"].get(name) for name in config}
        _check_config(content.file, before, json.loads(json.dumps(dict(config))))
        return content.tree(range(len(content.about["leaves"])), like, "state")

    found = last_whole(run, read)
    if found is None:
        return None
    about, state, notes = found
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

    Of several processes, all must call it.

    Args:
        run: the run folder.
        name: the name of the part, such as `actor`.
        like: a tree with the structure, shapes and types of the part.

    Raises:
        RunError: there is no checkpoint, it has no such part, or its part has another shape.
        ConfigError: another process sees another checkpoint as the last one.
    """

    def read(content: Content) -> PyTree:
        parts = content.about["parts"]
        if name not in parts:
            raise RunError(
                f"the checkpoint {str(content.file)!r} has no part {name!r}: it was made by "
                f"another algorithm; give --init-parts of {', '.join(parts) or 'another run'}"
            )
        return content.tree(parts[name], like, name)

    found = last_whole(run, read)
    if found is None:
        raise RunError(f"{str(run)!r} has no checkpoint yet; give a run that has written one")
    return found[1]


def _score(file: Path) -> float:
    """The score of a checkpoint; minus infinity if it has none."""
    try:
        score = json.loads(str(read_archive(file, ["about"])["about"]))["score"]
    except Exception:  # damaged, in whatever way
        score = None
    return -np.inf if score is None else float(score)


def _numbers_of(part: Callable[[Any], PyTree], state: PyTree) -> list[int]:
    """The numbers of the leaves of a part of the state."""
    leaves, structure = jax.tree.flatten(state)
    return jax.tree.leaves(part(jax.tree.unflatten(structure, range(len(leaves)))))


def _words(state: PyTree) -> list[Any]:
    """The leaves of the state; a random key becomes its data."""
    leaves = jax.tree.leaves(state)
    return [jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in leaves]


def _array(word: Any) -> NDArray:
    """A copy of a leaf in NumPy."""
    # JAX (0.10) cannot fetch what is empty and spread over devices: the state of no actuators.
    return np.array(word, order="C") if word.size else np.zeros(word.shape, word.dtype)


def _write_share(checkpoint: Path, blocks: list[NDArray]) -> dict[str, Any]:
    """Writes this process's share, if it has one, and returns what to tell the others of it."""
    if not blocks:
        return {}
    file = share_file(checkpoint, jax.process_index(), process_count())
    try:
        file.parent.mkdir(exist_ok=True)
        return write_share(file, blocks)
    except OSError as error:
        return {"error": error.strerror or str(error), "errno": error.errno}


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
