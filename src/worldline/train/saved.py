"""Which checkpoint of a run is the last undamaged one, and what is in it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax

from worldline.errors import RunError
from worldline.files import DamagedArchiveError, read_archive
from worldline.parallel.cluster import check_same, of_first, texts_of_all
from worldline.train.shares import saved_arrays
from worldline.types import PyTree

T = TypeVar("T")

#: Raise this number when the file changes, or the order or the meaning of a state's leaves.
FORMAT = 2

#: Where the checkpoints are in a run folder.
FOLDER = "checkpoints"

#: How many checkpoints to look through for one that is undamaged.
_MOST_NAMES = 100


class DamagedError(Exception):
    """A file cannot be read as a checkpoint of this format; the text completes "FILE is"."""


class Content(NamedTuple):
    """The file of a checkpoint, and the description in it."""

    file: Path
    about: dict[str, Any]

    def tree(self, numbers: Any, like: PyTree, what: str) -> PyTree:
        """The leaves with these numbers as a tree of the structure, shapes and types of `like`.

        Raises:
            RunError: they have others.
            DamagedError: they cannot be read.
        """
        self._check(numbers, like, what)
        try:
            with saved_arrays(self.file, self.about.get("shares", ())) as arrays:
                pairs = zip(numbers, jax.tree.leaves(like), strict=True)
                leaves = [arrays.leaf(number, leaf) for number, leaf in pairs]
        except (OSError, DamagedArchiveError) as error:
            raise DamagedError(f"truncated or damaged ({error})") from error
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedError("not a checkpoint of Worldline, or damaged") from error
        return jax.tree.unflatten(jax.tree.structure(like), leaves)

    def _check(self, numbers: Any, like: PyTree, what: str) -> None:
        saved = [self.about["leaves"][number] for number in numbers]
        here, paths = descriptions(like), jax.tree.leaves_with_path(like)
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


def last_whole(
    run: Path, read: Callable[[Content], T]
) -> tuple[dict[str, Any], T, list[str]] | None:
    """The description of a run's last undamaged checkpoint, what `read` makes of it, and notes on
    those after it. None: there is no checkpoint.

    All processes take the same one, which is undamaged for each of them.
    """
    names = [file.name for file in newest_first(run / FOLDER)]
    check_same(names[0] if names else "none", "the last checkpoint")
    damaged: list[str] = []
    for name in json.loads(of_first(json.dumps(names[:_MOST_NAMES]))):
        file, mine = run / FOLDER / name, ""
        try:
            content = _open(file)
            found = read(content)
        except DamagedError as error:
            mine = f"{str(file)!r} is {error}"
        reasons = list(filter(None, texts_of_all(mine)))
        if not reasons:
            notes = [f"{what}; using the checkpoint before it" for what in damaged]
            return content.about, found, notes
        damaged.append(reasons[0])
    if damaged:
        raise RunError(f"{str(run)!r} has no complete checkpoint: {damaged[0]}")
    return None


def _open(file: Path) -> Content:
    try:
        about = json.loads(str(read_archive(file, ["about"])["about"]))
        if about["format"] != FORMAT:
            raise DamagedError(
                f"of format {about['format']}, but this version reads format {FORMAT}; "
                "train it again, or continue with the version that made it"
            )
        about["leaves"], about["step"], about["seconds"], about["score"]
        about["config"].items(), about["versions"].items(), about["parts"].items()
    except (OSError, DamagedArchiveError) as error:
        raise DamagedError(f"truncated or damaged ({error})") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedError("not a checkpoint of Worldline, or damaged") from error
    return Content(file, about)


def newest_first(folder: Path) -> list[Path]:
    """The files of the checkpoints in a folder."""
    return sorted(folder.glob("step-*.npz"), reverse=True)


def descriptions(tree: PyTree) -> list[str]:
    """The type and shape of each leaf, with its key in dicts: `float32[4, 3] of body_mass`."""
    found = []
    for path, leaf in jax.tree.leaves_with_path(tree):
        keys = [str(step.key) for step in path if isinstance(step, jax.tree_util.DictKey)]
        inside = f" of {'/'.join(keys)}" if keys else ""
        found.append(f"{leaf.dtype}{list(leaf.shape)}{inside}")
    return found
