"""A generated model in the making: what it may have, its random numbers, what it has so far."""

from __future__ import annotations

import dataclasses
import functools
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

#: What a model may have, and how often in comparison with the rest. An engine that refuses a model
#: says nothing about the rest of it: so what few of them have is rare.
FEATURES = {
    **dict.fromkeys(("tree", "hinge dynamics", "floor"), 2.0),
    **dict.fromkeys((
        "ball", "free", "slide", "fixed body", "two joints", "shapes", "second geom",
        "joint limits", "frictionloss", "springs", "inertial", "gravcomp", "geom numbers", "condim",
        "self contact", "fixed tendon", "spatial tendon", "tendon dynamics", "tendon limits",
        "position", "velocity", "motor", "general", "intvelocity", "timestep", "integrator",
        "solver", "cone",
    ), 1.0),
    **dict.fromkeys((
        "mocap", "connect", "weld", "joint equality", "tendon equality", "wrapping", "muscle",
        "site motor", "tendon motor", "refsite motor", "damper", "cylinder", "fluid", "pair",
        "exclude", "key", "flag", "actuator limits", "joint force limits", "solver numbers",
        "act", "applied", "sensors", "impratio", "jacobian", "gravity", "activation",
    ), 0.6),
    **dict.fromkeys((
        "adhesion", "crank", "pulley", "convex contact", "fluid shape", "actuator dynamics",
        "polynomials", "implicit", "sticky", "override", "pid", "dcmotor", "orientation", "delay",
        "springs that yield", "noslip", "enable", "inactive", "pair numbers", "actearly",
    ), 0.12),
}  # fmt: skip


@functools.cache
def features(seed: int) -> frozenset[str]:
    """The features of the model that a seed makes; some have few, some many."""
    density = np.random.default_rng(seed).choice((0.15, 0.3, 0.45))
    return frozenset(
        name for name, rate in FEATURES.items() if random_of(seed, name).random() < density * rate
    )


def random_of(seed: int, feature: str) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(feature.encode())])


@dataclasses.dataclass
class Joint:
    name: str
    kind: str
    body: str


@dataclasses.dataclass
class Scene:
    """A model in the making."""

    seed: int
    having: frozenset[str]

    def __post_init__(self) -> None:
        self.root = ET.Element("mujoco")
        ET.SubElement(self.root, "compiler", angle="radian", autolimits="true")
        self.world = ET.SubElement(self.root, "worldbody")
        self.joints: list[Joint] = []
        self.bodies: list[str] = []
        self.free: list[str] = []
        self.mocap: list[str] = []
        self.parents: dict[str, str] = {}
        self.tendons: list[str] = []
        self.geoms: dict[str, str] = {}

    def random(self, feature: str) -> np.random.Generator:
        """The random numbers of a feature."""
        return random_of(self.seed, feature + ", in detail")

    def section(self, name: str) -> ET.Element:
        """An element below the root, made where it is first asked for."""
        found = self.root.find(name)
        return ET.SubElement(self.root, name) if found is None else found

    def scalars(self) -> list[str]:
        """The names of hinges and slides."""
        return [joint.name for joint in self.joints if joint.kind in ("hinge", "slide")]


def text(*numbers: Any) -> str:
    return " ".join(f"{float(x):.4g}" for x in np.ravel(numbers))


def between(random: np.random.Generator, low: float, high: float, size: int = 1) -> str:
    return text(random.uniform(low, high, size))


def pick(random: np.random.Generator, options: Sequence[Any]) -> Any:
    return options[random.integers(len(options))]
