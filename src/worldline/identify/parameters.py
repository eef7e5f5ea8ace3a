"""Which constants of a model are looked for, and how a world gets a value of each."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from worldline.errors import ConfigError, VariationError, did_you_mean
from worldline.model import Model
from worldline.types import Array
from worldline.variation.limits import may_be_negative
from worldline.variation.targets import FIELD_PREFIXES, Target

#: Names for what is looked for most: the field, the number of its row if it has several, and the
#: fields that are multiplied along with it.
_KNOWN: dict[str, tuple[str, int | None, tuple[str, ...]]] = {
    "body_mass": ("body_mass", None, ("body_inertia",)),
    "joint_damping": ("dof_damping", None, ()),
    "joint_frictionloss": ("dof_frictionloss", None, ()),
    "joint_armature": ("dof_armature", None, ()),
    "joint_stiffness": ("jnt_stiffness", None, ()),
    "geom_friction": ("geom_friction", 0, ()),
}

#: `field:objects[number]`, of which only the field must be there.
_FORM = re.compile(r"(?P<name>[a-z]\w*)(:(?P<pattern>[^\[\]]+))?(\[(?P<element>\d+)\])?")

#: Where the model has a zero, the first guess is this share of a natural size.
_FIRST_GUESS = 0.1

#: A mass is at least this share of the model's: MuJoCo takes none of zero.
_LEAST_MASS = 0.01


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One number that is looked for."""

    name: str
    """As `joint_damping:elbow`."""
    field: str
    """The field of the model."""
    row: int
    """The row of the field."""
    element: int | None
    """Which number of the row; None: the row is a number."""
    along: tuple[str, ...]
    """Fields whose row is multiplied by the same factor, as inertia with mass."""
    target: Target
    """The row by the name of its object."""
    stored: float
    """The model's value."""
    size: float
    """The size of a typical value: that of the model, or a natural one where that is zero."""
    lowest: float
    """The least value that is possible."""

    @property
    def guess(self) -> float:
        """Where the fit begins."""
        return self.stored or _FIRST_GUESS * self.size


def find_parameters(model: Model, texts: Sequence[str]) -> tuple[Parameter, ...]:
    """The numbers to look for.

    Args:
        model: the model.
        texts: such as `joint_damping` (of every joint), `body_mass:forearm`, `body_mass:*_link`, or
            a number of any field of real numbers: `actuator_gainprm:elbow[0]`. Those in `_KNOWN`
            have a number of their own; bodies that cannot move are left out.

    Raises:
        ConfigError: a text has another form, is there twice, or needs the number of an element.
        VariationError: the model has no such field or object.
    """
    found: dict[str, Parameter] = {}
    for text in texts:
        for parameter in _of_text(model, text):
            if parameter.name in found:
                raise ConfigError(f"--fit has {parameter.name!r} twice; give it once")
            found[parameter.name] = parameter
    if not found:
        raise ConfigError(
            "--fit is empty; give names, for example --fit joint_damping,body_mass "
            f"({', '.join(_KNOWN)}, or a field of MjModel)"
        )
    return tuple(found.values())


def constants_of(model: Model, parameters: Sequence[Parameter], values: Array) -> dict[str, Array]:
    """The fields of a world in which the parameters have these values, `(P,)`."""
    fields: dict[str, Array] = {}
    for index, it in enumerate(parameters):
        for field in (it.field, *it.along):
            if field not in fields:
                fields[field] = jnp.asarray(model.constant(field), jnp.float32)
        place: Any = it.row if it.element is None else (it.row, it.element)
        fields[it.field] = fields[it.field].at[place].set(values[index])
        for field in it.along:
            stored = jnp.asarray(model.constant(field)[it.row], jnp.float32)
            fields[field] = fields[field].at[it.row].set(stored * (values[index] / it.stored))
    return fields


def _of_text(model: Model, text: str) -> list[Parameter]:
    """The parameters that a text names."""
    form = _FORM.fullmatch(text)
    if not form:
        raise ConfigError(f"{text!r} is not a constant; give one, for example joint_damping:elbow")
    name, pattern = form["name"], form["pattern"]
    field, element, along = _KNOWN.get(name, (name, None, ()))
    if form["element"] is not None:
        element = int(form["element"])
    shape = _shape(model, name, field)
    if (len(shape) == 2) != (element is not None) or (element or 0) >= (*shape, 1, 1)[1]:
        wanted = f"0 to {shape[1] - 1} in brackets: {name}[0]" if len(shape) == 2 else "no brackets"
        raise ConfigError(f"{text!r} is not one number of an object; give {wanted}")
    kind = _kind(field)
    target = Target(field, kind, (pattern,)) if pattern else Target(field)
    label = name if element is None or name in _KNOWN else f"{name}[{element}]"
    found = []
    for row in target.rows(model).tolist():
        owner = _owner(model, kind, field, row)
        stored = float(model.constant(field)[(row,) if element is None else (row, element)])
        if along and (not stored or (kind == "body" and not model.mj.body_weldid[row])):
            continue
        if not owner:
            raise ConfigError(f"{kind} number {row} has no name; give it one in the MJCF")
        found.append(
            Parameter(
                name=f"{label}:{owner}",
                field=field,
                row=row,
                element=element,
                along=along,
                target=Target(field, kind, (owner,)),
                stored=stored,
                size=abs(stored) or _natural_size(model, field, row),
                lowest=_LEAST_MASS * stored if along else _lowest(field),
            )
        )
    if not found:
        raise ConfigError(f"{text!r} matches no object that can move; leave it out")
    return found


def _shape(model: Model, name: str, field: str) -> tuple[int, ...]:
    """The shape of a field with a row for each object."""
    try:
        shape = model.constant(field).shape
    except VariationError as error:
        hint = did_you_mean(name, _KNOWN)
        raise VariationError(f"{name!r} cannot be fitted{hint}" if hint else str(error)) from None
    if field.startswith("opt.") or len(shape) not in (1, 2):
        raise ConfigError(f"{name!r} belongs to no object; give a constant of one: joint_damping")
    return shape


def _kind(field: str) -> str:
    """The kind of objects that a field belongs to."""
    for kind, prefixes in FIELD_PREFIXES.items():
        if field.startswith(prefixes):
            return kind
    raise ConfigError(f"{field!r} belongs to no object; give a constant of one: joint_damping")


def _owner(model: Model, kind: str, field: str, row: int) -> str:
    """The name of the object that a row belongs to."""
    owner = int(model.mj.dof_jntid[row]) if field.startswith("dof_") else row
    return model.names(kind)[owner]


def _lowest(field: str) -> float:
    return -np.inf if may_be_negative(field) else 0.0


def _natural_size(model: Model, field: str, row: int) -> float:
    """A size for a number that is zero in the model: with a joint's inertia, in units of s."""
    if field.startswith("dof_"):
        return float(model.mj.dof_M0[row])
    return float(model.mj.dof_M0[model.mj.jnt_dofadr[row]]) if field.startswith("jnt_") else 1.0
