"""A physics with exact answers by hand: unit point masses, for fast tests of everything above it.

Every degree of freedom is a point mass of 1 kg without gravity, contact or friction, pushed by the
actuators that act on its joint: `qacc[d] = sum of ctrl[a] * gear[a]` over those actuators. With a
constant control `u` on one actuator of unit gear, semi-implicit Euler steps of `h` give after `n`
steps exactly `qvel = qvel0 + n h u` and `qpos = qpos0 + n h qvel0 + h^2 u n (n + 1) / 2`.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.model import Model
from worldline.physics.base import NOTHING, Physics, PhysicsState, Reads, picked, unless_failed
from worldline.types import Array, ArrayLike


class FakePhysics(Physics):
    """Unit point masses on the joints of any model; pure JAX.

    A field that a task reads is what MuJoCo computes at the model's default configuration, plus the
    mean displacement from there: of the right shape, finite, and not constant; not kinematics.

    Args:
        model: the model, of which only the joints and the actuators matter.
        reads: what comes back beside the state.
    """

    name = "fake"
    differentiable = True

    def __init__(self, model: Model, reads: Reads = NOTHING) -> None:
        super().__init__(model, reads)
        data = mujoco.MjData(model.mj)
        mujoco.mj_forward(model.mj, data)
        self._fields = {name: np.asarray(getattr(data, name)) for name in reads.named}
        self._push = _push_matrix(model)

    def _begin(
        self,
        qpos: Array,
        qvel: Array,
        variation: dict[str, Array],
        inputs: dict[str, Array],
        mask: ArrayLike,
    ) -> PhysicsState:
        del mask  # computing for all is harmless
        qpos = jnp.asarray(qpos, jnp.float32)
        changes = {name: jnp.zeros(self.model.data_field(name)[0]) for name in self.reads.changes}
        return PhysicsState(
            qpos=qpos,
            qvel=jnp.asarray(qvel, jnp.float32),
            act=jnp.asarray(inputs.get("act", jnp.zeros(self.model.na)), jnp.float32),
            time=jnp.zeros(()),
            fields=self._read(self.reads.fields, qpos),
            changes=changes,
            variation=variation,
            diverged=jnp.asarray(False),
            engine=jnp.asarray(inputs.get("ctrl", jnp.zeros(self.model.nu)), jnp.float32),
        )

    def _advance(
        self, state: PhysicsState, inputs: dict[str, Array], substeps: int, mask: ArrayLike
    ) -> PhysicsState:
        del mask
        ctrl = jnp.asarray(inputs.get("ctrl", state.engine), jnp.float32)
        timestep, qacc = self.model.timestep, jnp.asarray(self._push) @ ctrl

        def substep(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            qpos, qvel = carry
            qvel = qvel + timestep * qacc
            return (self._integrate(qpos, qvel), qvel), None

        begin = state.qpos, jnp.asarray(inputs.get("qvel", state.qvel), jnp.float32)
        (qpos, qvel), _ = jax.lax.scan(substep, begin, None, length=substeps)
        before, after = (self._read(self.reads.changes, q) for q in (state.qpos, qpos))
        stepped = dataclasses.replace(
            state,
            qpos=qpos,
            qvel=qvel,
            time=state.time + timestep * substeps,
            fields=self._read(self.reads.fields, qpos),
            changes={name: after[name] - before[name] for name in self.reads.changes},
            engine=ctrl,
        )
        return unless_failed(stepped, state, ~jnp.isfinite(qvel).all())

    def _read(self, names: tuple[str, ...], qpos: Array) -> dict[str, Array]:
        displacement = jnp.mean(qpos - self.model.qpos0) if self.model.nq else jnp.zeros(())
        fields = {}
        for name, default in self._fields.items():
            kind = jnp.float32 if default.dtype.kind == "f" else jnp.int32
            moved = (jnp.asarray(default, jnp.float32) + displacement).astype(kind)
            fields[name] = qpos if name == "qpos" else moved
        return picked(names, fields)

    def _integrate(self, qpos: Array, qvel: Array) -> Array:
        """`qpos` a time step later at velocity `qvel`; quaternions turn by the angular velocity."""
        model, parts = self.model.mj, []
        for joint in range(model.njnt):
            q, v = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
            kind = mujoco.mjtJoint(model.jnt_type[joint])
            if kind == mujoco.mjtJoint.mjJNT_FREE:
                parts.append(qpos[q : q + 3] + self.model.timestep * qvel[v : v + 3])
                q, v = q + 3, v + 3
            if kind in (mujoco.mjtJoint.mjJNT_FREE, mujoco.mjtJoint.mjJNT_BALL):
                turn = self.model.timestep * qvel[v : v + 3]
                parts.append(_rotate(qpos[q : q + 4], turn))
            else:
                parts.append(qpos[q : q + 1] + self.model.timestep * qvel[v : v + 1])
        return jnp.concatenate(parts) if parts else qpos


def _push_matrix(model: Model) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """How much each control pushes each degree of freedom, `(nv, nu)`."""
    push = np.zeros((model.mj.nv, model.nu), np.float32)
    mj = model.mj
    for actuator, controls in enumerate(model.controls_of):
        if mj.actuator_trntype[actuator] == mujoco.mjtTrn.mjTRN_JOINT:
            dof = mj.jnt_dofadr[mj.actuator_trnid[actuator, 0]]
            push[dof, list(controls)] = mj.actuator_gear[actuator, 0]
    return push


def _rotate(quaternion: Array, turn: Array) -> Array:
    """A unit quaternion `(4,)`, `w` first, turned by a rotation vector in its own frame, `(3,)`."""
    half = 0.5 * turn
    # sinc keeps the derivative finite at a rotation by nothing.
    angle_squared = jnp.sum(half**2)
    small = angle_squared < 1e-12
    angle = jnp.sqrt(jnp.where(small, 1.0, angle_squared))
    scale = jnp.where(small, 1.0 - angle_squared / 6.0, jnp.sin(angle) / angle)
    w, x, y, z = jnp.concatenate([jnp.where(small, 1.0, jnp.cos(angle))[None], scale * half])
    a, b, c, d = quaternion
    product = jnp.stack(
        [
            a * w - b * x - c * y - d * z,
            a * x + b * w + c * z - d * y,
            a * y - b * z + c * w + d * x,
            a * z + b * y - c * x + d * w,
        ]
    )
    return product / jnp.linalg.norm(product)
