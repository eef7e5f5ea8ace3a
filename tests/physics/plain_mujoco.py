"""The reference: one `mujoco.MjData` in a Python loop over `mj_step`."""

import dataclasses
from collections.abc import Mapping, Sequence

import mujoco
import numpy as np

INTEGRATION = mujoco.mjtState.mjSTATE_INTEGRATION


@dataclasses.dataclass
class Run:
    """A start and T control steps after it; arrays have `T + 1` in front."""

    state: np.ndarray
    """The integration state, float64."""
    fields: dict[str, np.ndarray]

    def __getitem__(self, steps: slice) -> "Run":
        return Run(self.state[steps], {name: value[steps] for name, value in self.fields.items()})


def integration_state(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    state = np.empty(mujoco.mj_stateSize(model, INTEGRATION))
    mujoco.mj_getState(model, data, state, INTEGRATION)
    return state


def run(
    model: mujoco.MjModel,
    qpos: np.ndarray,
    qvel: np.ndarray,
    controls: np.ndarray,
    substeps: int,
    *,
    start: Mapping[str, np.ndarray] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    fields: Sequence[str] = (),
    after_step: Sequence[str] = (),
    refresh: bool = False,
) -> Run:
    """Steps a world under controls `(T, nu)`.

    Args:
        model: with the world's own constants in place.
        qpos: where it starts.
        qvel: how fast.
        controls: held for `substeps` each.
        substeps: calls to `mj_step` a control step.
        start: initial values of other inputs.
        inputs: values of other inputs for each control step, `(T, ...)`.
        fields: MjData fields to note.
        after_step: MuJoCo functions to call after each control step.
        refresh: compute positions and velocities anew after it, as `mj_step1` does.
    """
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    for name, value in (start or {}).items():
        getattr(data, name)[:] = value
    mujoco.mj_forward(model, data)
    states, noted = [], []

    def note() -> None:
        states.append(integration_state(model, data))
        noted.append({name: np.array(getattr(data, name)) for name in fields})

    note()
    for step, ctrl in enumerate(controls):
        data.ctrl[:] = ctrl
        for name, values in (inputs or {}).items():
            getattr(data, name)[:] = values[step]
        for _ in range(substeps):
            mujoco.mj_step(model, data)
        # Forces belong to the contacts of the step; velocities of subtrees to the state noted.
        forces = "mj_rnePostConstraint" in after_step
        if forces:
            mujoco.mj_rnePostConstraint(model, data)
        if refresh:
            mujoco.mj_fwdPosition(model, data)
            mujoco.mj_sensorPos(model, data)
            mujoco.mj_fwdVelocity(model, data)
            mujoco.mj_sensorVel(model, data)
        if "mj_subtreeVel" in after_step:
            mujoco.mj_subtreeVel(model, data)
        note()
    return Run(np.stack(states), {name: np.stack([n[name] for n in noted]) for name in fields})
