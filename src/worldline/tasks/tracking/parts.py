"""The parts of the observation of a robot that tracks a motion."""

from __future__ import annotations

from collections.abc import Sequence

from worldline.env.parts import ObservationPart as Part


def measured(
    joints: tuple[str, ...],
    pose: tuple[float, ...],
    base: str,
    anchor: str,
    actions: int,
    noise: Sequence[float],
) -> tuple[Part, ...]:
    """What the robot should do next, and what it feels.

    Args:
        joints: their names.
        pose: their angles from which they are measured, rad.
        base: the body with the free joint.
        anchor: the body that says where the robot is.
        actions: how many numbers an action has.
        noise: largest noise of the six parts that are measured.
    """
    n, of, place = len(joints), (base,), "anchor_position_error"
    first, second = "base_linear_velocity", "base_angular_velocity"
    return (
        Part("reference_joint_position", n, unit="rad"),
        Part("reference_joint_velocity", n, unit="rad/s"),
        Part(place, 3, unit="m", frame=anchor, noise=noise[0]),
        Part("anchor_orientation_error", 6, frame=anchor, noise=noise[1]),
        Part(first, 3, "linear_velocity", of, unit="m/s", frame=base, noise=noise[2]),
        Part(second, 3, "angular_velocity", of, unit="rad/s", frame=base, noise=noise[3]),
        Part("joint_position", n, "joint_position", joints, pose, unit="rad", noise=noise[4]),
        Part("joint_velocity", n, "joint_velocity", joints, unit="rad/s", noise=noise[5]),
        Part("last_action", actions, "action"),
    )


def of_bodies(number: int, anchor: str) -> tuple[Part, ...]:
    """Where bodies are, and how they are turned, in the frame of the anchor."""
    return (
        Part("body_position", 3 * number, unit="m", frame=anchor),
        Part("body_orientation", 6 * number, frame=anchor),
    )
