"""Each gym/* task is Gymnasium's: same model, options, spaces, and 1000 steps that agree."""

import dataclasses
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from gymnasium_peer import GYM_TASKS, Rollout, gym_env, gym_id, gym_options, gym_rollout

from worldline.env.env import Env
from worldline.tasks.registry import make, task_class

#: Steps, options, and the largest relative difference allowed in an observation or a reward.
LONG, SHORT, RTOL = 1000, 150, 1e-5

#: What Gymnasium offers beyond the defaults, in few runs: every option occurs.
OPTIONS = {
    "gym/ant": [
        {
            "exclude_current_positions_from_observation": False,
            "include_cfrc_ext_in_observation": False,
            "forward_reward_weight": 2.0,
            "ctrl_cost_weight": 0.1,
            "contact_cost_weight": 0.0,
            "main_body": "front_left_leg",
            "frame_skip": 3,
        },
        {
            "healthy_reward": 0.5,
            "healthy_z_range": (0.45, 0.7),
            "contact_force_range": (-0.5, 2.0),
            "contact_cost_weight": 0.01,
            "main_body": 4,
        },
        {"terminate_when_unhealthy": False, "healthy_z_range": (0.45, 0.7)},
    ],
    "gym/half-cheetah": [
        {
            "exclude_current_positions_from_observation": False,
            "forward_reward_weight": 0.5,
            "ctrl_cost_weight": 0.3,
            "frame_skip": 2,
        },
        {"xml_file": "walker2d.xml"},
    ],
    "gym/hopper": [
        {
            "exclude_current_positions_from_observation": False,
            "forward_reward_weight": 0.5,
            "ctrl_cost_weight": 0.3,
            "healthy_reward": 2.0,
            "healthy_state_range": (-2.0, 2.0),
            "healthy_angle_range": (-10.0, 10.0),
            "healthy_z_range": (-10.0, 10.0),
        },
        {"terminate_when_unhealthy": False, "frame_skip": 8, "healthy_z_range": (0.5, 1.2)},
    ],
    "gym/humanoid": [
        {
            "exclude_current_positions_from_observation": False,
            "include_cinert_in_observation": False,
            "include_qfrc_actuator_in_observation": False,
            "forward_reward_weight": 0.5,
            "ctrl_cost_weight": 0.3,
            "contact_cost_weight": 1e-4,
            "contact_cost_range": (0.5, 3.0),
            "healthy_reward": 2.0,
            "healthy_z_range": (0.5, 1.35),
        },
        {
            "include_cvel_in_observation": False,
            "include_cfrc_ext_in_observation": False,
            "terminate_when_unhealthy": False,
            "frame_skip": 3,
        },
        {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0},
    ],
    "gym/humanoid-standup": [
        {
            "exclude_current_positions_from_observation": False,
            "include_cinert_in_observation": False,
            "include_qfrc_actuator_in_observation": False,
            "uph_cost_weight": 3.0,
            "ctrl_cost_weight": 0.3,
            "impact_cost_weight": 1e-4,
            "impact_cost_range": (0.5, 3.0),
        },
        {
            "include_cvel_in_observation": False,
            "include_cfrc_ext_in_observation": False,
            "frame_skip": 3,
        },
    ],
    "gym/inverted-pendulum": [{"frame_skip": 1}],
    "gym/inverted-double-pendulum": [{"frame_skip": 2, "healthy_reward": 3.0}],
    "gym/pusher": [
        {
            "frame_skip": 2,
            "reward_near_weight": 2.0,
            "reward_dist_weight": 3.0,
            "reward_control_weight": 0.5,
        },
        {"xml_file": "pusher.xml"},
    ],
    "gym/reacher": [{"frame_skip": 1, "reward_dist_weight": 2.0, "reward_control_weight": 0.5}],
    "gym/swimmer": [
        {
            "exclude_current_positions_from_observation": False,
            "forward_reward_weight": 0.5,
            "ctrl_cost_weight": 0.3,
            "frame_skip": 2,
        }
    ],
    "gym/walker2d": [
        {
            "exclude_current_positions_from_observation": False,
            "forward_reward_weight": 0.5,
            "ctrl_cost_weight": 0.3,
            "healthy_reward": 2.0,
            "healthy_angle_range": (-0.3, 0.2),
            "healthy_z_range": (0.5, 1.3),
        },
        {"terminate_when_unhealthy": False, "frame_skip": 8, "xml_file": "walker2d.xml"},
    ],
}


def random_actions(env: Env, steps: int) -> np.ndarray:
    """Uniform float32 actions, `(steps, nact)`."""
    low, high = env.action_low, env.action_high
    return np.random.default_rng(7).uniform(low, high, (steps, low.size)).astype(np.float32)


def rollout(
    env: Env, actions: np.ndarray, variation=None
) -> tuple[np.ndarray, np.ndarray, Rollout]:
    """Steps from a start that the task draws: its `qpos`, its `qvel`, and what happened."""

    def step(state, action):
        following = env.step(state, action)
        return following, following

    @jax.jit
    def run(key):
        start = env.reset(key, variation)
        return start, jax.lax.scan(step, start, actions)[1]

    start, states = jax.device_get(run(jax.random.key(3)))
    assert not states.diverged.any()
    return (
        start.physics.qpos,
        start.physics.qvel,
        Rollout(
            start.obs,
            states.obs,
            states.reward,
            states.terminated,
            states.metrics,
            env.physics.integration_state(states.physics),
        ),
    )


def assert_agree(ours: Rollout, theirs: Rollout, nq: int) -> None:
    """Bit for bit in the engine's state, and as close as float32 allows in what follows from it."""
    np.testing.assert_array_equal(ours.state.view(np.uint64), theirs.state.view(np.uint64))
    # Rounding an angle to float32 shifts its sine and cosine, which are of size 1, by as much as it
    # shifts the angle. Arms that random torques have spun for 1000 steps have turned 100 rad.
    qpos = theirs.state[:, 1 : 1 + nq]
    rounding = np.finfo(np.float32).eps * np.maximum(1.0, np.abs(qpos).max(axis=1, keepdims=True))
    error = np.abs(ours.obs - theirs.obs)
    assert (error <= RTOL * np.abs(theirs.obs) + rounding).all()
    np.testing.assert_allclose(ours.first_obs, theirs.first_obs, RTOL, 1e-6)
    # A reward is a sum of terms of size 1 to 10, each rounded, that may cancel.
    np.testing.assert_allclose(ours.reward, theirs.reward, RTOL, 2e-6)
    np.testing.assert_array_equal(ours.terminated, theirs.terminated)
    assert set(ours.info) == set(theirs.info)
    for name, value in theirs.info.items():
        np.testing.assert_allclose(ours.info[name], value, RTOL, 2e-6, err_msg=name)


@pytest.mark.parametrize("task", GYM_TASKS)
def test_a_thousand_steps_agree(task):
    env = make(task)
    actions = random_actions(env, LONG)
    qpos, qvel, ours = rollout(env, actions)
    assert_agree(ours, gym_rollout(gym_env(task), qpos, qvel, actions), env.model.nq)


@pytest.mark.parametrize(
    ("task", "options"), [(task, options) for task, many in OPTIONS.items() for options in many]
)
def test_options_do_what_gymnasiums_do(task, options):
    env = make(task, **options)
    actions = random_actions(env, SHORT)
    qpos, qvel, ours = rollout(env, actions)
    theirs = gym_env(task, **options)
    assert env.observation_space.shape == theirs.observation_space.shape
    assert env.task.control_timestep == theirs.dt
    assert_agree(ours, gym_rollout(theirs, qpos, qvel, actions), env.model.nq)


def test_every_option_is_run():
    for task in GYM_TASKS:
        # Starts and cameras have tests of their own.
        elsewhere = {"reset_noise_scale", "default_camera_config", "xml_file"}
        run = {option for options in OPTIONS[task] for option in options}
        assert set(gym_options(task)) - elsewhere <= run, task


@pytest.mark.parametrize("task", GYM_TASKS)
def test_the_options_are_gymnasiums(task):
    ours = {
        field.name: getattr(task_class(task)(), field.name)
        for field in dataclasses.fields(task_class(task))
    }
    assert ours.pop("episode_length") == gymnasium.spec(gym_id(task)).max_episode_steps
    theirs = gym_options(task)
    our_camera, their_camera = (x.pop("default_camera_config") for x in (ours, theirs))
    assert ours == theirs
    np.testing.assert_equal(dict(our_camera), their_camera or {})


@pytest.mark.parametrize("task", GYM_TASKS)
def test_spaces_are_gymnasiums(task):
    ours, theirs = make(task), gym_env(task)
    assert ours.action_space == theirs.action_space
    # Gymnasium observes in float64; learners, and our observations, are float32.
    space = theirs.observation_space
    assert ours.observation_space == gymnasium.spaces.Box(
        space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32
    )


def test_a_model_file_of_the_users_own(tmp_path, monkeypatch):
    original = gym_env("gym/swimmer").fullpath
    mjcf = Path(original).read_text().replace('viscosity="0.1"', 'viscosity="0.3"')
    assert 'viscosity="0.3"' in mjcf
    (tmp_path / "thick.xml").write_text(mjcf)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("./thick.xml", "~/thick.xml", str(tmp_path / "thick.xml")):
        assert make("gym/swimmer", xml_file=path).model.mj.opt.viscosity == 0.3


def test_humanoid_speed_follows_the_masses_of_the_world():
    # The speed is that of the centre of mass, which lies elsewhere in a world with other masses.
    env, theirs = make("gym/humanoid"), gym_env("gym/humanoid")
    heavier = np.float32(3.0 * theirs.model.body_mass[9])
    mass = theirs.model.body_mass.astype(np.float32)
    mass[9] = heavier
    theirs.model.body_mass[:] = mass
    mujoco.mj_setConst(theirs.model, theirs.data)
    actions = random_actions(env, SHORT)
    qpos, qvel, ours = rollout(env, actions, {"body_mass": jnp.asarray(mass)})
    assert_agree(ours, gym_rollout(theirs, qpos, qvel, actions), env.model.nq)
