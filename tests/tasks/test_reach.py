"""robot/reach: geometry by hand, and that it can be done."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.tasks.registry import make


def test_the_observation_points_from_tip_to_target():
    env = make("robot/reach")
    shoulder, elbow = qpos = np.array([0.3, 1.1], np.float32)
    state = env.reset_to(jax.random.key(0), qpos=qpos)
    tip = 0.2 * np.array(
        [
            np.cos(shoulder) + np.cos(shoulder + elbow),
            np.sin(shoulder) + np.sin(shoulder + elbow),
        ]
    )
    along, across = state.obs[3:]
    forearm = np.array([np.cos(shoulder + elbow), np.sin(shoulder + elbow)])
    left = np.array([-forearm[1], forearm[0]])
    np.testing.assert_allclose(state.obs[:3], [elbow, 0, 0])
    np.testing.assert_allclose(tip + along * forearm + across * left, state.memory[:2], atol=1e-6)


def test_the_target_is_in_reach_and_seen_where_it_is():
    env = make("robot/reach")
    states = jax.vmap(env.reset)(jax.random.split(jax.random.key(1), 200))
    distance = np.linalg.norm(states.memory, axis=1)
    assert distance.min() > 0.1
    assert distance.max() < 0.4
    data = mujoco.MjData(env.model.mj)
    for target, row in zip(
        states.memory, env.physics.integration_state(states.physics), strict=True
    ):
        mujoco.mj_setState(env.model.mj, data, row, mujoco.mjtState.mjSTATE_INTEGRATION)
        np.testing.assert_array_equal(data.mocap_pos[0].astype(np.float32), target)


def test_reward_is_less_distance_and_effort():
    env = make("robot/reach", effort_cost=0.5)
    action = np.array([1.0, -0.5], np.float32)
    state = env.step(env.reset(jax.random.key(2)), action)
    # Fields are of the state after the step: the observation shows the distance that is paid for.
    distance = np.linalg.norm(state.obs[3:])
    np.testing.assert_allclose(state.reward, -distance - 0.5 * 1.25, rtol=1e-6)
    np.testing.assert_allclose(state.metrics["distance"], distance, rtol=1e-6)


def test_a_full_action_is_the_whole_torque_of_a_motor():
    env = make("robot/reach")
    state = env.reset(jax.random.key(3))
    ctrl = env.task.control(jnp.array([1.0, -1.0]), state.physics, state.memory)
    np.testing.assert_allclose(ctrl, [0.8, -0.8])


def test_inverse_kinematics_solves_it():
    env = make("robot/reach")

    def servo(obs):
        """A spring and a damper on each joint, towards the angles of a tip on the target."""
        # All directions are from that of the forearm, all places from the shoulder.
        elbow, velocity, way = obs[0], obs[1:3], obs[3:]
        target = 0.2 * jnp.array([jnp.cos(elbow) + 1, -jnp.sin(elbow)]) + way
        # Two equal links make an isosceles triangle with the line to the target.
        bend = 2 * jnp.arccos(jnp.clip(jnp.linalg.norm(target) / 0.4, 0, 1)) * jnp.sign(elbow)
        turn = jnp.arctan2(target[1], target[0]) - bend / 2 + elbow
        error = jnp.array([jnp.arctan2(jnp.sin(turn), jnp.cos(turn)), bend - elbow])
        return jnp.clip(3.0 * error - 0.2 * velocity, -1, 1)

    def step(state, _):
        state = env.step(state, servo(state.obs))
        return state, state.metrics["reached"]

    @jax.jit
    @jax.vmap
    def episode(key):
        return jax.lax.scan(step, env.reset(key), length=env.task.episode_length)[1]

    reached = np.asarray(episode(jax.random.split(jax.random.key(4), 64)))
    assert reached[:, 0].mean() < 0.1
    assert reached[:, -1].mean() > 0.95
