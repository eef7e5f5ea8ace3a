"""Writes a task file for a robot, for `worldline init`."""

from __future__ import annotations

import dataclasses
import keyword
import re
from collections.abc import Iterator
from pathlib import Path
from string import Template

import mujoco

from worldline import robots
from worldline.cli.arms import Arm, find_arm
from worldline.cli.legged import (
    Legged,
    NDArray,
    are_servos,
    efforts,
    find_legs,
    floor_bits,
    floor_height,
    needs_floor,
    servos,
)
from worldline.cli.reaching import REACHING
from worldline.cli.templates import (
    FLOOR,
    LIGHT,
    MOTOR_CONTROL,
    MOTORS,
    MOVING,
    REACH,
    SERVO_CONTROL,
    SERVO_TABLE,
    SERVOS,
    WALKING,
)
from worldline.errors import ConfigError, ModelError
from worldline.model import Model

#: Seconds between two actions, rounded to a multiple of the model's time step.
_CONTROL_TIMESTEP = 0.02
#: The model's time step where it gets servos; s.
_SERVO_TIMESTEP = 0.005
#: Environment steps in which a robot of four legs learns to walk, and an arm to reach.
_WALKING_STEPS, _REACHING_STEPS = 4_000_000, 1_500_000


@dataclasses.dataclass(frozen=True)
class Written:
    """What `write_task` wrote."""

    file: Path
    notes: tuple[str, ...]
    """What was added to the model or found in it, a line each for a person."""


def write_task(robot: Path | str, out: Path | None = None, *, motors: bool = False) -> Written:
    """Writes a Python file with a task for a robot, ready to train and to be filled in.

    A robot that stands on legs gets a task in which it walks at a commanded speed, with a floor and
    servos if its model has none. An arm gets a task in which its hand reaches for points. Others
    get a task in which they move along a coordinate.

    Args:
        robot: its MJCF or URDF file; or a robot of the Menagerie, such as `menagerie:unitree_go2`.
        out: the file to write; by default named after the MJCF, in the current folder.
        motors: put a motor on every hinge and slide of a model without actuators.

    Raises:
        ModelError: MuJoCo refuses the model, nothing in it moves, or it has no actuators.
        ConfigError: the file exists, or is no Python file.
    """
    mjcf = robots.find(str(robot))
    shipped = str(robot).startswith(robots.MENAGERIE)
    known = str(robot).removeprefix(robots.MENAGERIE) if shipped else ""
    model = Model(mjcf)
    legged = find_legs(model) if model.nv else None
    arm = None if legged else find_arm(model)
    _check_it_moves(mjcf, model, legged, motors)
    name = _identifier(known or mjcf.stem)
    out = Path(f"{name}.py") if out is None else out
    if out.suffix != ".py":
        raise ConfigError(f"out is {str(out)!r}; give a file that ends in .py")
    if out.exists():
        raise ConfigError(f"{str(out)!r} exists; move it, or give another file with --out")
    forces = efforts(model, legged) if motors else {}
    gains = servos(model, legged) if legged and not (model.nu or motors) else {}
    blanks = {
        **_common(model, name, out, _SERVO_TIMESTEP if gains else model.timestep),
        **_where(mjcf, known, out),
        **_source(model, forces, gains),
        **(_walking(model, legged, gains) if legged else _moving(model, forces)),
        **(_reaching(model, arm) if arm else {}),
    }
    text = (WALKING if legged else REACHING if arm else MOVING).substitute(blanks)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text)
    return Written(out, tuple(_notes(model, legged, arm, forces, gains)))


def _common(model: Model, name: str, out: Path, timestep: float) -> dict[str, str]:
    """The blanks of all templates: names, and the time between two actions."""
    substeps = max(1, round(_CONTROL_TIMESTEP / timestep))
    return {
        "name": name,
        "file": _in_text(out.name),
        "task": "".join(word.capitalize() for word in name.split("_")) or "Robot",
        "joints": _listed(model, "joint", "joints"),
        "control_timestep": f"{substeps * timestep:.6g}",
        "timestep": f"{timestep:.6g}",
    }


def _where(mjcf: Path, known: str, out: Path) -> dict[str, str]:
    """The blanks for the place of the model: a file, or a robot of the Menagerie."""
    if known:
        place = f"robots.path({_literal(known)})"
        return {"mjcf": place, "path": "", "robots": "from worldline import robots\n"}
    place = _path_in_python(mjcf, out)
    return {"mjcf": place, "path": "from pathlib import Path\n", "robots": ""}


def _source(
    model: Model, forces: dict[str, float], gains: dict[str, tuple[float, float, float]]
) -> dict[str, str]:
    """The blanks for the model: as it is, or with a floor, motors or servos."""
    parts, table = [], ""
    if needs_floor(model):
        bits = floor_bits(model)
        touches = "" if bits == 1 else f", contype={bits}, conaffinity={bits}"
        name = _unused(model, "floor")
        parts.append(Template(FLOOR).substitute(name=_literal(name), touches=touches))
        sun = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
        parts += [LIGHT] * (not (model.mj.light_type == sun).any())
    if forces:
        parts, table = [*parts, MOTORS], _motor_table(forces)
    if gains:
        parts, table = [*parts, SERVOS], _servo_table(gains)
    opened = ["spec = mujoco.MjSpec.from_file(str(MJCF))", *parts, "return spec"]
    return {
        "source": "\n        ".join(opened) if parts else "return str(MJCF)",
        "actuators_table": table,
        "mujoco": "import mujoco\n" if parts else "",
    }


def _moving(model: Model, forces: dict[str, float]) -> dict[str, str]:
    """The blanks of a task in which something moves along a coordinate."""
    is_free = model.mj.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE
    listed = _listed(model, "actuator", "actuators")
    rest, words = _rest(model, forces)
    return {
        "actuators": "a motor on each hinge and slide" if forces else listed,
        "nobs": str(model.nq + model.nv - (2 if is_free else 0)),
        "nact": str(len(forces) or model.nu),
        "pose": _KEYFRAME if model.mj.nkey else _DEFAULT_POSE,
        "rest": rest,
        "rest_words": words,
    }


def _reaching(model: Model, arm: Arm) -> dict[str, str]:
    """The blanks of a task in which a hand reaches for points."""
    mj = model.mj
    joints = [_literal(model.names("joint")[joint]) for joint in arm.joints]
    rows = "".join(f"    {joint},\n" for joint in joints)
    return {
        "hand": _literal(model.names("body")[arm.hand]),
        "tip": str(arm.tip),
        "chain": f"(\n{rows})",
        "nobs": str(model.nq + model.nv + 6),
        "pose": "self.model.mj.key_qpos[0]" if mj.nkey else "self.model.qpos0",
        "near": f"{0.05 * arm.reach:.2g}",
        "lowest": f"{floor_height(mj) + 0.05 * arm.reach:.2g}",
        "steps": f"{_REACHING_STEPS:_}",
        "mujoco": "",
    }


def _rest(model: Model, forces: dict[str, float]) -> tuple[str, str]:
    """The control for an action of 0, in Python and in words."""
    holds = model.mj.nkey and not forces and model.mj.key_ctrl[0].any()
    return _KEYFRAME_CONTROL if holds else _MIDDLE


def _walking(
    model: Model, legged: Legged, gains: dict[str, tuple[float, float, float]]
) -> dict[str, str]:
    """The blanks of a task in which a robot walks."""
    bodies = model.names("body")
    held = bool(gains) or (model.nu > 0 and are_servos(model))
    if held:
        control, words = SERVO_CONTROL, "how far to move each joint from the stance"
    else:
        rest, _ = _rest(model, {} if model.nu else {"": 0.0})
        control, words = Template(MOTOR_CONTROL).substitute(rest=rest), "over the actuators' ranges"
    nact = model.nu or len(gains) or len(efforts(model, legged))
    named = all(bodies[foot.body] for foot in legged.feet)
    return {
        "actuators": _listed(model, "actuator", "actuators")
        if model.nu
        else f"no actuators: this file adds {'servos' if gains else 'motors'}",
        "nobs": str(9 + model.nq - 7 + model.nv - 6 + nact + 3),
        "nact": str(nact),
        "action_words": words,
        "control": control,
        "reach": REACH if held else "",
        "stance": _stance_table(model, legged.qpos),
        "stance_from": _in_text(legged.stance_from),
        "feet": _feet_table(legged, bodies, named),
        "foot_ids": '[self.model.id("body", foot) for foot in FEET]' if named else "list(FEET)",
        "root": str(legged.root),
        "root_name": _in_text(bodies[legged.root]) or "the root body",
        "height": f"{legged.height:.4g}",
        "speed": _top_speed(legged),
        "frequency": f"{1.1 / legged.height**0.5:.1f}",
        "step_height": f"{0.2 * legged.height:.2g}",
        "steps": f"{_WALKING_STEPS:_}",
    }


def _top_speed(legged: Legged) -> str:
    """The largest speed that is commanded, m/s: at a Froude number of 0.2."""
    return f"{max(0.1, 0.45 * (9.81 * legged.height) ** 0.5):.1f}"


def _stance_table(model: Model, qpos: NDArray) -> str:
    """The numbers of a configuration, those of each joint on a line with its name."""
    starts = [*model.mj.jnt_qposadr.tolist(), model.nq]
    rows = []
    for joint, name in enumerate(model.names("joint")):
        numbers = ", ".join(f"{x + 0.0:.5g}" for x in qpos[starts[joint] : starts[joint + 1]])
        rows.append(f"    {numbers},  # {_in_text(name) or f'joint {joint}'}\n")
    return "".join(rows)


def _feet_table(legged: Legged, bodies: list[str], named: bool) -> str:
    keys = [_literal(bodies[foot.body]) if named else foot.body for foot in legged.feet]
    feet = zip(keys, legged.feet, strict=True)
    return "".join(f"    {key}: ({foot.point}, {foot.phase}),\n" for key, foot in feet)


def _servo_table(gains: dict[str, tuple[float, float, float]]) -> str:
    rows = "".join(f"    {_literal(joint)}: {numbers},\n" for joint, numbers in gains.items())
    return Template(SERVO_TABLE).substitute(rows=rows)


def _notes(
    model: Model,
    legged: Legged | None,
    arm: Arm | None,
    forces: dict[str, float],
    gains: dict[str, tuple[float, float, float]],
) -> Iterator[str]:
    """What a person should know of the file."""
    if legged:
        count, height = len(legged.feet), f"{legged.height:.2f} m"
        yield f"it walks on {count} legs; the stance is {legged.stance_from}, {height} high"
        top = _top_speed(legged)
        yield f"commanded speeds are 0 to {top} m/s; --task.slowest and --task.fastest change them"
    elif arm:
        hand = model.names("body")[arm.hand]
        count = len(arm.joints)
        yield f"it is an arm with {count} joints: {arm.tip_from} of {hand} reaches for targets"
    elif model.mj.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE and not model.mj.nkey:
        yield "found no legs in the default pose; add a keyframe in which the robot stands"
    if needs_floor(model):
        yield "the model has no floor; the task adds one"
    limited = "the model's limits" if model.mj.jnt_actfrclimited.any() else "weight and inertia"
    if gains:
        yield f"the model has no actuators; the task adds position servos; force from {limited}"
        if not model.mj.dof_armature.any():
            yield "it has no armature either; for a real robot, take both from its data sheet"
    if forces:
        yield f"the task adds motors; force from {limited}"


def _unused(model: Model, name: str) -> str:
    """A name that no texture, material or geom of the model has."""
    kinds = (mujoco.mjtObj.mjOBJ_TEXTURE, mujoco.mjtObj.mjOBJ_MATERIAL, mujoco.mjtObj.mjOBJ_GEOM)
    while any(mujoco.mj_name2id(model.mj, kind, name) >= 0 for kind in kinds):
        name += " 2"
    return name


def _check_it_moves(mjcf: Path, model: Model, legged: Legged | None, motors: bool) -> None:
    """Refuses a model in which nothing can move, or that a policy could not act on."""
    if not model.nv:
        raise ModelError(f"{str(mjcf)!r} has no joints, so nothing can move; add a <joint>")
    if motors and model.nu:
        raise ConfigError(f"{str(mjcf)!r} already has actuators; leave --motors out")
    if not model.nu and (motors or legged) and not efforts(model, legged):
        raise ModelError(
            f"{str(mjcf)!r} has no hinge or slide with a name, so motors cannot be added; name them"
        )
    if not (motors or model.nu or legged):
        raise ModelError(
            f"{str(mjcf)!r} has no actuators, so a policy has no effect; add some, for example "
            '<actuator><motor joint="..." ctrlrange="-1 1"/></actuator>, or give --motors to add a '
            "motor to each hinge and slide"
        )


def _motor_table(forces: dict[str, float]) -> str:
    rows = "".join(f"    {_literal(joint)}: {force},\n" for joint, force in forces.items())
    return f"""
#: YOURS: the motor of each joint, and its largest torque, N m, or force, N.
MOTORS = {{
{rows}}}
"""


def _identifier(stem: str) -> str:
    """A Python name for a file's: `my-robot.v2` -> `my_robot_v2`."""
    name = re.sub(r"\W+", "_", stem).strip("_").lower()
    return f"robot_{name}" if not name or name[0].isdigit() or keyword.iskeyword(name) else name


def _path_in_python(mjcf: Path, out: Path) -> str:
    """A Python expression for the path of the MJCF, relative to a file in a folder above it."""
    path, folder = mjcf.resolve(), out.resolve().parent
    if path.is_relative_to(folder):
        return f"Path(__file__).parent / {_literal(path.relative_to(folder).as_posix())}"
    return f"Path({_literal(path.as_posix())})"


def _literal(text: str) -> str:
    """A string of Python, in double quotes."""
    return f'"{_in_text(text)}"'


def _in_text(text: str) -> str:
    """A text as it stands between double quotes, one or three, in Python.

    Names in an MJCF file are anybody's: one with quotes in it must not end the string.
    """
    return ascii(text)[1:-1].replace('"', '\\"')


def _listed(model: Model, kind: str, plural: str, most: int = 6) -> str:
    """The number of objects of a kind, and the names of the first ones."""
    names = [_in_text(name) for name in model.names(kind) if name]
    shown = ", ".join(names[:most]) + (", ..." if len(names) > most else "")
    count = len(model.names(kind))
    return f"{count} {kind if count == 1 else plural}" + (f" ({shown})" if shown else "")


_DEFAULT_POSE = "jnp.asarray(self.model.qpos0)"
_KEYFRAME = "jnp.asarray(self.model.mj.key_qpos[0], jnp.float32)  # the model's first keyframe"

#: The control for an action of 0, in Python and in words.
_MIDDLE = "(low + high) / 2.0", "in the middle of the range"
_KEYFRAME_CONTROL = "np.clip(self.model.mj.key_ctrl[0], low, high)", "of the model's first keyframe"
