"""Names for what the robots of Playground's tasks measure and do, as their tasks declare it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

from worldline.env.parts import ActionPart, MirrorKind
from worldline.env.parts import ObservationPart as Part
from worldline.tasks.playground.legged import LeggedTask
from worldline.types import NDArray

#: Largest noise on a part.
Noise = float | tuple[float, ...]


def servo_joints(task: LeggedTask) -> tuple[str, ...]:
    """The joints but the floating base's, in the order of `qpos`."""
    return tuple(task.model.names("joint")[1:])


def joint_position(task: LeggedTask, noise: Noise = 0.0, *, from_home: bool = True) -> Part:
    """The angles of the joints, from home or from 0."""
    joints, home = servo_joints(task), tuple(task.pose.tolist()) if from_home else 0.0
    return Part(
        "joint_position", len(joints), "joint_position", joints, home, unit="rad", noise=noise
    )


def joint_velocity(task: LeggedTask, noise: Noise = 0.0) -> Part:
    """The velocities of the joints."""
    joints = servo_joints(task)
    return Part("joint_velocity", len(joints), "joint_velocity", joints, unit="rad/s", noise=noise)


def linear_velocity(noise: Noise = 0.0, sensor: str = "local_linvel") -> Part:
    """The velocity of the IMU in its own frame."""
    return Part(
        "base_linear_velocity", 3, "sensor", (sensor,), noise=noise, unit="m/s", frame="imu"
    )


def angular_velocity(noise: Noise = 0.0, sensor: str = "gyro") -> Part:
    """What the gyroscope measures."""
    return Part(
        "base_angular_velocity", 3, "sensor", (sensor,), noise=noise, unit="rad/s", frame="imu"
    )


def projected_gravity(noise: Noise = 0.0, site: str = "imu") -> Part:
    """The direction of gravity in the frame of the IMU, which is at a site."""
    return Part("projected_gravity", 3, "projected_gravity", (site,), frame="imu", noise=noise)


def upvector(noise: Noise = 0.0) -> Part:
    """The vertical axis of the IMU, along the world's axes."""
    return Part("upvector", 3, "sensor", ("upvector",), frame="world", noise=noise)


def acceleration(sensor: str = "accelerometer") -> Part:
    """What the accelerometer measures."""
    return Part("acceleration", 3, "sensor", (sensor,), unit="m/s^2", frame="imu")


def global_angular_velocity(sensor: str = "global_angvel") -> Part:
    """The angular velocity along the world's axes."""
    return Part("global_angular_velocity", 3, "sensor", (sensor,), unit="rad/s", frame="world")


def yaw_rate(scale: float, noise: Noise) -> Part:
    """The last component of what the gyroscope measures."""
    return Part(
        "yaw_rate",
        1,
        "sensor",
        ("gyro",),
        scale=scale,
        noise=noise,
        index=(2,),
        unit="rad/s",
        frame="imu",
    )


def feet_position(task: LeggedTask, noise: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> Part:
    """The places of the feet, in the frame of the IMU; the noise is along each axis."""
    sensors = tuple(f"{foot}_pos" for foot in task.feet)
    whole = noise * len(sensors)
    return Part("feet_position", len(whole), "sensor", sensors, unit="m", frame="imu", noise=whole)


def motor_force(task: LeggedTask) -> Part:
    """The forces of the motors."""
    joints = servo_joints(task)
    return Part("motor_force", len(joints), unit="N m", mirror="joints", each=joints)


def motors_and_height(task: LeggedTask) -> tuple[Part, ...]:
    """The forces of the motors, and the height of the IMU."""
    return (motor_force(task), *of_task({"height": 1}, "m"))


def servo_errors(task: LeggedTask, steps: int) -> Part:
    """How far joints were from their targets in the last control steps."""
    joints = servo_joints(task)
    return Part("servo_errors", steps * len(joints), unit="rad", mirror="joints", each=joints)


def of_feet(task: LeggedTask, kinds: Mapping[str, MirrorKind]) -> tuple[Part, ...]:
    """Numbers of each foot that the task alone can compute, by name: one, or a vector."""
    sizes = {name: 3 if kind == "vector" else 1 for name, kind in kinds.items()}
    return tuple(
        Part(name, sizes[name] * len(task.feet), mirror=kind, each=task.feet)
        for name, kind in kinds.items()
    )


def push() -> Part:
    """The force of a push, along the world's axes."""
    return Part("push", 3, mirror="vector")


def before(frame: Sequence[Part], frames: int) -> Part:
    """The frames before the newest one, as they were."""
    size = frames * sum(part.size for part in frame)
    return Part("earlier_frames", size, inner=tuple(frame))


def action_before_last(task: LeggedTask) -> Part:
    """The action before the last."""
    return Part("action_before_last", task.model.nu, "action", ago=2)


def command(
    low: Sequence[float], high: Sequence[float], scale: float | tuple[float, ...] = 1.0
) -> Part:
    """Forward and left, and turning left, within bounds."""
    return Part(
        "command",
        3,
        "command",
        scale=scale,
        unit="m/s, m/s, rad/s",
        frame="imu",
        low=tuple(low),
        high=tuple(high),
        mirror="velocity_command",
    )


def exact(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Parts without noise, beside those of the same names with it."""
    return tuple(dataclasses.replace(part, name=f"exact_{part.name}", noise=0.0) for part in parts)


def of_task(sizes: Mapping[str, int], unit: str = "") -> tuple[Part, ...]:
    """Parts that the task alone can compute, by their names, with their sizes; left and right are
    the same to them.
    """
    return tuple(Part(name, size, unit=unit, mirror="same") for name, size in sizes.items())


def servo_targets(
    task: LeggedTask,
    base: Literal["home", "joint_position", "last_target"] = "home",
    limits: tuple[NDArray, NDArray] | None = None,
) -> tuple[ActionPart, ...]:
    """Where an action holds the joints: about home, about where they are, or from the last targets.

    Args:
        task: the task.
        base: `home`, `joint_position` or `last_target`.
        limits: lowest and highest targets; by default the servos' own.
    """
    servos = tuple(task.model.names("actuator"))
    low, high = ((), ()) if limits is None else (tuple(limit.tolist()) for limit in limits)
    return (
        ActionPart(
            "joint_position_target",
            len(servos),
            "position",
            servos,
            tuple(task.pose.tolist()) if base == "home" else 0.0,
            task.action_scale,
            "rad",
            "" if base == "home" else base,
            low,
            high,
        ),
    )
