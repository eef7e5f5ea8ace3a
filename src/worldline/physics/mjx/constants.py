"""What MuJoCo derives from a model's constants (`mj_setConst`), as a function of them in JAX.

A variation's masses, lengths and axes change them: how heavy each subtree is, how readily each
body, degree of freedom and tendon gives way in the default pose (which scales its constraints), and
how long the tendons are there. MJX takes them as given; here they follow, derivatives included.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.physics.mjx.source import mjx
from worldline.types import Array

#: The constants that something is derived from.
DERIVED_FROM = frozenset(
    (
        "actuator_gear",
        "body_inertia",
        "body_ipos",
        "body_iquat",
        "body_mass",
        "body_pos",
        "body_quat",
        "dof_armature",
        "geom_pos",
        "geom_quat",
        "geom_size",
        "jnt_axis",
        "jnt_pos",
        "qpos0",
        "site_pos",
        "site_quat",
        "tendon_armature",
        "wrap_prm",
    )
)

_FREE, _BALL = int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_BALL)


def derive(model: mjx.Model, data: mjx.Data) -> mjx.Model:
    """The model with all that `mj_setConst` computes and MJX's dynamics read.

    Args:
        model: with constants of its own.
        data: any data of the model; nothing of its state matters.
    """
    model = model.replace(body_subtreemass=_below(model) @ model.body_mass)
    data = data.replace(qpos=jnp.asarray(model.qpos0, data.qpos.dtype))
    for function in (
        mjx.kinematics,
        mjx.com_pos,
        mjx.tendon,
        mjx.crb,
        mjx.tendon_armature,
        mjx.transmission,
    ):
        data = function(model, data)
    constants = {"tendon_length0": data.ten_length}
    if model.nv:
        inertia = mjx.full_m(model, data)
        factor = jax.scipy.linalg.cho_factor(inertia)

        def gives_way(rows: Array) -> Array:
            """The diagonal of J M^-1 J^T for rows `(n, nv)`, `(n,)`."""
            return jnp.sum(rows.T * jax.scipy.linalg.cho_solve(factor, rows.T), axis=0)

        moments = jax.scipy.linalg.cho_solve(factor, data._impl.actuator_moment.T)
        constants |= {
            "dof_invweight0": _joint_means(model) @ gives_way(jnp.eye(model.nv)),
            "body_invweight0": _body_weights(model, data, gives_way),
            "tendon_invweight0": gives_way(data._impl.ten_J),
            # The norm's derivative at zero, for a motor that moves nothing, is zero here.
            "actuator_acc0": jnp.sqrt(jnp.maximum(jnp.sum(moments**2, axis=0), 1e-30)),
        }
    return model.replace(**constants)


def _below(model: mjx.Model) -> np.ndarray:
    """Whether body j is i or below it, `(nbody, nbody)` of 0 and 1."""
    below = np.eye(model.nbody, dtype=np.float32)
    for body in range(model.nbody - 1, 0, -1):
        below[model.body_parentid[body]] += below[body]
    return below


def _joint_means(model: mjx.Model) -> np.ndarray:
    """Averages over the three directions of a translation or a rotation, `(nv, nv)`."""
    means = np.eye(model.nv, dtype=np.float32)
    for kind, start in zip(model.jnt_type, model.jnt_dofadr, strict=True):
        blocks = {_FREE: (0, 3), _BALL: (0,)}.get(int(kind), ())
        for block in blocks:
            at = slice(start + block, start + block + 3)
            means[at, at] = 1 / 3
    return means


def _body_weights(model: mjx.Model, data: mjx.Data, gives_way: Callable[[Array], Array]) -> Array:
    """How readily each body's centre moves and turns, `(nbody, 2)`; 0 for what is fixed."""
    bodies = np.arange(model.nbody)
    moves, turns = jax.vmap(lambda point, body: mjx.jac(model, data, point, body))(
        data.xipos, bodies
    )

    def mean(jacobian: Array) -> Array:
        rows = jnp.swapaxes(jacobian, 1, 2).reshape(-1, model.nv)
        return gives_way(rows).reshape(-1, 3).mean(axis=1)

    fixed = np.asarray(model.body_weldid) == 0
    weights = jnp.stack([mean(moves), mean(turns)], axis=-1)
    return jnp.where(fixed[:, None], 0.0, jnp.maximum(weights, mujoco.mjMINVAL))
