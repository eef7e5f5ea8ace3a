"""What a model tells about a robot with legs: how it stands, its feet, servos for its joints."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, TypeAlias

import mujoco
import numpy as np
from mujoco import minimize

from worldline.model import Model

NDArray: TypeAlias = np.ndarray[Any, Any]

#: MuJoCo numbers joints that turn or slide by one number from here on.
_SLIDE = mujoco.mjtJoint.mjJNT_SLIDE.value
#: Points of a foot that are so near to its lowest one are its sole; m.
_SOLE = 0.005
#: How far a joint is from where its servo should hold it, when that pushes with all its force; rad.
SERVO_REACH = 0.3
#: Damping of a servo, as a share of the damping with which it does not overshoot.
_DAMPING_RATIO = 0.5


@dataclasses.dataclass(frozen=True)
class Foot:
    """A foot of a robot that stands."""

    body: int
    """The index of its body."""
    point: tuple[float, float, float]
    """The middle of its sole in the body's frame; m."""
    phase: float
    """When it swings, as a share of a stride: neighbours swing in turn."""


@dataclasses.dataclass(frozen=True)
class Legged:
    """A robot that stands on legs."""

    root: int
    """The index of the body that moves freely."""
    qpos: NDArray
    """The configuration in which it stands, its lowest point at the floor's height; `(nq,)`."""
    stance_from: str
    """Where that comes from, in words."""
    height: float
    """Of the root body over the floor then; m."""
    feet: tuple[Foot, ...]
    """From front to back, left before right."""


def has_floor(model: Model) -> bool:
    """Whether something fixed is there that a robot can touch."""
    mj = model.mj
    return bool((_touchable(mj) & (mj.body_weldid[mj.geom_bodyid] == 0)).any())


def needs_floor(model: Model) -> bool:
    """Whether the robot would fall for ever: it moves freely, and nothing is below it."""
    mj = model.mj
    falls = mj.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE and mj.opt.gravity[2] < 0
    return bool(falls and mj.opt.density == 0 and _touchable(mj).any() and not has_floor(model))


def floor_bits(model: Model) -> int:
    """The `contype` and `conaffinity` of a floor that everything which can touch does touch."""
    mj = model.mj
    return int(np.bitwise_or.reduce(mj.geom_contype | mj.geom_conaffinity))


def find_legs(model: Model) -> Legged | None:
    """How the robot stands; None if it is none that stands on two or more jointed legs."""
    mj = model.mj
    free = mj.jnt_type == mujoco.mjtJoint.mjJNT_FREE
    if not free[0] or free[1:].any() or mj.opt.gravity[2] >= 0:
        return None
    root, (qpos, words) = int(mj.jnt_bodyid[0]), _pose(model)
    data = _at(mj, qpos)
    feet = _soles(mj, data, root)
    legs = [_joints_between(mj, body, root) for body in feet]
    jointed = all(len(leg) > 1 and mj.jnt_limited[leg[0]] for leg in legs)
    if len(feet) < 2 or not jointed or data.xmat[root, 8] < 0.8:
        return None
    if not words:
        qpos, words = _balanced(mj, data, feet, legs), "bent legs with the feet below the hips"
    data = _at(mj, qpos)
    lowest = min(point[2] for _, point in _points(mj, data, root))
    height, length = float(data.xpos[root, 2] - lowest), max(_length(data, leg) for leg in legs)
    if height < 0.5 * length:
        return None
    qpos = np.array(qpos)
    qpos[2] += floor_height(mj) - lowest
    return Legged(root, qpos, words, height, _in_turn(mj, _at(mj, qpos), root, feet))


def _length(data: mujoco.MjData, leg: list[int]) -> float:
    """The length of a leg from its first joint to its last; m."""
    steps = np.diff(data.xanchor[leg], axis=0)
    return float(np.linalg.norm(steps, axis=1).sum())


def servos(model: Model, legged: Legged) -> dict[str, tuple[float, float, float]]:
    """Stiffness, damping and largest force of a position servo for each joint with a name.

    The force is the joint's own limit (`actuatorfrcrange`), or else `efforts`. The stiffness is
    such that it is reached at `SERVO_REACH` from where the joint should be, and the damping follows
    from the inertia that the joint moves.
    """
    mj, table = model.mj, {}
    for name, effort in efforts(model, legged).items():
        dof = mj.jnt_dofadr[model.id("joint", name)]
        stiffness = effort / SERVO_REACH
        damping = 2 * _DAMPING_RATIO * np.sqrt(stiffness * mj.dof_M0[dof])
        table[name] = (_short(stiffness), _short(damping), effort)
    return table


def efforts(model: Model, legged: Legged | None) -> dict[str, float]:
    """The largest torque (N m) or force (N) for each hinge and slide with a name.

    It is the joint's own limit where the model has one. Else it is twice what holds the joint in
    the default pose, and what accelerates it by 20 rad/s^2 or 20 m/s^2. The joints of a leg get at
    least twice what carries the robot on half of its feet.
    """
    mj, data = model.mj, mujoco.MjData(model.mj)
    mujoco.mj_forward(mj, data)
    needed = 2 * np.abs(data.qfrc_bias) + 20 * mj.dof_M0
    if legged is not None:
        needed = np.maximum(needed, 2 * _carrying(mj, legged))
    kinds = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
    forces = {}
    for joint, name in enumerate(model.names("joint")):
        if name and mujoco.mjtJoint(mj.jnt_type[joint]) in kinds:
            limit = np.abs(mj.jnt_actfrcrange[joint]).min() if mj.jnt_actfrclimited[joint] else 0
            forces[name] = float(limit) or _short(needed[mj.jnt_dofadr[joint]])
    return forces


def are_servos(model: Model) -> bool:
    """Whether every actuator holds one joint at the angle or place that it is told."""
    mj = model.mj
    on_joint = mj.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT
    holds = (mj.actuator_gainprm[:, 0] > 0) & np.isclose(
        mj.actuator_gainprm[:, 0], -mj.actuator_biasprm[:, 1]
    )
    if not (on_joint & holds & (mj.actuator_gear[:, 0] == 1)).all():
        return False
    return bool((mj.jnt_type[mj.actuator_trnid[:, 0]] >= _SLIDE).all())


def _pose(model: Model) -> tuple[NDArray, str]:
    """The pose to stand in, and where it is from; no words if joints had to be moved for it."""
    mj = model.mj
    if mj.nkey:
        name = mujoco.mj_id2name(mj, mujoco.mjtObj.mjOBJ_KEY, 0)
        return mj.key_qpos[0], f"the keyframe {name}" if name else "the first keyframe"
    qpos = mj.qpos0.copy()
    for joint in np.flatnonzero((mj.jnt_type >= _SLIDE) & mj.jnt_limited):
        address = mj.jnt_qposadr[joint]
        qpos[address] = qpos[address].clip(*mj.jnt_range[joint])
    return qpos, "the default pose" if (qpos == mj.qpos0).all() else ""


def _at(mj: mujoco.MjModel, qpos: NDArray) -> mujoco.MjData:
    data = mujoco.MjData(mj)
    data.qpos[:] = qpos
    mujoco.mj_forward(mj, data)
    return data


def _touchable(mj: mujoco.MjModel) -> NDArray:
    """The geoms that can touch something, bool."""
    touchable = (mj.geom_contype | mj.geom_conaffinity) != 0
    for pair in range(mj.npair):
        touchable[[mj.pair_geom1[pair], mj.pair_geom2[pair]]] = True
    return np.asarray(touchable)


def _points(mj: mujoco.MjModel, data: mujoco.MjData, root: int) -> Iterator[tuple[int, NDArray]]:
    """For each body of the robot that can touch something, the middle of its lowest points."""
    geoms = np.flatnonzero(_touchable(mj) & (mj.body_rootid[mj.geom_bodyid] == root))
    for body, group in itertools.groupby(geoms, lambda geom: int(mj.geom_bodyid[geom])):
        points = np.concatenate([_low_points(mj, data, int(geom)) for geom in group])
        low = points[:, 2].min()
        yield body, np.array([*points[points[:, 2] < low + _SOLE, :2].mean(axis=0), low])


def _low_points(mj: mujoco.MjModel, data: mujoco.MjData, geom: int) -> NDArray:
    """Points of a geom, the lowest one among them, `(n, 3)`; m."""
    kind, size = mujoco.mjtGeom(mj.geom_type[geom]), mj.geom_size[geom]
    turn, middle = data.geom_xmat[geom].reshape(3, 3), data.geom_xpos[geom]
    down = -turn[2]  # in the geom's frame
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = mj.geom_dataid[geom]
        start = mj.mesh_vertadr[mesh]
        points = mj.mesh_vert[start : start + mj.mesh_vertnum[mesh]]
    elif kind == mujoco.mjtGeom.mjGEOM_BOX:
        points = size * np.array(list(itertools.product((-1, 1), repeat=3)))
    elif kind == mujoco.mjtGeom.mjGEOM_ELLIPSOID:
        points = (size**2 * down / np.linalg.norm(size * down))[None]
    elif kind in (mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_CYLINDER):
        flat = kind == mujoco.mjtGeom.mjGEOM_CYLINDER
        side = down * (1, 1, 0) if flat else down
        side = size[0] * side / max(float(np.linalg.norm(side)), 1e-9)
        points = side + np.array([[0, 0, -size[1]], [0, 0, size[1]]])
    else:
        points = (size[0] * down)[None]
    return np.asarray(middle + points @ turn.T)


def _soles(mj: mujoco.MjModel, data: mujoco.MjData, root: int) -> dict[int, NDArray]:
    """The bodies at the robot's lowest points, but for the root, and the middles of their soles."""
    points = dict(_points(mj, data, root))
    if not points:
        return {}
    lowest = min(point[2] for point in points.values())
    margin = 0.15 * (data.xpos[root, 2] - lowest)
    low = {body: point for body, point in points.items() if point[2] < lowest + margin}
    above = {parent for body in low for parent in _ancestors(mj, body)}
    return {} if root in low else {body: low[body] for body in low if body not in above}


def _ancestors(mj: mujoco.MjModel, body: int) -> Iterator[int]:
    while body := int(mj.body_parentid[body]):
        yield body


def _joints_between(mj: mujoco.MjModel, body: int, root: int) -> list[int]:
    """The joints that move a body against the root, the nearest to the body first."""
    chain = itertools.takewhile(lambda x: x != root, (body, *_ancestors(mj, body)))
    starts = ((int(mj.body_jntadr[each]), int(mj.body_jntnum[each])) for each in chain)
    return [joint for start, count in starts for joint in reversed(range(start, start + count))]


def _balanced(
    mj: mujoco.MjModel, data: mujoco.MjData, feet: dict[int, NDArray], legs: list[list[int]]
) -> NDArray:
    """A pose with the feet below the hips, and the middle of them below the centre of mass.

    It is near the given one, but those joints that are at the end of their range are moved to its
    middle.
    """
    joints = np.unique([joint for leg in legs for joint in leg])
    addresses, ranges = mj.jnt_qposadr[joints], mj.jnt_range[joints]
    start = data.qpos.copy()
    at_end = mj.jnt_limited[joints].astype(bool) & (start[addresses, None] == ranges).any(axis=1)
    start[addresses[at_end]] = ranges[at_end].mean(axis=1)
    local = {b: data.xmat[b].reshape(3, 3).T @ (p - data.xpos[b]) for b, p in feet.items()}
    hips, size = [leg[len(leg) // 2] for leg in legs], max(_length(data, leg) for leg in legs)

    def miss(x: NDArray) -> NDArray:
        pose = start.copy()
        pose[addresses] = x
        at = _at(mj, pose)
        soles = np.stack([at.xpos[b] + at.xmat[b].reshape(3, 3) @ p for b, p in local.items()])
        centre = at.subtree_com[mj.body_rootid[mj.jnt_bodyid[hips[0]]], :2]
        return np.concatenate([
            10 * (soles[:, :2].mean(axis=0) - centre) / size,
            10 * (soles[:, 2] - soles[:, 2].mean()) / size,
            3 * (soles - at.xanchor[hips])[:, :2].ravel() / size,
            np.where(at_end, 1.0, 0.3) * (x - start[addresses]),
        ])  # fmt: skip

    def misses(x: NDArray) -> NDArray:
        return np.stack([miss(column) for column in x.T], axis=1)

    limits = np.where(mj.jnt_limited[joints, None], ranges, (-np.pi, np.pi))
    quiet = minimize.Verbosity.SILENT
    best, _ = minimize.least_squares(start[addresses], misses, list(limits.T), verbose=quiet)
    start[addresses] = np.round(best, 2)
    return start


def floor_height(mj: mujoco.MjModel) -> float:
    """The height of the model's level floor, or 0."""
    level = (mj.geom_type == mujoco.mjtGeom.mjGEOM_PLANE) & _touchable(mj)
    level &= mj.body_weldid[mj.geom_bodyid] == 0
    return float(mj.geom_pos[level, 2].max()) if level.any() else 0.0


def _in_turn(
    mj: mujoco.MjModel, data: mujoco.MjData, root: int, feet: dict[int, NDArray]
) -> tuple[Foot, ...]:
    """The feet with the phases of a gait in which neighbours swing in turn: two legs walk, four
    trot, and six go on three at a time.
    """
    turn, found = data.xmat[root].reshape(3, 3), []
    places = {body: turn.T @ (point - data.xpos[root]) for body, point in feet.items()}
    points = dict(_points(mj, data, root))
    for side in (1, -1):
        row = [body for body in feet if _side(places[body]) == side]
        row.sort(key=lambda body: -places[body][0])
        for number, body in enumerate(row):
            offset = data.xmat[body].reshape(3, 3).T @ (points[body] - data.xpos[body])
            x, y, z = (round(float(value), 4) + 0.0 for value in offset)
            phase = 0.5 * ((number + (side < 0)) % 2)
            found.append(((number, -side), Foot(body, (x, y, z), phase)))
    return tuple(foot for _, foot in sorted(found, key=lambda pair: pair[0]))


def _side(place: NDArray) -> int:
    return 1 if place[1] >= 0 else -1


def _carrying(mj: mujoco.MjModel, legged: Legged) -> NDArray:
    """What each degree of freedom of a leg takes to carry the robot on half of its feet, `(nv,)`.

    The arm is that of the stance, or half of the way from the joint to the foot if that is more.
    """
    data = _at(mj, legged.qpos)
    weight = mj.body_subtreemass[legged.root] * np.linalg.norm(mj.opt.gravity)
    force, torques = weight / max(1, len(legged.feet) // 2), np.zeros(mj.nv)
    for foot in legged.feet:
        place = data.xpos[foot.body] + data.xmat[foot.body].reshape(3, 3) @ foot.point
        for joint in _joints_between(mj, foot.body, legged.root):
            if mj.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE:
                arm = 1.0
            else:
                way = place - data.xanchor[joint]
                lever = abs(np.cross(data.xaxis[joint], way)[2])
                arm = max(lever, 0.5 * float(np.linalg.norm(way)))
            dofs = mj.jnt_dofadr[joint]
            torques[dofs] = max(torques[dofs], force * arm)
    return torques


def _short(value: float) -> float:
    """A number with two digits that count."""
    return float(f"{value:.2g}")
