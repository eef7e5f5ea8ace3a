"""Finds impossible values of a model's constants, for example negative masses."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from worldline.model import Model
from worldline.variation.distributions import NDArray, text
from worldline.variation.effects import LIMITS
from worldline.variation.targets import FIELD_PREFIXES

_NOT_NEGATIVE = frozenset((
    "actuator_armature", "actuator_damping", "dof_armature", "dof_damping", "dof_frictionloss",
    "geom_friction", "geom_margin", "jnt_stiffness", "opt.density", "opt.viscosity",
    "pair_friction", "tendon_armature", "tendon_damping", "tendon_frictionloss", "tendon_stiffness",
))  # fmt: skip

#: Positive wherever the model has a positive value.
_POSITIVE = frozenset(("body_inertia", "body_mass", "geom_size", "opt.impratio", "opt.timestep"))


class Problem(NamedTuple):
    """An impossible value."""

    row: int | None
    """The row of the field; None for an option of the whole model."""
    text: str
    """What is wrong: `"of 'torso' is -0.2; it must be positive"`."""


def has_rules(field: str) -> bool:
    """Whether some values of a field are impossible."""
    return field in _NOT_NEGATIVE or field in _POSITIVE or field in LIMITS


def may_be_negative(field: str) -> bool:
    """Whether a field may hold numbers below zero."""
    return field not in _NOT_NEGATIVE and field not in _POSITIVE


def find_problem(model: Model, field: str, value: Any) -> Problem | None:
    """The first element or row of a field's whole value that is impossible; None if none is."""
    value = np.asarray(value, np.float64)
    for bad, rule in _broken_rules(model, field, value):
        if bad.any():
            return _describe(model, field, value, bad, rule)
    return None


def _broken_rules(model: Model, field: str, value: NDArray) -> list[tuple[NDArray, str]]:
    """For each rule of a field, a mask of the elements or rows that break it, and its words."""
    rules = [(~np.isfinite(value), "must be finite")]
    if field in _NOT_NEGATIVE:
        rules.append((value < 0, "must not be negative"))
    if field in _POSITIVE:
        rules.append(((value <= 0) & (model.constant(field) > 0), "must be positive"))
    if field == "body_inertia":
        largest = value.max(axis=-1)
        bad = largest > (value.sum(axis=-1) - largest) * (1 + 1e-5)
        rule = "must keep the triangle inequality: no moment may exceed the sum of the other two"
        rules.append((bad, rule))
    if field in LIMITS:
        in_force = np.asarray(getattr(model.mj, LIMITS[field]), bool)
        bad = (value[..., 0] >= value[..., 1]) & in_force
        rules.append((bad, "must have its lower limit below its upper limit"))
    return rules


def _describe(model: Model, field: str, value: NDArray, bad: NDArray, rule: str) -> Problem:
    """The first bad element or row, and the rule that it breaks."""
    where = tuple(int(i) for i in np.argwhere(bad)[0])
    shown = text(value[where])
    if not where or field.startswith("opt."):
        return Problem(None, f"is {shown}; it {rule}")
    # The first prefix of a kind: rows of the others, such as `dof_`, are not its objects.
    kinds = (k for k, prefixes in FIELD_PREFIXES.items() if field.startswith(prefixes[0]))
    kind = next(kinds, None)
    names = model.control_names if field == "actuator_ctrlrange" else model.names(kind or "body")
    name = names[where[0]] if kind else ""
    row = repr(name) if name else f"row {where[0]}"
    return Problem(where[0], f"of {row} is {shown}; it {rule}")
