"""Presets: domains for any model, with three widths."""

from __future__ import annotations

import dataclasses

import numpy as np

from worldline.model import Model
from worldline.variation.distributions import LogUniform
from worldline.variation.domain import Domain, scale
from worldline.variation.effects import friction_fields, why_idle
from worldline.variation.targets import actuator_strength


@dataclasses.dataclass(frozen=True)
class Width:
    """The largest factor on each constant: 1.25 draws factors from 1 / 1.25 to 1.25."""

    mass: float
    """Mass and inertia of each body."""
    friction: float
    """Friction of all surfaces together."""
    damping: float
    """Damping of each degree of freedom."""
    strength: float
    """Strength of each actuator."""


#: The presets. Two robots of one make differ as in `light`; a careful model differs from its robot
#: as in `medium`; a policy for unknown robots should bear `hard`.
WIDTHS = {
    "light": Width(mass=1.1, friction=1.25, damping=1.25, strength=1.05),
    "medium": Width(mass=1.3, friction=2.0, damping=2.0, strength=1.2),
    "hard": Width(mass=1.8, friction=4.0, damping=4.0, strength=1.5),
}


def presets(model: Model) -> dict[str, Domain]:
    """The domains `light`, `medium` and `hard`: masses, friction, damping and actuator strength.

    Factors are drawn log-uniformly, so a factor of 2 and a factor of 1/2 are equally likely. A
    field that is zero in the model stays zero and is not drawn.
    """
    return {name: _of_width(model, width) for name, width in WIDTHS.items()}


def _of_width(model: Model, width: Width) -> Domain:
    terms = [scale(("body_mass", "body_inertia"), _factor(width.mass), name="mass")]
    if fields := friction_fields(model):
        terms.append(scale(fields, _factor(width.friction), per="world", name="friction"))
    damping = model.constant("dof_damping")
    if np.any(damping != 0) and not why_idle(model, "dof_damping", damping):
        terms.append(scale("dof_damping", _factor(width.damping), name="damping"))
    if fields := actuator_strength(model):
        terms.append(scale(fields, _factor(width.strength), name="strength"))
    return Domain(*terms)


def _factor(most: float) -> LogUniform:
    return LogUniform(1 / most, most)
