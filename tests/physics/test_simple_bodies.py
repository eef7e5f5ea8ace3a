"""Constants of bodies that MuJoCo compiles as simple, whose inertia it stores without products."""

import copy
import re

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import worldline
from worldline.errors import VariationError
from worldline.model import Model
from worldline.physics import make_physics
from worldline.physics.base import Reads
from worldline.tasks.registry import list_tasks, load_task
from worldline.variation import Domain, Uniform, add

STEPS = 60

MJCF = """
<mujoco><option timestep="0.005"/><worldbody>
  <body name="drone" pos="0 0 1" {simple}>
    {joints}
    <inertial pos="{ipos}" quat="{iquat}" mass="1" diaginertia=".01 .02 .03"/>
    <geom type="box" size=".1 .1 .02" contype="0" conaffinity="0"/>
    <site name="rotor" pos=".1 .1 0"/>
  </body>
</worldbody>
<actuator><motor site="rotor" gear="0 0 1 0 0 .1"/></actuator></mujoco>
"""
JOINTS = {
    "free": "<freejoint/>",
    "ball": "<joint type='ball'/>",
    "slide": "<joint type='slide' axis='0 0 1'/>",
    "hinge": "<joint axis='{axis}' pos='{pos}'/>",
    "planar": "<joint type='slide' axis='1 0 0'/><joint type='slide' axis='0 0 1'/>"
    "<joint axis='{axis}' pos='{pos}'/>",
}
#: Another value of each field that decides whether a body is simple. Rounded as float32 is.
OTHER = {
    "body_ipos": {"ipos": "0.0625 0.03125 -0.015625"},
    "body_iquat": {"iquat": "0.5 0.5 -0.5 0.5"},
    "jnt_axis": {"axis": "0.6 0.8 0"},
    "jnt_pos": {"pos": "0.0625 0 0.03125"},
}
SIMPLE = {"ipos": "0 0 0", "iquat": "1 0 0 0", "axis": "0 1 0", "pos": "0 0 0"}

CASES = [(j, f) for j in JOINTS for f in OTHER if f.startswith("body") or "axis" in JOINTS[j]]
#: MJX takes seconds to compile each.
QUICK = [("native", *case) for case in CASES] + [("warp", *case) for case in CASES]
LONG = [("mjx", *case) for case in CASES]


def mjcf(joints: str, simple: str = "", **values: str) -> str:
    given = SIMPLE | values
    return MJCF.format(joints=JOINTS[joints].format(**given), simple=simple, **given)


def trajectory(model: mujoco.MjModel) -> np.ndarray:
    """Plain MuJoCo's `qpos` and `qvel` after `STEPS` steps."""
    data = mujoco.MjData(model)
    for _ in range(STEPS):
        data.ctrl[:] = 4
        mujoco.mj_step(model, data)
    return np.r_[data.qpos, data.qvel]


def simulated(engine: str, model: Model, variation: dict[str, np.ndarray]) -> np.ndarray:
    physics = make_physics(engine, model, Reads())
    start = physics.start(jnp.asarray(model.qpos0), jnp.zeros(model.nv), variation, {})
    advance = jax.jit(lambda state: physics.step(state, {"ctrl": jnp.full(1, 4.0)}, STEPS))
    end = advance(start)
    assert not end.diverged
    return np.r_[end.qpos, end.qvel]


@pytest.mark.parametrize(("engine", "joints", "field"), QUICK + LONG)
def test_they_vary_as_though_compiled_anew(engine: str, joints: str, field: str) -> None:
    plain, other = (
        mujoco.MjModel.from_xml_string(mjcf(joints, **values)) for values in ({}, OTHER[field])
    )
    assert plain.body_simple[1], "the body is simple"
    ours = simulated(engine, Model(mjcf(joints)), {field: getattr(other, field).astype(np.float32)})
    theirs = trajectory(other)
    tolerance = {"native": 3e-7, "mjx": 3e-5, "warp": 3e-5}[engine] * max(1, np.abs(theirs).max())
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("joints", "field"), CASES)
def test_the_native_engine_does_so_bit_for_bit(joints: str, field: str) -> None:
    other = mujoco.MjModel.from_xml_string(mjcf(joints, **OTHER[field]))
    value = getattr(other, field).astype(np.float32)
    edited = mujoco.MjModel.from_xml_string(mjcf(joints, 'simple="false"'))
    getattr(edited, field)[:] = value
    mujoco.mj_setConst(edited, mujoco.MjData(edited))
    ours = simulated("native", Model(mjcf(joints)), {field: value})
    np.testing.assert_array_equal(ours, trajectory(edited).astype(np.float32))


def test_what_somebody_else_compiled_cannot_vary_so() -> None:
    model = mujoco.MjModel.from_xml_string(mjcf("free"))
    physics = make_physics("native", Model(model), Reads())
    varied = {"body_ipos": np.zeros((2, 3), np.float32)}
    with pytest.raises(VariationError, match=r"body drone as a simple body.*simple='false'"):
        physics.start(jnp.asarray(model.qpos0), jnp.zeros(6), varied, {})
    domain = Domain(add("body_ipos", Uniform(-0.1, 0.1)))
    with pytest.raises(VariationError, match="body drone as a simple body"):
        domain.check(Model(model))
    domain.check(Model(mujoco.MjModel.from_xml_string(mjcf("free", 'simple="false"'))))
    domain.check(Model(mjcf("free")))
    domain.check(Model(mujoco.MjSpec.from_string(mjcf("free"))))


def test_a_specification_that_is_edited_later_is_as_it_was() -> None:
    spec = mujoco.MjSpec.from_string(mjcf("free"))
    model = Model(spec)
    spec.body("drone").mass = 2
    spec.body("drone").add_geom(size=[1, 1, 1])
    varying = model.varying(["body_ipos"])
    assert not varying.mj.body_simple[1]
    np.testing.assert_array_equal(varying.mj.body_mass, model.mj.body_mass)
    assert varying.mj.ngeom == model.mj.ngeom == 1


def test_mujocos_refusal_of_constants_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was for these bodies before they were compiled anew."""
    monkeypatch.setattr(Model, "varying", lambda model, fields: model)
    model = Model(mjcf("free"))
    varied = {"body_ipos": np.full((2, 3), 0.1, np.float32)}
    line = re.escape("MuJoCo does not accept the values of body_ipos in a world: mj_setConst")
    with pytest.raises(VariationError, match=line + ".*compiled as simple"):
        make_physics("native", model, Reads()).start(
            jnp.asarray(model.qpos0), jnp.zeros(6), varied, {}
        )


SIMPLE_TASKS = [
    "arm/pick-cube",
    "gym/pusher",
    "gym/reacher",
    "suite/ball_in_cup-catch",
    "suite/manipulator-bring_ball",
    "suite/point_mass-easy",
    "suite/quadruped-fetch",
]


@pytest.mark.parametrize(
    "task",
    [*SIMPLE_TASKS[:3], *(pytest.param(t, marks=pytest.mark.exhaustive) for t in SIMPLE_TASKS[3:])],
)
def test_tasks_with_simple_bodies_run_with_other_centres_of_mass(task: str) -> None:
    env = worldline.make(task)
    own = copy.copy(env.model.mj)
    assert (own.body_simple[own.body_dofnum > 0] > 0).any()
    worlds = worldline.Worlds(env, 2, domain=Domain(add("body_ipos", Uniform(-0.01, 0.01))))
    state = worlds.reset(jax.random.key(0))
    action = np.zeros((2, len(env.action_low)), np.float32)
    for _ in range(3):
        state, step = worlds.step(state, action)
        assert not step.metrics["diverged"].any()


@pytest.mark.parametrize("name", list_tasks())
def test_these_are_all_such_tasks_but_for_variants(name: str) -> None:
    mj = load_task(name).model.mj
    variants = {"suite/manipulator-insert_ball", "suite/point_mass-hard"}
    cubes = re.match("playground/(aloha|leap|panda-(pick|rob))", name) is not None
    simple = bool((mj.body_simple[mj.body_dofnum > 0] > 0).any())
    assert simple == (name in {*SIMPLE_TASKS, *variants} or cubes)
