"""Gradients of a return through `Env.step` and `scan`, on both engines, against plain MuJoCo."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import plain_mujoco
import pytest

import toys
import worldline
from worldline.env.env import Env

STEPS = 12


def of_mujoco(model: mujoco.MjModel, qpos: np.ndarray, substeps: int, actions: np.ndarray) -> float:
    """What `toys.Swing` earns in a segment."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    earned = 0.0
    for action in actions:
        data.ctrl[:] = action
        mujoco.mj_step(model, data, substeps)
        earned -= abs(data.qpos[0])
    return earned


@pytest.mark.parametrize("engine", ["native", pytest.param("mjx", marks=pytest.mark.exhaustive)])
def test_the_gradient_of_a_return_with_and_without_checkpoints(engine: str) -> None:
    env = Env(toys.Swing(), engine)
    begin = jax.jit(lambda key, qpos: env.reset_to(key, qpos=qpos, qvel=jnp.zeros(1)))
    start = begin(jax.random.key(0), jnp.float32([0.7]))
    actions = jnp.linspace(-0.5, 0.5, STEPS)[:, None]

    def earned(actions, checkpoint):
        def step(state, action):
            state = env.step(state, action)
            return state, state.reward

        step = jax.checkpoint(step) if checkpoint else step
        return jax.lax.scan(step, start, actions)[1].sum()

    gradient = jax.jit(jax.grad(earned), static_argnums=1)
    kept, again = (np.asarray(gradient(actions, checkpoint)) for checkpoint in (False, True))
    substeps = round(env.task.control_timestep / env.model.timestep)
    expected = np.zeros_like(kept, float)
    for index in range(STEPS):
        ends = []
        for by in (1e-6, -1e-6):
            moved = np.asarray(actions, float)
            moved[index] += by
            ends.append(of_mujoco(env.model.mj, np.float32([0.7]), substeps, moved))
        expected[index] = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(kept, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(again, kept, rtol=1e-6)
    assert np.abs(expected).max() > 1e-2


def test_a_half_cheetah_on_the_ground() -> None:
    # Its return is how far it gets, less what its actions cost: MuJoCo's own, in float64.
    env = worldline.make("gym/half-cheetah")
    model, steps = env.model.mj, 6
    qpos, qvel = np.float32(model.qpos0), np.zeros(model.nv, np.float32)
    start = env.reset_to(jax.random.key(0), qpos=qpos, qvel=qvel)
    for _ in range(4):  # until it lies on its feet
        start = env.step(start, jnp.zeros(6))
    actions = np.random.default_rng(0).uniform(-0.6, 0.6, (steps, 6)).astype(np.float32)

    @jax.jit
    @jax.grad
    def gradient(actions):
        def step(state, action):
            state = env.step(state, action)
            return state, state.reward

        return jax.lax.scan(step, start, actions)[1].sum()

    substeps = round(env.task.control_timestep / env.model.timestep)
    row = env.physics.integration_state(start.physics)

    def earned(actions: np.ndarray) -> float:
        data = mujoco.MjData(model)
        mujoco.mj_setState(model, data, row, plain_mujoco.INTEGRATION)
        began = data.qpos[0]
        for action in actions:
            data.ctrl[:] = action
            mujoco.mj_step(model, data, substeps)
        return float((data.qpos[0] - began) / env.task.control_timestep - 0.1 * np.sum(actions**2))

    expected = np.zeros_like(actions, float)
    for index in np.ndindex(actions.shape):
        up, down = np.array(actions, float), np.array(actions, float)
        up[index] += 1e-6
        down[index] -= 1e-6
        expected[index] = (earned(up) - earned(down)) / 2e-6
    ours = np.asarray(gradient(actions))
    np.testing.assert_allclose(ours, expected, atol=1e-4 * np.abs(expected).max())
