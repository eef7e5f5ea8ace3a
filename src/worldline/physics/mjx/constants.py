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

from worldline.physics.mjx.inertia import tendon_armature
from worldline.physics.mjx.source import mjx, mjx_math
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
        "eq_data",
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

#: The column of `eq_data` in which a weld is marked whose pose follows from the default one.
_MARK = 11

_FREE, _BALL = int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_BALL)


def derive(model: mjx.Model, data: mjx.Data) -> mjx.Model:
    """The model with all that `mj_setConst` computes and MJX's dynamics read.

    Args:
        model: with constants of its own.
        data: any data of the model; nothing of its state matters.
    """
    model = model.replace(body_subtreemass=_below(model) @ model.body_mass)
    mocap = np.flatnonzero(np.asarray(model.body_mocapid) >= 0)
    data = data.replace(
        qpos=jnp.asarray(model.qpos0, data.qpos.dtype),
        mocap_pos=jnp.asarray(model.body_pos)[mocap],
        mocap_quat=jnp.asarray(model.body_quat)[mocap],
    )
    for function in (
        mjx.kinematics,
        mjx.com_pos,
        mjx.tendon,
        mjx.crb,
        tendon_armature,
        mjx.transmission,
    ):
        data = function(model, data)
    constants = {"tendon_length0": data.ten_length, "eq_data": _held_together(model, data)}
    if model.nv:
        inertia = mjx.full_m(model, data)
        factor = jax.scipy.linalg.cho_factor(inertia)

        def gives_way(rows: Array) -> Array:
            """The diagonal of J M^-1 J^T for rows `(n, nv)`, `(n,)`."""
            return jnp.sum(rows.T * jax.scipy.linalg.cho_solve(factor, rows.T), axis=0)

        moments = jax.scipy.linalg.cho_solve(factor, data._impl.actuator_moment.T)
        constants |= {
            "dof_invweight0": _joint_weights(model, gives_way),
            "body_invweight0": _body_weights(model, data, gives_way),
            "tendon_invweight0": gives_way(data._impl.ten_J),
            # The norm's derivative at zero, for a motor that moves nothing, is zero here.
            "actuator_acc0": jnp.sqrt(jnp.maximum(jnp.sum(moments**2, axis=0), 1e-30)),
        }
    return model.replace(**constants)


def _held_together(model: mjx.Model, data: mjx.Data) -> Array:
    """The data of equality constraints, with where and how bodies are held together.

    MuJoCo computes a `<connect>`'s point in its second body, and a `<weld>`'s pose where it is
    marked (since MuJoCo 4), from the default configuration.
    """
    table = jnp.asarray(model.eq_data)
    of_bodies = model.eq_objtype == mjx.ObjType.BODY
    first, second = model.eq_obj1id, model.eq_obj2id

    def seen_from(body: np.ndarray, other: np.ndarray, rows: np.ndarray) -> Array:
        """The points that are given in a body, as the other body has them, `(n, 3)`."""
        turn, back = data.xmat[body[rows]], data.xmat[other[rows]]
        point = data.xpos[body[rows]] + jnp.einsum("nij,nj->ni", turn, table[rows, :3])
        return jnp.einsum("nji,nj->ni", back, point - data.xpos[other[rows]])

    connected = np.flatnonzero(of_bodies & (model.eq_type == mjx.EqType.CONNECT))
    welded = np.flatnonzero(of_bodies & (model.eq_type == mjx.EqType.WELD))
    result = table.at[connected, 3:6].set(seen_from(first, second, connected))
    if welded.size and table.shape[1] > _MARK:
        back = data.xquat[first[welded]] * jnp.array([1, -1, -1, -1])
        turned = jax.vmap(mjx_math.quat_mul)(back, data.xquat[second[welded]])
        pose = jnp.concatenate([seen_from(second, first, welded), turned], axis=1)
        marked = table[welded, _MARK, None] != 0
        result = result.at[welded, 3:10].set(jnp.where(marked, pose, table[welded, 3:10]))
    return result


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


def _sliding(model: mjx.Model) -> tuple[np.ndarray, Array]:
    """Which bodies MuJoCo takes as points that only slide, and how readily, `(nbody,)` each."""
    sliding = np.asarray(model.body_simple == 2)
    return sliding, 1 / jnp.where(sliding, model.body_mass, 1.0)


def _joint_weights(model: mjx.Model, gives_way: Callable[[Array], Array]) -> Array:
    """How readily each degree of freedom moves, `(nv,)`."""
    body, (sliding, slides) = np.asarray(model.dof_bodyid), _sliding(model)
    weights = _joint_means(model) @ gives_way(jnp.eye(model.nv))
    return jnp.where(sliding[body], slides[body], weights)


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
    weights = jnp.where(fixed[:, None], 0.0, jnp.maximum(weights, mujoco.mjMINVAL))
    sliding, slides = _sliding(model)
    return jnp.where(sliding[:, None], slides[:, None] * jnp.array([1.0, 0.0]), weights)
