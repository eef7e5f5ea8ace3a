"""arm/pick-cube: its kinematics beside published ones, its grasp, its rewards, its looks."""

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import worldline
from worldline.env.check import check_env
from worldline.env.worlds import Worlds
from worldline.learn.ppo import PPOConfig, ppo
from worldline.tasks.robot.arm import HOME, OPEN
from worldline.tasks.robot.pick_cube import HALF, WORKSPACE, PickCube

#: Of the maker's documentation, in Craig's convention: a, d in m, alpha in quarter turns.
DENAVIT_HARTENBERG = [
    (0, 0.333, 0),
    (0, 0, -1),
    (0, 0.316, 1),
    (0.0825, 0, 1),
    (-0.0825, 0.384, -1),
    (0, 0, 1),
    (0.088, 0, 1),
]


@functools.cache
def env():
    return worldline.make("arm/pick-cube")


@functools.cache
def step():
    return jax.jit(env().step)


def begin(seed=0, **given):
    return env().reset_to(jax.random.key(seed), **given)


def at(cube, fingers=OPEN, gripper_height=None):
    """A start with the cube at a place, the gripper at home."""
    qpos = np.array([*HOME, fingers, fingers, *cube, 1, 0, 0, 0], np.float32)
    return begin(qpos=qpos, qvel=np.zeros(15, np.float32))


def test_the_flange_is_where_denavit_and_hartenberg_put_it():
    rng = np.random.default_rng(0)
    model = env().model.mj
    data = mujoco.MjData(model)
    for _ in range(20):
        data.qpos[:7] = q = rng.uniform(model.jnt_range[:7, 0], model.jnt_range[:7, 1])
        mujoco.mj_kinematics(model, data)
        frame = np.eye(4)
        for (a, d, turns), theta in zip(DENAVIT_HARTENBERG, q, strict=True):
            ca, sa = np.cos(turns * np.pi / 2), np.sin(turns * np.pi / 2)
            ct, st = np.cos(theta), np.sin(theta)
            frame = frame @ np.array(
                [
                    [ct, -st, 0, a],
                    [st * ca, ct * ca, -sa, -d * sa],
                    [st * sa, ct * sa, ca, d * ca],
                    [0, 0, 0, 1],
                ]
            )
        flange = frame @ np.array([0, 0, 0.107, 1])
        np.testing.assert_allclose(data.body("hand").xpos, flange[:3], atol=1e-6)


def test_limits_and_masses_are_the_published_ones():
    model = env().model.mj
    np.testing.assert_allclose(
        model.jnt_range[:7],
        [[-2.8973, 2.8973], [-1.7628, 1.7628], [-2.8973, 2.8973], [-3.0718, -0.0698],
         [-2.8973, 2.8973], [-0.0175, 3.7525], [-2.8973, 2.8973]],
    )  # fmt: skip
    np.testing.assert_allclose(model.actuator_forcerange[:7, 1], [87] * 4 + [12] * 3)
    links = [model.body(f"link{i}").mass[0] for i in range(1, 8)]
    np.testing.assert_allclose(links, [4.97, 0.65, 3.23, 3.59, 1.23, 1.67, 0.74], rtol=1e-6)


def test_home_is_over_the_middle_pointing_down():
    task, state = env().task, at((0.5, 0.1, HALF))
    np.testing.assert_allclose(task.gripper(state.physics), [0.5, 0.0, 0.2], atol=1e-4)
    grip = state.physics.fields["site_xmat"][env().model.id("site", "grip")].reshape(3, 3)
    np.testing.assert_allclose(grip, np.diag([1.0, -1.0, -1.0]), atol=1e-3)


def test_the_gripper_goes_where_it_is_told_and_keeps_pointing_down():
    """Along each axis, at the task's speed less what it takes to get going."""
    task, moves = env().task, np.concatenate([0.6 * np.eye(3), -0.6 * np.eye(3)])
    for move in moves:
        state = at((0.6, 0.25, HALF))
        for _ in range(10):
            state = step()(state, np.array([*move, 1.0], np.float32))
        way = np.asarray(task.gripper(state.physics)) - [0.5, 0.0, 0.2]
        wanted = 10 * task.control_timestep * task.speed * move
        np.testing.assert_allclose(way, wanted, atol=0.04)
        assert abs(way[np.argmax(np.abs(move))]) > 0.04
        grip = state.physics.fields["site_xmat"][env().model.id("site", "grip")].reshape(3, 3)
        np.testing.assert_allclose(grip, np.diag([1.0, -1.0, -1.0]), atol=0.1)


def test_the_gripper_does_not_leave_its_workspace():
    task = env().task
    for corner in ([1, 1, 1], [-1, -1, -1], [1, -1, -1]):
        state = at((0.6, 0.25, HALF))
        for _ in range(50):
            state = step()(state, np.array([*corner, 1.0], np.float32))
            target = np.asarray(state.memory.target)
            assert (WORKSPACE[0] <= target).all()
            assert (target <= WORKSPACE[1]).all()
        gripper = np.asarray(task.gripper(state.physics))
        np.testing.assert_allclose(gripper, target, atol=0.005)
        # Servos that saturate can shake: stiff damping against a small inertia.
        assert np.abs(state.physics.qvel[:7]).max() < 0.1


def pick(state, lift=True):
    """Goes over the cube, down, closes, and up: the rewards on the way, and the last state."""
    task, rewards = env().task, []
    for time in range(80):
        way = np.asarray(state.physics.qpos[9:12]) - np.asarray(task.gripper(state.physics))
        up = np.array([0.0, 0.0, task.target_height - float(task.height(state.physics))])
        above = way + np.array([0, 0, 0.08])
        move, opens = [(above, 1), (way, 1), (0 * way, -1), (up if lift else 0 * up, -1)][
            (time >= 20) + (time >= 35) + (time >= 43)
        ]
        action = np.clip([*(8 * move), opens], -1, 1).astype(np.float32)
        state = step()(state, action)
        rewards.append(float(state.reward))
    return state, rewards


@pytest.mark.parametrize("place", [(0.45, 0.1), (0.55, -0.1)])
def test_a_script_lifts_the_cube_and_every_stage_is_worth_more(place):
    state, rewards = pick(at((*place, HALF)))
    assert state.metrics["success"] == 1
    assert state.metrics["grasped"] == 1
    np.testing.assert_allclose(state.metrics["height"], 0.15, atol=0.01)
    assert rewards[0] < rewards[19] < rewards[34] < rewards[42] < rewards[-1]
    # All there is: 0.5 to be there, 0.5 for the grasp, 2 for the height and 2 to hold it.
    assert 4.5 < rewards[-1] <= 5.0
    assert not state.terminated


def test_a_cube_that_is_not_lifted_is_no_success():
    state, rewards = pick(at((0.5, 0.05, HALF)), lift=False)
    assert state.metrics["grasped"] == 1
    assert state.metrics["success"] == 0
    assert rewards[-1] < 1.05


def test_a_cube_thrown_up_is_worth_nothing():
    state = at((0.6, 0.2, 0.17))
    state = step()(state, np.zeros(4, np.float32))
    assert state.metrics["success"] == 1  # it is up, for now
    assert float(state.reward) < 0.1


@pytest.mark.parametrize(
    ("place", "ended"), [((0.7, 0.3), False), ((0.8, 0.0), True), ((0.5, -0.4), True)]
)
def test_an_episode_ends_when_the_cube_is_out_of_reach(place, ended):
    state = step()(at((*place, HALF)), np.zeros(4, np.float32))
    assert bool(state.terminated) == ended


def test_it_keeps_the_contract_of_tasks():
    check_env(env())
    obs = begin().obs
    assert {name: part.shape for name, part in obs.items()} == {
        "state": (22,),
        "privileged_state": (12,),
    }


def test_what_the_arm_feels_does_not_tell_where_the_cube_is():
    one, other = at((0.45, 0.1, HALF)), at((0.6, -0.1, HALF))
    np.testing.assert_array_equal(one.obs["state"], other.obs["state"])
    assert (one.obs["privileged_state"] != other.obs["privileged_state"]).any()


def test_its_domain_varies_cube_and_looks():
    domain = PickCube().domains["pick"]
    model = env().model
    draw = jax.jit(jax.vmap(lambda key: domain(key, model, domain.ranges)))
    drawn = jax.device_get(draw(jax.random.split(jax.random.key(0), 64)))
    cube, body = model.id("geom", "cube"), model.id("body", "cube")
    size = drawn["geom_size"][:, cube]
    assert (size == size[:, :1]).all()  # a cube it stays
    assert size.min() < 0.016
    # What MuJoCo bounds contacts by is made for the largest.
    assert size.max() <= HALF + 1e-7
    factor = drawn["body_mass"][:, body] / model.constant("body_mass")[body]
    assert factor.min() < 0.6
    assert factor.max() > 1.7
    np.testing.assert_allclose(
        drawn["body_inertia"][:, body], factor[:, None] * model.constant("body_inertia")[body],
        rtol=1e-5,
    )  # fmt: skip
    others = np.arange(model.mj.nbody) != body
    stored = model.constant("body_mass")[others].astype(np.float32)
    assert (drawn["body_mass"][:, others] == stored).all()
    for look in ("light_dir", "light_diffuse", "geom_rgba", "cam_pos", "cam_fovy"):
        assert np.ptp(drawn[look], axis=0).max() > 0, look
    domain.check(model)


def test_cubes_of_the_domain_rest_on_the_table():
    worlds = Worlds(env(), 4, domain=PickCube().domains["pick"])
    state = worlds.reset(jax.random.key(1))
    for _ in range(10):
        state, _ = worlds.step(state, jnp.zeros((4, 4)))
    half = state.variation["geom_size"][:, env().model.id("geom", "cube"), 0]
    np.testing.assert_allclose(state.env.physics.qpos[:, 11], half, atol=1e-3)


def success_of(policy, episodes=64):
    """The share of episodes at whose last step the cube is lifted."""
    worlds = Worlds(env(), episodes, episode_length=0)

    @jax.jit
    def play(policy, key):
        def act(state, _):
            state, taken = worlds.step(state, policy(state.obs))
            return state, taken.metrics["success"]

        return jax.lax.scan(act, worlds.reset(key), None, length=100)[1][-1].mean()

    return float(play(policy, jax.random.key(9)))


@pytest.mark.exhaustive
def test_ppo_learns_to_lift_it_from_numbers():
    config = PPOConfig(**PickCube.defaults["ppo"])
    learner = ppo(Worlds(env(), config.num_worlds), config)
    with jax.numpy_dtype_promotion("standard"):  # for Optax
        state = learner.init(jax.random.key(0))
        for _ in range(100):  # 320 000 steps
            state, _ = learner.update(state)
    assert success_of(learner.policy(state)) > 0.8
