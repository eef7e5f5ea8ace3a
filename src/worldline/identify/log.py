"""A recording of a robot, read from a CSV file whose columns are named as the model's objects."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import mujoco
import numpy as np

from worldline.errors import ConfigError, ModelError, did_you_mean
from worldline.model import Model
from worldline.types import NDArray

#: How far an interval between two rows may be from the mean one, as a share of it.
_JITTER = 0.1
#: How far the mean interval may be from a multiple of the model's time step, as a share of it.
_OFF_STEP = 0.01

#: What a column may hold, by its prefix, and the kind of object that it belongs to.
_PREFIXES = {"position": "joint", "velocity": "joint", "control": "actuator"}


@dataclasses.dataclass(frozen=True)
class Log:
    """A recording in the model's order: T rows at even times."""

    substeps: int
    """Time steps of the model from one row to the next."""
    period: float
    """Seconds from one row to the next."""
    position: NDArray
    """Position of each joint, `(T, nq)`; rad or m."""
    velocity: NDArray | None
    """Velocity of each joint, `(T, nv)`; rad/s or m/s. None: it was not recorded."""
    control: NDArray
    """The control from a row's time to the next row's, `(T, nu)`."""
    unused: tuple[str, ...] = ()
    """Columns that belong to nothing in the model."""

    @property
    def measured(self) -> NDArray:
        """What a simulation must reproduce: positions, then velocities if there are some."""
        parts = [self.position] if self.velocity is None else [self.position, self.velocity]
        return np.concatenate(parts, axis=1)


def read_log(path: Path, model: Model) -> Log:
    """Reads a recording.

    The first line names the columns: `time` (s); `position.JOINT` and, for all joints or none,
    `velocity.JOINT`; `control.ACTUATOR`. A name alone is the position of that joint, or the control
    of that actuator, where only one of both has it. Other columns are left alone.

    Args:
        path: the CSV file.
        model: a model whose joints are hinges and slides, each with a name.

    Raises:
        ConfigError: the file cannot be read; a column is missing, twice there, or has something
            else than finite numbers; or its times are not even, or no multiple of the time step.
        ModelError: the model has a free or a ball joint, or one without a name.
    """
    joints, controls = _joint_names(model), _control_names(model)
    header, rows = _read(path)
    columns = _assign(header, joints, controls, path)
    values = _numbers(header, rows, {"time": columns["time"], **columns}, path)
    period, substeps = _timing(values["time"], model, path)
    velocity = None
    if "velocity." + joints[0] in values:
        velocity = _stacked(values, "velocity", joints, len(rows))
    return Log(
        substeps=substeps,
        period=period,
        position=_stacked(values, "position", joints, len(rows)),
        velocity=velocity,
        control=_stacked(values, "control", controls, len(rows)),
        unused=tuple(name for i, name in enumerate(header) if i not in columns.values()),
    )


def _stacked(values: dict[str, NDArray], prefix: str, names: Sequence[str], rows: int) -> NDArray:
    """The columns of some objects, `(T, n)`."""
    columns = [values[f"{prefix}.{name}"] for name in names]
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0))


def _joint_names(model: Model) -> list[str]:
    """The names of all joints, each of which has one coordinate."""
    names = model.names("joint")
    if not names:
        raise ModelError("nothing in the model moves; give it joints")
    simple = {int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)}
    for index, (name, kind) in enumerate(zip(names, model.mj.jnt_type.tolist(), strict=True)):
        if kind not in simple:
            label = mujoco.mjtJoint(kind).name.removeprefix("mjJNT_").lower()
            raise ModelError(
                f"joint {name or index!r} is a {label} joint; identification needs hinges and "
                "slides: fix the robot's base, and remove the joint from the model"
            )
        if not name:
            raise ModelError(f"joint number {index} has no name; give it one in the MJCF")
    return names


def _control_names(model: Model) -> list[str]:
    """The names of all controls."""
    names = model.control_names
    if "" in names:
        raise ModelError(f"control number {names.index('')} has no name; name its actuator")
    return names


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, and the rows as text."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"cannot read the log {str(path)!r}: {error}") from error
    if len(lines) < 10:
        raise ConfigError(
            f"the log {str(path)!r} has {max(len(lines) - 1, 0)} rows; give a header and 10 or "
            "more rows"
        )
    header, *rows = lines
    header = [name.strip() for name in header]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise ConfigError(f"{path}: there are two columns {twice[0]!r}; rename one")
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise ConfigError(
                f"{path}, line {number}: {len(row)} values for {len(header)} columns; fix the line"
            )
    return header, rows


def _assign(
    header: Sequence[str], joints: Sequence[str], controls: Sequence[str], path: Path
) -> dict[str, int]:
    """Which column holds what: `time`, `position.JOINT`, ..."""
    wanted = {"position": joints, "control": controls}
    if any(name.startswith("velocity.") for name in header):
        wanted["velocity"] = joints
    known = {f"{prefix}.{name}" for prefix, names in wanted.items() for name in names}
    free = [name for name in header if name not in {"time", *known, *joints, *controls}]
    columns = {}
    for prefix, names in {"": ("time",), **wanted}.items():
        for name in names:
            full = f"{prefix}.{name}" if prefix else name
            alone = name if prefix in ("position", "control") else full
            if full in header and alone in header and alone != full:
                raise ConfigError(f"{path}: both {full!r} and {alone!r} are columns; keep one")
            if alone in header and alone in joints and alone in controls:
                raise ConfigError(
                    f"{path}: column {alone!r} may be the joint or the actuator; call it "
                    f"'position.{alone}' or 'control.{alone}'"
                )
            found = full if full in header else alone
            if found not in header:
                raise ConfigError(_missing(path, prefix, name, free))
            columns[full] = header.index(found)
    return columns


def _missing(path: Path, prefix: str, name: str, free: Sequence[str]) -> str:
    """The message that a column is missing; one of those that are `free` may be meant."""
    if not prefix:
        return f"{path}: there is no column 'time'; add the time of each row in seconds"
    hint = did_you_mean(name, free) or did_you_mean(f"{prefix}.{name}", free)
    missing = f"{prefix}.{name}"
    return f"{path}: there is no column {missing!r} for the {_PREFIXES[prefix]} {name!r}{hint}"


def _numbers(
    header: Sequence[str], rows: Sequence[Sequence[str]], columns: dict[str, int], path: Path
) -> dict[str, NDArray]:
    """The values of each column that is used, `(T,)` float64."""
    values = {}
    for name, column in columns.items():
        texts = [row[column] for row in rows]
        numbers = np.array([_number(text) for text in texts])
        bad = np.flatnonzero(~np.isfinite(numbers))
        if len(bad):
            raise ConfigError(
                f"{path}, line {bad[0] + 2}: column {header[column]!r} has {texts[bad[0]]!r}; "
                "give a finite number in each row"
            )
        values[name] = numbers
    return values


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _timing(time: NDArray, model: Model, path: Path) -> tuple[float, int]:
    """The seconds between two rows, and the time steps of the model in them."""
    intervals = np.diff(time)
    period = float(intervals.mean())
    uneven = np.abs(intervals - period) > _JITTER * abs(period)
    if period <= 0 or uneven.any():
        row = int(np.argmax(np.abs(intervals - period)))
        raise ConfigError(
            f"{path}, line {row + 3}: 'time' goes from {time[row]:g} to {time[row + 1]:g} s, but "
            f"other rows are {np.median(intervals):g} s apart; resample the log at equal intervals"
        )
    substeps = round(period / model.timestep)
    if substeps < 1 or abs(period / model.timestep - substeps) > _OFF_STEP * substeps:
        raise ConfigError(
            f"{path}: its rows are {period:g} s apart, no multiple of the model's time step "
            f"{model.timestep:g} s; resample the log, or change the model's timestep"
        )
    return period, substeps
