"""Generated models in a random state, with random constants; and where plain MuJoCo takes them.

The constants of a world are drawn by a `Domain`, or given. They come from MuJoCo's own list.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import every_field
import generated_models
import generated_scene
import jax
import mujoco
import numpy as np

from worldline.errors import VariationError
from worldline.model import Model
from worldline.variation import Domain, Uniform, add, scale

#: Control steps of a world.
STEPS = 8

#: Constants that MuJoCo derives from others; where they are given all the same, they stand.
_DERIVED = {"body_invweight0", "body_subtreemass", "dof_invweight0", "tendon_length0"}
_ALSO_FELT = {"geom_gap", "pair_gap", *_DERIVED}

#: By a pattern of a field's name, what is added to its zeros.
_AMOUNTS = {
    r"margin$": 0.004, r"gap$": 0.002, r"pos$": 0.03, r"quat$|axis$|^qpos": 0.1,
    r"friction$|loss$": 0.1, r"poly$|armature$": 0.03, r"damping$": 0.2, r"stiffness$": 2,
    r"adhesion$": 1, r"gravcomp$": 0.5, r"density$|viscosity$": 2, r"gravity$|wind$": 1,
    r"gear$|prm$": 0.2, r"surfacevel$|solref|eq_data|yield$": 0.05,
}  # fmt: skip
_SIGNED = re.compile("pos$|quat$|axis$|^qpos|gravity$|wind$|gear$|prm$|surfacevel$|eq_data")

#: Fields in which a zero means that there is none of it, or in which only small changes make sense.
_ZERO_STAYS = re.compile(
    "size$|range$|^wrap|solimp|delay|lengthspring|mass|inertia|o_|timestep|impratio|fluid|length"
)
_NARROW = re.compile("solimp|^wrap|lengthrange|fluid|quat$|axis$|eq_data|timestep|^qpos|poly$")
_BY_ROW = re.compile("inertia$|range$|lengthspring$")


@dataclasses.dataclass
class World:
    """A world of a model of its own."""

    model: Model
    variation: dict[str, np.ndarray]
    """Its constants, float32."""
    idle: dict[str, np.ndarray]
    """Other values of the fields of which its domain says that they change nothing."""
    start: dict[str, np.ndarray]
    """`qpos`, `qvel` and inputs, float32."""
    ctrl: np.ndarray
    """`(STEPS, nu)`, float32."""
    substeps: int


def world(seed: int, having: frozenset[str] | None = None) -> World:
    """The world that a seed makes, with other features than its own if they are given."""
    model = Model(generated_models.mjcf(seed, having))
    random = np.random.default_rng([seed, 1])
    fields = _fields(model, random)
    variation = {field: _other(model, field, random) for field in fields}
    idle: dict[str, np.ndarray] = {}
    if random.random() < 0.5:
        drawn, refused = _drawn(model, fields, random)
        idle = {field: variation[field] for field in refused}
        variation = drawn or variation
    having = generated_scene.features(seed) if having is None else having
    start = _start(model, np.random.default_rng([seed, 2]), having)
    substeps = int(random.integers(1, 4))
    return World(model, variation, idle, start, _controls(model, seed), substeps)


def _fields(model: Model, random: np.random.Generator) -> list[str]:
    """Some of the fields that a simulation of the model may feel; rarely derived ones."""
    known = [
        field
        for field in every_field.real_fields()
        if model.constant(field).size
        and not field.startswith(every_field.ELSEWHERE)
        and not field.endswith(("rgba", "user"))
        and (field not in every_field.NOT_FELT or field in _ALSO_FELT)
    ]
    weight = np.array([0.05 if field in _DERIVED else 1.0 for field in known])
    count = min(len(known), int(random.integers(1, 6)))
    return random.choice(known, count, replace=False, p=weight / weight.sum()).tolist()


def _other(model: Model, field: str, random: np.random.Generator) -> np.ndarray:
    """Another value of a field that MuJoCo accepts; zeros stay or become something."""
    stored = np.array(model.constant(field), float)
    low, high = (0.97, 1.0) if "solimp" in field else _factors(model, field)
    shape = (*stored.shape[:-1], 1) if _BY_ROW.search(field) else stored.shape
    new = stored * random.uniform(low, high, shape)
    if random.random() < 0.6 and not _zero_stays(model, field):
        new = np.where(stored == 0, _amount(field, random, stored.shape), new)
    if field == "qpos0":
        _normalise(model.mj, new)
    if field.startswith("body_"):
        new[0] = stored[0]
    return _of_length_one(field, new)


def _of_length_one(field: str, rows: np.ndarray) -> np.ndarray:
    """Axes and orientations as Worldline and MuJoCo's compiler make them."""
    if field.endswith(("quat", "jnt_axis")):
        rows = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.float32(rows)


def _factors(model: Model, field: str) -> tuple[float, float]:
    if _NARROW.search(field) or (field.startswith("actuator_") and _special(model.mj)):
        return 0.96, 1.04
    return 0.7, 1.4


def _special(mj: mujoco.MjModel) -> bool:
    """Whether parameters of actuators mean other things in some of them, as in muscles."""
    plain = (mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtGain.mjGAIN_AFFINE)
    return not np.isin(mj.actuator_gaintype, plain).all()


def _zero_stays(model: Model, field: str) -> bool:
    return bool(_ZERO_STAYS.search(field)) or (field.endswith("prm") and _special(model.mj))


def _amount(field: str, random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    most = next((x for pattern, x in _AMOUNTS.items() if re.search(pattern, field)), 0.1)
    sign = random.choice((-1.0, 1.0), shape) if _SIGNED.search(field) else 1.0
    return sign * most * random.uniform(0.3, 1, shape)


def _normalise(mj: mujoco.MjModel, qpos: np.ndarray) -> None:
    mujoco.mj_normalizeQuat(mj, qpos)


def _drawn(
    model: Model, fields: list[str], random: np.random.Generator
) -> tuple[dict[str, np.ndarray], list[str]]:
    """What a domain of these fields draws, and the fields of which it says that they are idle."""
    terms, idle = [], []
    for field in fields:
        per = ("object", "world")[random.integers(2)]
        if random.random() < 0.7 or _zero_stays(model, field):
            low, high = (0.97, 1.0) if "solimp" in field else _factors(model, field)
            term = scale(field, Uniform(low, high), per=per)
        else:
            amount = _amount(field, random, ())
            term = add(field, Uniform(*sorted((0.0, float(amount)))), per=per)
        try:
            Domain(term).check(model)
            terms.append(term)
        except VariationError as error:
            if "changes nothing" in str(error) and "is zero" not in str(error):
                idle.append(field)
    domain = Domain(*terms)
    key = jax.random.key(int(random.integers(2**31)))
    drawn = domain(key, model, domain.ranges) if terms else {}
    return {name: _of_length_one(name, np.asarray(x)) for name, x in drawn.items()}, idle


def _start(model: Model, random: np.random.Generator, having: frozenset[str]) -> dict[str, Any]:
    """A state in motion, and inputs."""
    mj = model.mj
    qpos = np.array(mj.qpos0)
    mujoco.mj_integratePos(mj, qpos, random.normal(0, 0.15, mj.nv), 1.0)
    start = {"qpos": qpos, "qvel": random.normal(0, 0.5, mj.nv)}
    if "act" in having and mj.na:
        start["act"] = random.uniform(0, 0.5, mj.na)
    if "applied" in having:
        start["qfrc_applied"] = random.normal(0, 0.3, mj.nv)
        start["xfrc_applied"] = random.normal(0, 0.3, (mj.nbody, 6))
        if mj.neq:
            start["eq_active"] = random.integers(0, 2, mj.neq)
        if mj.nmocap:
            bodies = np.flatnonzero(mj.body_mocapid >= 0)
            start["mocap_pos"] = mj.body_pos[bodies] + random.normal(0, 0.1, (mj.nmocap, 3))
            turned = mj.body_quat[bodies] + random.normal(0, 0.1, (mj.nmocap, 4))
            start["mocap_quat"] = turned / np.linalg.norm(turned, axis=1, keepdims=True)
    return {name: np.float32(x) for name, x in start.items()}


def _controls(model: Model, seed: int) -> np.ndarray:
    random = np.random.default_rng([seed, 3])
    return np.float32(random.uniform(-0.3, 0.8, (STEPS, model.nu)))


def stored(world: World) -> dict[str, np.ndarray]:
    """The model's own values of the constants that vary."""
    return {field: np.float32(world.model.constant(field)) for field in world.variation}


def edited(model: Model, values: Mapping[str, np.ndarray]) -> mujoco.MjModel:
    """A model as it is compiled where these fields may vary, with values and what follows.

    Raises:
        mujoco.FatalError: MuJoCo refuses the values.
    """
    mj = copy.copy(model.varying(values).mj)
    given = {field for field in values if field in mujoco.MjModel._setconst_outputs}
    given -= set(mujoco.MjModel._setconst_inputs)
    _write(mj, values)
    mujoco.mj_setConst(mj, mujoco.MjData(mj))
    _write(mj, {field: values[field] for field in given})
    return mj


def _write(mj: mujoco.MjModel, values: Mapping[str, np.ndarray]) -> None:
    for field, value in values.items():
        owner, _, attribute = field.rpartition(".")
        if owner:
            setattr(mj.opt, attribute, value if value.ndim else float(value))
        else:
            getattr(mj, field)[:] = value


_FAILURES = ("BADQPOS", "BADQVEL", "BADQACC", "BADCTRL")


@dataclasses.dataclass
class Truth:
    """Where plain MuJoCo takes a world, after each control step that it survives."""

    ends: np.ndarray
    """`qpos`, `qvel` and `act`, `(n, nq + nv + na)`."""
    pairs: list[set[tuple[int, int]]]
    """For each, the types of geoms that touched in the steps up to it."""
    failed: bool
    """Whether the step after those failed."""


def truth(
    world: World, mj: mujoco.MjModel, noise: np.random.Generator | None = None, size: float = 0.0
) -> Truth:
    """Plain MuJoCo's steps; with noise, positions and velocities are moved a little each step."""
    data, ends, pairs = mujoco.MjData(mj), [], []
    for name, value in world.start.items():
        getattr(data, name)[:] = value
    mujoco.mj_forward(mj, data)
    touched: set[tuple[int, int]] = set()
    for ctrl in world.ctrl:
        data.ctrl[:] = ctrl
        for _ in range(world.substeps):
            if noise is not None:
                _move(mj, data, noise, size)
            mujoco.mj_step(mj, data)
            touched |= {
                tuple(sorted(map(int, mj.geom_type[pair])))
                for pair in data.contact.geom[: data.ncon]
            }
        warned = [data.warning[getattr(mujoco.mjtWarning, f"mjWARN_{x}")].number for x in _FAILURES]
        if any(warned):
            break
        ends.append(np.r_[data.qpos, data.qvel, data.act])
        pairs.append(set(touched))
    width = mj.nq + mj.nv + mj.na
    return Truth(np.reshape(ends, (-1, width)), pairs, len(ends) < len(world.ctrl))


def _move(mj: mujoco.MjModel, data: mujoco.MjData, noise: np.random.Generator, size: float) -> None:
    qpos = np.array(data.qpos)
    mujoco.mj_integratePos(mj, qpos, size * noise.normal(0, 1, mj.nv), 1.0)
    data.qpos[:] = qpos
    data.qvel[:] += size * noise.normal(0, 1, mj.nv) * (1 + np.abs(data.qvel))
    data.act[:] += size * noise.normal(0, 1, mj.na)
