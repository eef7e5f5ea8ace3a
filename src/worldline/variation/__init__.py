"""Variation: how the physics of every world is drawn, and its names."""

from worldline.variation.context import (
    Context,
    Custom,
    Draw,
    Feature,
    Random,
    RoundRobin,
    Selector,
    features_of,
)
from worldline.variation.distributions import (
    Choice,
    Distribution,
    LogUniform,
    TruncatedNormal,
    Uniform,
)
from worldline.variation.domain import AbstractDomain, CustomDomain, Domain, add, scale, set_
from worldline.variation.presets import presets
from worldline.variation.targets import (
    actuator,
    body,
    camera,
    geom,
    joint,
    light,
    opt,
    site,
    tendon,
)

__all__ = [
    "AbstractDomain",
    "Choice",
    "Context",
    "Custom",
    "CustomDomain",
    "Distribution",
    "Domain",
    "Draw",
    "Feature",
    "LogUniform",
    "Random",
    "RoundRobin",
    "Selector",
    "TruncatedNormal",
    "Uniform",
    "actuator",
    "add",
    "body",
    "camera",
    "features_of",
    "geom",
    "joint",
    "light",
    "opt",
    "presets",
    "scale",
    "set_",
    "site",
    "tendon",
]
