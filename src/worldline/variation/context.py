"""Contexts: named numbers of a world, such as gravity, each of which sets fields of the model.

Contextual reinforcement learning after Benjamins et al. (2023), "Contextualize me: the case for
context in reinforcement learning" (CARL): a policy is trained in some contexts (gravity from -12 to
-8) and evaluated in others. It may observe the context or not.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from worldline.errors import VariationError, did_you_mean
from worldline.model import Model
from worldline.types import Array, ArrayLike, Key, Variation
from worldline.variation.distributions import Choice, Distribution
from worldline.variation.domain import Constants, Ranges
from worldline.variation.effects import may_touch, touches
from worldline.variation.targets import actuator_strength
from worldline.variation.tiles import Tiles, moved

if TYPE_CHECKING:
    from gymnasium import spaces

#: A world's context: feature name to its value, `()` each.
Values: TypeAlias = Mapping[str, Array]

#: Gives the fields that follow from a feature's value: `(model, constants, value) -> fields`, where
#: `constants` has the present value of every field of the world.
Drive: TypeAlias = Callable[[Model, Constants, Array], dict[str, Array]]


@dataclasses.dataclass(frozen=True)
class Feature:
    """One named number of a world, and the model fields that it sets.

    The engine then computes the constants again that MuJoCo derives from those fields
    (`mj_setConst`).
    """

    name: str
    default: float
    """Its value in the unchanged model."""
    low: float
    """Lowest meaningful value."""
    high: float
    """Highest meaningful value."""
    unit: str
    """`"m/s^2"`, `"kg"`; `""` for a pure number."""
    drive: Drive
    """Returns the fields for a value."""

    def check(self, values: ArrayLike) -> None:
        """Raises an error for values outside the bounds.

        Raises:
            VariationError: with the value and the bounds.
        """
        array = np.asarray(values, np.float64)
        bad = ~((array >= self.low) & (array <= self.high))
        if bad.any():
            raise VariationError(
                f"the context {self.name!r} is {array[bad].flat[0]:g}; give {self.low:g} to "
                f"{self.high:g} {self.unit}".rstrip()
            )


def features_of(model: Model) -> dict[str, Feature]:
    """The context features of a model, by name.

    `gravity`, `viscosity`, `density`, `friction`, `elasticity`, `joint_damping`, `joint_stiffness`,
    `actuator_strength`, and `mass_<body>` for every body with a name. A model has only the features
    that change something in it. A model without MuJoCo's fields has none.
    """
    if not model.of_mujoco:
        return {}
    mj = model.mj
    features = [
        Feature("gravity", float(mj.opt.gravity[2]), -math.inf, math.inf, "m/s^2", _gravity),
        Feature("viscosity", float(mj.opt.viscosity), 0.0, math.inf, "Pa s", _option("viscosity")),
        Feature("density", float(mj.opt.density), 0.0, math.inf, "kg/m^3", _option("density")),
    ]
    touching = may_touch(model)
    if touches(model):
        frictions = (mj.geom_friction[touching, 0], mj.pair_friction[:, 0])
        friction = float(np.concatenate(frictions).max())
        features.append(Feature("friction", friction, 0.0, math.inf, "", _friction))
        ratio = np.concatenate((mj.geom_solref[touching, 1], mj.pair_solref[:, 1])).max()
        if ratio > 0:  # otherwise stiffness and damping are given directly
            elasticity = float(np.interp(ratio, _RATIOS, _RESTITUTIONS))
            low, high = float(_RESTITUTIONS[-1]), float(_RESTITUTIONS[0])
            features.append(Feature("elasticity", elasticity, low, high, "", _elasticity))
    factors = {
        "joint_damping": ("dof_damping",),
        "joint_stiffness": ("jnt_stiffness",),
        "actuator_strength": actuator_strength(model),
    }
    for name, fields in factors.items():
        if any((model.constant(field) != 0).any() for field in fields):
            features.append(Feature(name, 1.0, 0.0, math.inf, "", _factor(fields)))
    if tiles := Tiles.of(mj):
        for axis, (name, count) in enumerate(
            {"terrain_level": tiles.levels, "terrain_kind": tiles.kinds}.items()
        ):
            features.append(Feature(name, 0.0, 0.0, float(count), "", _tile(axis)))
    for index, body in enumerate(model.names("body")):
        if body and mj.body_mass[index] > 0:
            mass = float(mj.body_mass[index])
            features.append(Feature(f"mass_{body}", mass, 1e-12, math.inf, "kg", _mass(index)))
    return {feature.name: feature for feature in features}


def _tile(axis: int) -> Drive:
    """Puts the world on the tile of a level (0) or of a kind (1) of its terrain."""
    return lambda model, constants, value: {"site_pos": moved(model.mj, constants, axis, value)}


def _gravity(_: Model, constants: Constants, value: Array) -> dict[str, Array]:
    """Sets the gravity along z."""
    return {"opt.gravity": constants["opt.gravity"].at[2].set(value)}


def _option(name: str) -> Drive:
    return lambda _, __, value: {f"opt.{name}": value}


def _friction(model: Model, constants: Constants, value: Array) -> dict[str, Array]:
    """Sets the sliding friction of every geom and pair, and so that of every contact."""
    return _of_contacts(model, constants, "friction", slice(1), slice(2), value)


def _of_contacts(
    model: Model, constants: Constants, name: str, geoms: slice, pairs: slice, value: Array
) -> dict[str, Array]:
    """Sets columns of a field of geoms, and of the same field of pairs if the model has any."""
    fields = {"geom": geoms, "pair": pairs} if model.mj.npair else {"geom": geoms}
    return {
        (field := f"{kind}_{name}"): constants[field].at[:, columns].set(value)
        for kind, columns in fields.items()
    }


def _restitution(ratio: float) -> float:
    """The coefficient of restitution of a contact with a damping ratio.

    The contact is a spring and a damper that push but never pull, so that it ends where the force
    is zero: Schwager and Poeschel (2007), "Coefficient of restitution and linear-dashpot model
    revisited", section 3.
    """
    if ratio < 1:
        s = math.sqrt(1 - ratio**2)
        phase = math.atan2(2 * ratio * s, 2 * ratio**2 - 1)
        speed = math.cos(phase) - ratio / s * math.sin(phase)
    else:
        s = math.sqrt(ratio**2 - 1)
        phase = math.atanh(2 * ratio * s / (ratio**2 + s**2))
        speed = math.cosh(phase) - ratio / s * math.sinh(phase)
    return abs(speed) * math.exp(-ratio / s * phase)


#: Damping ratios, and their coefficients of restitution, from 1 down.
_RATIOS = np.linspace(1e-3, 5.0, 800)
_RESTITUTIONS = np.array([_restitution(ratio) for ratio in _RATIOS])


def _elasticity(model: Model, constants: Constants, value: Array) -> dict[str, Array]:
    """Sets the coefficient of restitution of contacts, by the damping ratio of geoms and pairs."""
    grid = (jnp.asarray(x[::-1], jnp.float32) for x in (_RESTITUTIONS, _RATIOS))
    ratio, column = jnp.interp(value, *grid), slice(1, 2)
    return _of_contacts(model, constants, "solref", column, column, ratio)


def _factor(fields: Iterable[str]) -> Drive:
    return lambda _, constants, value: {field: constants[field] * value for field in fields}


def _mass(index: int) -> Drive:
    """Sets a body's mass, and its inertia in proportion: a denser body of the same shape."""

    def drive(_: Model, constants: Constants, value: Array) -> dict[str, Array]:
        mass, inertia = constants["body_mass"], constants["body_inertia"]
        return {
            "body_mass": mass.at[index].set(value),
            "body_inertia": inertia.at[index].multiply(value / mass[index]),
        }

    return drive


class Context:
    """The context features of an environment, and which of them the policy observes.

    Args:
        features: names from `features_of(model)`, or your own `Feature`s.
        visible: the names of the features that the observation holds under `context`, in this
            order; None: all.

    Raises:
        VariationError: a visible feature is not among `features`.
    """

    def __init__(
        self, features: Iterable[str | Feature], visible: Iterable[str] | None = None
    ) -> None:
        #: The argument `features`: names, and `Feature`s of one's own.
        self.requested = tuple(features)
        self.names = tuple(f if isinstance(f, str) else f.name for f in self.requested)
        self.visible = self.names if visible is None else tuple(visible)
        for name in self.visible:
            if name not in self.names:
                hint = did_you_mean(name, self.names)
                raise VariationError(f"the context has no visible feature {name!r}{hint}")

    def features(self, model: Model) -> dict[str, Feature]:
        """The features by name.

        Raises:
            VariationError: the model has no feature of this name.
        """
        offered = features_of(model)
        found = {}
        for feature in self.requested:
            if isinstance(feature, Feature):
                found[feature.name] = feature
            elif feature in offered:
                found[feature] = offered[feature]
            else:
                hint = did_you_mean(feature, offered)
                raise VariationError(f"the model offers no context feature {feature!r}{hint}")
        return found

    def complete(self, model: Model, values: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """The value of every feature as float32: from `values`, or its default.

        Raises:
            VariationError: there is no such feature; or, outside of `jit`, a value is not within
                its bounds.
        """
        features = self.features(model)
        for name, value in values.items():
            if name not in features:
                hint = did_you_mean(name, features)
                raise VariationError(
                    f"the environment has no context feature {name!r}{hint}; give it to "
                    "Env(context=...)"
                )
            if not isinstance(value, jax.core.Tracer):
                features[name].check(value)
        return {
            name: jnp.asarray(values.get(name, feature.default), jnp.float32)
            for name, feature in features.items()
        }

    def variation(self, model: Model, values: Values, drawn: Variation) -> dict[str, Array]:
        """A world's constants: the drawn constants, overridden by those that the context sets."""
        constants = Constants(model, drawn)
        for name, feature in self.features(model).items():
            constants.update(feature.drive(model, constants, values[name]))
        return dict(constants)

    def seen(self, values: Values) -> Array:
        """The values of the visible features, `(nvisible,)`, in each feature's unit."""
        return jnp.stack([values[name] for name in self.visible])

    def space(self, model: Model) -> spaces.Dict:
        """The values that features may have, a `gymnasium.spaces.Dict` of float32."""
        from gymnasium import spaces

        return spaces.Dict(
            {
                name: spaces.Box(np.float32(feature.low), np.float32(feature.high), (), np.float32)
                for name, feature in self.features(model).items()
            }
        )

    def __repr__(self) -> str:
        return f"Context({', '.join(self.names)})"


class Selector(abc.ABC):
    """Chooses the context of each episode: a pure function."""

    #: The parameters of the choice, by feature: a pytree of arrays.
    ranges: Ranges

    @abc.abstractmethod
    def __call__(self, key: Key, episode_index: Array, ranges: Ranges) -> dict[str, Array]:
        """The features' values for an episode, `()` each; a feature left out has its default.

        Args:
            key: a key of this episode's own.
            episode_index: the number of the episode, `()` int32: i + n * B in world i after n
                episodes.
            ranges: the present parameters, in the structure of the attribute `ranges`.
        """

    def support(self) -> Mapping[str, Any]:
        """The extreme values of each feature, to check against the features' bounds."""
        return {}


class Draw(Selector):
    """Draws each feature for each episode: `Draw({"gravity": Uniform(-12, -8)})`.

    Args:
        distributions: a distribution for each feature, or a number for a constant value.

    Raises:
        VariationError: a distribution of vectors.
    """

    def __init__(self, distributions: Mapping[str, Distribution | float]) -> None:
        self.ranges = {
            name: value if isinstance(value, Distribution) else Choice([value])
            for name, value in distributions.items()
        }
        for name, distribution in self.ranges.items():
            if distribution.shape != ():
                raise VariationError(
                    f"the context {name!r} is drawn with shape {distribution.shape}; a feature is "
                    "one number"
                )

    def __call__(self, key: Key, episode_index: Array, ranges: Ranges) -> dict[str, Array]:
        """The features' values for an episode."""
        keys = jax.random.split(key, len(self.ranges))
        return {name: ranges[name].sample(k) for name, k in zip(self.ranges, keys, strict=True)}

    def support(self) -> Mapping[str, Any]:
        """The extremes of each feature."""
        return {name: np.stack(d.support()) for name, d in self.ranges.items()}


class _Listed(Selector):
    """Chooses from a list of contexts.

    Args:
        contexts: values of each feature, as many of each, such as
            `{"gravity": [-9.8, -5.0], "friction": [1.0, 0.5]}`.

    Raises:
        VariationError: the features have different numbers of values, or there are none.
    """

    def __init__(self, contexts: Mapping[str, Sequence[float]]) -> None:
        self.ranges = {name: jnp.asarray(v, jnp.float32) for name, v in contexts.items()}
        shapes = {values.shape for values in self.ranges.values()}
        if len(shapes) != 1 or len(shape := shapes.pop()) != 1 or shape[0] == 0:
            found = {name: values.shape for name, values in self.ranges.items()}
            raise VariationError(f"contexts of shapes {found}; give as many values a feature")
        self._count = shape[0]

    @abc.abstractmethod
    def _index(self, key: Key, episode_index: Array) -> Array:
        """The index in the list of an episode's context, `()` int32."""

    def __call__(self, key: Key, episode_index: Array, ranges: Ranges) -> dict[str, Array]:
        index = self._index(key, episode_index)
        return {name: ranges[name][index] for name in self.ranges}

    def support(self) -> Mapping[str, Any]:
        return self.ranges


class RoundRobin(_Listed):
    """Takes the contexts of a list one after the other."""

    def _index(self, key: Key, episode_index: Array) -> Array:
        return episode_index % self._count


class Random(_Listed):
    """Draws a context from a list, each with the same probability."""

    def _index(self, key: Key, episode_index: Array) -> Array:
        return jax.random.randint(key, (), 0, self._count)


class Custom(Selector):
    """A selector from your own function.

    Args:
        function: `(key, episode_index, ranges) -> values`, pure.
        ranges: its parameters, a dict of arrays.
    """

    def __init__(
        self,
        function: Callable[[Key, Array, Any], dict[str, Array]],
        ranges: Ranges | None = None,
    ) -> None:
        self._function = function
        self.ranges = dict(ranges or {})

    def __call__(self, key: Key, episode_index: Array, ranges: Ranges) -> dict[str, Array]:
        """The features' values for an episode."""
        return self._function(key, episode_index, ranges)


def as_selector(context: Selector | Mapping[str, Distribution | float]) -> Selector:
    """The selector itself, or `Draw` of a mapping: `{"gravity": -3.7}` is one context for all."""
    return context if isinstance(context, Selector) else Draw(context)
