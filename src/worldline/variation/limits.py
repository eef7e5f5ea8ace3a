"""Which values of a model's constants no body can have: negative masses, crossed limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from worldline.model import Model
from worldline.variation.distributions import text

NDArray = np.ndarray[Any, Any]

_NOT_NEGATIVE = frozenset(
    (
        "actuator_armature",
        "actuator_damping",
        "dof_armature",
        "dof_damping",
        "dof_frictionloss",
        "geom_friction",
        "geom_margin",
        "jnt_stiffness",
        "opt.density",
        "opt.viscosity",
        "pair_friction",
        "tendon_armature",
        "tendon_damping",
        "tendon_frictionloss",
        "tendon_stiffness",
    )
)

#: Positive wherever the model has a positive value.
_POSITIVE = frozenset(("body_inertia", "body_mass", "geom_size", "opt.impratio", "opt.timestep"))

#: A lowest and a highest value, and the field that says whether they are in force.
_LIMITS = {
    "actuator_actrange": "actuator_actlimited",
    "actuator_ctrlrange": "actuator_ctrllimited",
    "actuator_forcerange": "actuator_forcelimited",
    "jnt_actfrcrange": "jnt_actfrclimited",
    "jnt_range": "jnt_limited",
    "tendon_actfrcrange": "tendon_actfrclimited",
    "tendon_range": "tendon_limited",
}

#: Fields whose rows carry a name, by prefix.
_KINDS = {
    "actuator_": "actuator",
    "body_": "body",
    "geom_": "geom",
    "jnt_": "joint",
    "tendon_": "tendon",
}


def has_rules(field: str) -> bool:
    """Whether some values of a field are impossible."""
    return field in _NOT_NEGATIVE or field in _POSITIVE or field in _LIMITS


def inconsistency(model: Model, variation: Mapping[str, NDArray]) -> tuple[str, str] | None:
    """The first value of a concrete variation that no world can have.

    Returns:
        The field, and what is wrong with its value (`"of 'torso' is -0.2; it must be positive"`);
        None where all is well.
    """
    for field, value in variation.items():
        complaint = _complaint(model, field, np.asarray(value, np.float64))
        if complaint is not None:
            return field, complaint
    return None


def _complaint(model: Model, field: str, value: NDArray) -> str | None:
    if not np.isfinite(value).all():
        return _say(model, field, value, ~np.isfinite(value), "must be finite")
    if field in _NOT_NEGATIVE and (value < 0).any():
        return _say(model, field, value, value < 0, "must not be negative")
    if field in _POSITIVE:
        bad = (value <= 0) & (model.constant(field) > 0)
        if bad.any():
            return _say(model, field, value, bad, "must be positive")
    if field == "body_inertia":
        largest = value.max(axis=-1)
        bad = largest > (value.sum(axis=-1) - largest) * (1 + 1e-5)
        if bad.any():
            rule = "must keep the triangle inequality: no moment above the sum of the other two"
            return _say(model, field, value, bad, rule)
    if field in _LIMITS:
        in_force = np.asarray(getattr(model.mj, _LIMITS[field]), bool)
        bad = (value[..., 0] >= value[..., 1]) & in_force
        if bad.any():
            return _say(model, field, value, bad, "must have its lower limit below the upper one")
    return None


def _say(model: Model, field: str, value: NDArray, bad: NDArray, rule: str) -> str:
    """The first bad element or row, and the rule it breaks."""
    where = tuple(np.argwhere(bad)[0])
    shown = text(value[where])
    if not where:
        return f"is {shown}; it {rule}"
    kind = next((kind for prefix, kind in _KINDS.items() if field.startswith(prefix)), None)
    name = model.names(kind)[where[0]] if kind else ""
    return f"of {repr(name) if name else f'row {where[0]}'} is {shown}; it {rule}"
