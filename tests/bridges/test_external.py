"""Gymnasium's vector environments as worlds for our learners."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from puck_twin import MODES, HandwrittenPuck, PuckWithDict, programs

import toys
from worldline.bridges.external import ExternalWorlds, StaleStateError
from worldline.bridges.gymnasium import VectorEnv
from worldline.bridges.resets import seed_keys
from worldline.errors import ConfigError
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.sac import SACConfig, sac

B, N = 3, 40
modes = pytest.mark.parametrize("mode", MODES, ids=[mode.name for mode in MODES])
kinds = pytest.mark.parametrize("kind", [toys.Puck, PuckWithDict])


class Counted(HandwrittenPuck):
    """Counts its steps."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.taken = 0

    def step(self, action: Any) -> Any:
        self.taken += 1
        return super().step(action)


def sync(mode: AutoresetMode, kind: type[toys.Puck] = toys.Puck) -> SyncVectorEnv:
    """Gymnasium's own vector of pucks written by hand."""
    starts = programs(B, kind)[1]
    return SyncVectorEnv([lambda: Counted(starts, kind is PuckWithDict)] * B, autoreset_mode=mode)


def run(worlds: ExternalWorlds, state: Any, actions: np.ndarray) -> tuple[Any, Any]:
    """Steps inside a compiled scan; also what was acted on."""

    def step(state: Any, action: Any) -> Any:
        after, step = worlds.step(state, action)
        return after, (state.obs, step)

    return jax.device_get(jax.jit(lambda s, a: jax.lax.scan(step, s, a))(state, actions))


@modes
@kinds
def test_transitions_are_those_of_worlds_and_none_is_lost(
    mode: AutoresetMode, kind: type[toys.Puck]
) -> None:
    env, key = sync(mode, kind), jax.random.key(1)
    external, worlds = ExternalWorlds(env), programs(B, kind)[0]
    actions = np.random.default_rng(0).uniform(-1, 1, (N, B, 2)).astype(np.float32)
    seed = int(jax.random.randint(jax.random.clone(key), (), 0, np.iinfo(np.int32).max))
    state = worlds.reset(seed_keys(range(seed, seed + B)))
    _, (seen, given) = run(external, external.reset(key), actions)
    for n in range(N):
        obs, (state, step) = state.obs, worlds.step(state, actions[n])
        now = jax.tree.map(lambda x, n=n: x[n], (seen, given))
        for part in ("reward", "terminated", "truncated", "obs", "final_obs"):
            jax.tree.map(np.testing.assert_array_equal, getattr(now[1], part), getattr(step, part))
        jax.tree.map(np.testing.assert_array_equal, now[0], obs)
        for name in ("episode_return", "episode_length"):
            np.testing.assert_array_equal(now[1].metrics[name], step.metrics[name])
    assert given.terminated.sum() > 2
    assert given.truncated.sum() > 2
    assert [each.taken for each in env.envs] == [N] * B


def test_our_own_vector_environment_will_do_too() -> None:
    results = []
    for env in (sync(AutoresetMode.NEXT_STEP), VectorEnv(programs(B)[0])):
        external = ExternalWorlds(env)
        actions = np.random.default_rng(0).uniform(-1, 1, (N, B, 2)).astype(np.float32)
        results.append(run(external, external.reset(jax.random.key(0)), actions))
    jax.tree.map(np.testing.assert_array_equal, *results)


def test_only_the_latest_state_can_be_stepped() -> None:
    external = ExternalWorlds(sync(AutoresetMode.SAME_STEP))
    first = external.reset(jax.random.key(0))
    action = np.zeros((B, 2), np.float32)
    external.step(first, action)
    with pytest.raises(StaleStateError, match="continue from the latest state"):
        external.step(first, action)
    with pytest.raises(jax.errors.JaxRuntimeError, match="continue from the latest state"):
        jax.block_until_ready(jax.jit(external.step)(first, action))


class TestRefusals:
    def test_of_an_environment_that_resets_more_than_it_is_asked_to(self) -> None:
        class Deaf(gymnasium.vector.VectorWrapper):
            def reset(self, *, seed: Any = None, options: Any = None) -> Any:
                return self.env.reset(seed=seed)

        external = ExternalWorlds(Deaf(sync(AutoresetMode.NEXT_STEP)))
        state = external.reset(jax.random.key(0))
        push = np.array([[1, 0], [-1, 0], [-1, 0]], np.float32)
        with pytest.raises(ConfigError, match="use its reset mode SAME_STEP"):
            for _ in range(5):
                state, _ = external.step(state, push)

    def test_of_a_mode_that_is_not_told(self) -> None:
        env = sync(AutoresetMode.SAME_STEP)
        env.metadata = {}
        with pytest.raises(ConfigError, match=r"must be a gymnasium\.vector\.AutoresetMode"):
            ExternalWorlds(env)

    def test_of_actions_that_are_no_numbers(self) -> None:
        with pytest.raises(ConfigError, match="give a Box with one axis"):
            ExternalWorlds(gymnasium.make_vec("CartPole-v1", 2))


@pytest.fixture
def promotion() -> Iterator[None]:
    """For Optax, which relies on it."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("promotion")
def test_ppo_learns_on_it() -> None:
    starts = programs(B)[1]
    env = SyncVectorEnv([lambda: HandwrittenPuck(starts, False)] * 8)
    config = PPOConfig(num_worlds=8, unroll_length=32, actor_hidden=(32,), critic_hidden=(32,))
    learner = ppo(ExternalWorlds(env), config)
    state, returns = learner.init(jax.random.key(0)), []
    for _ in range(20):
        state, metrics = learner.update(state)
        returns.append(float(metrics["train/return"]))
    assert np.mean(returns[-5:]) > np.mean(returns[:5]) + 0.5


@pytest.mark.exhaustive
@pytest.mark.usefixtures("promotion")
def test_sac_learns_on_it() -> None:
    starts = programs(B)[1]
    env = SyncVectorEnv([lambda: HandwrittenPuck(starts, False)] * 8)
    config = SACConfig(
        num_worlds=8,
        learning_starts=256,
        critic_steps=32,
        replay_capacity=10_000,
        actor_hidden=(32,),
        critic_hidden=(32,),
    )
    learner = sac(ExternalWorlds(env), config)
    state, returns = learner.init(jax.random.key(0)), []
    for _ in range(30):
        state, metrics = learner.update(state)
        returns.append(float(metrics["train/return"]))
    assert np.mean(returns[-5:]) > np.mean(returns[:5]) + 0.5
