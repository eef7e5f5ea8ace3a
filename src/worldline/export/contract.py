"""The deployment contract: what a controller must know of a policy, as data that JSON can hold."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import mujoco
import numpy as np

from worldline.env.disturb import undisturbed
from worldline.env.env import Env
from worldline.env.parts import (
    STATE,
    ActionPart,
    ObservationPart,
    Placed,
    check_parts,
    objects_of,
    placed,
)
from worldline.env.task import Task
from worldline.errors import ExportError
from worldline.learn.policy import Policy
from worldline.model import Model
from worldline.rendering.camera import COLOUR, is_image
from worldline.variation.context import Feature

#: The name of the schema of `contract.json`, and its version: another one breaks a reader.
SCHEMA, VERSION = "worldline-deployment", 1

#: The limit of a target that has none.
UNLIMITED = float(np.finfo(np.float32).max)


def contract_of(env: Env, policy: Policy, training: Mapping[str, Any]) -> dict[str, Any]:
    """The contract of a policy in its environment.

    Args:
        env: the environment.
        policy: the policy.
        training: what made the policy, in types of JSON.

    Returns:
        What `contract.json` holds, without `model`, which describes a file.

    Raises:
        TaskError: what the task declares does not fit its observation.
        ModelError: the task declares an object that the model lacks.
    """
    check_parts(env.task, env.task_specs.obs)
    memory = jax.tree.leaves(policy.start(1))
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "control_period": env.task.control_timestep,
        "action_repeat": env.action_repeat,
        "motors": "task" if env.task.control_at_physics_rate else "model",
        "action": _action(env),
        "observation": list(_observation(env, policy)),
        "memory": {f"memory_{i}": list(part.shape[1:]) for i, part in enumerate(memory)},
        "training": dict(training),
    }


def onnx_metadata(contract: Mapping[str, Any], run: str) -> dict[str, str]:
    """The contract as texts by the keys that controllers of mjlab's and Isaac Lab's policies read,
    with the whole of it as `contract`, in JSON; lists have commas between their items.

    Args:
        contract: of `contract_of`.
        run: where the policy comes from.
    """
    action, parts = contract["action"], contract["observation"]
    lists = {
        "joint_names": action["joints"],
        "joint_stiffness": action["stiffness"],
        "joint_damping": action["damping"],
        "default_joint_pos": action["default_joint_pos"],
        "action_scale": action["numbers"]["scale"],
        "observation_names": [part["name"] for part in parts],
        "observation_history_lengths": [part["history"] for part in parts],
        "command_names": [part["name"] for part in parts if part["source"] == "command"],
    }
    texts = {key: ",".join(map(_text, values)) for key, values in lists.items()}
    return {**texts, "run_path": run, "contract": json.dumps(contract)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.9g}"


def _observation(env: Env, policy: Policy) -> Iterator[dict[str, Any]]:
    """The parts that the policy reads, in their order, each with its place in its input."""
    used: set[str] = set()
    for key in policy.obs_keys:
        if is_image(key):
            yield _image(env, key)
            continue
        for place in _parts_of(env, key):
            part = place.part
            name = f"{key}/{part.name}" if part.name in used else part.name
            used.add(name)
            yield {
                "name": name,
                "input": key,
                "start": place.start,
                "stop": place.stop,
                "size": part.size,
                "history": place.frames,
                "source": part.source,
                "of": objects_of(env.model, part),
                "index": list(part.index or range(part.size)),
                "offset": _list(part.offset, part.size),
                "scale": _list(part.scale, part.size),
                "unit": part.unit,
                "frame": part.frame,
                "noise": _list(part.noise, part.size),
                **_of_source(env, part),
            }


def _of_source(env: Env, part: ObservationPart) -> dict[str, Any]:
    """What describes a part whose source the controller is."""
    if part.source == "action":
        # With repeated actions, the one of so many control steps ago is fewer actions back.
        return {"ago": -(-part.ago // env.action_repeat)}
    if part.source == "clock":
        return {"frequency": part.frequency}
    if part.source != "command":
        return {}
    known = _visible(env) if part.name == "context" else ()
    default = [float(feature.default) for feature in known] or [0.0] * part.size
    return {"low": list(part.low), "high": list(part.high), "default": default}


def _image(env: Env, key: str) -> dict[str, Any]:
    """An image that the policy reads; where it shows distances, a robot alone can give it."""
    assert env.cameras is not None
    camera = env.cameras.views[key.partition("/")[2]]
    colour = key.startswith(COLOUR)
    return {
        "name": key,
        "input": key,
        "height": camera.height,
        "width": camera.width,
        "history": camera.stack,
        "source": "camera" if colour else "depth",
        "of": [camera.name, camera.height, camera.width] if colour else [],
        "index": [],
        "camera": camera.name,
        "unit": "" if colour else "mm",
    }


def _parts_of(env: Env, key: str) -> tuple[Placed, ...]:
    """The parts of a key of the observation, in their places."""
    if declared := env.task.observation_parts.get(key):
        return placed(declared, env.history if key == STATE else {})
    specs = env.observer.specs(env.task_specs.obs)
    shape = (specs[key] if isinstance(specs, dict) else specs).shape
    size = math.prod(shape)
    if key == "last_action":
        return placed((ObservationPart(key, size, "action"),))
    if key == "context":
        low, high = zip(*((f.low, f.high) for f in _visible(env)), strict=True)
        return placed((ObservationPart(key, size, "command", low=low, high=high),))
    return placed((ObservationPart(key, size),))


def _visible(env: Env) -> list[Feature]:
    """The features of the context that are part of the observation."""
    features = env.context.features(env.model)
    return [features[name] for name in env.context.visible]


def _action(env: Env) -> dict[str, Any]:
    """What the numbers of an action do, each with its joint."""
    parts = env.task.action_parts or _undeclared(env)
    bases = {part.base for part in parts}
    if len(bases) > 1:
        raise ExportError(
            f"the parts of the action have different bases, {sorted(bases)}; give all the same base"
        )
    rows = [row for part in parts for row in _rows(env.model, part)]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    defaults = _default_positions(env, columns["joints"])
    return {
        "parts": [{"name": p.name, "size": p.size, "kind": p.kind, "unit": p.unit} for p in parts],
        "base": bases.pop(),
        **{name: columns[name] for name in ("joints", "actuators")},
        "numbers": {name: columns[name] for name in ("offset", "scale", "low", "high")},
        **{name: columns[name] for name in ("stiffness", "damping", "torque_limit")},
        "default_joint_pos": defaults,
        "lowest": [float(value) for value in env.action_low],
        "highest": [float(value) for value in env.action_high],
    }


def _undeclared(env: Env) -> tuple[ActionPart, ...]:
    """The action of a task that says nothing of it: the controls, if the task leaves them so."""
    task, size = undisturbed(env.task)[0], len(env.action_low)
    several = any(len(controls) != 1 for controls in env.model.controls_of)
    if type(task).control is not Task.control or several:
        return (ActionPart("action", size),)
    return (ActionPart("control", size, "control", tuple(env.model.names("actuator"))),)


def _rows(model: Model, part: ActionPart) -> Iterator[dict[str, Any]]:
    """Each number of a part of the action, with what its actuator is."""
    offsets, scales = _list(part.offset, part.size), _list(part.scale, part.size)
    for place in range(part.size):
        row = {"offset": offsets[place], "scale": scales[place]}
        if not part.actuators:
            row |= {"low": -UNLIMITED, "high": UNLIMITED}
            none = dict.fromkeys(("stiffness", "damping", "torque_limit"))
            name = f"{part.name} {place}"
            yield {"joints": name, "actuators": name, **row, **none}
            continue
        index = model.id("actuator", part.actuators[place])
        low, high = np.nan_to_num(
            model.ctrlrange[model.controls_of[index][0]], posinf=UNLIMITED, neginf=-UNLIMITED
        )
        row["low"] = part.low[place] if part.low else float(low)
        row["high"] = part.high[place] if part.high else float(high)
        yield {"actuators": part.actuators[place], **row, **_actuator(model, index)}


def _actuator(model: Model, index: int) -> dict[str, Any]:
    """The joint, the gains and the largest torque of an actuator."""
    mj = model.mj
    kinds = mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT
    of_joint = int(mj.actuator_trntype[index]) in map(int, kinds)
    joint = int(mj.actuator_trnid[index, 0]) if of_joint else -1
    gear = abs(float(mj.actuator_gear[index, 0])) or 1.0
    servo = int(mj.actuator_biastype[index]) == int(mujoco.mjtBias.mjBIAS_AFFINE)
    damping = -float(mj.actuator_biasprm[index, 2]) if servo else 0.0
    if of_joint and servo and not damping:  # some models have it at the joint
        damping = float(np.ravel(mj.dof_damping[mj.jnt_dofadr[joint]])[0])
    limit = None
    if mj.actuator_forcelimited[index]:
        limit = gear * float(np.abs(mj.actuator_forcerange[index]).max())
    elif of_joint and mj.jnt_actfrclimited[joint]:
        limit = float(np.abs(mj.jnt_actfrcrange[joint]).max())
    return {
        "joints": model.names("joint" if of_joint else "actuator")[joint if of_joint else index],
        "stiffness": float(mj.actuator_gainprm[index, 0]) if servo else 0.0,
        "damping": damping,
        "torque_limit": limit,
    }


def _default_positions(env: Env, joints: list[str]) -> list[float]:
    """The position of each joint that the observation counts from, else that of the model."""
    known = {
        name: float(env.model.qpos0[env.model.mj.jnt_qposadr[index]])
        for index, name in enumerate(env.model.names("joint"))
    }
    for part in env.task.observation_parts.get(STATE, ()):
        if part.source == "joint_position":
            known |= dict(zip(part.of, _list(part.offset, part.size), strict=True))
    return [known.get(joint, 0.0) for joint in joints]


def _list(value: float | tuple[float, ...], size: int) -> list[float]:
    """A number for each of `size`."""
    return [float(x) for x in value] if isinstance(value, tuple) else [float(value)] * size
