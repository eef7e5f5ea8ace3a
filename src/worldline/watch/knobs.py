"""Knobs: numbers of a world's physics that a person may turn, and the constants they lead to."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from worldline.env.env import Env
from worldline.errors import VariationError
from worldline.model import Model
from worldline.variation.context import Feature, features_of
from worldline.variation.domain import AbstractDomain, Constants, Domain, Term
from worldline.variation.limits import find_problem, has_rules

NDArray: TypeAlias = np.ndarray[Any, Any]

#: The highest values to offer of features that are 0 in most models, in their units.
_HIGHEST = {"viscosity": 1.0, "density": 1000.0}


@dataclasses.dataclass(frozen=True)
class Knob:
    """One number of a world, such as its gravity, with what it changes."""

    name: str
    """Its name among the knobs: `context/gravity`, `domain/mass`, `field/geom_friction[2,0]`."""
    nominal: float
    """The value at which the world has the model's constants."""
    low: float
    """The lowest value to offer."""
    high: float
    """The highest value to offer."""
    unit: str
    """`"m/s^2"`; `"x"` for a factor; `""` for a pure number."""
    source: Feature | Term | tuple[str, int, int]
    """What it moves: a feature of the context, a term of a domain, or an element of a field: its
    name, the row, and the place in the row."""
    observed: bool = False
    """Whether the environment has it in its context, where a policy may see it."""

    @property
    def label(self) -> str:
        """The name without the group that it belongs to."""
        return self.name.partition("/")[2]

    @property
    def group(self) -> str:
        """`context`, `domain` or `field`."""
        return self.name.partition("/")[0]


class Knobs:
    """The knobs of B worlds: their values, and the variation and context that follow.

    A knob at its nominal value changes nothing: untouched worlds have the model's constants, as
    numbers of 32 bits.

    Args:
        env: the environment.
        num_worlds: B.
        domains: whose ranges to offer; of two of one name the wider.
    """

    def __init__(self, env: Env, num_worlds: int, domains: Sequence[AbstractDomain] = ()) -> None:
        self.env, self.model = env, env.model
        self.num_worlds = num_worlds
        drawn = jax.eval_shape(env.task.start, jax.random.key(0)).variation
        #: Fields that the task draws by itself, which no knob touches.
        self._own = frozenset(drawn)
        knobs = [*_of_domains(env.model, domains), *_of_context(env)]
        usable = [k for k in knobs if k.observed or not self._own.intersection(self._fields(k))]
        self.knobs = {knob.name: knob for knob in usable}
        self._nominal = {name: knob.nominal for name, knob in self.knobs.items()}
        #: The value of each knob in each world, `(B,)`.
        self.values = {n: np.full(num_worlds, v) for n, v in self._nominal.items()}
        free = (knob for knob in self.knobs.values() if not knob.observed)
        #: The fields of the model that vary.
        self.fields = sorted({field for knob in free for field in self._fields(knob)})
        self._constants = [self._nominal_constants() for _ in range(num_worlds)]

    @property
    def variation(self) -> dict[str, NDArray]:
        """The constants of all worlds, `(B, ...)` a field."""
        return {f: np.stack([own[f] for own in self._constants]) for f in self.fields}

    @property
    def context(self) -> dict[str, NDArray]:
        """The context of all worlds, `(B,)` a feature."""
        own = {k.label: self.values[n] for n, k in self.knobs.items() if k.observed}
        return {name: np.asarray(values, np.float32) for name, values in own.items()}

    def set(self, name: str, value: float | NDArray, worlds: Iterable[int] | None = None) -> None:
        """Turns a knob.

        Args:
            name: of the knob.
            value: the new value; or one for each of the worlds.
            worlds: which; None: all.

        Raises:
            VariationError: there is no such knob, or the model cannot have this value.
        """
        if name not in self.knobs:
            raise VariationError(f"there is no knob {name!r}")
        chosen = list(range(self.num_worlds) if worlds is None else worlds)
        before = self.values[name].copy()
        self.values[name][chosen] = value
        try:
            if not np.isfinite(self.values[name]).all():
                raise VariationError(f"{name} is {value}; give a finite number")
            made = {world: self._made(world) for world in chosen}
        except VariationError:
            self.values[name] = before
            raise
        for world, constants in made.items():
            self._constants[world] = constants

    def spread(self, name: str) -> None:
        """Gives the worlds even values of a knob, from its lowest to its highest."""
        knob = self.knobs[name]
        self.set(name, np.linspace(knob.low, knob.high, self.num_worlds))

    def draw(self, seed: int) -> None:
        """Draws the knobs of the domains within their ranges, for each world by itself."""
        random = np.random.default_rng(seed)
        for name, knob in self.knobs.items():
            if knob.group == "domain":
                self.set(name, random.uniform(knob.low, knob.high, self.num_worlds))

    def reset(self, worlds: Iterable[int] | None = None) -> None:
        """Gives worlds the model's physics again; None: all of them."""
        chosen = list(range(self.num_worlds) if worlds is None else worlds)
        for name, nominal in self._nominal.items():
            self.values[name][chosen] = nominal
        for world in chosen:
            self._constants[world] = self._nominal_constants()

    def add_field(self, field: str, row: int, element: int) -> Knob:
        """A new knob for an element of any real field of the model.

        Args:
            field: such as `dof_damping` or `opt.gravity`.
            row: the object's number; 0 for a field of MjOption.
            element: the place in the row, which is flat.

        Raises:
            VariationError: there is no such field or element, the task draws it, or this model
                cannot vary it.
        """
        table = _as_table(self.model.constant(field), field)
        if field in self._own:
            raise VariationError(f"the task draws {field!r} itself")
        if not (0 <= row < table.shape[0] and 0 <= element < table.shape[1]):
            raise VariationError(f"{field!r} has {table.shape[0]} rows of {table.shape[1]} numbers")
        self.model.varying([field])
        nominal = float(table[row, element])
        low, high = _around(nominal)
        label = f"{field}[{row},{element}]" if table.shape[1] > 1 else f"{field}[{row}]"
        knob = Knob(f"field/{label}", nominal, low, high, "", (field, row, element))
        self.knobs[knob.name] = knob
        self._nominal[knob.name] = nominal
        self.values.setdefault(knob.name, np.full(self.num_worlds, nominal))
        if field not in self.fields:
            self.fields = sorted([*self.fields, field])
            for own in self._constants:
                own[field] = np.array(self.model.constant(field), np.float32)
        return knob

    def _nominal_constants(self) -> dict[str, NDArray]:
        return {field: np.array(self.model.constant(field), np.float32) for field in self.fields}

    def _made(self, world: int) -> dict[str, NDArray]:
        """The constants of a world: domains first, then features, then single elements."""
        constants = Constants(self.model, {})
        turned = (k for n, k in self.knobs.items() if self.values[n][world] != k.nominal)
        for knob in turned:
            if not knob.observed:
                _apply(self.model, knob, float(self.values[knob.name][world]), constants)
        for field in filter(has_rules, constants):
            if problem := find_problem(self.model, field, np.asarray(constants[field])):
                raise VariationError(f"{field} {problem.text}")
        return {field: np.asarray(constants[field], np.float32) for field in self.fields}

    def _fields(self, knob: Knob) -> frozenset[str]:
        """The fields that a knob changes."""
        constants = Constants(self.model, {})
        _apply(self.model, knob, knob.high, constants)
        return frozenset(constants)


def _apply(model: Model, knob: Knob, value: float, constants: Constants) -> None:
    """Changes constants as a knob at a value does."""
    source = knob.source
    if isinstance(source, Feature):
        constants.update(source.drive(model, constants, np.float32(value)))  # type: ignore[arg-type] # NumPy's does
    elif isinstance(source, Term):
        for target in source.targets:
            lead = () if source.per == "world" else (len(target.rows(model)),)
            drawn = np.full((*lead, *source.distribution.shape), value, np.float32)
            field = target.field
            constants[field] = source.apply(target, model, constants[field], drawn)  # type: ignore[arg-type]
    else:
        field, row, element = source
        table = np.array(constants[field], np.float32)
        _as_table(table, field)[row, element] = value
        constants[field] = table  # type: ignore[assignment]


def _as_table(value: NDArray, field: str) -> NDArray:
    """A field as rows of numbers, a view: one row for a field of MjOption."""
    return value.reshape(1, -1) if field.startswith("opt.") else value.reshape(len(value), -1)


def _of_context(env: Env) -> Iterator[Knob]:
    """The features of the environment's context, and the others that the model offers."""
    trained = env.context.features(env.model)
    for name, feature in {**features_of(env.model), **trained}.items():
        low, high = _range_of(feature)
        observed = name in trained
        yield Knob(f"context/{name}", feature.default, low, high, feature.unit, feature, observed)


def _range_of(feature: Feature) -> tuple[float, float]:
    """A feature's bounds, or where they are infinite a range around its default."""
    low, high = _around(feature.default)
    if feature.name in _HIGHEST:
        high = max(high, _HIGHEST[feature.name])
    if feature.name.startswith("mass_"):  # the engine cannot balance what weighs next to nothing
        low = 0.2 * feature.default
    low = feature.low if math.isfinite(feature.low) and feature.low > low else low
    return low, min(high, feature.high)


def _around(value: float) -> tuple[float, float]:
    """A range for a number of which only the present value is known."""
    if value == 0:
        return -1.0, 1.0
    return (0.0, 3 * value) if value > 0 else (2.5 * value, 0.0)


def _of_domains(model: Model, domains: Sequence[AbstractDomain]) -> Iterator[Knob]:
    """A knob for each term of the domains; of those of one name the widest."""
    widest: dict[str, tuple[float, float, Term]] = {}
    for domain in domains:
        for term in domain.terms if isinstance(domain, Domain) else ():
            ends: Mapping[str, Any] = domain.ranges
            low, high = (float(np.min(end)) for end in ends[term.name].support())
            if term.name not in widest or high - low > widest[term.name][1] - widest[term.name][0]:
                widest[term.name] = low, high, term
    for name, (low, high, term) in widest.items():
        match term.operation:
            case "scale":
                nominal, unit = 1.0, "x"
            case "add":
                nominal, unit = 0.0, "added"
            case "set":
                rows = term.targets[0].rows(model)
                stored = _as_table(model.constant(term.targets[0].field), term.targets[0].field)
                nominal, unit = float(np.mean(stored[rows])), ""
        span = (min(low, nominal), max(high, nominal))
        yield Knob(f"domain/{name}", nominal, *span, unit, term)
