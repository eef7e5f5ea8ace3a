"""Worlds that differ from those of training: friction, mass, and the delay of actions."""

from __future__ import annotations

from typing import Any

import worldline
from worldline.env.disturb import ActionDelay
from worldline.variation.distributions import Uniform
from worldline.variation.domain import Domain, scale, set_
from worldline.variation.targets import geom

#: Sliding friction of the ground.
FRICTION = (0.3, 0.6, 0.9, 1.2)
#: Factors of all masses.
MASS = (0.7, 1.3)
#: Of actions, s.
DELAY = 0.04


def shifts(env: worldline.Env) -> dict[str, tuple[worldline.Env, Domain | None]]:
    """By name the environment, and the domain that its episodes are drawn from, if any."""
    model = env.model
    found: dict[str, tuple[worldline.Env, Any]] = {"as published": (env, None)}
    sliding = model.constant("geom_friction")[model.id("geom", "floor")]
    for value in FRICTION:
        whole = [value, *(float(x) for x in sliding[1:])]
        domain = Domain(set_(geom("floor").friction, Uniform(whole, whole), name="friction"))
        found[f"friction {value:g}"] = env, domain
    for factor in MASS:
        domain = Domain(scale("body_mass", Uniform(factor, factor), name="mass"))
        found[f"mass x {factor:g}"] = env, domain
    steps = round(DELAY / env.control_timestep)
    late = worldline.Env(env.task, disturbances=(ActionDelay(steps=steps),))
    found[f"delay {DELAY:g} s"] = late, None
    return found
