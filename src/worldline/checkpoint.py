"""Policies on disk: one file of plain arrays, written whole or not at all."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from worldline.errors import RunError
from worldline.learn.nets import MLP, Actor
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy

POLICY_FILE = "policy.npz"
_FORMAT = 1


def save_policy(folder: str | os.PathLike[str], policy: Policy) -> Path:
    """Writes a policy to `policy.npz` in a folder, in place of one that is there.

    The file holds NumPy arrays under plain names (`weight_0`, `bias_0`, ..., `obs_mean`, ...) and a
    JSON text `about`: enough to run the policy without this library.

    Raises:
        RunError: the folder cannot be written; a policy that was there before is intact.
    """
    actor = policy.actor
    arrays = {
        "log_std": actor.log_std,
        "obs_count": policy.statistics.count,
        "obs_mean": policy.statistics.mean,
        "obs_variance": policy.statistics.variance,
        "action_low": policy.low,
        "action_high": policy.high,
    }
    for layer, (weight, bias) in enumerate(zip(actor.mean.weights, actor.mean.biases, strict=True)):
        arrays |= {f"weight_{layer}": weight, f"bias_{layer}": bias}
    about = {"format": _FORMAT, "activation": actor.mean.activation, "squash": policy.squash}
    plain: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
    content = io.BytesIO()
    np.savez(content, about=np.array(json.dumps(about)), **plain)
    path = Path(folder) / POLICY_FILE
    try:
        _write(path, content.getvalue())
    except OSError as error:
        raise RunError(
            f"cannot write {str(path)!r}: {error.strerror}; make room, or give --out"
        ) from error
    return path


def load_policy(run: str | os.PathLike[str]) -> Policy:
    """The policy of a run: a callable from observation to action that needs no task.

    Args:
        run: a folder that `worldline train` made, or a `policy.npz` itself.

    Raises:
        RunError: there is no policy, or its file is damaged.
    """
    path = Path(run) / POLICY_FILE if Path(run).is_dir() else Path(run)
    if not path.is_file():
        if (path.parent / "config.json").is_file():
            raise RunError(
                f"{str(run)!r} has no policy yet; the first evaluation of a run saves one"
            )
        raise RunError(f"no policy at {str(path)!r}; give a folder that `worldline train` made")
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(str(arrays.pop("about")))
        if about["format"] == _FORMAT:
            return _policy(arrays, about)
    except Exception as error:  # whatever NumPy and zipfile make of a damaged file
        raise RunError(f"the policy at {str(path)!r} is damaged; train it again") from error
    raise RunError(
        f"the policy at {str(path)!r} has format {about['format']}, and this version reads "
        f"{_FORMAT}; use the version of worldline that made it"
    )


def _policy(arrays: dict[str, Any], about: dict[str, Any]) -> Policy:
    values = {name: jnp.asarray(value) for name, value in arrays.items()}
    layers = sum(name.startswith("weight_") for name in values)
    weights = [values[f"weight_{layer}"] for layer in range(layers)]
    biases = [values[f"bias_{layer}"] for layer in range(layers)]
    statistics = (values[f"obs_{name}"] for name in ("count", "mean", "variance"))
    return Policy(
        actor=Actor(MLP(weights, biases, about["activation"]), values["log_std"]),
        statistics=RunningStatistics(*statistics),
        low=values["action_low"],
        high=values["action_high"],
        squash=about["squash"],
    )


def _write(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all, whenever the process dies."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
