"""Free bodies that tendons and actuators brake, under the integrator implicitfast.

MuJoCo solves for the acceleration of such a body with all that brakes it (`mjd_freeMhat`), if
nothing moves on it. MuJoCo Warp solves in the same way, but leaves out tendons and actuators.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import mujoco
import numpy as np

from worldline.warp_library import warp

_KINDS = mujoco.mjtTrn
_OF_A_JOINT = (_KINDS.mjTRN_JOINT, _KINDS.mjTRN_JOINTINPARENT)
_OF_SITES = (_KINDS.mjTRN_SITE, _KINDS.mjTRN_SLIDERCRANK)


def has_braked(model: mujoco.MjModel, variation: Iterable[str]) -> bool:
    """Whether a tendon or an actuator may brake a free body on which nothing moves.

    Args:
        model: the model.
        variation: the constants of each world's own.
    """
    free = model.jnt_type == mujoco.mjtJoint.mjJNT_FREE
    trees = model.dof_treeid[model.jnt_dofadr[free]]
    alone = trees[model.tree_dofnum[trees] == 6]
    if model.opt.integrator != mujoco.mjtIntegrator.mjINT_IMPLICITFAST or not alone.size:
        return False
    given = frozenset(variation)

    def any_of(*names: str) -> bool:
        return any(np.any(getattr(model, name)) or name in given for name in names)

    as_it_moves = (model.actuator_gaintype != mujoco.mjtGain.mjGAIN_FIXED) | (
        model.actuator_biastype != mujoco.mjtBias.mjBIAS_NONE
    )
    actuators = np.flatnonzero(as_it_moves | any_of("actuator_damping", "actuator_dampingpoly"))
    bodies = [_of_actuators(model, actuators)]
    by_tendon = (model.actuator_trntype[actuators] == _KINDS.mjTRN_TENDON).any()
    if by_tendon or any_of("tendon_damping", "tendon_dampingpoly"):
        bodies.append(_of_tendons(model))
    return bool(np.isin(model.body_treeid[np.concatenate(bodies)], alone).any())


def _of_tendons(model: mujoco.MjModel) -> np.ndarray:
    """The bodies that spatial tendons pull."""
    kinds = mujoco.mjtWrap
    at_site = model.wrap_type == kinds.mjWRAP_SITE
    at_geom = np.isin(model.wrap_type, (kinds.mjWRAP_SPHERE, kinds.mjWRAP_CYLINDER))
    sites = model.site_bodyid[model.wrap_objid[at_site]]
    return np.concatenate([sites, model.geom_bodyid[model.wrap_objid[at_geom]]])


def _of_actuators(model: mujoco.MjModel, actuators: np.ndarray) -> np.ndarray:
    """The bodies that actuators move, but for those by tendons."""
    kind, target = model.actuator_trntype[actuators], model.actuator_trnid[actuators]
    sites = target[np.isin(kind, _OF_SITES)]
    joints = target[np.isin(kind, _OF_A_JOINT), 0]
    bodies = target[kind == _KINDS.mjTRN_BODY, 0]
    return np.concatenate([model.site_bodyid[sites[sites >= 0]], model.jnt_bodyid[joints], bodies])


class FreeBodies:
    """The free bodies of worlds, braked as in MuJoCo.

    It solves with the library's own kernels on an inertia matrix of its own: that of the free
    bodies, each with all 21 pairs of its degrees of freedom, of which MuJoCo Warp may store 6.

    Args:
        model: MuJoCo Warp's form of the model.
        data: the memory of its worlds.
    """

    def __init__(self, model: Any, data: Any) -> None:
        wp, (rows, nv) = warp(), data.qvel.shape
        first = model.body_dofadr.numpy()[model.body_freeadr.numpy()][:, None]
        row, column = np.tril_indices(6)
        i, j = (first + row).ravel(), (first + column).ravel()
        elements = np.full((nv, nv), -1)
        elements[i, j] = elements[j, i] = np.arange(i.size)
        starts, lengths = np.zeros((2, nv), int)
        starts[first + np.arange(6)] = elements[first + np.arange(6), first]
        lengths[first + np.arange(6)] = np.arange(1, 7)
        pattern = {
            "M_elemid": elements, "M_fullm_i": i, "M_fullm_j": j,
            "M_rowadr": starts, "M_rownnz": lengths, "M_colind": j,
        }  # fmt: skip
        arrays = {name: wp.array(value, dtype=int) for name, value in pattern.items()}
        self._model = dataclasses.replace(model, **arrays, nM=i.size, nC=i.size)
        #: In which nothing but tendons and actuators brakes.
        self._brakes = dataclasses.replace(
            self._model,
            has_fluid=False,
            dof_damping=wp.zeros_like(model.dof_damping),
            dof_dampingpoly=wp.zeros_like(model.dof_dampingpoly),
            jnt_actuatorid=wp.full_like(model.jnt_actuatorid, -1),
        )
        inertia, braked = (wp.zeros((rows, i.size), dtype=float) for _ in range(2))
        self._data = dataclasses.replace(data, M=inertia)
        self._braked = dataclasses.replace(data, M=braked)
        stored = model.M_elemid.numpy()[i, j]
        here = np.flatnonzero(stored >= 0)
        self._stored = wp.indexedarray(data.M, [None, wp.array(stored[here], dtype=int)])
        self._here = wp.indexedarray(inertia, [None, wp.array(here, dtype=int)])
        self._acceleration = wp.zeros((rows, nv), dtype=float)

    def prepare(self) -> None:
        """Has `mujoco_warp.implicit` brake them, by the forces that it begins with."""
        from mujoco_warp import deriv_smooth_vel
        from mujoco_warp._src.forward import implicit_free_body

        forces = self._data.efc.Ma
        warp().copy(self._here, self._stored)
        deriv_smooth_vel(self._brakes, self._data, self._braked.M)
        implicit_free_body(self._model, self._braked, forces, self._acceleration, solve=True)
        implicit_free_body(self._model, self._data, self._acceleration, forces, solve=False)
