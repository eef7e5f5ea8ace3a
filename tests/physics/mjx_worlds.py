"""Worlds of the native engine put into MJX as they are, so that few programs are compiled."""

from typing import Any

import jax.numpy as jnp
import mujoco
import numpy as np
import plain_mujoco

from worldline.physics.base import INPUTS, PhysicsState
from worldline.physics.mjx import MjxPhysics, MjxState
from worldline.physics.native import NativePhysics


def in_mjx(physics: MjxPhysics, native: NativePhysics, state: PhysicsState) -> PhysicsState:
    """The same world, or worlds `(B, ...)`; its fields, which are those of a last step, are zero.

    In MJX's precision: the float64 of native's own state under `jax_enable_x64`.
    """
    rows = native.integration_state(state)
    lead = rows.shape[:-1]
    flat = [_parts(native, row) for row in rows.reshape(-1, rows.shape[-1])]

    def part(name: str) -> Any:
        values = np.stack([world[name] for world in flat])
        return jnp.asarray(values.reshape((*lead, *values.shape[1:])), jnp.result_type(float))

    def empty(names: tuple[str, ...]) -> dict[str, Any]:
        shapes = {name: physics.model.data_field(name)[0] for name in names}
        return {name: jnp.zeros((*lead, *shape), float) for name, shape in shapes.items()}

    return PhysicsState(
        qpos=part("qpos"),
        qvel=part("qvel"),
        act=part("act"),
        time=part("time"),
        fields=empty(physics.reads.fields),
        changes=empty(physics.reads.changes),
        variation=state.variation,
        diverged=jnp.zeros(lead, bool),
        engine=MjxState(
            qacc_warmstart=part("qacc_warmstart"),
            inputs={name: part(name) for name in INPUTS if name != "act"},
            tracked=empty(physics.reads.changes),
        ),
    )


def _parts(native: NativePhysics, row: np.ndarray) -> dict[str, np.ndarray]:
    """What an integration state holds, by MjData field."""
    data = mujoco.MjData(native.model.mj)
    mujoco.mj_setState(native.model.mj, data, row, plain_mujoco.INTEGRATION)
    names = (*INPUTS, "qpos", "qvel", "time", "qacc_warmstart")
    return {name: np.array(getattr(data, name)) for name in names}
