"""Domain: how a world's constants are drawn at the start of an episode.

Domain randomisation after Tobin et al. (2017), "Domain randomization for transferring deep neural
networks from simulation to the real world". The parameters of its distributions are arrays in the
training state. When a curriculum changes them, nothing recompiles.

A domain says which fields it draws (`fields`). It does not draw the constants that MuJoCo derives
from them (`mj_setConst`: subtree masses, inverse weights, the positions of cameras and lights that
track a body): the engine computes them again whenever a world's constants change.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from worldline.errors import VariationError
from worldline.model import Model
from worldline.types import Array, Key, PyTree, Variation
from worldline.variation.distributions import Distribution, NDArray, text
from worldline.variation.effects import why_idle
from worldline.variation.limits import find_problem, has_rules
from worldline.variation.targets import Target, TargetLike, as_target

Operation: TypeAlias = Literal["scale", "add", "set"]

#: One target or several.
Targets: TypeAlias = "TargetLike | Sequence[TargetLike]"

#: Whether a term draws once for each object, or once for all of them.
Per: TypeAlias = Literal["object", "world"]

#: The parameters of what is drawn, by name of the term or feature: a pytree of arrays.
Ranges: TypeAlias = Mapping[str, PyTree]


class Constants(dict[str, Array]):
    """A world's constants by field: the drawn or set constants, otherwise the model's."""

    def __init__(self, model: Model, drawn: Variation) -> None:
        super().__init__(drawn)
        self._model = model

    def __missing__(self, field: str) -> Array:
        return jnp.asarray(self._model.constant(field), jnp.float32)


class AbstractDomain(abc.ABC):
    """Draws the constants of a world: a pure function of a key, the model and the ranges."""

    #: The parameters that training begins with.
    ranges: Ranges

    @abc.abstractmethod
    def __call__(
        self, key: Key, model: Model, ranges: Ranges, start: Variation | None = None
    ) -> Variation:
        """Draws the constants of one world, from those at the start and no earlier draw.

        Args:
            key: decides the draws.
            model: the model.
            ranges: the present parameters, in the structure of the attribute `ranges`.
            start: the constants that the task drew for the episode; the others are the model's.
        """

    @abc.abstractmethod
    def fields(self, model: Model) -> frozenset[str]:
        """The model fields that it draws."""

    @abc.abstractmethod
    def check(self, model: Model, ranges: Ranges | None = None) -> None:
        """Checks that the domain fits a model and cannot draw an impossible value.

        Args:
            model: the model.
            ranges: the parameters to check; None: the initial parameters.

        Raises:
            VariationError: an unknown field or object, a wrong shape, or an impossible value (a
                negative mass, an inertia that breaks the triangle inequality, a lower limit above
                the upper), with the field and the value; or a term that changes no simulation.
        """


@dataclasses.dataclass(frozen=True)
class Term:
    """A random change of one or several fields; `scale`, `add` and `set_` make it."""

    operation: Operation
    targets: tuple[Target, ...]
    distribution: Distribution
    per: Per
    name: str

    def draw(self, key: Key, model: Model, distribution: Distribution) -> Array:
        """The draws for one world: `(n, *shape)` for n objects, or `shape` with `per="world"`."""
        if self.per == "world":
            return distribution.sample(key)
        return distribution.sample(key, (len(self.targets[0].rows(model)),))

    def apply(self, target: Target, model: Model, value: Array, drawn: Array) -> Array:
        """The whole value of a target's field after this term's change."""
        rows = target.rows(model)
        single = target.is_option or not value.ndim
        table = value[None] if single else value
        old = table[rows]
        drawn = drawn[None] if self.per == "world" else drawn
        drawn = drawn.reshape(drawn.shape + (1,) * (old.ndim - drawn.ndim))
        new = _operate(self.operation, old, drawn)
        table = new if len(rows) == len(table) else table.at[rows].set(new)
        return table[0] if single else table

    def check(self, model: Model, distribution: Distribution) -> None:
        """Checks that the model has the targets and that the draws have a fitting shape."""
        for target in self.targets:
            shape = model.constant(target.field).shape
            element = shape if target.is_option else shape[1:]
            if distribution.shape not in ((), element):
                raise VariationError(
                    f"the term {self.name!r} draws numbers of shape {distribution.shape}; "
                    f"{target} takes one number or {element}"
                )
        counts = {str(target): len(target.rows(model)) for target in self.targets}
        if self.per == "object" and len(set(counts.values())) > 1:
            raise VariationError(
                f"the term {self.name!r} draws one number per object, but its targets have "
                f"{counts} objects; give targets of as many, or per='world'"
            )

    def why_idle(self, model: Model, earlier: Collection[str]) -> str:
        """Why none of its targets changes a simulation; empty if one may.

        Args:
            model: the model.
            earlier: the fields that earlier terms change.
        """
        reasons = []
        for target in self.targets:
            rows, value = target.rows(model), model.constant(target.field)
            zero = not np.any(value[rows] if value.ndim and not target.is_option else value)
            if self.operation == "scale" and zero and len(rows) and target.field not in earlier:
                reasons.append(f"{target} is zero, which has no multiples; use add or set_")
            else:
                reasons.append(why_idle(model, target.field, rows))
        return reasons[0] if all(reasons) else ""

    def touches(self, model: Model, field: str, row: int | None) -> bool:
        """Whether it changes a row of a field."""
        of_field = (target for target in self.targets if target.field == field)
        return any(row is None or row in target.rows(model) for target in of_field)


def scale(
    target: Targets, distribution: Distribution, *, per: Per = "object", name: str | None = None
) -> Term:
    """Multiplies fields by a draw.

    Args:
        target: an MjModel field (`"body_mass"` for every body), a field of an object
            (`body("torso").mass`), or several of these, which share their draws. `("body_mass",
            "body_inertia")` scales a body's mass and inertia together.
        distribution: distribution of the factor. With parameters of a row's shape (3 for a
            friction) it draws a factor for each element of a row, otherwise one factor for the row.
        per: `"object"`: one draw for each row; `"world"`: one for all rows.
        name: name of the range in `Domain.ranges`; by default made from the targets.
    """
    return _term("scale", target, distribution, per, name)


def add(
    target: Targets, distribution: Distribution, *, per: Per = "object", name: str | None = None
) -> Term:
    """Adds a draw to fields, in their own unit; the arguments are those of `scale`."""
    return _term("add", target, distribution, per, name)


def set_(
    target: Targets, distribution: Distribution, *, per: Per = "object", name: str | None = None
) -> Term:
    """Replaces fields by a draw, in their own unit; the arguments are those of `scale`."""
    return _term("set", target, distribution, per, name)


def _term(
    operation: Operation, target: Targets, distribution: Distribution, per: Per, name: str | None
) -> Term:
    several = isinstance(target, Sequence) and not isinstance(target, str)
    targets = tuple(as_target(t) for t in (target if several else (target,)))  # type: ignore[arg-type, union-attr]
    if not targets:
        raise VariationError(f"{operation} has no target; give a field's name")
    if not isinstance(distribution, Distribution):
        raise VariationError(
            f"{operation} of {targets[0]} has {distribution!r} in place of a distribution; "
            "give Uniform(low, high) or another"
        )
    if per not in ("object", "world"):
        raise VariationError(f"per is {per!r}; there are 'object' and 'world'")
    label = name or "+".join("/".join((t.field, *t.patterns)) for t in targets)
    return Term(operation, targets, distribution, per, label)


class Domain(AbstractDomain):
    """A sequence of terms: `Domain(scale("body_mass", Uniform(0.8, 1.2)), ...)`.

    Args:
        parts: terms, or domains, which contribute their terms. Each term changes the result of the
            term before it.

    Raises:
        VariationError: two terms have the same name.
    """

    def __init__(self, *parts: Term | Domain) -> None:
        terms: list[Term] = []
        for part in parts:
            terms += part.terms if isinstance(part, Domain) else [part]
        self.terms: tuple[Term, ...] = tuple(terms)
        names = [term.name for term in terms]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise VariationError(f"two terms are called {twice[0]!r}; give one of them a name=")
        self.ranges: dict[str, PyTree] = {term.name: term.distribution for term in terms}

    def __call__(
        self, key: Key, model: Model, ranges: Ranges, start: Variation | None = None
    ) -> Variation:
        """The constants of one world."""
        constants = Constants(model, start or {})
        for term, term_key in zip(self.terms, jax.random.split(key, len(self.terms)), strict=True):
            drawn = term.draw(term_key, model, ranges[term.name])
            for target in term.targets:
                constants[target.field] = term.apply(target, model, constants[target.field], drawn)
        return {field: constants[field] for field in sorted(self.fields(model))}

    def fields(self, model: Model) -> frozenset[str]:
        """The model fields that its terms change."""
        return frozenset(target.field for term in self.terms for target in term.targets)

    def check(self, model: Model, ranges: Ranges | None = None) -> None:
        """Checks the terms, and the most extreme models that they can draw."""
        model.varying(self.fields(model))
        ranges = self.ranges if ranges is None else ranges
        for index, term in enumerate(self.terms):
            term.check(model, ranges[term.name])
            earlier = {target.field for other in self.terms[:index] for target in other.targets}
            if why := term.why_idle(model, earlier):
                raise VariationError(f"the term {term.name!r} changes nothing: {why}")
        for field in sorted(filter(has_rules, self.fields(model))):
            for value in self._extremes(field, model, ranges):
                if problem := find_problem(model, field, value):
                    names = [t.name for t in self.terms if t.touches(model, field, problem.row)]
                    spans = ", ".join(f"{name!r} {_span(ranges[name])}" for name in names)
                    raise VariationError(
                        f"among the domain's draws {field} {problem.text}; narrow {spans}"
                    )

    def _extremes(self, field: str, model: Model, ranges: Ranges) -> NDArray:
        """Values of a field `(n, *shape)` that include the extremes of each row.

        Every operation is affine in each draw, and every rule is about the elements of one row. So
        of the values that a row can have after a term, only those that are extreme in some
        direction are kept for the next term: two for each direction, however many terms there are.
        """
        stored = np.array(model.constant(field), np.float64)
        table = stored[None] if field.startswith("opt.") else stored
        rows, size = len(table), table[0].size
        directions = _directions(size)
        kept = np.repeat(table.reshape(rows, 1, size), 2 * len(directions), axis=1)
        for term in self.terms:
            corners = np.stack(list(ranges[term.name].corners()))
            corners = corners.reshape(len(corners), -1)
            for target in term.targets:
                if target.field != field:
                    continue
                chosen = target.rows(model)
                moved = _operate(term.operation, kept[chosen][:, :, None], corners)
                moved = moved.reshape(len(chosen), -1, size)
                reach = moved @ directions.T
                ends = np.concatenate([reach.argmin(axis=1), reach.argmax(axis=1)], axis=1)
                kept[chosen] = np.take_along_axis(moved, ends[:, :, None], axis=1)
        return np.moveaxis(kept, 1, 0).reshape(-1, *stored.shape)

    def __repr__(self) -> str:
        return f"Domain({', '.join(self.ranges)})"


class CustomDomain(AbstractDomain):
    """A domain from your own function.

    Args:
        function: `(key, model, ranges) -> variation`, pure. It returns whole fields, which replace
            those that the task draws.
        ranges: its parameters, a dict of arrays or distributions.
    """

    def __init__(
        self, function: Callable[[Key, Model, Any], Variation], ranges: Ranges | None = None
    ) -> None:
        self._function = function
        self.ranges = dict(ranges or {})

    def __call__(
        self, key: Key, model: Model, ranges: Ranges, start: Variation | None = None
    ) -> Variation:
        """The constants of one world."""
        return self._function(key, model, ranges)

    def fields(self, model: Model) -> frozenset[str]:
        """The fields that the function returns."""
        drawn = jax.eval_shape(lambda key: self(key, model, self.ranges), jax.random.key(0))
        return frozenset(drawn)

    def check(self, model: Model, ranges: Ranges | None = None) -> None:
        """Checks a hundred draws, because the extreme values of a function are not known."""
        model.varying(self.fields(model))
        ranges = self.ranges if ranges is None else ranges
        keys = jax.random.split(jax.random.key(0), 100)
        drawn: Variation = jax.device_get(jax.vmap(lambda key: self(key, model, ranges))(keys))
        for field, values in drawn.items():
            shape = model.constant(field).shape
            if values.shape[1:] != shape:
                raise VariationError(
                    f"the domain draws a {field} of shape {values.shape[1:]}; the model's is "
                    f"{shape}: give the whole field"
                )
            table = values[:, None] if field.startswith("opt.") else values
            drawn_rows = np.flatnonzero((table != table[:1]).any(axis=(0, *range(2, table.ndim))))
            if len(drawn_rows) and (why := why_idle(model, field, drawn_rows)):
                raise VariationError(f"the domain's draws of {field} change nothing: {why}")
            for value in values:
                if problem := find_problem(model, field, value):
                    raise VariationError(f"the domain draws a {field} that {problem.text}")


def as_domain(domain: AbstractDomain | Callable[[Key, Model, Any], Variation]) -> AbstractDomain:
    """The domain itself, or the domain of a function `(key, model, ranges) -> variation`."""
    return domain if isinstance(domain, AbstractDomain) else CustomDomain(domain)


def _operate(operation: Operation, old: Any, drawn: Any) -> Any:
    """The values of a field after an operation with a draw, which is broadcast over them."""
    match operation:
        case "scale":
            return old * drawn
        case "add":
            return old + drawn
        case "set":
            return 0 * old + drawn


def _directions(size: int) -> NDArray:
    """Directions in which a row can break a rule, `(n, size)`, one of each opposite pair.

    They are the elements, and in rows of up to three also sums and differences of them.
    """
    if size > 3:
        return np.eye(size)
    signs = itertools.product((0, 1, -1), repeat=size)
    return np.array([each for each in signs if next(filter(None, each), 0) > 0], np.float64)


def _span(distribution: PyTree) -> str:
    low, high = distribution.support()
    return f"(now {text(low)} to {text(high)})"
