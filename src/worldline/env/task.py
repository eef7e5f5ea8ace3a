"""Task: a model, its observation and its reward, as pure functions for every engine."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.env.mirror import Symmetry
from worldline.env.parts import ActionPart, ObservationParts
from worldline.errors import TaskError
from worldline.model import Model, ModelSource
from worldline.physics.base import (
    INPUTS,
    PhysicsState,
    Reads,
    blank_state,
    check_variation,
    input_shape,
)
from worldline.settings import Number
from worldline.types import Array, Key, Metrics, Observation, PyTree, Variation, in_32_bits
from worldline.variation.domain import AbstractDomain, Ranges
from worldline.variation.presets import presets


class Start(eqx.Module):
    """Where an episode begins."""

    qpos: Array
    """Configuration, `(nq,)`."""
    qvel: Array
    """Velocity, `(nv,)`."""
    memory: PyTree = ()
    """The task's own state during the episode: a target, a command, a key. Its structure, shapes
    and dtypes never change."""
    inputs: dict[str, Array] = eqx.field(default_factory=dict)
    """Initial values of other physics inputs, such as `act` or `mocap_pos`."""
    variation: dict[str, Array] = eqx.field(default_factory=dict)
    """Constants of the model that the task draws for the episode (a target's position, a length): a
    dict from MjModel field name to the whole field. A variation passed to `reset` replaces them,
    field by field."""
    settle_time: float = eqx.field(static=True, default=0.0)
    """Seconds that the physics runs from `qpos` and `qvel`, with `inputs`, before the episode
    begins. The episode begins at time 0 in the resulting state. It must be a multiple of the
    model's time step."""


class Outcome(eqx.Module):
    """The result of a control step."""

    reward: Array
    """`()`"""
    terminated: Array
    """`()` bool: the task ends the episode here (a fall, a goal), and no more reward follows. A
    time limit is not such an end; `Worlds` reports it as `truncated`."""
    memory: PyTree = ()
    """The memory after the step."""
    metrics: Metrics = eqx.field(default_factory=dict)
    """Metrics by name, `()` each."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Task(abc.ABC):
    """A task: its fields are its configuration, its methods are pure functions of one world.

    No function calls an engine or stores state; state that lasts goes into `memory`. The functions
    are written for one world with `jax.numpy`; `Worlds` maps them over many.

    A subclass is a frozen dataclass (`@dataclass(frozen=True, kw_only=True, eq=False)`) that
    defines `mjcf`, `control_timestep` (a field or a property), `start`, `observe` and `outcome`.
    """

    episode_length: Number = 1000
    """Control steps after which an episode is truncated; 0 for no limit."""

    refresh: ClassVar[bool] = True
    """Whether `fields` are computed again from the state after the step. False: they are those that
    MuJoCo's `mj_step` returns, one time step of the model behind the state."""
    control_at_physics_rate: ClassVar[bool] = False
    """Whether `control` is called before each time step of the model, with the current state of the
    world, for your own motor or servo. By default it is called once per control step. `outcome` and
    the memory always have the rate of the actions. If `control` must remember numbers between two
    physics steps, it returns them as `userdata` and reads them from `physics.fields`."""
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Configuration values that suit this task, by the name of the algorithm (`"ppo"`)."""

    def __getstate__(self) -> dict[str, Any]:
        # Copies and pickles hold the configuration; what follows from it is computed again.
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @property
    @abc.abstractmethod
    def control_timestep(self) -> float:
        """Seconds between two actions: a multiple of the model's time step."""

    @property
    def fields(self) -> tuple[str, ...]:
        """MjData fields, such as `xpos`, that the task reads from `physics.fields`."""
        return ()

    @property
    def changes(self) -> tuple[str, ...]:
        """Names among `qpos`, `xpos` and `xipos`: `outcome` reads their changes over the control
        step from `physics.changes`. The changes are exact at any distance from the origin.
        """
        return ()

    @abc.abstractmethod
    def mjcf(self) -> ModelSource:
        """The model: a path, MJCF text, an MjSpec or a compiled MjModel."""

    @functools.cached_property
    def model(self) -> Model:
        """The compiled model."""
        return Model(self.mjcf())

    @abc.abstractmethod
    def start(self, key: Key) -> Start:
        """Draws the start of an episode."""

    def place(self, start: Start, variation: Variation) -> Start:
        """The start in a world with these constants; by default the drawn start.

        Args:
            start: what `start` drew.
            variation: the constants of the world that differ from the model's, `(...)` for each
                field: those of the task, or those of a domain or a context, which replace them.
        """
        return start

    @property
    def start_ranges(self) -> Ranges:
        """Arrays by name from which starts are drawn, and which `adapt` changes. All worlds share
        them, as part of their `ranges`. By default there are none.
        """
        return {}

    def start_within(self, key: Key, ranges: Ranges) -> Start:
        """Draws the start of an episode with the ranges of the worlds; by default `start(key)`.

        Args:
            key: decides the draws.
            ranges: the worlds' ranges, with the current values of `start_ranges`.
        """
        return self.start(key)

    def tally(self, memory: PyTree, terminated: Array) -> PyTree:
        """The numbers that a world contributes in a step, for `adapt`; by default none.

        Args:
            memory: the memory after the step.
            terminated: whether the task ended the episode in it, `()` bool.
        """
        return ()

    def adapt(self, ranges: Ranges, total: PyTree) -> Ranges:
        """The `start_ranges` after a step of all worlds; by default there are none.

        Args:
            ranges: as in `start_within`.
            total: the sum of `tally` over all worlds. On several devices the order of the sum
                varies, so use integers to keep runs exact.
        """
        return {}

    def control(
        self, action: Array, physics: PhysicsState, memory: PyTree
    ) -> Array | dict[str, Array]:
        """The inputs of the physics for an action; by default the action is the control.

        Args:
            action: `(nact,)`, from the policy.
            physics: the world before the step.
            memory: the task's memory.

        Returns:
            `ctrl`, `(nu,)`, or a dict from input names (`ctrl`, `xfrc_applied`, `eq_active`, ...)
            to arrays; `qvel` sets the velocity at the beginning of the step, for example after a
            push. The dict may also hold constants that `start` draws, for example the `eq_data` of
            a weld; the world keeps them.
        """
        return action

    @abc.abstractmethod
    def observe(self, physics: PhysicsState, memory: PyTree) -> Observation:
        """The observation: an array `(nobs,)`, or a flat dict of arrays."""

    @abc.abstractmethod
    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: PyTree
    ) -> Outcome:
        """The reward and the other results of the step from `before` to `after` with `action`."""

    @property
    def action_bounds(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Lowest and highest action, `(nact,)` each; by default the actuators' control ranges."""
        low, high = self.model.ctrlrange.T
        return low, high

    @property
    def observation_parts(self) -> ObservationParts:
        """The meaning of each number of the observation: for each key (`state`, if the observation
        is an array), the parts in order, with name, unit and source. By default nothing is
        declared.
        """
        return {}

    @property
    def action_parts(self) -> tuple[ActionPart, ...]:
        """The meaning of each number of the action, in order. By default nothing is declared."""
        return ()

    @property
    def symmetry(self) -> Symmetry | None:
        """What becomes of observation and action where left and right are exchanged, of a task that
        is then the same; by default nothing is said. `left_right(self)` derives it from the model
        and the parts.
        """
        return None

    def without_noise(self) -> Task:
        """The same task without the noise that it adds to measurements."""
        return self

    def to_run(self) -> Task:
        """The task that an environment runs: by default this task, or a task around it if an option
        needs one.
        """
        return self

    @property
    def plain(self) -> Task:
        """The task from which `to_run` made this task; by default this task."""
        return self

    @property
    def domains(self) -> Mapping[str, AbstractDomain]:
        """Domains to train this task over, by name: by default `light`, `medium` and `hard`."""
        return presets(self.model)

    @property
    def camera(self) -> Mapping[str, Any]:
        """The view in videos: attributes of `mujoco.MjvCamera` (`distance`, `azimuth`, `elevation`,
        `lookat`, `trackbodyid`), or `{"name": ...}` for a camera of the model.
        """
        return {}


def reads_of(task: Task) -> Reads:
    """The fields that a task reads of the physics; its inputs may be any."""
    return Reads(tuple(task.fields), tuple(task.changes), task.refresh)


def inputs_of(
    task: Task, action: Array, physics: PhysicsState, memory: PyTree
) -> Mapping[str, Array]:
    """The result of `Task.control`, always as a dict from input names to arrays."""
    controls = task.control(action, physics, memory)
    return controls if isinstance(controls, Mapping) else {"ctrl": controls}


class TaskSpecs(NamedTuple):
    """Inputs and results of the functions of a task; arrays are `jax.ShapeDtypeStruct`s."""

    reads: Reads
    """The fields of the physics that it reads, and the inputs that it sets."""
    obs: Any
    """The observation."""
    metrics: dict[str, Any]
    """The metrics of an outcome."""
    constants: tuple[str, ...]
    """The fields of the model that `control` sets."""


def check_task(task: Task) -> TaskSpecs:
    """Traces the functions of a task once, and checks the shapes of their results.

    Raises:
        TaskError: a function returns another type, shape or structure than `Task` requires.
        ModelError: the task reads a field or sets an input that MuJoCo does not have.
    """
    name, model, reads = type(task).__name__, task.model, reads_of(task)
    start = jax.eval_shape(lambda key: in_32_bits(task.start(key)), jax.random.key(0))
    if not isinstance(start, Start):
        raise TaskError(f"{name}.start returns a {type(start).__name__}; it must return a Start")
    _check_shape(f"{name}.start", "qpos", start.qpos, (model.nq,))
    _check_shape(f"{name}.start", "qvel", start.qvel, (model.nv,))
    for field, value in start.inputs.items():
        _check_shape(f"{name}.start", field, value, input_shape(model, field))

    def first_step(key: Key, action: Array) -> tuple[Mapping[str, Array], Outcome, Any, Any]:
        begin = in_32_bits(task.start(key))
        physics = blank_state(model, reads, check_variation(model, begin.variation))
        inputs = inputs_of(task, action, physics, begin.memory)
        outcome: object = task.outcome(physics, action, physics, begin.memory)
        if not isinstance(outcome, Outcome):
            given = type(outcome).__name__
            raise TaskError(f"{name}.outcome returns a {given}; it must return an Outcome")
        outcome = in_32_bits(outcome)
        memories = (begin.memory, outcome.memory)
        first, second = (in_32_bits(task.observe(physics, m)) for m in memories)
        return inputs, outcome, first, second

    action = jax.ShapeDtypeStruct(np.shape(task.action_bounds[0]), jnp.float32)
    inputs, outcome, first, second = jax.eval_shape(first_step, jax.random.key(0), action)
    constants = tuple(field for field in inputs if field in start.variation)
    for field, value in inputs.items():
        own = field in constants
        wanted = model.constant(field).shape if own else input_shape(model, field)
        _check_shape(f"{name}.control", field, value, wanted)
    for part in ("reward", "terminated"):
        shape = np.shape(getattr(outcome, part))
        if shape != ():
            raise TaskError(
                f"{name}.outcome returns a {part} of shape {shape}; it must be a scalar"
            )
    before, after = specs_of(start.memory), specs_of(outcome.memory)
    if after != before:
        raise TaskError(
            f"{name}.outcome changes the memory's structure from {before} to {after}; it must keep "
            "the shapes and dtypes of `start`"
        )
    if specs_of(first) != specs_of(second):
        raise TaskError(
            f"{name}.observe first returns {specs_of(first)}, later {specs_of(second)}; it must "
            "always return the same shapes and dtypes"
        )
    _check_adapting(task, start.memory)
    given = tuple(field for field in INPUTS if field in {**start.inputs, **inputs})
    return TaskSpecs(dataclasses.replace(reads, inputs=given), first, outcome.metrics, constants)


def _check_adapting(task: Task, memory: PyTree) -> None:
    """Checks that `adapt` keeps the structure, shapes and dtypes of `start_ranges`."""
    ranges = {name: jnp.asarray(value) for name, value in task.start_ranges.items()}
    if not ranges:
        return
    terminated = jax.ShapeDtypeStruct((), bool)
    after = jax.eval_shape(lambda *x: task.adapt(ranges, task.tally(*x)), memory, terminated)
    if specs_of(after) != specs_of(ranges):
        raise TaskError(
            f"{type(task).__name__}.adapt changes the ranges from {specs_of(ranges)} to "
            f"{specs_of(after)}; it must keep the names, shapes and dtypes of `start_ranges`"
        )


def _check_shape(function: str, part: str, value: Any, wanted: tuple[int, ...]) -> None:
    shape = np.shape(value)
    if shape != wanted:
        raise TaskError(f"{function} returns {part} of shape {shape}; the model needs {wanted}")


def specs_of(tree: PyTree) -> Any:
    """The structure, shapes and dtypes of a tree, to compare and to print."""
    return jax.tree.map(lambda x: f"{jnp.result_type(x)}{list(np.shape(x))}", tree)
