"""gymnax's interface: the same worlds, and its learners train on them."""

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
import worldline
from worldline.env.env import Env
from worldline.errors import ConfigError, VariationError

pytest.importorskip("gymnax")

from worldline.bridges.gymnax import as_gymnax

B, N = 4, 30


@pytest.fixture(autouse=True)
def alarms_off() -> Iterator[None]:
    """Learners of others promote types and use keys as they like."""
    with jax.numpy_dtype_promotion("standard"), jax.debug_key_reuse(False):
        yield


def puck(**config: Any) -> Env:
    return Env(toys.Puck(**config))


def rolled(gym: Any, params: Any, actions: np.ndarray, in_axes: Any = None) -> Any:
    """Every step of B worlds, `(N, B, ...)`, and the state that each was taken from."""
    reset = jax.vmap(gym.reset, in_axes=(0, in_axes))
    step = jax.vmap(gym.step, in_axes=(0, 0, 0, in_axes))
    keys = jax.random.split(jax.random.key(1), (N, B))

    def one(carry: Any, given: Any) -> Any:
        key, action = given
        _, after, *_ = result = step(key, carry, action, params)
        return after, (carry, result)

    @jax.jit
    def all_steps() -> Any:
        _, state = reset(jax.random.split(jax.random.key(0), B), params)
        return jax.lax.scan(one, state, (keys, actions))[1]

    return jax.device_get(all_steps())


ACTIONS = np.random.default_rng(0).uniform(-1, 1, (N, B, 2)).astype(np.float32)


def test_steps_are_those_of_the_environment_bit_for_bit() -> None:
    env = puck(wall=0.3)
    gym = as_gymnax(env)
    state, (obs, after, reward, terminated, truncated, info) = rolled(
        gym, gym.default_params, ACTIONS
    )
    stepped = jax.device_get(jax.jit(jax.vmap(jax.vmap(env.step)))(state.env, ACTIONS))
    np.testing.assert_array_equal(info["final_observation"], stepped.obs)
    np.testing.assert_array_equal(reward, stepped.reward)
    np.testing.assert_array_equal(terminated, stepped.terminated)
    np.testing.assert_array_equal(info["count"], stepped.metrics["count"])
    np.testing.assert_array_equal(truncated, (state.time == 9) & ~terminated)
    assert terminated.sum() > 3
    assert truncated.sum() > 3
    ended = terminated | truncated
    np.testing.assert_array_equal(obs[~ended], info["final_observation"][~ended])
    np.testing.assert_array_equal(after.time, np.where(ended, 0, state.time + 1))
    keys = jax.random.split(jax.random.key(1), (N, B))
    starts = jax.vmap(jax.vmap(lambda key: env.reset(jax.random.split(key)[1]).obs))(keys)
    np.testing.assert_array_equal(obs[ended], np.asarray(starts)[ended])


def test_params_are_the_worlds_constants_and_learners_map_over_them() -> None:
    env = puck()
    gym = as_gymnax(env, ["body_mass"])
    params = gym.default_params
    own = env.model.constant("body_mass")
    np.testing.assert_array_equal(params.constants["body_mass"], own)
    factors = np.array([1, 2, 4, 8], np.float32)
    each = params.replace(constants={"body_mass": own * factors[:, None]})
    axes = jax.tree.map(lambda _: None, params).replace(constants={"body_mass": 0})
    push = np.ones_like(ACTIONS)
    state, (_, after, *_) = rolled(gym, each, push, axes)
    gained = after.env.obs[0, :, 2] - state.env.obs[0, :, 2]
    np.testing.assert_allclose(gained, 0.02 / factors, rtol=1e-5)


def test_constants_hold_from_the_step_to_which_they_are_given() -> None:
    gym = as_gymnax(puck(), ["body_mass"])
    light = gym.default_params
    heavy = light.replace(constants={"body_mass": 2 * light.constants["body_mass"]})
    _, state = gym.reset(jax.random.key(0), light)
    push = jnp.ones(2)
    gained = [
        gym.step(jax.random.key(1), state, push, params)[1].env.obs[2] - state.env.obs[2]
        for params in (light, heavy)
    ]
    np.testing.assert_allclose(gained, [0.02, 0.01], rtol=1e-4)


def test_nothing_recompiles_when_they_change() -> None:
    gym, traces = as_gymnax(puck(), ["body_mass"]), 0

    @jax.jit
    def step(state: Any, params: Any) -> Any:
        nonlocal traces
        traces += 1
        return gym.step(jax.random.key(0), state, jnp.zeros(2), params)[1]

    params = gym.default_params
    state = gym.reset(jax.random.key(0), params)[1]
    for factor in (1.0, 2.0, 3.0):
        mass = {"body_mass": np.float32(factor) * params.constants["body_mass"]}
        state = step(state, params.replace(constants=mass, max_steps_in_episode=int(factor)))
    assert traces == 1


def test_without_a_time_limit_an_episode_goes_on() -> None:
    gym = as_gymnax(puck(), episode_length=0)
    assert not rolled(gym, gym.default_params, ACTIONS)[1][4].any()


@pytest.mark.usefixtures("nans_allowed")
def test_a_world_that_fails_begins_anew_and_the_others_go_on() -> None:
    gym, actions = as_gymnax(puck()), ACTIONS.copy()
    actions[3, 1] = np.nan
    _, (obs, _, reward, terminated, truncated, info) = rolled(gym, gym.default_params, actions)
    assert truncated[3].tolist() == info["diverged"][3].tolist() == [False, True, False, False]
    assert not terminated.any()
    assert all(np.isfinite(x).all() for x in (obs, reward, info["final_observation"]))


def test_gradients_pass_where_they_are_asked_for() -> None:
    gym = as_gymnax(puck())

    def final_x(action: Any, gym: Any) -> Any:
        _, state = gym.reset(jax.random.key(0))
        return gym.step(jax.random.key(1), state, action)[0][2]

    push = jnp.zeros(2)
    np.testing.assert_array_equal(jax.grad(final_x)(push, gym), [0, 0])
    slope = jax.grad(final_x)(push, gym.with_transition_gradients())
    np.testing.assert_allclose(slope, [0.02, 0], atol=1e-4)


def test_spaces_and_copies() -> None:
    gym = copy.deepcopy(as_gymnax(worldline.make("gym/hopper")))
    action, obs = gym.action_space(gym.default_params), gym.observation_space(gym.default_params)
    assert (action.shape, obs.shape, gym.num_actions) == ((3,), (11,), 3)
    assert action.contains(action.sample(jax.random.key(0)))
    assert gym.default_params.max_steps_in_episode == 1000
    assert dataclasses.is_dataclass(gym.default_params)


def test_refusals() -> None:
    with pytest.raises(VariationError, match="body_mas"):
        as_gymnax(puck(), ["body_mas"])
    with pytest.raises(ConfigError, match="episode_length is -1"):
        as_gymnax(puck(), episode_length=-1)


@pytest.mark.exhaustive
def test_rejax_trains_on_it() -> None:
    rejax = pytest.importorskip("rejax")
    env = as_gymnax(worldline.make("gym/inverted-pendulum"), legacy_step=True)
    settings = {"num_steps": 64, "num_minibatches": 8, "num_epochs": 4, "learning_rate": 1e-3}
    learner = rejax.PPO.create(
        env=env, num_envs=16, total_timesteps=262_144, eval_freq=262_144, ent_coef=0.0,
        normalize_observations=True, skip_initial_evaluation=True, **settings,
    )  # fmt: skip
    _, (lengths, returns) = jax.jit(learner.train)(jax.random.key(0))
    assert returns.mean() > 900
    np.testing.assert_allclose(lengths, returns)
