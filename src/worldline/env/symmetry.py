"""Left-right symmetry of a task, from its model and the parts that it declares.

The mirror is the plane of x and z. A place, a velocity, a force changes the sign of its y; a turn
or an angular velocity changes those of its x and z. What belongs to the left and to the right
changes places, which their names tell: names are each other's mirror image where one becomes the
other by one exchange of `left` and `right`, or of l and r.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import mujoco
import numpy as np

from worldline.env.mirror import Mirror, Symmetry
from worldline.env.parts import STATE, ObservationPart, placed
from worldline.errors import ConfigError, TaskError
from worldline.model import Model
from worldline.types import Array
from worldline.variation.context import features_of

if TYPE_CHECKING:
    from worldline.env.env import Env
    from worldline.env.task import Task

#: Signs of the three numbers of a vector in the mirror, and of a turn or an angular velocity.
VECTOR, SPIN = (1.0, -1.0, 1.0), (-1.0, 1.0, -1.0)

#: Signs of the numbers of each kind of `ObservationPart.mirror`.
_SIGNS: dict[str, tuple[float, ...]] = {
    "same": (1.0,),
    "opposite": (-1.0,),
    "vector": VECTOR,
    "spin": SPIN,
    "quaternion": (1.0, -1.0, 1.0, -1.0),
    "velocity_command": (1.0, -1.0, -1.0),
}

#: Kinds of parts by their source, where a part does not say.
_OF_SOURCE = {
    "joint_position": "joints",
    "joint_velocity": "joints",
    "linear_velocity": "vector",
    "angular_velocity": "spin",
    "projected_gravity": "vector",
    "site_position": "vector",
    "action": "action",
}

_SENSOR = mujoco.mjtSensor
#: The sensors that measure turns; an axis y of a frame changes all signs of a vector.
_TURNS = (_SENSOR.mjSENS_GYRO, _SENSOR.mjSENS_TORQUE, _SENSOR.mjSENS_FRAMEANGVEL,
          _SENSOR.mjSENS_FRAMEANGACC, _SENSOR.mjSENS_SUBTREEANGMOM)  # fmt: skip

#: How far joints may be from each other's mirror image: the cosine of the angle of their axes.
_LEAST_COSINE = 0.99

_SIDES = {"left": "right", "right": "left", "l": "r", "r": "l"}


def left_right(task: Task) -> Symmetry:
    """The symmetry of a task that declares parts of its observation and of its action.

    Raises:
        TaskError: a part does not say what becomes of it in the mirror; two joints are not each
            other's mirror image.
    """
    action = _of_action(task)
    return Symmetry(
        {
            key: Mirror.joined([_of_part(task, part, action) for part in parts])
            for key, parts in task.observation_parts.items()
        },
        action,
    )


def symmetry_of(env: Any, keys: Sequence[str]) -> tuple[Mirror, Mirror]:
    """The mirrors of what a network reads of an environment, and of its action.

    Args:
        env: the environment, an `Env` of such a task.
        keys: the parts of a dict of observations that are read, one behind the other.

    Raises:
        ConfigError: the task declares no symmetry, or a part has no mirror image.
    """
    symmetry = getattr(getattr(env, "task", None), "symmetry", None)
    if symmetry is None:
        what = type(getattr(env, "task", env)).__name__
        raise ConfigError(f"{what} declares no symmetry; leave out symmetry, or define it there")
    low, high = env.action_low, env.action_high
    sign, index = np.array(symmetry.action.sign), np.array(symmetry.action.index)
    if not np.allclose(np.where(sign > 0, low, -high)[index], low):
        raise ConfigError("the bounds of the action are not their own mirror image")
    known = dict(symmetry.observation)
    if env.history:
        known[STATE] = _with_frames(env, known[STATE])
    known["last_action"] = symmetry.action
    known |= _of_context(env)
    for key in keys:
        if key not in known:
            raise ConfigError(
                f"networks read {key!r}, whose mirror image is not known; leave out symmetry, or "
                "that part"
            )
    return Mirror.joined([known[key] for key in keys]), symmetry.action


def mirrored_state(model: Model, qpos: Array, qvel: Array) -> tuple[Array, Array]:
    """The mirror image of the state of a robot whose first joint is free, `(nq,)` and `(nv,)`.

    Raises:
        TaskError: two joints are not each other's mirror image.
    """
    joints = joint_mirror(model)
    place = Mirror.joined([Mirror.of_signs(*VECTOR), Mirror.of_signs(*_SIGNS["quaternion"])])
    motion = Mirror.joined([Mirror.of_signs(*VECTOR), Mirror.of_signs(*SPIN)])
    return Mirror.joined([place, joints])(qpos), Mirror.joined([motion, joints])(qvel)


def joint_mirror(model: Model, names: Sequence[str] | None = None) -> Mirror:
    """The mirror of the positions, velocities or forces of hinges and slides.

    Args:
        model: tells their axes, where the robot stands at `qpos0`.
        names: of the joints; None: all but the first, which is free.

    Raises:
        TaskError: two joints are not each other's mirror image.
    """
    mj = model.mj
    names = tuple(model.names("joint")[1:]) if names is None else names
    data = mujoco.MjData(mj)
    mujoco.mj_kinematics(mj, data)
    index, signs = _swapped(names), []
    for name, other in zip(names, (names[i] for i in index), strict=True):
        joint, opposite = model.id("joint", name), model.id("joint", other)
        slides = mj.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE
        image = np.array(VECTOR if slides else SPIN) * data.xaxis[joint]
        cosine = float(image @ data.xaxis[opposite])
        if abs(cosine) < _LEAST_COSINE:
            raise TaskError(
                f"the joints {name!r} and {other!r} are not each other's mirror image: the cosine "
                f"of their axes is {cosine:.3f} in the mirror; name left and right as they are"
            )
        signs.append(float(np.sign(cosine)))
    return Mirror(index, tuple(signs))


def mirrored_name(name: str, names: Sequence[str]) -> str:
    """The one of these names that is the mirror image of a name; itself if none is."""
    found = {other for other in _exchanges(name) if other in names}
    if len(found) > 1:
        raise TaskError(f"{name!r} has several mirror images: {', '.join(sorted(found))}")
    return found.pop() if found else name


def _exchanges(name: str) -> list[str]:
    """All names that one exchange of left and right makes of a name."""
    pattern = "left|right" if re.search("left|right", name, re.IGNORECASE) else "l|r"
    sides = re.finditer(pattern, name, re.IGNORECASE)
    return [name[: m.start()] + _other_side(m.group()) + name[m.end() :] for m in sides]


def _other_side(word: str) -> str:
    other = _SIDES[word.lower()]
    if word.isupper():
        return other.upper()
    return other.capitalize() if word[0].isupper() else other


def _swapped(names: Sequence[str]) -> tuple[int, ...]:
    """Where the mirror image of each name is."""
    return tuple(names.index(mirrored_name(name, names)) for name in names)


def _of_action(task: Task) -> Mirror:
    """The mirror of an action of which each number is an actuator's."""
    kind = type(task).__name__
    if not task.action_parts or any(not part.actuators for part in task.action_parts):
        raise TaskError(f"{kind} does not name the actuators of its action; declare action_parts")
    mj, actuators = task.model.mj, [n for part in task.action_parts for n in part.actuators]
    joints = [int(mj.actuator_trnid[task.model.id("actuator", name), 0]) for name in actuators]
    return joint_mirror(task.model, [task.model.names("joint")[joint] for joint in joints])


def _of_part(task: Task, part: ObservationPart, action: Mirror) -> Mirror:
    """The mirror of the numbers of a part."""
    if part.inner:
        inner = [_of_part(task, each, action) for each in part.inner]
        return Mirror.joined(inner * (part.size // sum(map(len, inner))))
    if isinstance(part.mirror, tuple):
        return Mirror(part.mirror, (1.0,) * part.size)
    if part.source == "sensor" and not part.mirror:
        return _of_sensors(task.model, part)
    kind = part.mirror or _OF_SOURCE.get(part.source, "")
    names = part.each or part.of
    if kind == "action":
        return action
    if kind == "joints":
        mirror = joint_mirror(task.model, names)
    elif kind:
        signs = _SIGNS[kind]
        several = bool(part.each) or part.source == "site_position"
        rows = Mirror(_swapped(names), (1.0,) * len(names)) if several else Mirror.of_signs(1.0)
        mirror = rows.of_rows(len(signs)).times(signs)
    else:
        raise TaskError(
            f"{type(task).__name__}.observation_parts: {part.name!r} does not say what becomes of "
            "it in the mirror; give its `mirror`"
        )
    return Mirror.joined([mirror] * (part.size // len(mirror)))


def _of_sensors(model: Model, part: ObservationPart) -> Mirror:
    """The mirror of the readings of sensors, by what they measure."""
    mirrors: list[tuple[float, ...]] = []
    for name in part.of:
        kind = _SENSOR(int(model.mj.sensor_type[model.id("sensor", name)]))
        size = int(model.mj.sensor_dim[model.id("sensor", name)])
        signs: tuple[float, ...] = SPIN if kind in _TURNS else VECTOR
        if kind == _SENSOR.mjSENS_FRAMEYAXIS:
            signs = (-1.0, 1.0, -1.0)
        if kind == _SENSOR.mjSENS_FRAMEQUAT:
            signs = _SIGNS["quaternion"]
        mirrors.append(signs if size > 1 else (1.0,))
    rows = Mirror(_swapped(part.of), (1.0,) * len(part.of))
    whole = rows.of_rows(len(mirrors[0])).times(mirrors[0])
    if not part.index:
        return whole
    chosen = list(part.index)
    return Mirror(
        tuple(chosen.index(whole.index[i]) for i in chosen), tuple(whole.sign[i] for i in chosen)
    )


def _of_context(env: Env) -> dict[str, Mirror]:
    """The mirror of the visible context features: masses of bodies change places."""
    visible, all_ = env.context.visible, features_of(env.model)
    twins = [mirrored_name(name, list(all_)) for name in visible]
    if not set(twins) <= set(visible) or not set(visible) <= all_.keys():
        return {}
    return {"context": Mirror(tuple(map(visible.index, twins)), (1.0,) * len(twins))}


def _with_frames(env: Env, mirror: Mirror) -> Mirror:
    """The mirror of a state of which some parts have several measurements."""
    at: dict[tuple[int, int], int] = {}  # from a measurement's age and number in the state
    parts = env.task.observation_parts[STATE]
    for short, long in zip(placed(parts), placed(parts, env.history), strict=True):
        for frame in range(long.frames):
            first = long.start + frame * short.part.size
            age = long.frames - frame
            at |= {(age, short.start + n): first + n for n in range(short.part.size)}
    index, sign = np.zeros(len(at), int), np.ones(len(at))
    for (age, number), place in at.items():
        index[place] = at[age, mirror.index[number]]
        sign[place] = mirror.sign[number]
    return Mirror(tuple(index.tolist()), tuple(cast(list[Any], sign.tolist())))
