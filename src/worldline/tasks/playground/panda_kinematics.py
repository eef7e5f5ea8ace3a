"""Where the Panda's hand is at given joint angles, and the joint angles for a place of the hand.

The way back is the geometric one of He and Liu (2021), "Analytical inverse kinematics for Franka
Emika Panda - a geometrical solver for 7-DOF manipulators with unconventional design": the angle of
the last joint is given, and of up to eight solutions it gives that of the arm's present posture.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from worldline.tasks.playground.rotations import normalised
from worldline.tasks.robot.arm import FLANGE, GRIP, JOINTS
from worldline.types import Array

#: Along the last joint's axis to the point between the fingertips, m.
_TOOL = FLANGE + GRIP

#: How the hand is turned on the flange, rad.
_HAND_TURN = math.pi / 4

# The arm's measures, m: shoulder above the floor, upper arm, elbow's offset, forearm, wrist.
_SHOULDER, _UPPER, _OFFSET = JOINTS[0].d, JOINTS[2].d, JOINTS[3].a
_FORE, _WRIST = JOINTS[4].d, JOINTS[6].a

# From the shoulder to the elbow and from there to the wrist, m, and the angles at these sides, rad.
_TO_ELBOW, _TO_WRIST = math.hypot(_OFFSET, _UPPER), math.hypot(_OFFSET, _FORE)
_ELBOW_OUTSIDE = math.atan2(_FORE, _OFFSET) + math.atan2(_UPPER, _OFFSET)
_AT_ELBOW, _AT_WRIST = math.atan2(_UPPER, _OFFSET), math.atan2(_OFFSET, _FORE)

#: Beyond this share of its length an arm that points up has no first angle.
_UPRIGHT = 0.999


def forward(joints: Array) -> list[tuple[Array, Array]]:
    """The frames of the joints and of the hand: axes as columns, `(3, 3)`, and place, `(3,)`, m."""
    axes, place = jnp.eye(3), jnp.zeros(3)
    frames = []
    for joint, angle in zip(JOINTS, joints, strict=True):
        alpha = math.radians(joint.alpha)
        ca, sa = math.cos(alpha), math.sin(alpha)
        step = np.array([joint.a, -joint.d * sa, joint.d * ca], np.float32)
        tilt = np.array([[1, 0, 0], [0, ca, -sa], [0, sa, ca]], np.float32)
        place = place + axes @ step
        axes = axes @ (tilt @ _about_z(angle))
        frames.append((axes, place))
    frames.append((axes @ _about_z(jnp.float32(-_HAND_TURN)), place + _TOOL * axes[:, 2]))
    return frames


def joints_for(place: Array, axes: Array, now: Array) -> tuple[Array, Array]:
    """The joint angles that hold the hand at a place, with the last joint as it is.

    Args:
        place: of the point between the fingertips, `(3,)`, m.
        axes: of the hand as columns, `(3, 3)`.
        now: the present joint angles, `(7,)`, rad, which decide between solutions.

    Returns:
        The joint angles, `(7,)`, rad; and whether they hold it there, `()` bool: the place may be
        out of reach.
    """
    turn = now[6] - _HAND_TURN
    x6 = normalised(axes @ jnp.stack([jnp.cos(turn), -jnp.sin(turn), jnp.zeros_like(turn)]))
    wrist = place - _TOOL * axes[:, 2] - _WRIST * x6
    shoulder = jnp.array([0.0, 0.0, _SHOULDER], jnp.float32)
    way = wrist - shoulder
    reach = jnp.sqrt(jnp.sum(way * way))
    at_elbow = (_TO_ELBOW**2 + _TO_WRIST**2 - reach**2) / (2 * _TO_ELBOW * _TO_WRIST)
    at_wrist = (reach**2 + _TO_WRIST**2 - _TO_ELBOW**2) / (2 * reach * _TO_WRIST)
    elbow, inner = _arccos(at_elbow), _arccos(at_wrist)
    outer = _AT_WRIST + inner

    z6 = normalised(jnp.cross(axes[:, 2], x6))
    frame6 = jnp.stack([x6, normalised(jnp.cross(z6, x6)), z6], axis=1)
    seen = frame6.T @ -way
    sine = -reach * jnp.cos(outer) / jnp.sqrt(seen[0] ** 2 + seen[1] ** 2)
    q6 = _sixth(now, jnp.arctan2(seen[1], seen[0]), jnp.arcsin(jnp.clip(sine, -1.0, 1.0)))

    # The line of the upper arm meets that of the forearm at `meeting`.
    third = 1.5 * jnp.pi - inner - elbow - _AT_ELBOW
    ahead = reach * jnp.sin(third) / jnp.sin(jnp.pi - third - outer)
    z5 = frame6 @ jnp.stack([jnp.sin(q6), jnp.cos(q6), jnp.zeros_like(q6)])
    meeting = wrist - ahead * z5 - shoulder
    q1, q2 = _first_two(now, normalised(meeting))

    z3 = normalised(meeting)
    x3 = jnp.cross(normalised(-jnp.cross(way, meeting)), z3)
    across = (_about_z(q1) @ _second(q2)).T @ x3
    rest = shoulder + _UPPER * z3 + _OFFSET * x3 - wrist + _FORE * z5
    seen5 = (frame6 @ _sixth_axes(q6).T).T @ rest
    joints = [
        q1,
        q2,
        jnp.arctan2(across[2], across[0]),
        elbow + _ELBOW_OUTSIDE - 2 * jnp.pi,
        -jnp.arctan2(seen5[1], seen5[0]),
        q6,
        now[6],
    ]
    cosines = jnp.stack([at_elbow, at_wrist, sine])
    return jnp.stack(joints), (jnp.abs(cosines) <= 1.0).all()


def _sixth(now: Array, phi: Array, theta: Array) -> Array:
    """The sixth angle, of the two that there are, `()`, rad, in the joint's range if it may be."""
    frames = forward(now)
    (_, shoulder), (axes4, place4), (axes6, wrist) = frames[1], frames[3], frames[5]
    elbow = place4 - _OFFSET * axes4[:, 0]
    flipped = jnp.dot(jnp.cross(elbow - wrist, shoulder - wrist), axes6[:, 2]) <= 0
    angle = jnp.where(flipped, jnp.pi - theta - phi, theta - phi)
    angle = jnp.where(angle <= JOINTS[5].low, angle + 2 * jnp.pi, angle)
    return jnp.where(angle >= JOINTS[5].high, angle - 2 * jnp.pi, angle)


def _first_two(now: Array, direction: Array) -> tuple[Array, Array]:
    """The first two angles, `()` each, rad, of an upper arm along a direction, `(3,)`."""
    upright = jnp.abs(direction[2]) > _UPRIGHT
    sideways = jnp.where(upright, np.array([1.0, 0.0, 0.0], np.float32), direction)
    first = jnp.where(upright, now[0], jnp.arctan2(sideways[1], sideways[0]))
    opposite = jnp.where(first < 0.0, first + jnp.pi, first - jnp.pi)
    second = jnp.where(upright, 0.0, _arccos(sideways[2]))
    backwards = now[1] < 0
    return jnp.where(backwards, opposite, first), jnp.where(backwards, -second, second)


def _about_z(angle: Array) -> Array:
    """The turn of a joint, `(3, 3)`."""
    zero, one = jnp.zeros_like(angle), jnp.ones_like(angle)
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    rows = [[cosine, -sine, zero], [sine, cosine, zero], [zero, zero, one]]
    return jnp.stack([jnp.stack(row) for row in rows])


def _second(angle: Array) -> Array:
    """The axes of the second joint in those of the first, `(3, 3)`."""
    return jnp.array([[1, 0, 0], [0, 0, 1], [0, -1, 0]], jnp.float32) @ _about_z(angle)


def _sixth_axes(angle: Array) -> Array:
    """The axes of the sixth joint in those of the fifth, `(3, 3)`."""
    return jnp.array([[1, 0, 0], [0, 0, -1], [0, 1, 0]], jnp.float32) @ _about_z(angle)


def _arccos(cosine: Array) -> Array:
    """The angle of a cosine, which may be out of range."""
    return jnp.arccos(jnp.clip(cosine, -1.0, 1.0))
