"""MJX: the same worlds as native's, and their derivatives. Few programs: MJX compiles slowly."""

import copy
import dataclasses
import functools
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import toys
from worldline.errors import ConfigError, ModelError, VariationError, install_command
from worldline.model import Model
from worldline.physics.base import Reads
from worldline.physics.mjx.engine import MjxPhysics, refusal
from worldline.physics.mjx.source import check_installed
from worldline.physics.native import NativePhysics
from worldline.tasks.gym.base import assets

#: A ball with a motor that rolls and slides over a floor, and a hinge that hits its limit.
SLIDER = """
<mujoco>
  <option timestep="0.005" integrator="{integrator}" cone="{cone}"/>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body name="ball" pos="0 0 0.099">
      <joint type="slide" axis="1 0 0"/> <joint type="slide" axis="0 0 1"/>
      <joint type="hinge" axis="0 1 0" damping="0.01"/>
      <geom type="sphere" size="0.1" mass="1"/>
      <body name="arm" pos="0 0 0.3">
        <joint name="arm" type="hinge" axis="0 1 0" limited="true" range="-20 20" damping="0.05"/>
        <geom type="capsule" fromto="0 0 0 0 0 0.3" size="0.02" contype="0" conaffinity="0"/>
        <site name="tip" pos="0 0 0.3"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="arm" gear="0.5" ctrlrange="-1 1"/></actuator>
  <sensor><jointvel joint="arm"/><accelerometer site="tip"/></sensor>
</mujoco>"""

CASES = {
    "pyramids, Euler": SLIDER.format(integrator="Euler", cone="pyramidal"),
    "ellipses, implicitfast": SLIDER.format(integrator="implicitfast", cone="elliptic"),
    "no contact, RK4": SLIDER.format(integrator="RK4", cone="pyramidal").replace(
        "<mujoco>", '<mujoco><option><flag contact="disable"/></option>'
    ),
}
#: Each test takes one; the other pairs of a test and a case are slow to compile.
SLOW = pytest.mark.exhaustive
CONSTANTS = ("body_mass", "geom_friction", "dof_damping")
#: The first case reads little, to compile soon.
READS = dict.fromkeys(CASES, Reads(("sensordata", "xpos", "cfrc_ext"), ("xpos",), refresh=True))
READS["pyramids, Euler"] = Reads(("sensordata", "xpos"), ("xpos",))
SUBSTEPS = 2


@functools.cache
def engines(name: str) -> tuple[MjxPhysics, NativePhysics]:
    model = Model(CASES[name])
    return MjxPhysics(model, READS[name]), NativePhysics(model, READS[name])


def outcome(physics: Any, state: Any, ctrl: Any, mask: Any = True) -> Any:
    return physics.step(state, {"ctrl": ctrl}, SUBSTEPS, mask)


@functools.cache
def programs(name: str) -> Any:
    """Start and step of both engines, over worlds."""

    def of(physics: Any) -> Any:
        start = jax.jit(jax.vmap(lambda q, v, variation: physics.start(q, v, variation, {})))
        step = jax.jit(jax.vmap(functools.partial(outcome, physics)))
        return start, step

    return [of(physics) for physics in engines(name)]


def starts(name: str, worlds: int) -> Any:
    """Positions, velocities and constants of some worlds."""
    model, random = engines(name)[0].model, np.random.default_rng(0)
    qpos = random.uniform(-0.03, 0.03, (worlds, model.nq))
    qvel = random.normal(0, 0.3, (worlds, model.nv))
    scale = random.uniform(0.7, 1.4, (worlds, 1))
    variation = {}
    for field in (*CONSTANTS, "body_inertia"):
        value = model.constant(field)
        variation[field] = jnp.float32(value * scale.reshape(-1, *[1] * value.ndim))
    return jnp.float32(qpos), jnp.float32(qvel), variation


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["pyramids, Euler", "ellipses, implicitfast", "no contact, RK4"])
def test_a_hundred_steps_agree_with_native(name, nans_allowed):
    worlds, controls = 3, np.random.default_rng(1).uniform(-1, 1, (100, 3, 1)).astype(np.float32)
    (start, step), (native_start, native_step) = programs(name)
    ours, theirs = start(*starts(name, worlds)), native_start(*starts(name, worlds))
    mask = jnp.ones(worlds, bool)
    for ctrl in controls:
        ours, theirs = step(ours, ctrl, mask), native_step(theirs, ctrl, mask)
        np.testing.assert_allclose(ours.qpos, theirs.qpos, atol=2e-4)
        np.testing.assert_allclose(ours.qvel, theirs.qvel, atol=5e-3)
        np.testing.assert_allclose(ours.fields["xpos"], theirs.fields["xpos"], atol=2e-4)
        np.testing.assert_allclose(ours.changes["xpos"], theirs.changes["xpos"], atol=2e-5)
        for field in theirs.fields:
            scale = 1 + np.abs(theirs.fields[field]).max()
            np.testing.assert_allclose(
                ours.fields[field], theirs.fields[field], atol=5e-3 * scale, err_msg=field
            )
    np.testing.assert_allclose(ours.time, theirs.time, rtol=1e-5)
    # Otherwise equality would say little: the ball lies on the floor, the arm was at its limit.
    assert np.abs(theirs.qpos[:, 3]).max() > 0.25
    assert (np.abs(theirs.qpos[:, 1]).max() < 0.05) == ("no contact" not in name)
    # One program served the start's result and the step's own.
    assert step._cache_size() == 1
    # A world that fails keeps its last state and is flagged; one that is masked out stays as it is.
    ctrl = jnp.float32([[0.1], [np.nan], [0.1]])
    after = step(ours, ctrl, jnp.array([True, True, False]))
    np.testing.assert_array_equal(after.diverged, [False, True, False])
    for leaf, before in zip(jax.tree.leaves(after.qpos), jax.tree.leaves(ours.qpos), strict=True):
        np.testing.assert_array_equal(leaf[1:], before[1:])
        assert (np.asarray(leaf[0]) != before[0]).any()


@pytest.mark.exhaustive  # minutes of compilation
@pytest.mark.parametrize(
    "name",
    ["pyramids, Euler", "ellipses, implicitfast", "no contact, RK4"],
)
def test_derivatives_are_those_of_native(name, nans_allowed):
    # Native's are those of plain MuJoCo: see test_gradient.py. The ball lies on the floor, the arm
    # is at its limit; the second world fails, the third is at rest.
    qpos, qvel, variation = starts(name, 3)
    qpos = qpos.at[:, 3].set(jnp.deg2rad(20.5)).at[2].set(0.0)
    qvel = qvel.at[2].set(0.0)
    ctrl = jnp.float32([[0.4], [jnp.nan], [0.0]])

    def gradient(physics: Any, start: Any) -> Any:
        def total(qpos, qvel, ctrl, variation):
            moved = dataclasses.replace(start, qpos=qpos, qvel=qvel, variation=variation)
            after = jax.vmap(lambda s, c: physics.step(s, {"ctrl": c}, 1))(moved, ctrl)
            weight = jnp.arange(1.0, 5.0)
            return jnp.sum(weight * after.qpos) + jnp.sum(weight * after.qvel)

        of = jax.jit(jax.grad(total, argnums=(0, 1, 2, 3)))
        return of(start.qpos, start.qvel, ctrl, start.variation)

    ours, theirs = (
        gradient(physics, start(qpos, qvel, variation))
        for physics, (start, _) in zip(engines(name), programs(name), strict=True)
    )
    for (path, x), y in zip(
        jax.tree_util.tree_leaves_with_path(ours), jax.tree.leaves(theirs), strict=True
    ):
        assert np.isfinite(x).all(), path
        # A state may count in the worlds that fail: native's derivative there is zero, this one's
        # is that of staying where it is.
        good = np.array([0, 2])
        # The friction of a ball that sticks changes nothing: both are rounding errors.
        scale = np.abs(np.asarray(y)[good]).max(initial=1e-5)
        np.testing.assert_allclose(x[good], y[good], atol=2e-3 * scale, err_msg=str(path))


@pytest.mark.parametrize(
    "name",
    ["mechanism", pytest.param("ant", marks=SLOW), pytest.param("humanoid", marks=SLOW)],
)
def test_constants_follow_as_mj_set_const_has_them(name):
    source = toys.MECHANISM if name == "mechanism" else assets() / f"{name}.xml"
    model, random = Model(source), np.random.default_rng(0)
    physics, plain = MjxPhysics(model), copy.copy(model.mj)
    variation = {}
    for field in ("body_mass", "body_inertia", "body_ipos", "dof_armature", "actuator_gear"):
        value = model.constant(field)
        variation[field] = np.float32(value * random.uniform(0.5, 2.0, value.shape))
        getattr(plain, field)[:] = variation[field]
    variation["body_inertia"] = np.float32(2 * model.constant("body_inertia"))
    plain.body_inertia[:] = variation["body_inertia"]
    mujoco.mj_setConst(plain, mujoco.MjData(plain))
    with jax.numpy_dtype_promotion("standard"):
        ours, _ = jax.jit(physics._varied)(physics.check_variation(variation))
    for field in (
        "body_subtreemass",
        "dof_invweight0",
        "body_invweight0",
        "tendon_invweight0",
        "tendon_length0",
        "actuator_acc0",
    ):
        theirs = getattr(plain, field)
        np.testing.assert_allclose(
            getattr(ours, field), theirs, rtol=2e-4, atol=1e-6, err_msg=field
        )


def test_what_is_lacking_is_named_with_the_engine_that_has_it():
    def model(option: str = "", geoms: str = "", size: str = "") -> Model:
        return Model(
            f"<mujoco>{size}<option {option}/><worldbody><body><freejoint/>"
            f'<geom size=".1"/>{geoms}</body></worldbody></mujoco>'
        )

    with pytest.raises(ModelError, match=r"'mjx' lacks the integrator implicit; .*'native'"):
        MjxPhysics(model('integrator="implicit"'))
    with pytest.raises(ModelError, match=r"'mjx' lacks the no-slip solver.*physics='native'"):
        MjxPhysics(model('noslip_iterations="3"'))
    with pytest.raises(ModelError, match=r"'mjx' lacks the MjData field 'energy'"):
        MjxPhysics(model(), Reads(("energy",)))
    # The same is told without an engine; and that there is nothing to tell.
    assert "integrator implicit" in refusal(model('integrator="implicit"'))
    assert "'energy'" in refusal(model(), Reads(("energy",)))
    assert refusal(model(), Reads(("xpos",))) == ""
    # What only MJX's data refuses.
    pair = '<geom size=".1" pos="1 0 0" condim="1" contype="2" conaffinity="2"/>'
    floor = '<geom type="plane" size="1 1 1" condim="1" contype="2" conaffinity="2"/>'
    frictionless = Model(
        f'<mujoco><option cone="elliptic"/><worldbody>{floor}<body><freejoint/>{pair}</body>'
        "</worldbody></mujoco>"
    )
    assert "lacks" in refusal(frictionless)
    with pytest.raises(ModelError, match="lacks"):
        MjxPhysics(frictionless)
    egg = '<body pos="2 0 0"><freejoint/><geom type="ellipsoid" size="1 2 3"/></body>'
    box = '<body pos="9 0 0"><freejoint/><geom type="box" size="1 1 1"/></body>'
    with pytest.raises(ModelError, match=r"lacks .*ELLIPSOID"):
        MjxPhysics(Model(f"<mujoco><worldbody>{egg}{box}</worldbody></mujoco>"))
    # What MJX refuses and nothing depends on is set aside.
    physics = MjxPhysics(model('solver="PGS"'))
    with pytest.raises(VariationError, match=r"cannot vary 'geom_fluid'.*physics='native'"):
        physics.start(jnp.zeros(7), jnp.zeros(6), {"geom_fluid": jnp.zeros((1, 12))}, {})


IGNORED = {
    "the integrator discrete": {"option": 'integrator="discrete"'},
    "groups of actuators": {"option": 'actuatorgroupdisable="0"'},
    "the fluid forces of ellipsoids": {"option": 'density="9"', "geom": 'fluidshape="ellipsoid"'},
    "actuator_actearly": {"motor": 'dyntype="filter" dynprm="1" actearly="true"'},
    "actuator_armature": {"motor": 'armature="0.1"'},
    "actuator_damping": {"motor": 'damping="0.1"'},
    "actuator_delay": {"motor": 'delay="0.01" nsample="10"'},
    "dof_dampingpoly": {"joint": 'damping="1 2 3"'},
    "geom_adhesion": {"geom": 'adhesion="3"'},
    "geom_surfacevel": {"geom": 'surfacevel="1 0 0"'},
    "jnt_springyield": {"joint": 'stiffness="1" springyield="0.1"'},
    "jnt_stiffnesspoly": {"joint": 'stiffness="1 2 3"'},
    "sensor_delay": {"sensor": 'delay="0.01" nsample="10"'},
    "sensor_interval": {"sensor": 'interval="0.01 0" nsample="4"'},
}


@pytest.mark.parametrize("feature", IGNORED)
def test_what_mjx_would_ignore_is_refused(feature):
    # Each changes what MuJoCo does; MJX takes the model and runs it as though it were not there.
    def model(option: str = "", joint: str = "", geom: str = "", motor: str = "", sensor: str = ""):
        return Model(
            f'<mujoco><option {option}/><worldbody><body><joint name="j" {joint}/><geom size="1" '
            f'{geom}/></body></worldbody><actuator><general joint="j" {motor}/></actuator>'
            f'<sensor><jointpos joint="j" {sensor}/></sensor></mujoco>'
        )

    assert refusal(model()) == ""
    assert f"lacks {feature}" in refusal(model(**IGNORED[feature]))
    with pytest.raises(ModelError, match=f"'mjx' lacks {feature}.*use physics='native'"):
        MjxPhysics(model(**IGNORED[feature]))


def test_a_constant_that_mjx_ignores_does_not_vary():
    physics = MjxPhysics(Model(CASES["pyramids, Euler"]))
    with pytest.raises(VariationError, match="cannot vary 'dof_dampingpoly'"):
        physics.start(jnp.zeros(4), jnp.zeros(4), {"dof_dampingpoly": jnp.ones((4, 2))}, {})


@pytest.mark.exhaustive  # builds every task
def test_the_guide_tells_which_tasks_run():
    docs = Path(__file__).parents[2] / "docs"
    script = runpy.run_path(str(docs / "engines.py"))
    assert script["table"]() in (docs / "guides" / "engines.md").read_text()


def test_nothing_is_printed_by_the_import():
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", "import worldline.physics.mjx"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@SLOW
def test_velocities_are_those_of_the_last_step_until_they_are_refreshed() -> None:
    qpos, qvel = jnp.float32([0.7]), jnp.float32([5.0])
    for refresh in (False, True):
        reads, seen = Reads(("subtree_linvel", "cvel"), refresh=refresh), []
        for engine in (MjxPhysics, NativePhysics):
            physics = engine(Model(toys.PENDULUM), reads)
            state = physics.start(qpos, qvel, {}, {})
            seen.append(jax.jit(lambda s, p=physics: p.step(s, {}, 3))(state).fields)
        for name, expected in seen[1].items():
            assert np.abs(expected).max() > 0.1
            np.testing.assert_allclose(seen[0][name], expected, atol=1e-5, err_msg=name)


def test_sensors_of_contacts_read_zero_where_nothing_can_touch() -> None:
    mjcf = (
        '<mujoco><worldbody><body><joint/><geom name="g" size=".1"/><site name="s"/></body>'
        '</worldbody><sensor><touch site="s"/><contact geom1="g" data="found force"/></sensor>'
        "</mujoco>"
    )
    physics = MjxPhysics(Model(mjcf), Reads(("sensordata",)))
    state = jax.jit(physics.start)(jnp.zeros(1), jnp.ones(1), {}, {})
    assert not state.fields["sensordata"].any()


def test_a_state_holds_the_inputs_that_are_given() -> None:
    physics = MjxPhysics(Model(toys.PENDULUM), Reads(inputs=("act", "ctrl")))
    start = functools.partial(physics.start, variation={}, inputs={})
    qpos, qvel = jnp.zeros(physics.model.nq), jnp.zeros(physics.model.nv)
    assert jax.eval_shape(start, qpos, qvel).engine.inputs.keys() == {"ctrl"}


WITHOUT = """
import sys
sys.modules["mujoco.mjx"] = None
import worldline
import worldline.train
from worldline.cli.listing import sizes_of

worldline.make("robot/reach")
print(*[line for line in sizes_of(["robot/reach"]) if "robot/reach" in line])
try:
    worldline.make("robot/reach", physics="mjx")
except worldline.WorldlineError as error:
    print(error)
"""


def test_without_mjx_all_else_works_and_the_error_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    listed, error = done.stdout.splitlines()
    assert listed.endswith("native, warp")
    assert error.endswith(install_command("mjx"))


def test_mjx_is_not_imported_unless_it_is_asked_for():
    code = "import sys, worldline; worldline.make('gym/ant'); print('mujoco.mjx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_another_version_of_mjx_is_refused_with_both_versions(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "4.2.0")
    with pytest.raises(ConfigError, match=r"mujoco-mjx 3\.17, but 4\.2\.0 is installed"):
        check_installed()
