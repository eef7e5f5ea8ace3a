"""What the suite's tasks share: model files, observations in two forms, starts."""

from __future__ import annotations

import abc
import dataclasses
import functools
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.env.task import Outcome, Start, Task
from worldline.errors import MissingExtraError
from worldline.model import Model, ModelSource
from worldline.physics.base import PhysicsState
from worldline.tasks.rewards import tolerance
from worldline.tasks.suite.contacts import Contacts
from worldline.types import Array, ArrayLike, Key, Observation, PyTree

T = TypeVar("T")
TaskT = TypeVar("TaskT", bound="SuiteTask")

XML = ElementTree.Element

#: Installs dm_control where one of its own dependencies, which nothing here needs, has no wheel.
_ALONE = "pip install --no-deps dm-control" if sys.version_info >= (3, 13) else ""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SuiteTask(Task):
    """A task of the DeepMind Control Suite: a reward in [0, 1], 1000 steps, no termination.

    An action is the controls, in the actuators' ranges. Positions, velocities and their sensors are
    those of the state after the step; forces and touches those of the last physics step before it,
    as in dm_control.

    PPO has one configuration for all, in which every task sees two seconds ahead, and gives credit
    over half a second, whatever its control rate.
    """

    control_timestep: float
    """Seconds between two actions; a multiple of the model's time step."""
    flat_observation: bool = True
    """Observe one array; otherwise a dict of arrays, with dm_control's names."""

    defaults = {
        "ppo": {
            "num_worlds": 128,
            "minibatches": 32,
            "learning_rate": 5e-4,
            "target_kl": 0.01,  # with larger steps a walker falls again now and then
            "entropy_weight": 0.002,  # many rewards are rare: go on looking for them
            "advantage_floor": 0.1,  # without it a pole that stands falls again now and then
            "initial_log_std": 0.0,
            "actor_hidden": (128, 128),
            "critic_hidden": (128, 128),
            "activation": "swish",
        },
        "train": {"steps": 2_000_000},
    }

    file: ClassVar[str]
    """The MJCF file in the suite."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if isinstance(timestep := vars(cls).get("control_timestep"), float):
            own = vars(cls).get("defaults", {}).get("ppo", {})
            horizons = {"discount": 1 - timestep / 2.0, "gae_lambda": 1 - timestep / 0.5}
            ppo = {**cls.defaults.get("ppo", {}), **horizons, **own}
            cls.defaults = {**cls.defaults, "ppo": ppo}

    def mjcf(self) -> ModelSource:
        """The suite's model, as this task changes it."""
        root = read(self.file)
        self.edit(root)
        return ElementTree.tostring(root, "unicode")

    def edit(self, root: XML) -> None:
        """Changes the model's MJCF where the task needs another."""

    @functools.cached_property
    def _contacts(self) -> Contacts:
        return Contacts(self.model)

    def pose(self, key: Key) -> Array:
        """Draws the positions of a start, `qpos` of shape `(nq,)`; by default any of the model."""
        return random_joints(self.model, key)

    def start(self, key: Key) -> Start:
        """A pose at rest."""
        return self.at_rest(self.pose(key))

    def at_rest(self, qpos: Array, **more: Any) -> Start:
        """The start with positions `(nq,)` and no velocity; `more` are other fields of `Start`."""
        return Start(qpos=qpos, qvel=jnp.zeros(self.model.nv), **more)

    def features(self, physics: PhysicsState) -> dict[str, Array]:
        """The observation under dm_control's names, in its order; by default the whole state."""
        return {"position": physics.qpos, "velocity": physics.qvel}

    @abc.abstractmethod
    def reward(self, physics: PhysicsState, action: Array) -> Array:
        """What the state after a step is worth, in [0, 1], `()`."""

    def observe(self, physics: PhysicsState, memory: PyTree) -> Observation:
        """The features, joined into one array or by name."""
        features = self.features(physics)
        if self.flat_observation:
            return jnp.concatenate([jnp.ravel(value) for value in features.values()])
        return features

    def outcome(
        self, before: PhysicsState, action: Array, after: PhysicsState, memory: PyTree
    ) -> Outcome:
        """The reward; no state ends an episode."""
        return Outcome(reward=self.reward(after, action), terminated=jnp.asarray(False))

    def row(self, physics: PhysicsState, field: str, name: str) -> Array:
        """The row of an MjData field, such as `geom_xpos` or `xmat`, that belongs to an object."""
        return physics.fields[field][self.model.id(_kind(field), name)]

    def offset(self, physics: PhysicsState, field: str, origin: str, end: str) -> Array:
        """The vector from one object to another, `(3,)`, m; `field` is such as `geom_xpos`."""
        return self.row(physics, field, end) - self.row(physics, field, origin)

    def size(self, field: str, name: str) -> float:
        """The first size of an object, mostly its radius, m; `field` is such as `geom_size`."""
        return float(self.model.constant(field)[self.model.id(_kind(field), name), 0])

    def sensors(self, physics: PhysicsState, *names: str) -> Array:
        """The readings of some sensors, one after the other."""
        readings = physics.fields["sensordata"]
        return jnp.concatenate([readings[self.model.sensor(name)] for name in names])

    @property
    def camera(self) -> dict[str, str]:
        """The model's first camera."""
        return {"name": self.model.names("camera")[0]}


def variant(base: type[TaskT], name: str, what: str, **defaults: Any) -> type[TaskT]:
    """The class of a task that differs from another's in the defaults of some fields.

    Args:
        base: the class of the other task, in whose module this one is to be called `name`.
        name: of the class.
        what: says in its docstring what to do.
        defaults: the new defaults by field.
    """
    types = {field.name: field.type for field in dataclasses.fields(base)}
    cls = dataclasses.make_dataclass(
        name,
        [(field, types[field], default) for field, default in defaults.items()],
        bases=(base,),
        namespace={"__doc__": f"{what}; see `{base.__name__}`."},
        frozen=True,
        kw_only=True,
        eq=False,
    )
    cls.__module__ = base.__module__
    return cls


def read(file: str) -> XML:
    """An MJCF file of the suite, with the files that it includes put in their places.

    Raises:
        MissingExtraError: dm_control is not installed.
    """
    folder = _folder()
    root = ElementTree.parse(folder / file).getroot()
    for include in root.findall("include"):
        place = list(root).index(include)
        root.remove(include)
        for child in reversed(ElementTree.parse(folder / include.attrib["file"]).getroot()):
            root.insert(place, child)
    return root


def _folder() -> Path:
    """The suite's folder in the installed dm_control, found without importing it."""
    spec = importlib.util.find_spec("dm_control")
    if spec is None or not spec.submodule_search_locations:
        what = "the suite/* tasks load their models from dm_control, which"
        raise MissingExtraError(what, "suite", _ALONE)
    return Path(spec.submodule_search_locations[0]) / "suite"


def found(root: XML, path: str) -> XML:
    """The first element of a model at a path."""
    element = root.find(path)
    assert element is not None, f"the suite's model has no {path}"
    return element


def named(root: XML, tag: str, name: str) -> XML:
    """The element of a model with a tag and a name."""
    return found(root, f".//{tag}[@name='{name}']")


def remove(root: XML, tag: str, name: str) -> None:
    """Takes an element, and all in it, out of a model."""
    element = named(root, tag, name)
    parent = next(parent for parent in root.iter() if element in list(parent))
    parent.remove(element)


def joint_places(model: Model, *names: str) -> np.ndarray:
    """Where joints of one coordinate lie in `qpos`, `(n,)`."""
    return np.array([model.mj.jnt_qposadr[model.id("joint", name)] for name in names])


def _kind(field: str) -> str:
    """The kind of object that a row of a field belongs to: `geom` for `geom_xpos`."""
    kind, _, rest = field.partition("_")
    return kind if rest else "body"


def moved(model: Model, field: str, name: str, columns: Sequence[int], values: Array) -> Array:
    """A field of the model in which one object's row has other numbers in some columns.

    Args:
        model: the model.
        field: an MjModel field such as `geom_pos`.
        name: the object.
        columns: the columns to change, n of them.
        values: the numbers to put there, `(n,)`.
    """
    stored = jnp.asarray(model.constant(field), float)
    return stored.at[model.id(_kind(field), name), np.array(columns)].set(values)


def at_least(x: ArrayLike, bound: float, margin: float, value_at_margin: float = 0.0) -> Array:
    """1 where `x` is `bound` or more; below, less in proportion: `value_at_margin` at `margin`."""
    return tolerance(
        x, (bound, jnp.inf), margin=margin, value_at_margin=value_at_margin, sigmoid="linear"
    )


def small_control(action: Array) -> Array:
    """How small the controls are, `()`: 1 for none, 0 where all are 1 or more."""
    return tolerance(action, margin=1.0, value_at_margin=0.0, sigmoid="quadratic").mean()


def random_joints(model: Model, key: Key) -> Array:
    """The suite's usual start: every joint anywhere it can be, `qpos` of shape `(nq,)`.

    Hinges and slides with limits are uniform between them, and hinges without are uniform in a
    turn. Of a free joint, the orientation alone is drawn, from those with a quaternion of four
    positive numbers: so does dm_control, in order not to change its benchmark.
    """
    mj = model.mj
    low, high = (model.qpos0.copy() for _ in range(2))
    free = []
    for joint in range(mj.njnt):
        address = int(mj.jnt_qposadr[joint])
        if mj.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE:
            low[address + 3 : address + 7], high[address + 3 : address + 7] = 0.0, 1.0
            free.append(slice(address + 3, address + 7))
        elif mj.jnt_limited[joint]:
            low[address], high[address] = mj.jnt_range[joint]
        elif mj.jnt_type[joint] == mujoco.mjtJoint.mjJNT_HINGE:
            low[address], high[address] = -np.pi, np.pi
    qpos = jnp.asarray(low) + jax.random.uniform(key, (model.nq,)) * jnp.asarray(high - low)
    for quaternion in free:
        qpos = qpos.at[quaternion].set(unit(qpos[quaternion]))
    return qpos


def random_rotation(key: Key) -> Array:
    """A quaternion of a rotation, uniform over all, `(4,)`."""
    return unit(jax.random.normal(key, (4,)))


def touch_signal(force: Array) -> Array:
    """How the suite observes a touch: `log(1 + force)`, of forces that are not negative, N."""
    return jnp.log1p(jnp.maximum(force, 0.0))


def unit(vector: Array) -> Array:
    """A vector scaled to length 1."""
    return vector / jnp.linalg.norm(vector)


def first_accepted(
    key: Key,
    draw: Callable[[Key], T],
    accepted: Callable[[T], Array],
    inherit: Callable[[T, T], T] = lambda drawn, rejected: drawn,
) -> T:
    """Draws until a draw is accepted, and gives that: the distribution given acceptance.

    Args:
        key: consumed.
        draw: a draw from a key.
        accepted: whether to keep a draw, `()` bool.
        inherit: a draw, with what it takes over from the one rejected before it (at first zeros).
    """

    def again(last: tuple[Key, T, Array]) -> tuple[Key, T, Array]:
        following, now = jax.random.split(last[0])
        drawn = inherit(draw(now), last[1])
        return following, drawn, accepted(drawn)

    shapes = jax.eval_shape(draw, key)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    begin = (key, nothing, jnp.asarray(False))
    return jax.lax.while_loop(lambda last: ~last[2], again, begin)[1]
