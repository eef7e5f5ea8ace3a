"""Policies on disk: one file of plain arrays, written whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from worldline.errors import RunError
from worldline.files import read_archive, whole_file
from worldline.learn.networks.mlp import MLP, Actor, StateDependentActor
from worldline.learn.networks.recurrent import GRU, GRUNetwork
from worldline.learn.networks.vision import Encoder, ImageEncoder
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy
from worldline.types import Array

POLICY_FILE = "policy.npz"
_FORMAT = 3

#: The classes of a policy's parts by their names in a file, which stay when a class is renamed.
_KINDS: dict[str, type[Any]] = {
    "policy": Policy,
    "statistics": RunningStatistics,
    "mlp": MLP,
    "gaussian": Actor,
    "state_dependent_gaussian": StateDependentActor,
    "gru": GRU,
    "gru_network": GRUNetwork,
    "image_encoder": Encoder,
    "image_encoders": ImageEncoder,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def save_policy(folder: str | os.PathLike[str], policy: Policy) -> Path:
    """Writes a policy to `policy.npz` in a folder, in place of one that is there.

    The file holds NumPy arrays, each named by its place in the policy (`statistics.mean`,
    `actor.mean.weights.0`, ...), and a JSON text `about`: enough to run it without this library.

    Raises:
        RunError: the folder cannot be written; a policy that was there before is intact.
    """
    arrays: dict[str, Any] = {}
    about = {"format": _FORMAT, "policy": _described(policy, "", arrays)}
    path = Path(folder) / POLICY_FILE
    try:
        with whole_file(path) as file:
            np.savez(file, about=np.array(json.dumps(about)), **arrays)
    except OSError as error:
        raise RunError(
            f"cannot write {str(path)!r}: {error.strerror}; make room, or give --out"
        ) from error
    return path


def load_policy(run: str | os.PathLike[str], kinds: Sequence[type[Any]] = ()) -> Policy:
    """The policy of a run: a callable from observation to action that needs no task.

    Args:
        run: a folder that `worldline train` made, or a `policy.npz` itself.
        kinds: the classes of networks of your own that it may have.

    Raises:
        RunError: there is no policy, its file is damaged, or it has a network of an unknown class.
    """
    path = Path(run) / POLICY_FILE if Path(run).is_dir() else Path(run)
    if not path.is_file():
        if (path.parent / "config.json").is_file():
            raise RunError(
                f"{str(run)!r} has no policy yet; the first evaluation of a run saves one"
            )
        raise RunError(f"no policy at {str(path)!r}; give a folder that `worldline train` made")
    known = _KINDS | {kind.__name__: kind for kind in kinds}
    try:
        content = read_archive(path)
        about = json.loads(str(content.pop("about")))
        arrays = {name: jnp.asarray(array) for name, array in content.items()}
        if about["format"] == _FORMAT:
            policy: Policy = _put_together(about["policy"], "", arrays, known)
            return policy
    except PermissionError as error:
        raise RunError(
            f"the policy at {str(path)!r} cannot be read: {error.strerror}; ask its owner for the "
            "right to read it"
        ) from error
    except _UnknownKindError as error:
        raise RunError(
            f"the policy at {str(path)!r} has a {error}, which is not a network of Worldline's; "
            f"load it with kinds=[{error}]"
        ) from error
    except MemoryError as error:
        raise RunError(f"there is no memory for the policy at {str(path)!r}; make room") from error
    except KeyError as error:
        raise RunError(
            f"{str(path)!r} has no {error.args[0]!r}: it is no policy, or a part of one; give a "
            "policy.npz that Worldline wrote"
        ) from error
    except Exception as error:  # whatever NumPy and zipfile make of a damaged file
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise RunError(
            f"the policy at {str(path)!r} is damaged ({why}); `worldline resume` of its run writes "
            "it again"
        ) from error
    raise RunError(
        f"the policy at {str(path)!r} has format {about['format']}, and this version reads "
        f"{_FORMAT}; use the version of worldline that made it"
    )


class _UnknownKindError(Exception):
    """A class that is neither Worldline's nor given."""


def _described(part: Any, name: str, arrays: dict[str, Any]) -> Any:
    """A part of a policy as JSON holds it; its arrays go into `arrays` under their places."""
    if isinstance(part, eqx.Module):
        return {"kind": _NAMES.get(type(part), type(part).__name__)} | {
            field.name: getattr(part, field.name)
            if field.metadata.get("static")
            else _described(getattr(part, field.name), _place(name, field.name), arrays)
            for field in dataclasses.fields(part)
        }
    if isinstance(part, list):
        return [_described(item, _place(name, index), arrays) for index, item in enumerate(part)]
    arrays[name] = np.asarray(part)
    return None


def _put_together(
    about: Any, name: str, arrays: Mapping[str, Array], known: Mapping[str, type[Any]]
) -> Any:
    """Makes the part of a policy again from the result of `_described`."""
    if about is None:
        return arrays[name]
    if isinstance(about, list):
        return [_put_together(x, _place(name, i), arrays, known) for i, x in enumerate(about)]
    if about["kind"] not in known:
        raise _UnknownKindError(about["kind"])
    kind = known[about["kind"]]
    parts = {}
    for field in dataclasses.fields(kind):
        value = about[field.name]
        if not field.metadata.get("static"):
            value = _put_together(value, _place(name, field.name), arrays, known)
        elif isinstance(value, list):  # as JSON has a tuple
            value = tuple(value)
        parts[field.name] = value
    return kind(**parts)


def _place(name: str, part: str | int) -> str:
    return f"{name}.{part}" if name else str(part)
