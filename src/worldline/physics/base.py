"""The Physics interface: what happens to one world in a control step."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.errors import ModelError, VariationError, did_you_mean
from worldline.model import Model
from worldline.types import Array, ArrayLike, PyTree, Variation

#: The inputs of MuJoCo that a caller may write at a start or for a step, by MjData field name; but
#: `qvel` for a step alone: the velocity with which it begins, of a world that gets a knock.
INPUTS = (
    "ctrl", "qfrc_applied", "xfrc_applied", "mocap_pos", "mocap_quat", "act", "userdata",
    "eq_active", "qvel",
)  # fmt: skip

#: The inputs that keep their value from step to step until they are given anew.
HELD = tuple(name for name in INPUTS if name not in ("act", "qvel"))

#: The fields whose change over a control step a task may read: coordinates, positions of bodies.
POSITIONS = ("qpos", "xpos", "xipos")

#: The fields that `mj_step` does not compute: an engine does so for the tasks that read them.
FORCES = frozenset(("cacc", "cfrc_int", "cfrc_ext"))
VELOCITIES = frozenset(("subtree_linvel", "subtree_angmom"))

#: The fields that `Reads.refresh` leaves as the last physics step computed them.
OF_THE_STEP = FORCES | {
    "act_dot",
    "actuator_force",
    "qacc",
    "qacc_smooth",
    "qfrc_actuator",
    "qfrc_constraint",
    "qfrc_smooth",
}

#: How many batches an engine keeps, in which worlds are written, run and copied out: the last used.
KEPT_BATCHES = 16

#: Constants whose rows are of length 1.
_DIRECTIONS = frozenset(
    ("body_iquat", "body_quat", "cam_quat", "geom_quat", "jnt_axis", "site_quat")
)

#: Beyond this MuJoCo, too, calls a state bad (`mjMAXVAL`).
_LARGEST = 1e10


@dataclasses.dataclass(frozen=True)
class Reads:
    """Which fields a task reads after a step, beside `qpos`, `qvel`, `act` and `time`, and which
    inputs it gives.
    """

    fields: tuple[str, ...] = ()
    """Names of the MjData fields that arrive in `PhysicsState.fields`."""
    changes: tuple[str, ...] = ()
    """Names of the fields of `POSITIONS` whose change over a control step arrives in
    `PhysicsState.changes`."""
    refresh: bool = False
    """False: fields are those of the last physics step, one time step behind `qpos` and `qvel`, as
    `mj_step` leaves them and Gymnasium's tasks read them. True: positions, velocities and their
    sensors are computed again at the new state (`mj_step1`)."""
    inputs: tuple[str, ...] = INPUTS
    """Names of the `INPUTS` that are ever given, at a start or for a step. The others keep the
    values that the model gives them, and a state need not hold them."""

    @property
    def named(self) -> tuple[str, ...]:
        """The names in `fields` and `changes`, once each."""
        return tuple(dict.fromkeys((*self.fields, *self.changes)))


#: What a task reads that reads the state alone.
NOTHING = Reads()


class PhysicsState(eqx.Module):
    """One world between two control steps. A pytree; `Worlds` puts an axis `B` in front."""

    qpos: Array
    """Configuration, `(nq,)`; m, rad and unit quaternions."""
    qvel: Array
    """Velocity, `(nv,)`; m/s, rad/s."""
    act: Array
    """The actuators' own state, `(na,)`."""
    time: Array
    """Time since the start of the episode, `()`; s."""
    fields: dict[str, Array]
    """The fields that `Reads.fields` names, each with MuJoCo's shape."""
    changes: dict[str, Array]
    """The change of the fields that `Reads.changes` names over the last control step. It is taken
    in the engine's own precision: the difference of two rounded float32 positions would lose the
    velocity of a robot that has walked far. Zero at a start."""
    variation: Variation
    """The constants of this world that differ from the model's."""
    diverged: Array
    """Whether the last step failed (`()` bool): the state is then valid, but not its successor."""
    engine: PyTree
    """The engine's own part, opaque to everyone else."""


def blank_state(model: Model, reads: Reads, variation: Variation) -> PhysicsState:
    """A world of zeros with the shapes of any engine's worlds: to trace with, not to simulate."""

    def zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return jnp.zeros(shape, jnp.float32 if dtype.kind == "f" else dtype)

    fields = {field: zeros(*model.data_field(field)) for field in reads.fields}
    real = np.dtype(np.float32)
    changes = {field: zeros(model.data_field(field)[0], real) for field in reads.changes}
    return PhysicsState(
        qpos=zeros((model.nq,), real),
        qvel=zeros((model.nv,), real),
        act=zeros((model.na,), real),
        time=zeros((), real),
        fields=fields,
        changes=changes,
        variation=variation,
        diverged=jnp.asarray(False),
        engine=(),
    )


class Physics(abc.ABC):
    """An engine that advances worlds of one model: pure functions of one world; `vmap` for many.

    Both functions take a `mask`, `()` bool: where it is False nothing is computed for that world
    and the result is unspecified (`start`) or the state given (`step`). That is how a reset of few
    worlds among many costs only those few.

    Args:
        model: the model all worlds share, up to their variations.
        reads: what comes back beside the state.

    Raises:
        ModelError: `reads` names a field that MjData lacks, or that this engine cannot give; or a
            change that is not one of `POSITIONS`.
    """

    name: ClassVar[str]
    differentiable: ClassVar[bool] = False
    """Whether JAX can differentiate through `start` and `step`."""
    by_xla: ClassVar[bool] = False
    """Whether XLA computes the steps; otherwise a library does, with threads of its own."""
    on_cpu: bool = False
    """Whether it simulates on the CPU, whatever other devices JAX has."""

    def __init__(self, model: Model, reads: Reads = NOTHING) -> None:
        for name in reads.named:
            model.data_field(name)
        for name in set(reads.changes).difference(POSITIONS):
            raise ModelError(
                f"`changes` cannot have {name!r}; it can have {', '.join(POSITIONS)}; for another "
                "field, subtract two values from `fields`"
            )
        self.model = model
        self.reads = reads

    def start(
        self,
        qpos: Array,
        qvel: Array,
        variation: Variation,
        inputs: Mapping[str, Array],
        mask: ArrayLike = True,
    ) -> PhysicsState:
        """Puts a world into a state at time 0 and computes the fields there (`mj_forward`).

        Args:
            qpos: `(nq,)`.
            qvel: `(nv,)`.
            variation: the world's own constants.
            inputs: initial values of `INPUTS`; those not given are the model's defaults.
            mask: `()` bool.

        Returns:
            The world. It is `diverged`, and at the model's default state, where `qpos`, `qvel` or
            an input holds a number that MuJoCo refuses.

        Raises:
            VariationError: an unknown field, or a shape that is not the field's.
            ModelError: a name in `inputs` is not in `Reads.inputs`, or is `qvel`.
        """
        if "qvel" in inputs:
            raise ModelError("a start sets its velocity by `qvel`; remove it from `inputs`")
        own, given = self.check_variation(variation), self._check_inputs(inputs)
        qpos, qvel = jnp.asarray(qpos), jnp.asarray(qvel)
        usable = acceptable(qpos, qvel, *given.values())
        qpos = jnp.where(usable, qpos, jnp.asarray(self.model.qpos0, qpos.dtype))
        qvel, given = jax.tree.map(lambda x: jnp.where(usable, x, jnp.zeros_like(x)), (qvel, given))
        state = self._begin(qpos, qvel, own, given, mask)
        return dataclasses.replace(state, diverged=state.diverged | ~usable)

    def step(
        self,
        state: PhysicsState,
        inputs: Mapping[str, Array],
        substeps: int,
        mask: ArrayLike = True,
    ) -> PhysicsState:
        """Advances a world by `substeps` physics steps (`mj_step`).

        Args:
            state: where the world is; its `variation` holds its constants.
            inputs: values of `INPUTS` to hold during the step, or of constants that vary in
                `state`, which the world has from now on; those not given stay as they are.
            substeps: physics steps to take, 1 or more.
            mask: `()` bool.

        Raises:
            ModelError: `substeps` is less than 1, or a name in `inputs` is not in `Reads.inputs`.
        """
        if substeps < 1:  # MuJoCo's batch would end the process
            raise ModelError(f"substeps is {substeps}; give 1 or more")
        constants = {name: x for name, x in inputs.items() if name in state.variation}
        varied = self.vary(state, {**state.variation, **constants}) if constants else state
        given = {name: x for name, x in inputs.items() if name not in constants}
        after = self._advance(varied, self._check_inputs(given), substeps, mask)
        if mask is True:
            return after
        return jax.tree.map(lambda new, old: jnp.where(mask, new, old), after, state)

    @abc.abstractmethod
    def _begin(
        self,
        qpos: Array,
        qvel: Array,
        variation: dict[str, Array],
        inputs: dict[str, Array],
        mask: ArrayLike,
    ) -> PhysicsState:
        """Starts a world, of checked arguments. An engine may ignore the mask."""

    @abc.abstractmethod
    def _advance(
        self, state: PhysicsState, inputs: dict[str, Array], substeps: int, mask: ArrayLike
    ) -> PhysicsState:
        """Steps a world, of checked arguments. An engine may ignore the mask.

        Where the step fails, the result is a valid state with `diverged`; see `unless_failed`.
        """

    def vary(self, state: PhysicsState, variation: Variation) -> PhysicsState:
        """Gives a world other constants from now on; its fields follow at the next step.

        Args:
            state: the world.
            variation: values of the fields that vary in `state`.

        Raises:
            VariationError: the fields are not those that vary, or a shape is wrong.
        """
        checked = self.check_variation(variation)
        if checked.keys() != state.variation.keys():
            raise VariationError(
                f"the world varies {sorted(state.variation)}, but the variation has "
                f"{sorted(checked)}; give the same fields"
            )
        return dataclasses.replace(state, variation=checked)

    def check_variation(self, variation: Variation) -> dict[str, Array]:
        """A variation as float32 arrays, after a check of its names and shapes.

        Raises:
            VariationError: an unknown field, a shape that is not the field's, or a field that this
                engine cannot vary.
        """
        return check_variation(self.model, variation)

    def _check_inputs(self, inputs: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """The inputs in MuJoCo's shapes, after a check of their names; switches are 0 or 1."""
        given = {n: jnp.asarray(x).reshape(self.input_shape(n)) for n, x in inputs.items()}
        if "eq_active" in given:
            given["eq_active"] = given["eq_active"].astype(bool).astype(jnp.float32)
        return given

    def input_shape(self, name: str) -> tuple[int, ...]:
        """The shape of one of `INPUTS`.

        Raises:
            ModelError: the name is not in `INPUTS`, or not in `Reads.inputs`.
        """
        shape = input_shape(self.model, name)
        if name not in self.reads.inputs:
            given = ", ".join(self.reads.inputs)
            raise ModelError(
                f"this physics was not made for the input {name!r}, only for {given}; make it with "
                "Reads(inputs=...)"
            )
        return shape


def check_variation(model: Model, variation: Variation) -> dict[str, Array]:
    """A variation as float32 arrays, after a check of its names and shapes.

    Axes and orientations get length 1, as MuJoCo's compiler makes them.

    Raises:
        VariationError: an unknown field, a shape that is not the field's, or a field that cannot
            vary in this model.
    """
    model.varying(variation)
    checked = {}
    for field in sorted(variation):
        shape = model.constant(field).shape
        value = jnp.asarray(variation[field], jnp.float32)
        if value.shape != shape:
            raise VariationError(
                f"the variation of {field!r} has shape {value.shape}; the model's has {shape}: "
                "give the whole field (B, ... in front only under vmap or Worlds)"
            )
        checked[field] = _of_length_one(value) if field in _DIRECTIONS else value
    return checked


def _of_length_one(rows: Array) -> Array:
    """Rows over their lengths; those that are of length 1, but for rounding, to the last bit."""
    squared = jnp.sum(rows**2, axis=-1, keepdims=True)
    off = (jnp.abs(squared - 1) > 1e-5) & (squared > 0)
    return jnp.where(off, rows / jnp.sqrt(jnp.where(off, squared, 1.0)), rows)


def input_shape(model: Model, name: str) -> tuple[int, ...]:
    """The shape of one of `INPUTS`.

    Raises:
        ModelError: the name is not in `INPUTS`.
    """
    if name not in INPUTS:
        raise ModelError(f"the physics has no input {name!r}{did_you_mean(name, INPUTS)}")
    return model.data_field(name)[0]


def picked(names: Iterable[str], fields: Mapping[str, Array]) -> dict[str, Array]:
    """The fields of these names."""
    return {name: fields[name] for name in names}


def acceptable(*arrays: Array) -> Array:
    """Whether all numbers are finite and of a size that MuJoCo accepts, `()` bool."""
    sound = [(jnp.abs(x) < _LARGEST).all() for x in arrays]  # NaN is not
    return jnp.stack(sound).all()


def unless_failed(stepped: PhysicsState, before: PhysicsState, failed: Array) -> PhysicsState:
    """The world after a step, or, where the step failed, the world before it with `diverged`."""
    after = jax.tree.map(lambda new, old: jnp.where(failed, old, new), stepped, before)
    return dataclasses.replace(after, diverged=failed)
