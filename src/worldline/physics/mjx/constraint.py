"""MJX's constraints as MuJoCo's, where the two differ."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from worldline.physics.mjx.motion import displaced
from worldline.physics.mjx.source import mjx, mjx_constraint
from worldline.types import Array


def make_constraint(model: mjx.Model, data: mjx.Data) -> mjx.Data:
    """`mj_makeConstraint` and `mj_referenceConstraint`: the rows of all constraints.

    MuJoCo differs from MJX in three ways. A joint or tendon without friction has no row of
    friction; MJX, which has rows wherever friction may vary, locks it. A contact of bodies that
    cannot move has no rows; in MJX it has a cost beside which the solver does not see all others.
    And the reference acceleration of bodies that are held together knows how fast their Jacobian
    changes.
    """
    data = _without_idle_rows(mjx_constraint.make_constraint(model, data))
    return _with_turning_jacobian(model, _without_idle_friction(data))


def _without_idle_rows(data: mjx.Data) -> mjx.Data:
    """Rows that move nothing, with a Jacobian of zeros, cost nothing."""
    moves = (data._impl.efc_J != 0).any(axis=1)
    return data.tree_replace({"_impl.efc_D": data._impl.efc_D * moves})


def _without_idle_friction(data: mjx.Data) -> mjx.Data:
    """Rows of a friction of zero give way to everything."""
    first, count = data._impl.ne, data._impl.nf
    if not count:
        return data
    rows = jnp.arange(first, first + count)
    stiffness = data._impl.efc_D
    stiffness = stiffness.at[rows].multiply(data._impl.efc_frictionloss[rows] > 0)
    return data.tree_replace({"_impl.efc_D": stiffness})


def _with_turning_jacobian(model: mjx.Model, data: mjx.Data) -> mjx.Data:
    """The reference acceleration of `<connect>` and `<weld>` less `dJ/dt qvel`."""

    def pace(time: Array) -> Array:
        """How fast the constraints are left at the present velocity, a time (s) from now."""
        there = data.replace(qpos=displaced(model, data.qpos, time * data.qvel))
        there = mjx.com_pos(model, mjx.kinematics(model, there))
        kinds = (mjx_constraint._efc_equality_connect, mjx_constraint._efc_equality_weld)
        made = [efc.J @ data.qvel for kind in kinds if (efc := kind(model, there)) is not None]
        return jnp.concatenate([jnp.zeros(0, data.qvel.dtype), *made])

    if not data._impl.ne or not data._impl.efc_aref.size:
        return data
    _, change = jax.jvp(pace, (jnp.zeros(()),), (jnp.ones(()),))
    reference = data._impl.efc_aref.at[: len(change)].add(-change)
    return data.tree_replace({"_impl.efc_aref": reference})
