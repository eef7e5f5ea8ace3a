"""What the engines MJX and MuJoCo Warp share: a world is arrays, by their names in MuJoCo."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.model import Model
from worldline.physics.base import (
    HELD,
    Physics,
    PhysicsState,
    Reads,
    acceptable,
    picked,
    unless_failed,
)
from worldline.types import Array, ArrayLike, Variation

#: Arrays of one world, by the name of the field of MjData or MjModel that they hold.
Arrays: TypeAlias = dict[str, Array]

#: The fields that a physics step changes, and from which the next one begins.
MOVING = ("qpos", "qvel", "act", "time", "qacc_warmstart")

#: Where mocap bodies are by default, each world's own: the inputs, and the constants.
_MOCAP = {"mocap_pos": "body_pos", "mocap_quat": "body_quat"}


class ArrayState(NamedTuple):
    """What an `ArrayPhysics` keeps of a world between two steps, beside the `PhysicsState`."""

    qacc_warmstart: Array
    """The last acceleration, from which the constraint solver starts, `(nv,)`."""
    inputs: Arrays
    """The inputs that hold until they are given anew: those of `HELD` in `Reads.inputs`, and where
    mocap bodies are."""
    derived: Arrays
    """The constants that follow from the variation; none where each step derives them."""
    tracked: Arrays
    """The fields that `Reads.changes` names, as the last step left them."""


class ArrayPhysics(Physics):
    """An engine that gets all that a world is with each call, and computes masked worlds too.

    Args:
        model: the model that all worlds share.
        reads: what comes back beside the state.
        defaults: `MOVING` and the inputs where nobody gives them, in the engine's precision.
    """

    def __init__(
        self, model: Model, reads: Reads, defaults: Mapping[str, np.ndarray[Any, Any]]
    ) -> None:
        super().__init__(model, reads)
        self._defaults = defaults
        self._mocap = np.flatnonzero(model.mj.body_mocapid >= 0)
        moved = tuple(_MOCAP) if len(self._mocap) else ()
        self._held = tuple(name for name in HELD if name in (*reads.inputs, *moved))

    @abc.abstractmethod
    def _compute_start(self, given: Arrays, variation: Variation) -> tuple[Arrays, Arrays, Array]:
        """Computes what follows from a first state (`mj_forward`).

        Args:
            given: the state by `MOVING`, and the inputs that hold.
            variation: the world's own constants.

        Returns:
            What the world is then: `MOVING` and the fields of `Reads`; the constants that were
            derived; and whether all went well, `()` bool.
        """

    @abc.abstractmethod
    def _compute_steps(
        self, given: Arrays, variation: Variation, derived: Arrays, substeps: int
    ) -> tuple[Arrays, Array]:
        """Computes `substeps` physics steps.

        Returns:
            What the world is then: `MOVING` and the fields of `Reads`; and whether all went well.
        """

    def _begin(
        self,
        qpos: Array,
        qvel: Array,
        variation: dict[str, Array],
        inputs: dict[str, Array],
        mask: ArrayLike,
    ) -> PhysicsState:
        del mask  # to compute for all worlds is harmless
        places = {
            name: variation[field][self._mocap]
            for name, field in _MOCAP.items()
            if field in variation
        }
        given = self._in_precision(
            {**self._defaults, **places, "qpos": qpos, "qvel": qvel, **inputs}
        )
        held = picked(self._held, given)
        after, derived, healthy = self._compute_start(picked(MOVING, given) | held, variation)
        state = self._state(after, held, variation, derived)
        changes = jax.tree.map(jnp.zeros_like, state.engine.tracked)
        return dataclasses.replace(state, changes=changes, diverged=~healthy)

    def _advance(
        self, state: PhysicsState, inputs: dict[str, Array], substeps: int, mask: ArrayLike
    ) -> PhysicsState:
        del mask
        engine: ArrayState = state.engine
        new = self._in_precision(inputs)
        moving = (state.qpos, state.qvel, state.act, state.time, engine.qacc_warmstart)
        given = dict(zip(MOVING, moving, strict=True)) | engine.inputs | new
        limited = self._limited_controls(given, state.variation)
        after, healthy = self._compute_steps(
            given | limited, state.variation, engine.derived, substeps
        )
        as_given = picked(limited, given)
        after, healthy = after | as_given, healthy & acceptable(after["qpos"], *as_given.values())
        stepped = self._state(after, picked(self._held, given), state.variation, engine.derived)
        changes = {name: now - engine.tracked[name] for name, now in stepped.engine.tracked.items()}
        return unless_failed(dataclasses.replace(stepped, changes=changes), state, ~healthy)

    def _limited_controls(self, given: Arrays, variation: Variation) -> Arrays:
        """The controls within their limits, where they are given.

        So MuJoCo takes them; how fast a force falls with the velocity, which `implicit` integrators
        ask, both engines compute from controls without limits.
        """
        mj = self.model.mj
        if "ctrl" not in given or mj.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CLAMPCTRL:
            return {}
        ctrl, limited = given["ctrl"], mj.actuator_ctrllimited != 0
        bounds = variation.get("actuator_ctrlrange", mj.actuator_ctrlrange)
        low, high = jnp.asarray(bounds, ctrl.dtype).T
        # Not `clip`: a control at its limit keeps its derivative.
        ctrl = jnp.where(limited & (ctrl < low), low, ctrl)
        return {"ctrl": jnp.where(limited & (ctrl > high), high, ctrl)}

    def _state(
        self, world: Arrays, held: Arrays, variation: Variation, derived: Arrays
    ) -> PhysicsState:
        """A healthy world with these fields, the changes of which are yet to be taken."""
        tracked = picked(self.reads.changes, world)
        return PhysicsState(
            qpos=world["qpos"],
            qvel=world["qvel"],
            act=world["act"],
            time=world["time"],
            fields=picked(self.reads.fields, world),
            changes=tracked,
            variation=variation,
            diverged=jnp.asarray(False),
            engine=ArrayState(world["qacc_warmstart"], held, derived, tracked),
        )

    def _in_precision(self, values: Mapping[str, ArrayLike]) -> Arrays:
        """Values of state and inputs in the precision of the engine."""
        return {name: jnp.asarray(x, self._defaults[name].dtype) for name, x in values.items()}
