"""Names for what Playground's arms and hands see and do, as their tasks declare it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Literal

import mujoco

from worldline.env.parts import ActionPart
from worldline.env.parts import ObservationPart as Part
from worldline.model import Model

_HINGE, _SLIDE, _FREE = (
    int(kind)
    for kind in (
        mujoco.mjtJoint.mjJNT_HINGE,
        mujoco.mjtJoint.mjJNT_SLIDE,
        mujoco.mjtJoint.mjJNT_FREE,
    )
)


def positions(model: Model) -> tuple[Part, ...]:
    """All of `qpos`, in its order: joints, slides, position and orientation of free bodies."""
    return tuple(_positions(model))


def velocities(model: Model) -> tuple[Part, ...]:
    """All of `qvel`, in the same order."""
    return tuple(_velocities(model))


def joint_position(joints: tuple[str, ...], noise: float) -> Part:
    """Angles of joints, with noise of at most so much."""
    return Part("joint_position", len(joints), "joint_position", joints, unit="rad", noise=noise)


def joint_velocity(joints: tuple[str, ...], noise: float) -> Part:
    """Their velocities."""
    return Part("joint_velocity", len(joints), "joint_velocity", joints, unit="rad/s", noise=noise)


def _positions(model: Model) -> Iterator[Part]:
    for kind, prefix, joints in _groups(model):
        if kind == _FREE:
            yield point(f"{prefix}position")
            yield Part(f"{prefix}orientation", 4, frame="world")
        else:
            what, unit = ("joint", "rad") if kind == _HINGE else ("slide", "m")
            yield _of_joints("joint_position", f"{prefix}{what}_position", joints, unit)


def _velocities(model: Model) -> Iterator[Part]:
    for kind, prefix, joints in _groups(model):
        if kind == _FREE:
            yield Part(f"{prefix}linear_velocity", 3, unit="m/s", frame="world")
            yield Part(f"{prefix}angular_velocity", 3, unit="rad/s", frame=prefix.rstrip("_"))
        else:
            what, unit = ("joint", "rad/s") if kind == _HINGE else ("slide", "m/s")
            yield _of_joints("joint_velocity", f"{prefix}{what}_velocity", joints, unit)


def _of_joints(
    source: Literal["joint_position", "joint_velocity"],
    name: str,
    joints: tuple[str, ...],
    unit: str,
) -> Part:
    """A number of each joint; of a joint without a name, what the task alone can say."""
    if not all(joints):
        return Part(name, len(joints), unit=unit)
    return Part(name, len(joints), source, joints, unit=unit)


def _groups(model: Model) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Joints that follow one another and are of one kind and one robot: kind, prefix, names.

    The prefix of a free joint, and of one without a name, is its body's name; of another one it is
    that of its arm, as in `left/waist`, or else empty.
    """
    mj, names = model.mj, model.names("joint")

    def group(index: int) -> tuple[int, str]:
        kind, arm = int(mj.jnt_type[index]), names[index].rpartition("/")[0]
        if kind == _FREE or not names[index]:
            arm = model.names("body")[mj.jnt_bodyid[index]]
        return kind, f"{arm}_" if arm else ""

    for (kind, prefix), indices in itertools.groupby(range(mj.njnt), group):
        yield kind, prefix, tuple(names[index] for index in indices)


def point(name: str, noise: float = 0.0) -> Part:
    """A place in the world, or a way between two, that the task computes."""
    return Part(name, 3, unit="m", frame="world", noise=noise)


def site(name: str, of: str, noise: float = 0.0) -> Part:
    """Where a site is."""
    return Part(name, 3, "site_position", (of,), unit="m", frame="world", noise=noise)


def axes(name: str, size: int = 6) -> Part:
    """Rows of a matrix of axes: the last two of its three, unless `size` says otherwise."""
    return Part(name, size, frame="world")


def target_changes(model: Model, scale: float) -> tuple[ActionPart, ...]:
    """How an action moves the targets of all servos, joints and fingers, which have limits."""
    return (ActionPart("joint_target_change", model.nu, scale=scale, unit="rad, m"),)
