"""What a model tells about an arm: its chain of joints, and the hand at the end of it."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import mujoco
import numpy as np

from worldline.model import Model

NDArray: TypeAlias = np.ndarray[Any, Any]

#: With fewer joints a hand cannot be brought to most points near it.
_FEWEST_JOINTS = 3
#: MuJoCo numbers joints that turn or slide by one number from here on.
_SLIDE = mujoco.mjtJoint.mjJNT_SLIDE.value


@dataclasses.dataclass(frozen=True)
class Arm:
    """A chain of joints that stands on something fixed, with a hand at its end."""

    hand: int
    """The index of the last body of the chain; fingers come after it."""
    tip: tuple[float, float, float]
    """The point that reaches, in the body's frame; m."""
    tip_from: str
    """Where that comes from, in words."""
    joints: tuple[int, ...]
    """The joints of the chain, from the base on."""
    reach: float
    """The length of the chain, m."""


def find_arm(model: Model) -> Arm | None:
    """The arm; None where there is none, or several, or one that moves about freely."""
    mj = model.mj
    if not mj.njnt or (mj.jnt_type < _SLIDE).any():
        return None
    jointed = _jointed(mj)
    chain: list[int] = []
    body = 0
    while len(onward := [child for child in _children(mj, body) if jointed[child]]) == 1:
        (body,) = onward
        start, count = mj.body_jntadr[body], mj.body_jntnum[body]
        chain += range(start, start + count)
    hand = mj.jnt_bodyid[chain[-1]] if chain else 0
    named = all(model.names("joint")[joint] for joint in chain)
    if len(chain) < _FEWEST_JOINTS or not named or not _is_driven(mj, chain):
        return None
    hand = int(_last_of(mj, hand) if body == hand else body)
    if not model.names("body")[hand]:
        return None
    data = mujoco.MjData(mj)
    mujoco.mj_forward(mj, data)
    tip, words = _tip(model, data, hand)
    anchors = [*data.xanchor[chain], data.xpos[hand] + data.xmat[hand].reshape(3, 3) @ tip]
    reach = float(np.linalg.norm(np.diff(anchors, axis=0), axis=1).sum())
    x, y, z = (round(float(number), 4) + 0.0 for number in tip)
    return Arm(hand, (x, y, z), words, tuple(map(int, chain)), reach)


def _is_driven(mj: mujoco.MjModel, chain: list[int]) -> bool:
    """Whether each joint has an actuator, and the base is no cart or hopper that moves by itself.

    Without any actuators: whether it begins with joints that turn.
    """
    if not mj.nu:
        return bool((mj.jnt_type[chain[:-1]] != _SLIDE).all())
    on_joint = mj.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT
    return set(chain) <= set(mj.actuator_trnid[on_joint, 0].tolist())


def _tip(model: Model, data: mujoco.MjData, hand: int) -> tuple[NDArray, str]:
    """The point of a hand, in its frame, and what it is: its last site, or its middle."""
    mj = model.mj
    sites = np.flatnonzero(mj.site_bodyid == hand)
    if sites.size:
        name = model.names("site")[sites[-1]]
        return mj.site_pos[sites[-1]], f"the site {name}" if name else "a site"
    frame = data.xmat[hand].reshape(3, 3)
    return frame.T @ (data.subtree_com[hand] - data.xpos[hand]), "the middle of its last body"


def _last_of(mj: mujoco.MjModel, body: int) -> int:
    """The last body that is fixed to a body, as a flange is, where there is one with a site."""
    fixed = [child for child in range(body + 1, mj.nbody) if mj.body_weldid[child] == body]
    with_sites = [child for child in fixed if (mj.site_bodyid == child).any()]
    return with_sites[-1] if with_sites else body


def _jointed(mj: mujoco.MjModel) -> NDArray:
    """Whether a body has a joint, or one below it has, `(nbody,)` bool."""
    jointed = mj.body_jntnum > 0
    for body in range(mj.nbody - 1, 0, -1):
        jointed[mj.body_parentid[body]] |= jointed[body]
    return jointed


def _children(mj: mujoco.MjModel, body: int) -> list[int]:
    return [int(child) for child in np.flatnonzero(mj.body_parentid == body) if child != body]
