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
#: The policy with the highest evaluation of a run.
BEST_FILE = "best_policy.npz"
#: The policy of each evaluation, `step-<environment steps>.npz`.
POLICIES_FOLDER = "policies"
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


def save_policy(
    folder: str | os.PathLike[str], policy: Policy, *, name: str = POLICY_FILE, **about: Any
) -> Path:
    """Writes a policy to a file in a folder, in place of one that is there.

    The file holds NumPy arrays, each named by its place in the policy (`statistics.mean`,
    `actor.mean.weights.0`, ...), and a JSON text `about`: enough to run it without this library.

    Args:
        folder: the folder; it is made if it is not there.
        policy: the policy.
        name: the file's name.
        about: what else the file shall say of the policy, as `step=1000`, in types of JSON.

    Raises:
        RunError: the folder cannot be written; a policy that was there before is intact.
    """
    arrays: dict[str, Any] = {}
    described = {**about, "format": _FORMAT, "policy": _described(policy, "", arrays)}
    path = Path(folder) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            np.savez(file, about=np.array(json.dumps(described)), **arrays)
    except OSError as error:
        raise RunError(
            f"cannot write {str(path)!r}: {error.strerror}; free some space, or give --out"
        ) from error
    return path


def policy_file(run: str | os.PathLike[str], checkpoint: str | int = "last") -> Path:
    """The file of a run's policy.

    Args:
        run: the run folder, or a policy's file itself.
        checkpoint: `last`; `best`, the policy with the highest evaluation; or the environment
            steps after which a policy was evaluated.

    Raises:
        RunError: there is no such file; the error names the steps that there are.
    """
    folder = Path(run)
    if not folder.is_dir():
        if folder.is_file():
            return folder
        raise RunError(f"no policy at {str(run)!r}; give a folder that `worldline train` made")
    there = {int(f.stem.removeprefix("step-")): f for f in _of_evaluations(folder)}
    names: dict[str | int, Path] = {"last": folder / POLICY_FILE, "best": folder / BEST_FILE}
    key = int(checkpoint) if str(checkpoint).isdigit() else checkpoint
    found = (names | there).get(key)
    if found is not None and found.is_file():
        return found
    if key not in ("last", "best") and (folder / POLICY_FILE).is_file():
        steps = ", ".join(map(str, sorted(there)))
        raise RunError(f"checkpoint is {checkpoint!r}; give best, last or one of {steps}")
    if (folder / "config.json").is_file():
        raise RunError(f"{str(run)!r} has no policy yet; the first evaluation of a run saves one")
    raise RunError(f"no policy at {str(folder)!r}; give a folder that `worldline train` made")


def policy_about(file: Path) -> dict[str, Any]:
    """What a policy's file says of it, such as its `step` and the `return` of its evaluation."""
    about: dict[str, Any] = json.loads(str(read_archive(file, ["about"])["about"]))
    return about


def _of_evaluations(folder: Path) -> list[Path]:
    files = (folder / POLICIES_FOLDER).glob("step-*.npz")
    return [file for file in files if file.stem.removeprefix("step-").isdigit()]


def load_policy(
    run: str | os.PathLike[str], kinds: Sequence[type[Any]] = (), checkpoint: str | int = "last"
) -> Policy:
    """The policy of a run: a callable from observation to action that needs no task.

    Args:
        run: a folder that `worldline train` made, or a `policy.npz` itself.
        kinds: the classes of networks of your own that it may have.
        checkpoint: which of a run's policies: `last`; `best`, that of the highest evaluation; or
            the environment steps after which one was evaluated.

    Raises:
        RunError: there is no policy, its file is damaged, or it has a network of an unknown class.
    """
    path = policy_file(run, checkpoint)
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
            f"the policy at {str(path)!r} cannot be read: {error.strerror}; check the permissions "
            "of the file"
        ) from error
    except _UnknownKindError as error:
        raise RunError(
            f"the policy at {str(path)!r} has a {error}, which is not a network of Worldline's; "
            f"load it with kinds=[{error}]"
        ) from error
    except MemoryError as error:
        raise RunError(
            f"there is not enough memory for the policy at {str(path)!r}; free some memory"
        ) from error
    except KeyError as error:
        raise RunError(
            f"{str(path)!r} has no {error.args[0]!r}, so it is not a complete policy; give a "
            "policy.npz that Worldline wrote"
        ) from error
    except Exception as error:  # whatever NumPy and zipfile make of a damaged file
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise RunError(
            f"the policy at {str(path)!r} is damaged ({why}); `worldline resume` with its run "
            "writes it again"
        ) from error
    raise RunError(
        f"the policy at {str(path)!r} has format {about['format']}, but this version reads format "
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
