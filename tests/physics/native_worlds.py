"""Worlds of the native engine put into others as they are."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import plain_mujoco

from worldline.physics.arrays import ArrayState
from worldline.physics.base import HELD, INPUTS, PhysicsState
from worldline.physics.mjx import MjxPhysics
from worldline.physics.native import NativePhysics
from worldline.physics.warp import WarpPhysics


def in_mjx(physics: MjxPhysics, native: NativePhysics, state: PhysicsState) -> PhysicsState:
    """The same world, or worlds `(B, ...)`; its fields, which are those of a last step, are zero.

    In MJX's precision: the float64 of native's own state under `jax_enable_x64`.
    """
    parts = parts_of(native, state)
    lead = parts["time"].shape

    def part(name: str) -> Any:
        return jnp.asarray(parts[name], jnp.result_type(float))

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
        engine=ArrayState(
            qacc_warmstart=part("qacc_warmstart"),
            inputs={name: part(name) for name in HELD},
            derived={},
            tracked=empty(physics.reads.changes),
        ),
    )


def in_warp(physics: WarpPhysics, native: NativePhysics, state: PhysicsState) -> PhysicsState:
    """The same world, or worlds `(B, ...)`; its fields are those of a start there."""
    parts = {name: jnp.float32(x) for name, x in parts_of(native, state).items()}
    inputs = {name: parts[name] for name in physics.reads.inputs if name != "qvel"}
    start = physics.start
    for _ in parts["time"].shape:
        start = jax.vmap(start)
    placed = start(parts["qpos"], parts["qvel"], state.variation, inputs)
    engine = placed.engine._replace(qacc_warmstart=parts["qacc_warmstart"])
    return dataclasses.replace(placed, time=parts["time"], engine=engine)


def parts_of(native: NativePhysics, state: PhysicsState) -> dict[str, np.ndarray]:
    """What the integration states of worlds hold, by MjData field, with the worlds' axes."""
    rows = native.integration_state(state)
    flat = [_parts(native, row) for row in rows.reshape(-1, rows.shape[-1])]
    stacked = {name: np.stack([world[name] for world in flat]) for name in flat[0]}
    return {name: x.reshape((*rows.shape[:-1], *x.shape[1:])) for name, x in stacked.items()}


def _parts(native: NativePhysics, row: np.ndarray) -> dict[str, np.ndarray]:
    """What an integration state holds, by MjData field."""
    data = mujoco.MjData(native.model.mj)
    mujoco.mj_setState(native.model.mj, data, row, plain_mujoco.INTEGRATION)
    names = (*INPUTS, "qpos", "time", "qacc_warmstart")
    return {name: np.array(getattr(data, name)) for name in names}
