"""Targets: the rows of a model field that vary, by field name or by object.

`"body_mass"` is the mass of every body, `body("torso").mass` that of one,
`geom("foot*").friction` the friction of all geoms whose names match, `joint("hip").damping` the
damping of a joint's degrees of freedom, and `opt.gravity` an option of the whole model.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from typing import Any, TypeAlias

import mujoco
import numpy as np

from worldline.errors import VariationError, did_you_mean
from worldline.model import Model

#: A target, or the name of a field for all of its rows.
TargetLike: TypeAlias = "str | Target"

#: The prefixes of each kind of object's fields, or whole fields, in the order of trial.
FIELD_PREFIXES = {
    "body": ("body_",),
    "joint": ("jnt_", "dof_", "qpos0"),
    "geom": ("geom_",),
    "site": ("site_",),
    "tendon": ("tendon_",),
    "actuator": ("actuator_",),
    "camera": ("cam_",),
    "light": ("light_",),
    "option": ("opt.",),
}


@dataclasses.dataclass(frozen=True)
class Target:
    """Rows of a model field."""

    field: str
    """MjModel field, or `opt.<name>`."""
    kind: str = ""
    """The kind of the named objects; empty for all rows."""
    patterns: tuple[str, ...] = ()
    """Names of objects, or patterns with `*` and `?`."""

    @property
    def is_option(self) -> bool:
        """Whether the field has one value for the whole model, not one for each object."""
        return self.field.startswith("opt.")

    def rows(self, model: Model) -> np.ndarray[Any, np.dtype[np.intp]]:
        """The rows along the field's first axis, `(n,)`; without names, all rows except the world
        body's.

        Raises:
            VariationError: the model has no such field or object.
        """
        field = model.constant(self.field)
        if self.is_option or not field.ndim:
            return np.arange(1)
        if not self.kind:
            first = 1 if self.field.startswith("body_") else 0
            return np.arange(first, len(field))
        return np.unique(np.concatenate([self._named(model, name) for name in self.patterns]))

    def _named(self, model: Model, pattern: str) -> np.ndarray[Any, np.dtype[np.intp]]:
        names = model.names(self.kind)
        ids = [i for i, name in enumerate(names) if name and fnmatch.fnmatchcase(name, pattern)]
        if not ids:
            known = [name for name in names if name]
            raise VariationError(
                f"the model has no {self.kind} {pattern!r}{did_you_mean(pattern, known)}"
            )
        if self.field == "qpos0":
            owner = np.searchsorted(model.mj.jnt_qposadr, np.arange(model.nq), "right") - 1
            return np.flatnonzero(np.isin(owner, ids))
        if self.field == "actuator_ctrlrange":  # a row for each control
            return np.array([row for index in ids for row in model.controls_of[index]])
        if not self.field.startswith("dof_"):
            return np.array(ids)
        return np.flatnonzero(np.isin(model.mj.dof_jntid, ids))

    def __str__(self) -> str:
        names = ", ".join(map(repr, self.patterns))
        return f"{self.field} of {self.kind} {names}" if self.kind else self.field


@dataclasses.dataclass(frozen=True)
class Objects:
    """Objects of one kind, or the model's options. Their attributes are `Target`s."""

    kind: str
    patterns: tuple[str, ...] = ()

    def __call__(self, *names: str) -> Objects:
        """The objects of these names, or of names that match patterns with `*` and `?`.

        Raises:
            VariationError: there are no names.
        """
        if not names:
            raise VariationError(
                f"{self.kind}() names no {self.kind}; give names, or patterns such as '*'"
            )
        return Objects(self.kind, names)

    def __getattr__(self, name: str) -> Target:
        if name.startswith("__"):
            raise AttributeError(name)
        from mujoco.batch import MODEL_FIELDS

        prefixes = FIELD_PREFIXES[self.kind]
        for prefix in prefixes:
            field = name if name == prefix else prefix + name
            if field in MODEL_FIELDS:
                return Target(field, self.kind if self.patterns else "", self.patterns)
        known = [f.removeprefix(p) or f for p in prefixes for f in MODEL_FIELDS if f.startswith(p)]
        owner = f"a {self.kind} has no" if self.patterns else f"the model has no {self.kind}"
        raise VariationError(f"{owner} {name!r} that can vary{did_you_mean(name, known)}")


#: Bodies: `body("torso").mass`, `body("*_foot").inertia`.
body = Objects("body")
#: Joints, their degrees of freedom and coordinates: `joint("hip").damping`, `.range`, `.qpos0`.
joint = Objects("joint")
#: Geoms: `geom("floor").friction`.
geom = Objects("geom")
#: Sites: `site("grip").pos`.
site = Objects("site")
#: Tendons: `tendon("left").stiffness`.
tendon = Objects("tendon")
#: Actuators: `actuator("hip").gear`.
actuator = Objects("actuator")
#: Cameras: `camera("front").pos`.
camera = Objects("camera")
#: Lights: `light("sun").dir`.
light = Objects("light")
#: Options of the model, which have no names: `opt.gravity`.
opt = Objects("option")


def as_target(target: TargetLike) -> Target:
    """The target itself, or the target of all rows of a field.

    Raises:
        VariationError: `target` is neither a target nor a name.
    """
    if isinstance(target, Target):
        return target
    if isinstance(target, str):
        return Target(target)
    raise VariationError(f"{target!r} is no target; give a field's name, or body('torso').mass")


def actuator_strength(model: Model) -> tuple[str, ...]:
    """The fields with a factor that multiplies each actuator's force: gains, and biases of servos.

    The gear is not among them, because it also scales the position that a servo measures. There are
    none if an actuator is a muscle, because some parameters of a muscle do not scale its force.
    """
    if (model.mj.actuator_gaintype == mujoco.mjtGain.mjGAIN_MUSCLE).any():
        return ()
    fields = ("actuator_gainprm", "actuator_biasprm")
    return tuple(field for field in fields if np.any(model.constant(field) != 0))
