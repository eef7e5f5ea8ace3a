"""The exact state of watched worlds as a file, and back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.episodes import WorldsState
from worldline.env.worlds import Worlds
from worldline.errors import RunError
from worldline.files import read_archive, whole_file
from worldline.keys import is_key

_FORMAT = 1


class Saved(NamedTuple):
    """Worlds, and the state in which they were saved."""

    worlds: Worlds
    """They step on from the state: `worlds.step(state, action)`."""
    state: WorldsState
    """Physics, constants, context, keys and returns, bit for bit."""


def save_state(file: Path, source: str, state: WorldsState) -> None:
    """Writes the state of worlds that are watched.

    Args:
        file: the file, which is replaced.
        source: what is watched, as `worldline watch` was told.
        state: B worlds.

    Raises:
        RunError: it cannot be written.
    """
    leaves = [jax.random.key_data(x) if is_key(x) else x for x in jax.tree.leaves(state)]
    arrays = {str(i): np.asarray(x) for i, x in enumerate(jax.device_get(leaves))}
    about = {
        "format": _FORMAT,
        "source": str(Path(source).resolve()) if Path(source).exists() else source,
        "worlds": len(state.steps),
        "variation": sorted(state.fixed[0]),
        "context": sorted(state.fixed[1]),
    }
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as opened:
            np.savez(opened, about=np.array(json.dumps(about)), **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise RunError(f"cannot write {str(file)!r}: {error.strerror}; free some space") from error


def load_state(file: str | os.PathLike[str], *, trust_code: bool = False) -> Saved:
    """The worlds that `worldline watch` saved, to step on from there.

    Args:
        file: the file.
        trust_code: as in `worldline watch`.

    Raises:
        RunError: it is no such file, or is of another model or version.
        WorldlineError: what was watched is no longer there.
    """
    path = Path(file)
    try:
        content = read_archive(path)
        about = json.loads(str(content.pop("about")))
        if about["format"] != _FORMAT:
            raise RunError(f"{str(path)!r} was written by another version of worldline")
        count = int(about["worlds"])
        names = about["variation"], about["context"], about["source"]
    except RunError:
        raise
    except Exception as error:  # whatever NumPy and zipfile make of a damaged file
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise RunError(
            f"{str(path)!r} is not a state that worldline watch saved ({why})"
        ) from error
    from worldline.watch.source import open_source  # imports what training needs

    fields, features, source = names
    worlds = Worlds(open_source(source, trust_code=trust_code).env, count)
    shape = _structure(worlds, fields, features)
    leaves, structure = jax.tree.flatten(shape)
    found = [content.get(str(i)) for i in range(len(leaves))]
    if len(content) != len(leaves) or not all(map(_fits, leaves, found)):
        raise RunError(f"{str(path)!r} does not fit {source!r}, which has changed since")
    return Saved(worlds, jax.tree.unflatten(structure, list(map(_restored, leaves, found))))


def _structure(worlds: Worlds, fields: list[str], features: list[str]) -> Any:
    model, count = worlds.env.model, worlds.num_worlds
    lead: Any = {f: np.zeros((count, *model.constant(f).shape), np.float32) for f in fields}
    context = worlds.env.context.complete(model, {})
    own = {name: np.full(count, context[name]) for name in features}
    return jax.eval_shape(lambda key: worlds.reset(key, lead, own), jax.random.key(0))


def _fits(leaf: Any, found: Any) -> bool:
    if found is None:
        return False
    if is_key(leaf):
        return bool(found.shape[:-1] == leaf.shape and found.dtype == np.uint32)
    return bool(found.shape == leaf.shape and found.dtype == leaf.dtype)


def _restored(leaf: Any, found: Any) -> Any:
    return jax.random.wrap_key_data(found) if is_key(leaf) else jnp.asarray(found)
