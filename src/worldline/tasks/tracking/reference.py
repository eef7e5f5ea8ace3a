"""Reference: a motion on a robot's model, with all that a tracking task compares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.errors import ConfigError, ModelError, did_you_mean
from worldline.model import Model
from worldline.tasks.tracking.motion import Motion, NDArray, resampled
from worldline.types import Array

#: How far a joint may be beyond its range, rad: what retargeting leaves, and no other unit.
_BEYOND_RANGE = 0.5
#: How far bodies may be from where the joints put them, m, if these are in the right order.
_SAME_PLACE = 0.02


class Bodies(eqx.Module):
    """Bodies along the world's axes, the origins of their frames."""

    position: Array
    """`(..., n, 3)`, m."""
    orientation: Array
    """`(..., n, 4)`, real part first."""
    linear_velocity: Array
    """`(..., n, 3)`, m/s."""
    angular_velocity: Array
    """`(..., n, 3)`, rad/s."""


class Reference(eqx.Module):
    """T frames of a reference motion, float32."""

    qpos: Array
    """`(T, nq)`"""
    qvel: Array
    """`(T, nv)`"""
    bodies: Bodies
    """The tracked bodies, `(T, n, ...)`."""
    end_heights: Array
    """Heights of the end effectors, `(T, nends)`, m."""

    @property
    def frames(self) -> int:
        """T."""
        return len(self.qpos)

    def at(self, frame: Array) -> Reference:
        """One frame, without the axis T; after the last one, the last."""
        return jax.tree.map(lambda x: jnp.asarray(x)[jnp.minimum(frame, self.frames - 1)], self)


class Tracked(NamedTuple):
    """Which parts of a model are tracked, as indices."""

    bodies: NDArray
    """Of the tracked bodies, `(n,)`."""
    anchor: int
    """Where the anchor is among them."""
    end_bodies: NDArray
    """Of the end effectors that are bodies."""
    end_sites: NDArray
    """Of those that are sites."""


def find_tracked(model: Model, bodies: Sequence[str], anchor: str, ends: Sequence[str]) -> Tracked:
    """Finds bodies by name.

    Args:
        model: the model.
        bodies: names of the bodies to track.
        anchor: the one that says where the robot is; it is tracked too.
        ends: names of end effectors, each a site or a body.

    Raises:
        ModelError: the model has no such body or site.
    """
    names = [*dict.fromkeys((*bodies, anchor))]
    sites = [end for end in ends if end in model.names("site")]
    others = [end for end in ends if end not in sites]
    return Tracked(
        np.array([model.id("body", name) for name in names], int),
        names.index(anchor),
        np.array([model.id("body", name) for name in others], int),
        np.array([model.id("site", name) for name in sites], int),
    )


def joint_names(model: Model) -> tuple[str, ...]:
    """The joints behind the floating base, in the order of `qpos`.

    Raises:
        ModelError: the robot is no floating base with hinges and slides.
    """
    kinds = model.mj.jnt_type.tolist()
    moving = [int(kind) for kind in (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)]
    if not kinds or kinds[0] != int(mujoco.mjtJoint.mjJNT_FREE):
        raise ModelError("a robot that tracks motions needs a free joint, as its first joint")
    for name, kind in zip(model.names("joint")[1:], kinds[1:], strict=True):
        if kind not in moving:
            raise ModelError(f"joint {name!r} is no hinge or slide; motions have one angle a joint")
    return tuple(model.names("joint")[1:])


def fitted(motion: Motion, model: Model) -> NDArray:
    """The frames of a motion as configurations of a model, `(T, nq)` float64.

    Joints with names are matched by them, in any order. Joints without names are in the order of
    the model; or in that of Isaac Lab, which counts joints by their distance from the root, if this
    is where the bodies of the file are.

    Raises:
        ConfigError: the joints do not fit, by name or by number; or a joint is far out of its
            range.
        ModelError: the robot is no floating base with hinges and slides.
    """
    wanted = joint_names(model)
    if motion.joint_names is None:
        order = _unnamed_order(motion, model, wanted)
    else:
        _check_names(motion, wanted)
        order = [motion.joint_names.index(name) for name in wanted]
    qpos = np.concatenate([motion.root_pos, motion.root_quat, motion.joint_pos[:, order]], axis=1)
    _check_ranges(motion, model, qpos[:, 7:])
    return qpos


def _check_names(motion: Motion, wanted: tuple[str, ...]) -> None:
    """Refuses a motion with other joints than the model, with the names that differ."""
    given = motion.joint_names or ()
    missing = [name for name in wanted if name not in given]
    unknown = [name for name in given if name not in wanted]
    if not missing and not unknown:
        return
    parts = []
    if missing:
        parts.append(f"it has no {_listed('joint', missing)}")
    if unknown:
        parts.append(f"the model has no {_listed('joint', unknown)}")
    hint = did_you_mean(unknown[0], missing) if unknown and missing else ""
    raise ConfigError(f"{motion.source} does not fit the model: {', and '.join(parts)}{hint}")


def _listed(what: str, names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:6]))
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return f"{what}{'s' if len(names) > 1 else ''} {shown}{more}"


def _unnamed_order(motion: Motion, model: Model, wanted: tuple[str, ...]) -> list[int]:
    """Where the model's joints are among those of a motion that does not name them."""
    columns = motion.joint_pos.shape[1]
    if columns != len(wanted):
        raise ConfigError(
            f"{motion.source} has {columns} joints without names, and the model {len(wanted)}: "
            f"{_listed('joint', wanted)}; give these columns, or a file with the joints' names"
        )
    as_in_model = list(range(columns))
    if motion.body_pos is None:
        return as_in_model
    for order in (as_in_model, _by_distance(model)):
        if _misplaced(motion, model, order) < _SAME_PLACE:
            return order
    raise ConfigError(
        f"{motion.source} has bodies that are not where its joints put them, neither in the order "
        "of the model nor in Isaac Lab's; give joint_names, or the robot that the motion is for"
    )


def _by_distance(model: Model) -> list[int]:
    """The columns of the model's joints where those nearer to the root come first."""
    mj = model.mj
    depth = np.zeros(mj.nbody, int)
    for body in range(1, mj.nbody):
        depth[body] = depth[mj.body_parentid[body]] + 1
    joints = np.argsort(depth[mj.jnt_bodyid[1:]], kind="stable")
    return np.argsort(joints).tolist()


def _misplaced(motion: Motion, model: Model, order: list[int]) -> float:
    """How far the farthest body of the model is from all bodies of the file, m, in some frames."""
    places = motion.body_pos
    assert places is not None
    data, worst = mujoco.MjData(model.mj), 0.0
    moving = np.unique(model.mj.jnt_bodyid)
    for frame in np.unique(np.linspace(0, motion.frames - 1, 5).astype(int)):
        joints = motion.joint_pos[frame, order]
        data.qpos[:] = np.concatenate([motion.root_pos[frame], motion.root_quat[frame], joints])
        mujoco.mj_kinematics(model.mj, data)
        apart = np.linalg.norm(data.xpos[moving, None] - places[frame], axis=-1)
        worst = max(worst, float(apart.min(axis=1).max()))
    return worst


def _check_ranges(motion: Motion, model: Model, joints: NDArray) -> None:
    limited = np.asarray(model.mj.jnt_limited[1:], bool)
    low, high = np.where(limited[:, None], model.mj.jnt_range[1:], [-np.inf, np.inf]).T
    beyond = np.maximum(low - joints, joints - high)
    if beyond.max(initial=0.0) > _BEYOND_RANGE:
        frame, joint = np.unravel_index(beyond.argmax(), beyond.shape)
        name = joint_names(model)[joint]
        raise ConfigError(
            f"{motion.source}: joint {name!r} is {joints[frame, joint]:.3g} in frame {frame}, and "
            f"the model lets it go from {low[joint]:.3g} to {high[joint]:.3g}; give angles in rad, "
            "and columns in the order of the model"
        )


def velocities(model: Model, qpos: NDArray, timestep: float) -> NDArray:
    """Velocities of configurations by central differences, one-sided at both ends, `(T, nv)`.

    Args:
        model: the model.
        qpos: `(T, nq)`.
        timestep: between two rows, s.
    """
    last = len(qpos) - 1
    qvel = np.zeros((len(qpos), model.nv))
    for frame in range(len(qpos)):
        first, second = max(frame - 1, 0), min(frame + 1, last)
        seconds = (second - first) * timestep
        mujoco.mj_differentiatePos(model.mj, qvel[frame], seconds, qpos[first], qpos[second])
    return qvel


def reference_of(motion: Motion, model: Model, parts: Tracked, timestep: float) -> Reference:
    """A motion on a robot, resampled.

    Args:
        motion: the motion.
        model: the robot.
        parts: what is tracked.
        timestep: between two frames of the reference, s.

    Raises:
        ConfigError, ModelError: as in `fitted` and `resampled`.
    """
    fitted(motion, model)  # what is wrong is named by the frames of the file
    qpos = fitted(resampled(motion, 1 / timestep), model)
    qvel = velocities(model, qpos, timestep)
    frames, n = len(qpos), len(parts.bodies)
    position, turn = np.zeros((frames, n, 3)), np.zeros((frames, n, 4))
    spatial = np.zeros((frames, n, 6))
    heights = np.zeros((frames, len(parts.end_bodies) + len(parts.end_sites)))
    data, kind = mujoco.MjData(model.mj), mujoco.mjtObj.mjOBJ_XBODY
    for frame in range(frames):
        data.qpos[:], data.qvel[:] = qpos[frame], qvel[frame]
        for compute in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_comVel):
            compute(model.mj, data)
        position[frame], turn[frame] = data.xpos[parts.bodies], data.xquat[parts.bodies]
        heights[frame] = [*data.xpos[parts.end_bodies, 2], *data.site_xpos[parts.end_sites, 2]]
        for row, body in zip(spatial[frame], parts.bodies, strict=True):
            mujoco.mj_objectVelocity(model.mj, data, kind, body, row, 0)
    linear, angular = spatial[..., 3:], spatial[..., :3]
    bodies = Bodies(*map(_stored, (position, turn, linear, angular)))
    return Reference(_stored(qpos), _stored(qvel), bodies, _stored(heights))


def _stored(array: NDArray) -> Array:
    """As float32 of NumPy, which belongs to no trace of JAX."""
    return cast(Array, np.asarray(array, np.float32))
