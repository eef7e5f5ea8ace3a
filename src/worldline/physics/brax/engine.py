"""The engine `brax`: a step of an environment of Brax or MuJoCo Playground, by its own code."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from worldline.errors import ModelError
from worldline.keys import is_key
from worldline.model import Model
from worldline.physics.base import NOTHING, Physics, PhysicsState, Reads, picked, unless_failed
from worldline.physics.brax.system import SystemModel, coordinates, readings
from worldline.types import Array, ArrayLike, PyTree, Variation


class BraxPhysics(Physics):
    """Runs `reset` and `step` of an environment; the world's constants are in its system.

    A field that a task reads is one of `SystemModel.readings`. The environment's own state is
    `PhysicsState.engine`.

    Args:
        model: the system of the environment.
        reads: what comes back beside the state.

    Raises:
        ModelError: the model is that of no environment.
    """

    name = "brax"
    differentiable = True
    by_xla = True
    model: SystemModel

    def __init__(self, model: Model, reads: Reads = NOTHING) -> None:
        if not isinstance(model, SystemModel):
            raise ModelError(
                "the engine 'brax' runs environments of Brax and Playground, not a MuJoCo model; "
                "give your environment to BraxWorlds, or choose another engine"
            )
        super().__init__(model, reads)

    def start(
        self,
        qpos: Array,
        qvel: Array,
        variation: Variation,
        inputs: Mapping[str, Array],
        mask: ArrayLike = True,
    ) -> PhysicsState:
        """As `Physics.start`, but of a start that the environment draws.

        Args:
            qpos: empty, as `qvel`.
            qvel: empty.
            variation: the world's own constants.
            inputs: `userdata`: the words of a key, `(2,)` uint32.
            mask: `()` bool; the environment cannot do without.
        """
        own = self.check_variation(variation)
        return self._begin(qpos, qvel, own, {"userdata": inputs["userdata"]}, mask)

    def _begin(
        self,
        qpos: Array,
        qvel: Array,
        variation: dict[str, Array],
        inputs: dict[str, Array],
        mask: ArrayLike,
    ) -> PhysicsState:
        began = _definite(self.model.environment(variation).reset(inputs["userdata"]))
        first = PhysicsState(
            qpos=qpos,
            qvel=qvel,
            act=jnp.zeros(0, jnp.float32),
            time=jnp.zeros((), jnp.float32),
            fields={},
            changes={},
            variation=variation,
            diverged=jnp.asarray(False),
            engine=began,
        )
        first, failed = self._read(first)
        return dataclasses.replace(first, diverged=failed)

    def _advance(
        self, state: PhysicsState, inputs: dict[str, Array], substeps: int, mask: ArrayLike
    ) -> PhysicsState:
        del mask
        env, engine = self.model.environment(state.variation), state.engine
        for _ in range(substeps):  # one: the model's time step is that of the environment
            # Of its own containers: Playground's environments write into the dicts of a state.
            engine = _definite(env.step(jax.tree.map(lambda leaf: leaf, engine), inputs["ctrl"]))
        time = state.time + substeps * self.model.timestep
        stepped, failed = self._read(dataclasses.replace(state, engine=engine, time=time))
        return unless_failed(stepped, state, failed)

    def _read(self, state: PhysicsState) -> tuple[PhysicsState, Array]:
        """The world with the numbers of its environment's state, and whether one is not finite."""
        numbers = readings(state.engine)
        specs = self.model.readings
        fields = {n: jnp.asarray(numbers[n], specs[n][1]) for n in self.reads.fields}
        qpos, qvel = coordinates(state.engine) or (state.qpos, state.qvel)
        judged = qpos, qvel, picked(("reward", "done"), numbers), fields
        sound = [
            jnp.isfinite(x).all()
            for x in jax.tree.leaves(judged)
            if jnp.issubdtype(x.dtype, jnp.floating)
        ]
        now = dataclasses.replace(state, qpos=qpos, qvel=qvel, fields=fields)
        return now, ~jnp.stack(sound).all()


def _definite(tree: PyTree) -> PyTree:
    """A tree of arrays of definite types: a plain number's would have the step traced again."""

    def definite(leaf: Any) -> Array:
        key = hasattr(leaf, "dtype") and is_key(leaf)
        return leaf if key else jnp.asarray(leaf, jnp.asarray(leaf).dtype)

    return jax.tree.map(definite, tree)
