"""The reference: centred differences of a plain `mujoco.MjData` loop, one column at a time."""

import copy
from collections.abc import Callable, Mapping

import mujoco
import numpy as np

STEP = 1e-6
#: Relative, of constants: wide where results hardly change, since less is lost in the last digits.
WIDTHS = {"body_mass": 1e-4, "geom_friction": 1e-5, "dof_damping": 1e-3}

#: Outputs: name to array; and their derivatives: (output, input) to `(nout, nin)`.
Outputs = dict[str, np.ndarray]
Jacobian = dict[tuple[str, str], np.ndarray]


def outcome(
    model: mujoco.MjModel,
    start: Mapping[str, np.ndarray],
    substeps: int,
    fields: tuple[str, ...] = ("qpos", "qvel", "sensordata"),
) -> Outputs:
    """What `substeps` steps from a start (`qpos`, `qvel`, `ctrl`, `qacc_warmstart`) lead to."""
    data = mujoco.MjData(model)
    for name, value in start.items():
        getattr(data, name)[:] = value
    for _ in range(substeps):
        mujoco.mj_step(model, data)
    return {name: np.array(getattr(data, name)) for name in fields}


def jacobian(
    model: mujoco.MjModel,
    start: Mapping[str, np.ndarray],
    substeps: int,
    constants: tuple[str, ...] = (),
) -> Jacobian:
    """Columns in `qpos` (tangent space), `qvel`, `ctrl` and each of `constants`."""
    columns: dict[str, list[Outputs]] = {}

    def slope(ends: Callable[[float], Outputs], width: float) -> Outputs:
        ahead, behind = ends(width), ends(-width)
        return {name: (ahead[name] - behind[name]) / (2 * width) for name in ahead}

    def extrapolated(ends: Callable[[float], Outputs], width: float) -> Outputs:
        """Without the error that is proportional to the width: of two geoms' frictions that are
        equal, the greater one counts, whichever it is."""
        wide, narrow = slope(ends, width), slope(ends, width / 2)
        return {name: 2 * narrow[name] - wide[name] for name in wide}

    def turned(index: int) -> Callable[[float], Outputs]:
        def ends(by: float) -> Outputs:
            qpos, velocity = np.array(start["qpos"], float), np.zeros(model.nv)
            velocity[index] = 1.0
            mujoco.mj_integratePos(model, qpos, velocity, by)
            return outcome(model, {**start, "qpos": qpos}, substeps)

        return ends

    def pushed(name: str, index: int) -> Callable[[float], Outputs]:
        def ends(by: float) -> Outputs:
            value = np.array(start[name], float)
            value[index] += by
            return outcome(model, {**start, name: value}, substeps)

        return ends

    def changed(name: str, index: int) -> Callable[[float], Outputs]:
        def ends(by: float) -> Outputs:
            other = copy.copy(model)
            getattr(other, name).reshape(-1)[index] += by
            mujoco.mj_setConst(other, mujoco.MjData(other))
            return outcome(other, start, substeps)

        return ends

    columns["qpos"] = [slope(turned(i), STEP) for i in range(model.nv)]
    columns["qvel"] = [slope(pushed("qvel", i), STEP) for i in range(model.nv)]
    columns["ctrl"] = [slope(pushed("ctrl", i), STEP) for i in range(model.nu)]
    for name in constants:
        values = getattr(model, name).reshape(-1)
        width = WIDTHS[name] * np.where(values == 0, 1.0, abs(values))
        columns[name] = [extrapolated(changed(name, i), width[i]) for i in range(values.size)]
    return {
        (output, name): np.stack([each[output] for each in slopes], axis=-1)
        for name, slopes in columns.items()
        if slopes
        for output in slopes[0]
    }


def spread(model: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
    """How `qpos` changes with its tangent coordinates, `(nq, nv)`."""
    columns = []
    for index in range(model.nv):
        velocity = np.zeros(model.nv)
        velocity[index] = 1.0
        ends = []
        for by in (STEP, -STEP):
            moved = np.array(qpos, float)
            mujoco.mj_integratePos(model, moved, velocity, by)
            ends.append(moved)
        columns.append((ends[0] - ends[1]) / (2 * STEP))
    return np.stack(columns, axis=-1)
