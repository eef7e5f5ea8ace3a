"""A robot whose model is the mean of the model and its mirror image, and how far the two differ.

Real robots carry a battery on one side; so a test of what is declared takes a symmetric model, and
another one says how far from it the robot is.
"""

import contextlib
import copy
from typing import NamedTuple

import mujoco
import numpy as np

from worldline.env.symmetry import joint_mirror, mirrored_name
from worldline.errors import TaskError
from worldline.model import Model

MIRROR = np.diag([1.0, -1.0, 1.0])

#: How far from the middle something may be that has no other on the other side, m.
_MIDDLE = 0.1


class Asymmetry(NamedTuple):
    """The largest differences between a robot and its mirror image, where its joints are at 0."""

    mass: float
    """Of a body, kg."""
    centre: float
    """Of a body's centre of mass, m."""
    inertia: float
    """Of an element of a body's inertia, kg m^2."""
    place: float
    """Of a body, a site or a geom that touches, m."""


def symmetrised(model: Model) -> tuple[Model, Asymmetry]:
    """The mean of a robot and its mirror image, and how far the two differ."""
    mj = copy.deepcopy(model.mj)
    data = mujoco.MjData(mj)
    mujoco.mj_kinematics(mj, data)
    turn, twin = data.xmat.reshape(-1, 3, 3).copy(), partners(model, "body")
    mass, centre = mj.body_mass.copy(), data.xipos.copy()
    axes = data.ximat.reshape(-1, 3, 3)
    inertia = np.einsum("bij,bj,bkj->bik", axes, mj.body_inertia, axes)

    places = _mean_places(mj, data.xpos.copy(), twin, turn)
    mujoco.mj_kinematics(mj, data)
    images = mass[twin], centre[twin] @ MIRROR, MIRROR @ inertia[twin] @ MIRROR
    mj.body_mass[:] = (mass + images[0]) / 2
    middle, mean = (centre + images[1]) / 2, (inertia + images[2]) / 2
    mj.body_ipos[:] = np.einsum("bij,bi->bj", turn, middle - data.xpos)
    for body in range(1, mj.nbody):
        values, vectors = np.linalg.eigh(turn[body].T @ mean[body] @ turn[body])
        vectors[:, 0] *= np.linalg.det(vectors)
        mj.body_inertia[body] = values
        mujoco.mju_mat2Quat(mj.body_iquat[body], vectors.ravel())

    differences = [places]
    for kind in ("site", "geom"):
        there = getattr(data, f"{kind}_xpos").copy()
        body, same = getattr(mj, f"{kind}_bodyid"), partners(model, kind)
        image = there[same] @ MIRROR
        counts = body > 0
        if kind == "geom":
            counts &= np.array([bool(name) for name in model.names(kind)])
            counts &= (mj.geom_contype | mj.geom_conaffinity) != 0
        differences.append(np.abs(there - image)[counts].max(initial=0.0))
        local = np.einsum("nij,ni->nj", turn[body], (there + image) / 2 - data.xpos[body])
        getattr(mj, f"{kind}_pos")[counts] = local[counts]
    _mean_joints(model, mj)
    mujoco.mj_setConst(mj, mujoco.MjData(mj))
    gaps = (np.abs(a - b).max() for a, b in zip((mass, centre, inertia), images, strict=True))
    return Model(mj), Asymmetry(*map(float, gaps), place=float(max(differences)))


def partners(model: Model, kind: str) -> np.ndarray:
    """The object on the other side of each object of a kind, by its name, or else by its place."""
    names, mj = list(model.names(kind)), model.mj
    data = mujoco.MjData(mj)
    mujoco.mj_kinematics(mj, data)
    places = {"body": data.xpos, "site": data.site_xpos, "geom": data.geom_xpos}[kind]

    def partner(index: int, name: str) -> int:
        with contextlib.suppress(TaskError):  # a corner of a left foot has a right one, too
            found = names.index(mirrored_name(name, names)) if name else index
            if found != index or abs(places[index, 1]) < _MIDDLE:
                return found
        return int(np.linalg.norm(places - places[index] @ MIRROR, axis=1).argmin())

    return np.array([partner(index, name) for index, name in enumerate(names)])


def _mean_places(mj, there, twin, turn) -> float:
    """Puts bodies to their mean places; the largest difference from the mirror image, m."""
    image = there[twin] @ MIRROR
    mean = (there + image) / 2
    for body in range(1, mj.nbody):
        parent, joint = mj.body_parentid[body], mj.body_jntadr[body]
        if joint < 0 or mj.jnt_type[joint] != mujoco.mjtJoint.mjJNT_FREE:
            mj.body_pos[body] = turn[parent].T @ (mean[body] - mean[parent])
    return float(np.abs(there - image).max())


def _mean_joints(model: Model, mj) -> None:
    """Gives joints and servos on both sides the same numbers."""
    mirror = joint_mirror(model)
    other, sign = np.array(mirror.index), np.array(mirror.sign)
    for name in ("dof_damping", "dof_armature", "dof_frictionloss"):
        values = getattr(mj, name)
        values[6:] = (values[6:] + values[6:][other]) / 2
    for name in ("jnt_range", "jnt_actfrcrange", "actuator_ctrlrange", "actuator_forcerange"):
        values = getattr(mj, name)[-len(other) :]
        image = np.where(sign[:, None] > 0, values[other], -values[other][:, ::-1])
        values[:] = (values + image) / 2
    for name in ("actuator_gainprm", "actuator_biasprm"):
        values = getattr(mj, name)
        values[:] = (values + values[other]) / 2
