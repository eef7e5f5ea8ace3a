"""The system of a Brax or Playground environment as a model, whose fields have paths.

`"opt.viscosity"`, `"body_mass"` and `"link.inertia.mass"` are paths into `env.sys`, or into
`env.mjx_model`. A copy of the environment gets the system with other values; its author need not
have thought of it.
"""

from __future__ import annotations

import copy
import functools
import traceback
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.errors import ConfigError, ModelError, VariationError, did_you_mean
from worldline.model import Model
from worldline.types import Array, NDArray, PyTree

#: Where environments keep their system: Brax's, and MuJoCo Playground's.
_PLACES = ("sys", "_mjx_model")

#: What Brax and Playground wrap an environment in to train in it.
_FOR_TRAINING = frozenset(
    (
        "AutoResetWrapper", "BraxAutoResetWrapper", "BraxDomainRandomizationVmapWrapper",
        "BraxEvalWrapper", "DomainRandomizationVmapWrapper", "EpisodeWrapper", "EvalWrapper",
        "MadronaWrapper", "VmapWrapper",
    )
)  # fmt: skip

#: The words of a key as Brax's environments take it, `jax.random.PRNGKey`.
KEY_WORDS = 2


class SystemModel(Model):
    """What tasks, domains and engines ask of a model, of an environment.

    The environment draws its starts itself, so that a start chooses no configuration: `nq` and `nv`
    are 0. `mj` is the model that it was made of, or an empty one.

    Args:
        env: the environment: `reset(rng) -> State`, `step(state, action) -> State`, `action_size`.

    Raises:
        ConfigError: the environment is wrapped for training, or observes a dict in a dict.
    """

    of_mujoco = False

    def __init__(self, env: Any) -> None:
        _check_not_for_training(env)
        super().__init__(_mujoco_model(env))
        self.env = env
        self.nq = self.nv = self.na = 0
        self.nu = int(env.action_size)
        self._place = next((place for place in _PLACES if hasattr(env, place)), "")
        self._timestep = float(getattr(env, "dt", 1.0))
        first = self._checked()
        #: What a task may read of a state: `reward`, `done`, `obs` or `obs/<part>`, and
        #: `metrics/<name>`, with their shapes and dtypes.
        self.readings = _specs(readings(first))
        qpos, _ = coordinates(first) or (jnp.zeros(0), None)
        self.drawable = qpos.shape == (self.mj.nq,) != (0,)
        self._idle: dict[str, bool] = {}

    @property
    def system(self) -> Any:
        """The environment's own system.

        Raises:
            VariationError: it has none.
        """
        if not self._place:
            raise VariationError(
                f"{type(self.env).__name__} has no `sys` and no `mjx_model`, so no field can vary; "
                "leave out domain and variation"
            )
        return getattr(self.env, self._place)

    @property
    def timestep(self) -> float:
        """Seconds of a step of the environment; 1 where it does not say."""
        return self._timestep

    @functools.cached_property
    def qpos0(self) -> NDArray:
        """Nothing, `(0,)`."""
        return np.zeros(0, np.float32)

    @functools.cached_property
    def ctrlrange(self) -> NDArray:
        """-1 and 1, `(nu, 2)` float32: an environment brings them to its actuators' ranges."""
        return np.tile(np.array([-1, 1], np.float32), (self.nu, 1))

    def data_field(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """The shape and dtype of a reading; of the control, or of the words of the first key; or of
        the configuration that is drawn.

        Raises:
            ModelError: an environment has no such number.
        """
        inputs: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
            "ctrl": ((self.nu,), np.dtype(np.float32)),
            "userdata": ((KEY_WORDS,), np.dtype(np.uint32)),
            "qpos": ((self.mj.nq,), np.dtype(np.float64)),
        }
        found = self.readings.get(name) or inputs.get(name)
        if found is None:
            hint = did_you_mean(name, (*self.readings, *inputs))
            raise ModelError(f"{type(self.env).__name__} has no number {name!r}{hint}")
        return found

    def constant(self, field: str) -> NDArray:
        """The system's own value of a field.

        Args:
            field: its path.

        Raises:
            VariationError: there is no such field, or it is no array of real numbers.
        """
        parts, value = field.split("."), self.system
        for depth, part in enumerate(parts):
            if not hasattr(value, part):
                at = ".".join(parts[:depth]) or "the system"
                hint = did_you_mean(part, getattr(value, "__dataclass_fields__", {}))
                raise VariationError(f"{field!r}: {at} has no field {part!r}{hint}")
            value = getattr(value, part)
        dtype = getattr(value, "dtype", np.dtype(type(value) if np.isscalar(value) else object))
        if getattr(dtype, "kind", "") != "f":
            raise VariationError(
                f"{field!r} is {type(value).__name__}; give a path to real numbers"
            )
        return np.asarray(value)

    def varying(self, fields: Iterable[str]) -> SystemModel:
        """This model, after a check that the environment reads the fields.

        Raises:
            VariationError: there is no such field, or neither `reset` nor `step` reads it.
        """
        for field in fields:
            if field not in self._idle:
                self._idle[field] = not self._reads(field)
            if self._idle[field]:
                backend = getattr(self.env, "backend", None)
                raise VariationError(
                    f"{type(self.env).__name__} does not read {field!r} of its system in a step"
                    + (f" on the backend {backend!r}" if backend else "")
                    + "; give a field that its simulation reads"
                )
        return self

    def environment(self, constants: Mapping[str, Array]) -> Any:
        """The environment with other constants; the one that was given stays as it is."""
        if not constants:
            return self.env
        return _with_system(self.env, self._place, _replaced(self.system, constants))

    def _checked(self) -> Any:
        """The shapes of a first state, after `reset` and `step` have been traced once.

        Raises:
            ConfigError: the environment's own code fails, or a step gives other numbers.
        """
        key = jax.ShapeDtypeStruct((KEY_WORDS,), jnp.uint32)
        action = jax.ShapeDtypeStruct((self.nu,), jnp.float32)
        try:
            first = jax.eval_shape(self.env.reset, key)
            after = jax.eval_shape(self.env.step, first, action)
        except Exception as error:
            raise ConfigError(_own_fault(self.env, error)) from error
        before, now = (_specs(readings(state)) for state in (first, after))
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) != now.get(name):
                raise ConfigError(
                    f"{type(self.env).__name__} returns {name!r} as {before.get(name)} in reset, "
                    f"but as {now.get(name)} in step; return the same shape and dtype"
                )
        return first

    def _reads(self, field: str) -> bool:
        """Whether the result of `reset` or of `step` depends on a field."""
        key = jax.ShapeDtypeStruct((KEY_WORDS,), jnp.uint32)
        action = jax.ShapeDtypeStruct((self.nu,), jnp.float32)

        def begin(value: Array, key: Array) -> PyTree:
            return self.environment({field: value}).reset(key)

        def step(value: Array, state: PyTree, action: Array) -> PyTree:
            return self.environment({field: value}).step(state, action)

        value = self.constant(field)
        first = jax.eval_shape(self.env.reset, key)
        try:
            return _depends(step, value, first, action) or _depends(begin, value, key)
        except jax.errors.ConcretizationTypeError as error:
            raise VariationError(
                f"{field!r} cannot vary: the program of {type(self.env).__name__} depends on it"
            ) from error

    def __repr__(self) -> str:
        return f"SystemModel({type(self.env).__name__})"


def readings(state: Any) -> dict[str, Any]:
    """The numbers of a state of Brax or Playground by name, as in `SystemModel.readings`.

    Raises:
        ConfigError: it observes a dict in a dict.
    """
    named = {"reward": state.reward, "done": state.done}
    if isinstance(state.obs, Mapping):
        if nested := [name for name, part in state.obs.items() if isinstance(part, Mapping)]:
            raise ConfigError(
                f"the observation {nested[0]!r} is a dict in a dict; give a dict of arrays"
            )
        named |= {f"obs/{name}": part for name, part in state.obs.items()}
    else:
        named["obs"] = state.obs
    return named | {f"metrics/{name}": value for name, value in state.metrics.items()}


def coordinates(state: Any) -> tuple[Any, Any] | None:
    """The configuration and the velocity in a state of Brax or Playground; None: there are none."""
    for part, names in (("pipeline_state", ("q", "qd")), ("data", ("qpos", "qvel"))):
        physics: Any = getattr(state, part, None)
        if all(hasattr(physics, name) for name in names):
            return getattr(physics, names[0]), getattr(physics, names[1])
    return None


def _specs(named: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shapes and dtypes by name; real numbers and flags as float32, but for observations."""
    return {
        name: (tuple(value.shape), np.dtype(value.dtype if name[:3] == "obs" else np.float32))
        for name, value in named.items()
    }


def _check_not_for_training(env: Any) -> None:
    layer = env
    while layer is not None:
        name = type(layer).__name__
        if name in _FOR_TRAINING:
            raise ConfigError(
                f"the environment is wrapped for training ({name}) and resets its own episodes; "
                "give env.unwrapped, since worlds reset theirs"
            )
        layer = vars(layer).get("env") if hasattr(layer, "__dict__") else None
    missing = [name for name in ("reset", "step", "action_size") if not hasattr(env, name)]
    if missing:
        raise ConfigError(
            f"{type(env).__name__} has no {missing[0]!r}; give an environment of Brax or Playground"
        )


def _own_fault(env: Any, error: Exception) -> str:
    """Says where an environment's own code fails, and with which versions."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/jax/" not in frame.filename] or frames
    versions = [f"{name} {metadata.version(name)}" for name in ("brax", "jax") if _there(name)]
    place = f"at line {own[-1].lineno} of {own[-1].filename}"
    if isinstance(error, jax.errors.TracerArrayConversionError):
        return (
            f"{type(env).__name__} computes with NumPy, {place}, which JAX cannot compile; write "
            "jax.numpy there, or give a Gymnasium vector of it to ExternalWorlds"
        )
    return (
        f"{type(env).__name__} fails in its own code, {place} "
        f"({type(error).__name__}: {str(error).splitlines()[0]}), with "
        f"{' and '.join(versions)}; try another backend, or versions that go together"
    )


def _there(distribution: str) -> bool:
    return any(metadata.distributions(name=distribution))


def _mujoco_model(env: Any) -> mujoco.MjModel:
    """The model that an environment was made of; an empty one where it was made of none."""
    own = getattr(getattr(env, "sys", None), "mj_model", None)
    found = getattr(env, "mj_model", None) if own is None else own
    if isinstance(found, mujoco.MjModel):
        return found
    return mujoco.MjModel.from_xml_string("<mujoco/>")


def _with_system(env: Any, place: str, system: Any) -> Any:
    """A copy of an environment, and of its wrappers, with another system."""
    changed = copy.copy(env)
    if place in vars(env):
        setattr(changed, place, system)
    else:
        changed.env = _with_system(env.env, place, system)
    return changed


def _replaced(system: Any, constants: Mapping[str, Array]) -> Any:
    """The system with other values at some paths."""

    def put(node: Any, parts: list[str], value: Array) -> Any:
        first, *rest = parts
        below = put(getattr(node, first), rest, value) if rest else value
        return node.replace(**{first: below})

    return functools.reduce(
        lambda node, item: put(node, item[0].split("."), item[1]), constants.items(), system
    )


def _depends(function: Any, value: NDArray, *others: Any) -> bool:
    """Whether the result of a function depends on its first argument; nothing is computed.

    Under `vmap` a result has an axis of its own exactly if it does, and without one asked for,
    that is an error.
    """
    two = jax.ShapeDtypeStruct((2, *value.shape), jnp.float32)
    try:
        axes = (0, *(None for _ in others))
        jax.eval_shape(jax.vmap(function, in_axes=axes, out_axes=None), two, *others)
    except ValueError as error:
        if "out_axes" not in str(error):
            raise
        return True
    return False
