"""The folder that goes to a robot: the policy, its contract, its model, and a program to run it."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import mujoco
import numpy as np

from worldline.env.disturb import undisturbed
from worldline.env.env import Env, EnvState
from worldline.env.parts import STATE
from worldline.errors import ExportError, RunError
from worldline.export.contract import contract_of, onnx_metadata
from worldline.export.onnx_file import save_onnx
from worldline.files import whole_file
from worldline.learn.policy import Policy
from worldline.model import Model
from worldline.physics.native.engine import NativePhysics
from worldline.rendering.camera import is_image
from worldline.types import Key, NDArray

ONNX_FILE, CONTRACT_FILE, REFERENCE_FILE = "policy.onnx", "contract.json", "reference.npz"
PROGRAM_FILE = "run_policy.py"


def export_folder(
    folder: Path,
    env: Env,
    policy: Policy,
    training: Mapping[str, Any] = {},
    *,
    run: str = "",
    seconds: float = 10.0,
    key: Key | None = None,
) -> float:
    """Writes all that a controller needs to run a policy.

    - `policy.onnx`: the policy, with its normalisation; its metadata has the contract.
    - `contract.json`: what the numbers of observation and action are (`contract_of`).
    - `model.xml` or `model.mjb`: the model; the latter where it needs files beside it.
    - `reference.npz`: an episode in the environment without noise and disturbances, on the native
      engine: its start, and for each step the action, the observation and the command.
    - `run_policy.py`: runs the policy without JAX and Worldline, and repeats that episode.

    Args:
        folder: is made if it is not there; files of these names in it are replaced.
        env: the environment that the policy was trained in.
        policy: the policy.
        training: what else the contract shall say of how the policy was made, in types of JSON.
        run: where the policy comes from, for the metadata.
        seconds: how long the reference episode is, at most.
        key: decides its start; None: `jax.random.key(0)`.

    Returns:
        The largest difference between an action of `policy.onnx` and of the policy.

    Raises:
        MissingExtraError: jax2onnx or onnxruntime is not installed.
        ExportError: the policy cannot be written in ONNX.
        RunError: a file cannot be written.
    """
    contract = contract_of(env, policy, training)
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        contract["model"] = _write_model(folder, env)
        metadata = onnx_metadata(contract, run)
        worst = save_onnx(folder / ONNX_FILE, policy, env.observation_space, metadata)
        with whole_file(folder / CONTRACT_FILE) as file:
            file.write(json.dumps(contract, indent=1).encode() + b"\n")
        with whole_file(folder / REFERENCE_FILE) as file:
            episode: Any = reference_episode(env, policy, contract, seconds, key)
            np.savez(file, **episode)
        shutil.copyfile(Path(__file__).with_name(PROGRAM_FILE), folder / PROGRAM_FILE)
    return worst


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write into {str(folder)!r}: {error.strerror}; give --out"
        ) from error


def _write_model(folder: Path, env: Env) -> dict[str, Any]:
    """Writes the model; describes the file."""
    source, model = env.task.mjcf(), env.model
    if isinstance(source, Model):  # of a disturbed task
        source = undisturbed(env.task)[0].mjcf()
    for old in ("model.xml", "model.mjb"):
        (folder / old).unlink(missing_ok=True)
    if isinstance(source, str) and source.lstrip().startswith("<") and _alone(source, model):
        file = folder / "model.xml"
        file.write_text(source)
    else:
        file = folder / "model.mjb"
        mujoco.mj_saveModel(model.mj, str(file))
    return {
        "file": file.name,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "mujoco": mujoco.__version__,
        "timestep": model.timestep,
        "refresh": env.task.refresh,
    }


def _alone(text: str, model: Model) -> bool:
    """Whether MJCF makes the model without other files, in any folder."""
    try:
        return Model(mujoco.MjSpec.from_string(text)).digest == model.digest
    except ValueError:
        return False


def reference_episode(
    env: Env, policy: Policy, contract: Mapping[str, Any], seconds: float, key: Key | None = None
) -> dict[str, NDArray]:
    """An episode of a policy without noise and disturbances, on the native engine.

    Args:
        env: the environment that the policy was trained in.
        policy: the policy.
        contract: of `contract_of`.
        seconds: how long it is; shorter where the episode ends.
        key: decides its start; None: `jax.random.key(0)`.

    Returns:
        `start`, MuJoCo's integration state; for T steps `qpos`, `(T, nq)`, after each; `action`,
        `(T, nact)`; what each action answers: the keys of the observation that are not images, and
        the commands by the names of their parts, in their units.
    """
    quiet = undisturbed(env.task)[0].without_noise()
    config = dataclasses.replace(env.config, physics="native", disturbances=(), not_stored=())
    exact = Env.from_config(quiet, config)
    step = jax.jit(exact.step)
    state: EnvState = jax.jit(exact.reset)(jax.random.key(0) if key is None else key)
    states, rows = [_integration(exact, state)], dict[str, list[NDArray]]()
    keys = [key for key in policy.obs_keys if not is_image(key)]
    memory = policy.start()
    for _ in range(max(1, round(seconds / exact.control_timestep))):
        obs = state.obs if isinstance(state.obs, dict) else {STATE: state.obs}
        action, memory = policy.step(obs, memory)
        after = step(state, action)
        if after.diverged:
            break
        for name, value in {"action": action, **{key: obs[key] for key in keys}}.items():
            rows.setdefault(name, []).append(np.asarray(value))
        state = after
        states.append(_integration(exact, state))
        if state.terminated:
            break
    if not rows:
        raise ExportError(
            "the first step of the reference episode diverges; worldline.check_env(env) says why"
        )
    numbers = {name: np.stack(values) for name, values in rows.items()}
    for part in contract["observation"]:
        if part["source"] == "command":
            newest = slice(part["stop"] - part["size"], part["stop"])
            seen = numbers[part["input"]][:, newest]
            scale, offset = np.array(part["scale"]), np.array(part["offset"])
            numbers[part["name"]] = (seen / scale + offset).astype(np.float32)
    return {"start": states[0], "qpos": _qpos(exact, states[1:]), **numbers}


def _integration(env: Env, state: EnvState) -> NDArray:
    """MuJoCo's integration state of a world on the native engine."""
    assert isinstance(env.physics, NativePhysics)
    return env.physics.integration_state(state.physics)


def _qpos(env: Env, states: Sequence[NDArray]) -> NDArray:
    """The configurations in integration states, `(T, nq)` float64."""
    model, data = env.model.mj, mujoco.MjData(env.model.mj)
    found = []
    for state in states:
        mujoco.mj_setState(model, data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
        found.append(data.qpos.copy())
    return np.stack(found)
