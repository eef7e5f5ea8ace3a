"""A policy as an ONNX file, for a robot that runs neither JAX nor this library."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from worldline.errors import ExportError, MissingExtraError, RunError
from worldline.files import whole_file
from worldline.learn.policy import Policy
from worldline.rendering.camera import is_image
from worldline.types import NDArray

#: The largest difference that the file's actions may have from the policy's, relative and absolute.
_TOLERANCE = 1e-5


def save_onnx(
    path: str | os.PathLike[str],
    policy: Policy,
    observation_space: spaces.Space[Any],
    metadata: Mapping[str, str] = {},
) -> float:
    """Writes a policy, its normaliser and its action bounds included, as an ONNX file.

    The file takes each part of the observation that the policy reads under that part's name, and
    gives `action`: the most likely one, in the environment's units. All have a first axis of any
    size, `B`; of one, where the policy sees images. What a policy with a memory remembers goes in
    as `memory_0`, ... and comes out as `next_memory_0`, ...; it is zero at the start of an episode.
    The file is run beside the policy on random observations before it is left in place.

    Args:
        path: the file to write, in place of one that is there.
        policy: the policy.
        observation_space: of one world, such as `Env.observation_space`.
        metadata: texts to store in the file, by their keys.

    Returns:
        The largest difference between an action of the file and of the policy.

    Raises:
        MissingExtraError: jax2onnx or onnxruntime is not installed.
        ExportError: the policy cannot be written in ONNX, or the file's actions differ from its.
        RunError: the file cannot be written.
    """
    content, worst = _converted(policy, observation_space, metadata)
    if worst > _TOLERANCE:
        raise ExportError(
            f"the ONNX file's actions differ from the policy's by {worst:.2g}, more than "
            f"{_TOLERANCE:g}; this is an error in the conversion, please report it"
        )
    try:
        with whole_file(Path(path)) as file:
            file.write(content)
    except OSError as error:
        raise RunError(f"cannot write {str(path)!r}: {error.strerror}; give --out") from error
    return worst


@jax.numpy_dtype_promotion("standard")  # jax2onnx relies on it
def _converted(
    policy: Policy, space: spaces.Space[Any], metadata: Mapping[str, str]
) -> tuple[bytes, float]:
    """The content of the file, and the largest difference of its actions from the policy's."""
    try:
        from jax2onnx import to_onnx
    except ImportError as error:
        raise MissingExtraError("an ONNX file", "onnx") from error
    memory, structure = jax.tree.flatten(policy.start(1))
    keys = policy.obs_keys

    def act(*inputs: Any) -> tuple[Any, ...]:
        obs = dict(zip(keys, inputs, strict=False))
        distribution, after = policy.distribution(
            obs, jax.tree.unflatten(structure, inputs[len(keys) :])
        )
        return policy.to_action(distribution.mean), *jax.tree.leaves(after)

    numbers = range(len(memory))
    rows = jax.export.symbolic_shape("B")[0]
    specs = [_part(space, key, rows) for key in keys]
    specs += [jax.ShapeDtypeStruct((rows, *part.shape[1:]), part.dtype) for part in memory]
    names = [*keys, *(f"memory_{i}" for i in numbers)]
    outputs = ["action", *(f"next_memory_{i}" for i in numbers)]
    try:
        model = to_onnx(act, specs, model_name="policy", input_names=names, output_names=outputs)
        for key, text in metadata.items():
            model.metadata_props.add(key=key, value=text)
        content = model.SerializeToString()
        return content, _difference(content, act, dict(zip(names, specs, strict=True)))
    except Exception as error:  # whatever the converter and the runtime make of a network
        line = " ".join(str(error).split())[:200]
        raise ExportError(f"the policy cannot be written in ONNX: {line}") from error


def _part(space: spaces.Space[Any], name: str, rows: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of a part of observations: an image's own dtype, and float32 for all else."""
    part = space[name] if isinstance(space, spaces.Dict) else space
    dtype = part.dtype if is_image(name) else jnp.float32
    return jax.ShapeDtypeStruct((rows, *(part.shape or ())), dtype)


def _difference(content: bytes, act: Any, specs: Mapping[str, jax.ShapeDtypeStruct]) -> float:
    """The largest difference between a file's actions and a policy's, on random observations."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)

    def drawn(spec: jax.ShapeDtypeStruct) -> NDArray:
        shape = 1 if spec.shape[0] == 1 else 32, *spec.shape[1:]
        if np.issubdtype(spec.dtype, np.unsignedinteger):
            return random.integers(0, np.iinfo(spec.dtype).max, shape, spec.dtype, endpoint=True)
        return random.normal(size=shape).astype(np.float32)

    inputs = {name: drawn(spec) for name, spec in specs.items()}
    theirs = session.run(["action"], inputs)[0]
    ours = np.asarray(jax.jit(act)(*inputs.values())[0])
    return float((np.abs(theirs - ours) / np.maximum(1.0, np.abs(ours))).max())
