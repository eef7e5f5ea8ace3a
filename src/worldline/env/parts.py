"""Parts of observations and actions: the meaning of each number, for programs that run the policy.

A task declares them beside the functions that compute them. The declaration determines the indices
of the parts in the observation, noise and history by part, the output of `worldline list --fields`,
and the contract of an exported policy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from worldline.errors import TaskError, did_you_mean

if TYPE_CHECKING:
    from worldline.env.task import Task
    from worldline.model import Model

#: Where the quantity of a part comes from.
Source: TypeAlias = Literal[
    "joint_position",
    "joint_velocity",
    "linear_velocity",
    "angular_velocity",
    "projected_gravity",
    "sensor",
    "site_position",
    "site_to_body",
    "action",
    "command",
    "clock",
    "task",
]

#: What becomes of numbers in the mirror.
MirrorKind: TypeAlias = Literal[
    "",
    "same",
    "opposite",
    "vector",
    "spin",
    "quaternion",
    "velocity_command",
    "joints",
    "action",
]

#: The sources that name objects of the model, with the kinds of these.
_KINDS: Mapping[str, tuple[str, ...]] = {
    "joint_position": ("joint",),
    "joint_velocity": ("joint",),
    "linear_velocity": ("body",),
    "angular_velocity": ("body",),
    "projected_gravity": ("site", "body"),
    "sensor": ("sensor",),
    "site_position": ("site",),
    "site_to_body": ("site", "body"),
}

#: The part of an observation that is an array, and the one that a history lengthens.
STATE = "state"


@dataclasses.dataclass(frozen=True)
class ObservationPart:
    """Consecutive numbers of an observation: `scale * (quantity - offset)`."""

    name: str
    """The name of the part, for example `joint_position`."""
    size: int
    """The size: how many numbers."""
    source: Source = "task"
    """What the quantity is. Quantities of the model's state are `joint_position` and
    `joint_velocity` of the joints `of`; `linear_velocity` and `angular_velocity` of the floating
    body `of`, in its own frame; `projected_gravity`, the direction of gravity in the frame of the
    site or body `of`; `sensor`, the readings of the sensors `of`; `site_position` of the site `of`,
    in the world's frame; `site_to_body`, the vector from the first of `of`, a site, to the second,
    a body, in the frame of the site. Quantities that the controller knows are `action`, the action
    of `ago` steps ago; `command`; `clock`, the sine and cosine of a phase with `frequency`. `task`
    is a quantity that only the task can compute."""
    of: tuple[str, ...] = ()
    """The objects of the model that the source names."""
    offset: float | tuple[float, ...] = 0.0
    """The offset that is subtracted from the quantity, in its unit."""
    scale: float | tuple[float, ...] = 1.0
    """The factor after the subtraction."""
    unit: str = ""
    """The unit of the quantity; empty if it has none."""
    frame: str = ""
    """The frame of a vector: a body, a site, or `world`."""
    noise: float | tuple[float, ...] = 0.0
    """The largest uniform noise that the task itself adds to the quantity."""
    low: tuple[float, ...] = ()
    """The lowest command."""
    high: tuple[float, ...] = ()
    """The highest command."""
    index: tuple[int, ...] = ()
    """The components of the quantity; if empty, the first `size`."""
    ago: int = 1
    """For an action: control steps before this observation; 1 is the last action."""
    frequency: float = 0.0
    """The frequency of a clock, Hz."""
    mirror: MirrorKind | tuple[int, ...] = ""
    """What becomes of the numbers where left and right are exchanged, of a task with a `symmetry`;
    empty: as of the source. `same` and `opposite`; of three numbers each, `vector`s change the sign
    of the second, `spin`s (turns, angular velocities) those of the others, and so does a
    `velocity_command` forward, to the left and turning left of its last two; a `quaternion`;
    `joints`, by their axes; `action`, as an action. Or where each number of the image comes
    from."""
    each: tuple[str, ...] = ()
    """What the numbers belong to, in equal shares: feet or joints, which have mirror images."""
    inner: tuple[ObservationPart, ...] = ()
    """The parts that the numbers consist of, again and again, where `mirror` cannot tell."""


@dataclasses.dataclass(frozen=True)
class ActionPart:
    """Consecutive numbers of an action, each for an actuator or for the task.

    An actuator's control is `base + offset + scale * action`, clipped to `low` and `high`.
    """

    name: str
    """The name of the part, for example `joint_position_target`."""
    size: int
    """The size: how many numbers."""
    kind: Literal["position", "velocity", "torque", "control", "task"] = "task"
    """What the control is: a position, a velocity, a torque or force; another quantity (`control`);
    or a quantity from which the task computes the controls."""
    actuators: tuple[str, ...] = ()
    """The names of the actuators, one for each number."""
    offset: float | tuple[float, ...] = 0.0
    """The control for an action of 0, in its unit, without the base."""
    scale: float | tuple[float, ...] = 1.0
    """The change of the control for an action of 1."""
    unit: str = ""
    """The unit of the control."""
    base: Literal["", "joint_position", "last_target"] = ""
    """The quantity that is added: nothing; the measured position of the joint; or the last target,
    which may be outside of the limits and begins at the joint's position."""
    low: tuple[float, ...] = ()
    """Lowest controls; if empty, those of the actuators."""
    high: tuple[float, ...] = ()
    """Highest controls; if empty, those of the actuators."""


#: The parts of each key of an observation; an array's key is `state`.
ObservationParts: TypeAlias = Mapping[str, tuple[ObservationPart, ...]]


class Placed(NamedTuple):
    """A part of the observation, and its indices."""

    part: ObservationPart
    start: int
    """The first of its numbers."""
    stop: int
    """The number after its last one."""
    frames: int = 1
    """The latest measurements, oldest first."""

    @property
    def place(self) -> slice:
        """Its place."""
        return slice(self.start, self.stop)


def placed(parts: Sequence[ObservationPart], frames: Mapping[str, int] = {}) -> tuple[Placed, ...]:
    """Consecutive parts, with their indices.

    Args:
        parts: the parts.
        frames: the number of measurements of a part, by its name; other parts have 1.
    """
    places, start = [], 0
    for part in parts:
        number = frames.get(part.name, 1)
        places.append(Placed(part, start, start + number * part.size, number))
        start = places[-1].stop
    return tuple(places)


def objects_of(model: Model, part: ObservationPart) -> list[tuple[str, str | int]]:
    """The kinds and names of the objects from which the quantity of a part is computed.

    Behind a floating body comes its joint, by its index.
    """
    kinds = _KINDS.get(part.source, ())
    if part.source == "site_to_body":
        return list(zip(kinds, part.of, strict=True))
    found: list[tuple[str, str | int]] = [
        (next(kind for kind in kinds if name in model.names(kind)), name) for name in part.of
    ]
    if part.source in ("linear_velocity", "angular_velocity"):
        found.append(("joint", int(model.mj.body_jntadr[model.id("body", part.of[0])])))
    return found


def part_named(task: Task, name: str) -> Placed:
    """A part of a task's `state`, with its indices.

    Raises:
        TaskError: the task declares no such part.
    """
    parts = task.observation_parts.get(STATE, ())
    for place in placed(parts):
        if place.part.name == name:
            return place
    kind, names = type(task).__name__, [part.name for part in parts]
    if not names:
        raise TaskError(f"{kind} does not name the parts of its state, and so has no {name!r}")
    raise TaskError(f"{kind} has no part {name!r} of its state{did_you_mean(name, names)}")


def check_parts(task: Task, obs: Any) -> None:
    """Checks that the declared parts of a task fit its observation, its action and its model.

    Args:
        task: the task.
        obs: the shapes of its observation: an array's, or a dict of them.

    Raises:
        TaskError: a key or a name is wrong, or the sizes do not add up.
        ModelError: the model has no such object.
    """
    kind = type(task).__name__
    keys = obs if isinstance(obs, dict) else {STATE: obs}
    shapes = {key: tuple(getattr(leaf, "shape", ())) for key, leaf in keys.items()}
    for key, parts in task.observation_parts.items():
        if key not in shapes:
            raise TaskError(
                f"{kind}.observation_parts has {key!r}, but its observation has no such part"
                f"{did_you_mean(key, shapes)}"
            )
        _check_sizes(f"{kind}.observation_parts of {key!r}", parts, shapes[key])
        for part in parts:
            _check_source(kind, task, part)
    if task.action_parts:
        size = np.shape(task.action_bounds[0])
        _check_sizes(f"{kind}.action_parts", task.action_parts, size)
        for each in task.action_parts:
            if each.kind != "task" and len(each.actuators) != each.size:
                raise TaskError(
                    f"{kind}.action_parts: {each.name!r} has {each.size} numbers and "
                    f"{len(each.actuators)} actuators; name one actuator for each number"
                )
            for name in each.actuators:
                task.model.id("actuator", name)


def _check_sizes(
    what: str, parts: Sequence[ObservationPart] | Sequence[ActionPart], shape: tuple[int, ...]
) -> None:
    names = [part.name for part in parts]
    for name in names:
        if names.count(name) > 1:
            raise TaskError(f"{what} has {name!r} twice; give each part another name")
    sizes = [part.size for part in parts]
    if (sum(sizes),) != shape:
        each = ", ".join(f"{name} {size}" for name, size in zip(names, sizes, strict=True))
        raise TaskError(
            f"{what} has {sum(sizes)} numbers ({each}), but the vector has shape {shape}; make "
            "them equal"
        )
    for part in parts:
        for field in ("offset", "scale", "noise", "low", "high"):
            value = getattr(part, field, ())
            if isinstance(value, tuple) and value and len(value) != part.size:
                raise TaskError(
                    f"{what}: {field} of {part.name!r} has {len(value)} numbers; give {part.size}"
                )


def _check_source(kind: str, task: Task, part: ObservationPart) -> None:
    if part.source in ("joint_position", "joint_velocity") and len(part.of) != part.size:
        raise TaskError(
            f"{kind}.observation_parts: {part.name!r} has {part.size} numbers, but {len(part.of)} "
            "joints; name one joint for each number"
        )
    kinds = _KINDS.get(part.source, ())
    for index, name in enumerate(part.of):
        if part.source == "site_to_body":
            task.model.id(kinds[index], name)
        elif not any(name in task.model.names(each) for each in kinds):
            task.model.id(kinds[0], name)  # raises an error with the names that are close
