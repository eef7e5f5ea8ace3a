"""MJCF to `Model`: the compiled model, its names and the shapes of its fields."""

from __future__ import annotations

import copy
import functools
import hashlib
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import mujoco
import numpy as np

from worldline.errors import ModelError, VariationError, did_you_mean

ModelSource: TypeAlias = "str | os.PathLike[str] | mujoco.MjSpec | mujoco.MjModel | Model"

#: Kind of object to its MuJoCo type and to the MjModel field that counts it.
_NAMED = {
    "actuator": (mujoco.mjtObj.mjOBJ_ACTUATOR, "nactuator"),
    "body": (mujoco.mjtObj.mjOBJ_BODY, "nbody"),
    "camera": (mujoco.mjtObj.mjOBJ_CAMERA, "ncam"),
    "geom": (mujoco.mjtObj.mjOBJ_GEOM, "ngeom"),
    "joint": (mujoco.mjtObj.mjOBJ_JOINT, "njnt"),
    "light": (mujoco.mjtObj.mjOBJ_LIGHT, "nlight"),
    "sensor": (mujoco.mjtObj.mjOBJ_SENSOR, "nsensor"),
    "site": (mujoco.mjtObj.mjOBJ_SITE, "nsite"),
    "tendon": (mujoco.mjtObj.mjOBJ_TENDON, "ntendon"),
}


#: Constants that decide whether a body is "simple" to MuJoCo. It stores less of the inertia of such
#: a body, so that they cannot vary where there is one.
_OF_SIMPLE_BODIES = frozenset(("body_ipos", "body_iquat", "jnt_axis", "jnt_pos", "tendon_armature"))


class Model:
    """A compiled MuJoCo model that nobody changes, with look-up by name.

    Args:
        source: a path to an MJCF file or to a compiled model (`.mjb`), MJCF text, an
            `mujoco.MjSpec`, or a compiled `mujoco.MjModel`, which is copied, so that later edits to
            it change nothing here.

    Raises:
        ModelError: the file is missing or MuJoCo refuses it (with MuJoCo's own line).
    """

    of_mujoco: ClassVar[bool] = True
    """Whether its fields are those of an `MjModel`, with all that MuJoCo derives from them."""
    drawable: bool = True
    """Whether the configuration of a world places the bodies of `mj`, so that it can be drawn."""
    mj: mujoco.MjModel
    _source: Any
    """What it was compiled from; None where somebody else did."""

    def __init__(self, source: ModelSource) -> None:
        if isinstance(source, Model):
            self.mj, self._source = source.mj, source._source
        else:
            self.mj = _compiled(source)
            if not 0 < self.mj.opt.timestep < np.inf:
                raise ModelError(f"the model's timestep is {self.mj.opt.timestep}; give seconds")
            unchanging = source.copy() if isinstance(source, mujoco.MjSpec) else source
            self._source = None if _is_compiled(source) else unchanging
        #: Sizes of the configuration `qpos`, the velocity `qvel`, and the actuators' state `act`.
        self.nq, self.nv, self.na = int(self.mj.nq), int(self.mj.nv), int(self.mj.na)
        #: Number of controls. An actuator of MuJoCo 4 may have none or several.
        self.nu = int(self.mj.nu)

    @property
    def timestep(self) -> float:
        """The physics time step, in seconds."""
        return float(self.mj.opt.timestep)

    @property
    def digest(self) -> str:
        """Tells models apart by all that is in them now; the same in every process."""
        content = np.empty(mujoco.mj_sizeModel(self.mj), np.uint8)
        mujoco.mj_saveModel(self.mj, None, content)
        return hashlib.sha256(content.tobytes()).hexdigest()[:32]

    @functools.cached_property
    def qpos0(self) -> np.ndarray[Any, Any]:
        """The default configuration, `(nq,)` float32."""
        return np.asarray(self.mj.qpos0, np.float32)

    @functools.cached_property
    def ctrlrange(self) -> np.ndarray[Any, Any]:
        """Limits of each actuator's control, `(nu, 2)` float32; infinite where it has none."""
        limited = np.asarray(self.mj.actuator_ctrllimited, bool)[:, None]
        unlimited = np.array([-np.inf, np.inf])
        return np.where(limited, self.mj.actuator_ctrlrange, unlimited).astype(np.float32)

    def id(self, kind: str, name: str) -> int:
        """The index of the object `name` of a `kind` (`"body"`, `"joint"`, `"geom"`, ...).

        Raises:
            ModelError: the model has no such object; the error names those that are close.
        """
        names = self.names(kind)
        if name not in names:
            raise ModelError(f"the model has no {kind} {name!r}{did_you_mean(name, names)}")
        return names.index(name)

    def names(self, kind: str) -> list[str]:
        """The names of all objects of a `kind`, in the model's order; `""` where unnamed."""
        if kind not in _NAMED:
            raise ModelError(f"no kind of object is called {kind!r}{did_you_mean(kind, _NAMED)}")
        type_, count = _NAMED[kind]
        objects = range(getattr(self.mj, count, self.nu))  # before MuJoCo 4 there is no nactuator
        return [mujoco.mj_id2name(self.mj, type_, index) or "" for index in objects]

    @functools.cached_property
    def controls_of(self) -> list[range]:
        """Which controls each actuator has: one, or in MuJoCo 4 none or several."""
        if not hasattr(self.mj, "actuator_ctrlnum"):
            return [range(index, index + 1) for index in range(self.nu)]
        pairs = zip(self.mj.actuator_ctrladr.tolist(), self.mj.actuator_ctrlnum, strict=True)
        return [range(first, first + int(number)) for first, number in pairs]

    @property
    def control_names(self) -> list[str]:
        """A name for each control, `(nu,)`: its actuator's, with a number if that has several."""
        found = [""] * self.nu
        for name, controls in zip(self.names("actuator"), self.controls_of, strict=True):
            for place, control in enumerate(controls):
                found[control] = f"{name}.{place}" if name and len(controls) > 1 else name
        return found

    def sensor(self, name: str) -> slice:
        """Where the sensor `name` lies in `sensordata`."""
        index = self.id("sensor", name)
        start = int(self.mj.sensor_adr[index])
        return slice(start, start + int(self.mj.sensor_dim[index]))

    def constant(self, field: str) -> np.ndarray[Any, Any]:
        """The stored value of a field that a `Variation` may hold, such as `body_mass`.

        Args:
            field: an MjModel field, or `opt.<name>` for a field of MjOption.

        Returns:
            A read-only array of the field's own shape.

        Raises:
            VariationError: no such field, it counts or points instead of measuring (an integer),
                or MuJoCo shares it among simulations.
        """
        from mujoco.batch import MODEL_FIELDS

        if field not in MODEL_FIELDS:
            hint = did_you_mean(field, MODEL_FIELDS)
            raise VariationError(f"{field!r} is not a model field that can vary{hint}")
        owner, name = (self.mj.opt, field[4:]) if field.startswith("opt.") else (self.mj, field)
        value = np.asarray(getattr(owner, name)).view()
        if value.dtype.kind != "f":
            raise VariationError(f"{field!r} holds {value.dtype}; only real numbers can vary")
        value.flags.writeable = False
        return value

    def varying(self, fields: Iterable[str]) -> Model:
        """The model as MuJoCo compiles it where these fields may vary.

        It has the same fields, objects and numbers. It is this model, unless one of the fields may
        make a body that is "simple" to MuJoCo, such as a free object, one that is not.

        Args:
            fields: names of fields, as in `constant`.

        Raises:
            VariationError: the fields cannot vary, since this model was compiled by someone else.
        """
        touched = sorted(_OF_SIMPLE_BODIES.intersection(fields))
        simple = np.flatnonzero((self.mj.body_simple > 0) & (self.mj.body_dofnum > 0))
        if not touched or not len(simple):
            return self
        if self._source is None:
            name = self.names("body")[simple[0]] or f"number {simple[0]}"
            raise VariationError(
                f"{touched[0]!r} cannot vary, because this MjModel was compiled with the body "
                f"{name} as a simple body; give the MJCF or the MjSpec instead, or set "
                "simple='false' at the body"
            )
        return self._without_simple_bodies

    @functools.cached_property
    def _without_simple_bodies(self) -> Model:
        with warnings.catch_warnings():  # they were given when the model was first compiled
            warnings.simplefilter("ignore")
            spec = _parsed(self._source)
            if Model(spec).digest != self.digest:
                raise ModelError(
                    "the MJCF has changed since the model was made; make the model again"
                )
            for body in spec.bodies:
                body.simple = False
            return Model(spec)

    @functools.cached_property
    def _data_fields(self) -> dict[str, np.ndarray[Any, Any]]:
        from mujoco.batch import DATA_FIELDS

        data = mujoco.MjData(self.mj)
        return {name: np.asarray(getattr(data, name)) for name in DATA_FIELDS}

    def data_field(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """The shape and MuJoCo's dtype of an MjData field: `((nbody, 3), float64)` for `xpos`.

        Raises:
            ModelError: MjData has no array field of that name with a fixed size.
        """
        fields = self._data_fields
        if name not in fields:
            hint = did_you_mean(name, fields)
            raise ModelError(f"{name!r} is not an MjData field that a task can read{hint}")
        value = fields[name]
        return value.shape, value.dtype if value.dtype.kind == "f" else np.dtype(np.int32)

    def substeps(self, control_timestep: float) -> int:
        """How many physics steps make one control step of `control_timestep` seconds.

        Raises:
            ModelError: the one does not divide the other; the error holds both numbers.
        """
        ratio = control_timestep / self.timestep
        substeps = round(ratio)
        if substeps < 1 or abs(ratio - substeps) > 1e-6 * ratio:
            raise ModelError(
                f"the control time step {control_timestep:g} s is no multiple of the model's time "
                f"step {self.timestep:g} s; choose a multiple, or change the model's timestep"
            )
        return substeps

    def __repr__(self) -> str:
        return f"Model(nq={self.nq}, nv={self.nv}, nu={self.nu}, nbody={self.mj.nbody})"


def _compiled(source: str | os.PathLike[str] | mujoco.MjSpec | mujoco.MjModel) -> mujoco.MjModel:
    """The compiled model of any source but `Model`; MuJoCo's complaint as a ModelError."""
    if isinstance(source, mujoco.MjModel):
        return copy.copy(source)
    try:
        if isinstance(source, mujoco.MjSpec):
            return source.compile()
        text = str(source)
        if text.lstrip().startswith("<"):
            return mujoco.MjModel.from_xml_string(text)
        if not Path(text).is_file():
            raise ModelError(f"no MJCF file at {text!r}; give a path, or MJCF text")
        if _is_compiled(source):
            return mujoco.MjModel.from_binary_path(text)
        return mujoco.MjModel.from_xml_path(text)
    except (ValueError, mujoco.FatalError) as error:
        if isinstance(error, ModelError):
            raise
        line = " ".join(str(error).split())
        raise ModelError(f"MuJoCo cannot load the model: {line}") from error


def _is_compiled(source: Any) -> bool:
    """Whether somebody else compiled it: an `MjModel`, or its file."""
    return isinstance(source, mujoco.MjModel) or str(source).endswith(".mjb")


def _parsed(source: Any) -> mujoco.MjSpec:
    """A copy of the specification, or what MJCF says, which is known to compile."""
    if isinstance(source, mujoco.MjSpec):
        return source.copy()
    mjcf = str(source).lstrip().startswith("<")
    return mujoco.MjSpec.from_string(source) if mjcf else mujoco.MjSpec.from_file(str(source))
