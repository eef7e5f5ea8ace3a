"""A world as MuJoCo's own objects: to look at it with MuJoCo's functions, or in its viewer."""

from __future__ import annotations

import copy
from functools import partial

import jax
import mujoco
import numpy as np

from worldline.model import Model
from worldline.physics.base import INPUTS, PhysicsState
from worldline.types import Array


def as_mujoco(model: Model, state: PhysicsState) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """The model and the data of one world: copies, which the caller may change.

    The model has the world's own constants and what MuJoCo derives from them. The data has its
    position, velocity, activation, time and those inputs that the state holds; everything else is
    computed from them (`mj_forward`).

    Args:
        model: the model that the worlds share.
        state: one world, such as `jax.tree.map(lambda x: x[0], state.env.physics)` of many.
    """
    state = jax.device_get(state)
    own = copy.copy(model.mj)
    data = mujoco.MjData(own)
    for name, value in state.variation.items():
        option = name.removeprefix("opt.")
        _write(own if option == name else own.opt, option, value)
    if state.variation:
        mujoco.mj_setConst(own, data)
        mujoco.mj_resetData(own, data)
    write = partial(_write, data)
    for name in ("qpos", "qvel", "act", "time"):
        write(name, getattr(state, name))
    for name in set(INPUTS).intersection(state.fields):
        write(name, state.fields[name])
    mujoco.mj_forward(own, data)
    return own, data


def _write(target: object, name: str, value: Array) -> None:
    field = getattr(target, name)
    if np.ndim(field):
        field[...] = np.reshape(value, field.shape)
    else:
        setattr(target, name, value.item())
