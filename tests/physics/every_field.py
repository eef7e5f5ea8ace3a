"""Every constant of MuJoCo's that its dynamics feel, in small models, beside what engines do.

`python tests/physics/every_field.py` writes which of them vary on which engine into the docs.
"""

import copy
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import field_models
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco.batch import MODEL_FIELDS

from worldline.errors import ModelError, VariationError
from worldline.model import _OF_SIMPLE_BODIES, Model
from worldline.physics import make_physics
from worldline.physics.base import Physics, Reads

STEPS = 25
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "constants.md"


#: Real fields of MuJoCo on which no trajectory here depends: those that it derives from others,
#: those that decide how exactly it computes, and the sizes of what has none.
NOT_FELT = (
    "actuator_acc0",
    "actuator_length0",
    "body_invweight0",
    "body_margin",
    "body_subtreemass",
    "dof_M0",
    "dof_invweight0",
    "dof_length",
    "efm0_L",
    "geom_aabb",
    "geom_gap",
    "geom_rbound",
    "opt.ccd_tolerance",
    "opt.ls_tolerance",
    "opt.magnetic",
    "opt.noslip_tolerance",
    "opt.sleep_tolerance",
    "opt.tolerance",
    "pair_gap",
    "site_size",
    "tendon_invweight0",
    "tendon_length0",
    "tendon_width",
)
#: Those of what is seen, sensed, named, or soft.
ELSEWHERE = (
    "bvh_",
    "cam_",
    "flex",
    "key_",
    "light_",
    "mat_",
    "numeric_",
    "sensor_",
    "tuple_",
)


class Cell(NamedTuple):
    """A field of a model with another value."""

    value: np.ndarray
    """Float32, the field's own shape."""
    truth: np.ndarray
    """Plain MuJoCo's `qpos`, `qvel` and `act` after `STEPS` steps with that value."""
    effect: float
    """How far that is from where the model goes with its own value."""


@functools.cache
def model(name: str) -> Model:
    return Model(field_models.MODELS[name])


def start(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`qpos`, `qvel` and `ctrl` of a model, all float32: in motion and driven."""
    mj, random = model(name).mj, np.random.default_rng(0)
    qvel, ctrl = random.normal(0, 0.5, mj.nv), random.uniform(0.2, 0.8, mj.nu)
    return np.float32(mj.qpos0), np.float32(qvel), np.float32(ctrl)


def stepped(name: str, mj: mujoco.MjModel) -> np.ndarray:
    """Plain MuJoCo's `qpos`, `qvel` and `act` after `STEPS` calls of `mj_step`."""
    data = mujoco.MjData(mj)
    data.qpos[:], data.qvel[:], ctrl = start(name)
    mujoco.mj_forward(mj, data)
    data.ctrl[:] = ctrl
    mujoco.mj_step(mj, data, STEPS)
    return np.r_[data.qpos, data.qvel, data.act]


def other(field: str, value: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Another value of a field that MuJoCo accepts: zeros become small, the rest a little more."""
    value, drawn = np.array(value, float), random.random(value.shape)
    factor = 1.2 if field == "body_inertia" else 1.1 + 0.2 * drawn
    new = np.where(value == 0, 0.05 * (1 + drawn), factor * value)
    if "solimp" in field:  # below 1
        new = 0.97 * value
    if field.endswith("margin"):  # less than half of a joint's range
        new = value + 0.005
    if field.endswith("adhesion"):
        new = value + 1
    if field == "body_gravcomp":
        new = np.where(value == 0, 0.5, value)
    if field in ("opt.density", "opt.viscosity"):
        new = np.where(value == 0, 2.0, 1.2 * value)
    if field.endswith("quat") or field == "jnt_axis":
        new /= np.linalg.norm(new, axis=-1, keepdims=True)
    if field.startswith("body_"):  # MuJoCo does not read those of the world body
        new[0] = value[0]
    return np.float32(new)


def real_fields() -> Iterator[str]:
    """The names of MuJoCo's constants that are real numbers."""
    for field in sorted(MODEL_FIELDS):
        try:
            model("bare chain").constant(field)
        except VariationError:  # an integer
            continue
        yield field


@functools.cache
def cells(name: str) -> dict[str, Cell]:
    """For each field that the model's dynamics feel, another value and what it leads to."""
    random, found = np.random.default_rng(1), {}
    before = stepped(name, model(name).mj)
    for field in real_fields():
        stored = model(name).constant(field)
        value = other(field, stored, random) if stored.size else stored
        try:
            truth = stepped(name, edited(name, field, value))
        except mujoco.FatalError:  # MuJoCo itself refuses this field in this model
            continue
        effect = float(np.abs(truth - before).max())
        if stored.size and effect > 1e-4 and np.isfinite(truth).all():
            found[field] = Cell(value, truth, effect)
    return found


def edited(name: str, field: str, value: np.ndarray) -> mujoco.MjModel:
    """A model as it is compiled where the field may vary, with the value and what follows."""
    mj = copy.copy(model(name).varying({field}).mj)
    owner, _, attribute = field.rpartition(".")
    if owner:
        setattr(mj.opt, attribute, value if value.ndim else float(value))
    else:
        getattr(mj, field)[:] = value
    mujoco.mj_setConst(mj, mujoco.MjData(mj))
    return mj


def refusal(engine: str, name: str, field: str) -> str:
    """Why an engine does not vary a field of a model; empty where it does."""
    try:
        physics = _physics(engine, name)
        jax.eval_shape(lambda: _started(physics, name, {field: cells(name)[field].value}))
    except (ModelError, VariationError) as error:
        return str(error)
    return ""


def programs(engine: str, fields: Iterable[str]) -> Iterator[list[str]]:
    """Groups of fields that an engine may vary in one program; mostly each has its own.

    MJX takes long to compile. It does the same with a constant whatever else varies, but for those
    that change which model it takes, and those from which others are derived.
    """
    if engine != "mjx":
        yield from ([field] for field in fields)
        return
    from worldline.physics.mjx.constants import DERIVED_FROM
    from worldline.physics.mjx.model import ASKED

    groups: dict[tuple[str, bool], list[str]] = {}
    for field in fields:
        kind = field if field in ASKED else "simple" if field in _OF_SIMPLE_BODIES else ""
        groups.setdefault((kind, field in DERIVED_FROM), []).append(field)
    yield from groups.values()


def simulated(engine: str, name: str, fields: list[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Where a model goes on an engine with another value of each field in turn."""
    physics, ctrl = _physics(engine, name), start(name)[2]
    stored = {field: np.float32(model(name).constant(field)) for field in fields}

    @jax.jit
    def run(variation: dict[str, jax.Array]) -> jax.Array:
        inputs = {"ctrl": jnp.asarray(ctrl)} if ctrl.size else {}
        state = physics.step(_started(physics, name, variation), inputs, STEPS)
        end = jnp.concatenate([state.qpos, state.qvel, state.act])
        return jnp.where(state.diverged, 1e9, end)  # far from everything

    for field in fields:
        yield field, np.asarray(run({**stored, field: cells(name)[field].value}))


@functools.lru_cache(1)
def _physics(engine: str, name: str) -> Physics:
    return make_physics(engine, model(name), Reads())


def _started(physics: Physics, name: str, variation: dict[str, jax.Array]):
    qpos, qvel, _ = start(name)
    return physics.start(jnp.asarray(qpos), jnp.asarray(qvel), variation, {})


def page() -> str:
    """A table of all fields: on which engines they vary, and where one refuses them."""
    engines = ("native", "mjx", "warp")
    refused: dict[str, dict[str, list[str]]] = {}
    models: dict[str, int] = {}
    for name in field_models.MODELS:
        for field in cells(name):
            models[field] = models.get(field, 0) + 1
            for engine in engines:
                why = refusal(engine, name, field)
                refused.setdefault(field, {}).setdefault(engine, []).extend([why] * bool(why))
    lines = ["| field | models | " + " | ".join(f"`{e}`" for e in engines) + " |", "|---" * 5 + "|"]
    for field in sorted(models):
        answers = []
        for engine in engines:
            count = len(refused[field][engine])
            whole = "no" if count == models[field] else f"in {models[field] - count}"
            answers.append(whole if count else "yes")
        lines.append(f"| `{field}` | {models[field]} | {' | '.join(answers)} |")
    return "\n".join(lines) + "\n"


BEGIN, END = "<!-- begin: python tests/physics/every_field.py -->\n", "<!-- end -->\n"

if __name__ == "__main__":
    head, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(head + BEGIN + "\n" + page() + "\n" + END + rest.partition(END)[2])
