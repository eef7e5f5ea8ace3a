"""Equality constraints that are switched, and moved, within an episode: a vacuum gripper."""

import dataclasses

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import worldline
from worldline.model import Model
from worldline.physics import make_physics
from worldline.physics.base import Physics, Reads
from worldline.types import Array, Key

#: A hand that moves along x, and a box that floats beside it; a weld holds the two together.
MJCF = """
<mujoco><option timestep="0.002" gravity="0 0 0"/><worldbody>
  <body name="hand"><joint name="x" type="slide" axis="1 0 0"/>
    <geom size=".05" mass="1" contype="0" conaffinity="0"/></body>
  <body name="box" pos="0 0 -.2"><freejoint/>
    <geom type="box" size=".05 .04 .03" mass=".2" contype="0" conaffinity="0"/></body>
</worldbody>
<equality>
  <weld name="suction" body1="hand" body2="box" active="false"/>
  <joint name="brake" joint1="x" active="false"/>
</equality>
<actuator><motor joint="x" ctrlrange="-9 9"/></actuator></mujoco>
"""
SUBSTEPS = 5
#: For each control step: the control, and whether the weld and the brake are on; -1: as before.
PLAN = [(3, -1), (3, -1), (3, (1, 0)), (-2, -1), (0, -1), (5, (0, 0)), (5, (0, 1)), (1, -1)]


def physics_of(engine: str) -> Physics:
    return make_physics(engine, Model(MJCF), Reads(("xpos",)))


def plain(start: bool, moved: np.ndarray | None = None) -> np.ndarray:
    """`mj_step` under the plan: `qpos` and `qvel` after each control step."""
    model = mujoco.MjModel.from_xml_string(MJCF)
    data = mujoco.MjData(model)
    data.qpos[:], data.eq_active[:] = np.float32(model.qpos0), (start, False)
    mujoco.mj_forward(model, data)
    seen = []
    for ctrl, switches in PLAN:
        data.ctrl[:] = ctrl
        if switches != -1:
            data.eq_active[:] = switches
            if moved is not None:
                model.eq_data[:] = moved
                mujoco.mj_setConst(model, mujoco.MjData(model))
        mujoco.mj_step(model, data, SUBSTEPS)
        seen.append(np.r_[data.qpos, data.qvel])
    return np.array(seen)


def ours(engine: str, start: bool, moved: np.ndarray | None = None) -> np.ndarray:
    physics = physics_of(engine)
    model = physics.model
    variation = {} if moved is None else {"eq_data": np.float32(model.constant("eq_data"))}
    inputs = {"eq_active": jnp.array([start, False])}
    state = physics.start(jnp.asarray(model.qpos0), jnp.zeros(model.nv), variation, inputs)
    step = jax.jit(lambda state, inputs: physics.step(state, inputs, SUBSTEPS))
    seen = []
    for ctrl, switches in PLAN:
        given = {"ctrl": jnp.full(1, ctrl, jnp.float32)}
        if switches != -1:
            given["eq_active"] = jnp.array(switches, bool)
            if moved is not None:
                given["eq_data"] = jnp.asarray(moved)
        state = step(state, given)
        assert not state.diverged
        seen.append(np.r_[state.qpos, state.qvel])
    return np.array(seen)


def as_float32(numbers: np.ndarray) -> np.ndarray:
    """In single precision, where XLA makes zero of what is too small to be normal."""
    single = numbers.astype(np.float32)
    return np.where(np.abs(single) < np.finfo(np.float32).tiny, 0, single)


ENGINES = ["native", "mjx", "warp"]


@pytest.mark.parametrize(
    "engine", ["native", "warp", pytest.param("mjx", marks=pytest.mark.exhaustive)]
)
@pytest.mark.parametrize("start", [False, True])
def test_constraints_are_switched_as_in_mujoco(engine: str, start: bool) -> None:
    theirs = plain(start)
    assert np.abs(theirs - plain(not start)).max() > 1e-2, "the first switch matters"
    if engine == "native":
        np.testing.assert_array_equal(ours(engine, start), as_float32(theirs))
    np.testing.assert_allclose(ours(engine, start), theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "engine", ["native", "warp", pytest.param("mjx", marks=pytest.mark.exhaustive)]
)
def test_a_weld_holds_what_it_grips_where_it_is(engine: str) -> None:
    """`eq_data` is a constant of the world that a step may change."""
    moved = np.float32(mujoco.MjModel.from_xml_string(MJCF).eq_data)
    moved[0, 3:6] += (0.05, 0, 0.02)
    moved[0, 11:] = 0  # by this mark MuJoCo 4 computes the pose from the model's default
    theirs = plain(False, moved)
    assert np.abs(theirs - plain(False)).max() > 1e-2, "what was moved matters"
    if engine == "native":
        np.testing.assert_array_equal(ours(engine, False, moved), as_float32(theirs))
    np.testing.assert_allclose(ours(engine, False, moved), theirs, rtol=1e-4, atol=1e-4)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Gripper(worldline.Task):
    """Grips where the second action is positive, at the place where the box is then."""

    control_timestep: float = 0.01

    def mjcf(self) -> str:
        return MJCF

    @property
    def fields(self) -> tuple[str, ...]:
        return ("xpos",)

    @property
    def action_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return np.full(2, -1, np.float32), np.ones(2, np.float32)

    def start(self, key: Key) -> worldline.Start:
        model = self.model
        push = jax.random.uniform(key, (6,), minval=-0.3, maxval=0.3)
        return worldline.Start(
            qpos=jnp.asarray(model.qpos0),
            qvel=jnp.concatenate([jnp.zeros(1), push.at[3:].set(0)]),
            memory=jnp.asarray(False),
            variation={"eq_data": jnp.asarray(model.constant("eq_data"), jnp.float32)},
        )

    def control(self, action: Array, physics: worldline.EnvState, memory: Array) -> dict:
        grips, data = action[1] > 0, physics.variation["eq_data"]
        there = physics.fields["xpos"][2] - physics.fields["xpos"][1]
        placed = data.at[0, 3:6].set(there).at[0, 11:].set(0)
        return {
            "ctrl": 5 * action[:1],
            "eq_active": jnp.stack([grips, jnp.asarray(False)]),
            "eq_data": jnp.where(grips & ~memory, placed, data),
        }

    def observe(self, physics: worldline.EnvState, memory: Array) -> Array:
        return jnp.concatenate([physics.qpos, physics.qvel])

    def outcome(self, before, action, after, memory) -> worldline.Outcome:
        apart = after.fields["xpos"][2] - after.fields["xpos"][1]
        return worldline.Outcome(
            reward=apart[0], terminated=jnp.asarray(False), memory=action[1] > 0
        )


def run(worlds: worldline.Worlds, state, actions: np.ndarray) -> tuple:
    seen = []
    for action in actions:
        state, step = worlds.step(state, action)
        seen.append(np.asarray(step.obs))
    return state, np.array(seen)


def test_a_task_grips_in_some_worlds_and_goes_on_exactly() -> None:
    worlds = worldline.Worlds(worldline.Env(Gripper()), 3)
    actions = np.full((12, 3, 2), 0.5, np.float32)
    actions[:, 0, 1] = -1
    actions[:4, 1, 1] = -1
    start = worlds.reset(jax.random.key(0))
    half, first = run(worlds, start, actions[:6])
    held = jax.tree.map(jnp.asarray, jax.device_get(half))
    _, second = run(worlds, held, actions[6:])
    _, whole = run(worlds, start, actions)
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)
    place = np.asarray(half.env.physics.fields["xpos"])
    apart = place[:, 2] - place[:, 1]
    _, after = run(worlds, half, actions[6:])
    del after
    data = np.asarray(half.env.physics.variation["eq_data"])[:, 0, 3:6]
    assert (data[0] == Model(MJCF).constant("eq_data")[0, 3:6].astype(np.float32)).all()
    np.testing.assert_allclose(data[1:], apart[1:], atol=5e-3)
    assert np.abs(data[1] - data[2]).max() > 1e-3, "each world grips where its own box is"
