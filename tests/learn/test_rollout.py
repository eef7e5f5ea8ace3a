"""Rollouts and evaluations against the same episodes stepped by hand."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError
from worldline.learn.networks.mlp import MLP, Actor
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy
from worldline.learn.rollout import evaluator, record, unroll


def policy_of(env: Env) -> Policy:
    """Some policy, with statistics that matter."""
    nobs, nact = env.observation_space.shape[0], env.action_low.size
    statistics = RunningStatistics.zero((nobs,)).update(
        jax.random.normal(jax.random.key(0), (50, nobs)) + 0.3
    )
    network = MLP.initial(jax.random.key(1), (nobs, 8, nact), "tanh", last_gain=1.0)
    low, high = jnp.asarray(env.action_low), jnp.asarray(env.action_high)
    return Policy(Actor(network, jnp.full(nact, -1.0)), statistics, low, high, "clip")


@pytest.fixture(scope="module")
def env() -> Env:
    return Env(toys.Puck(wall=0.3), "native")


@pytest.fixture(scope="module")
def policy(env: Env) -> Policy:
    return policy_of(env)


def test_a_rollout_is_what_happened(env, policy):
    worlds, length = Worlds(env, 5, episode_length=6), 20
    start = worlds.reset(jax.random.key(2))
    first_obs = np.asarray(start.obs)
    program = jax.jit(lambda state, key: unroll(worlds, state, policy, key, length))
    last, rollout, summary = program(start, jax.random.key(3))
    # What was acted on is where the step before led, or the new episode's start.
    ended = np.asarray(rollout.terminated | rollout.truncated)
    assert rollout.obs.shape == (length, 5, 4)
    np.testing.assert_array_equal(rollout.obs[0], first_obs)
    going_on = ~ended[:-1]
    np.testing.assert_array_equal(
        np.asarray(rollout.obs[1:])[going_on], np.asarray(rollout.final_obs[:-1])[going_on]
    )
    # What was done is a draw from the policy there, of that density.
    distribution = policy.actor(policy.statistics.normalize(rollout.obs))
    np.testing.assert_allclose(rollout.distribution.mean, distribution.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        rollout.log_prob, distribution.log_prob(rollout.action), rtol=1e-5, atol=1e-5
    )
    spread = np.asarray((rollout.action - rollout.distribution.mean) / jnp.exp(-1.0))
    assert abs(spread.mean()) < 0.25
    assert 0.75 < spread.std() < 1.25

    # The same actions by hand.
    state = worlds.reset(jax.random.key(2))
    steps = []
    for raw in rollout.action:
        state, step = worlds.step(state, policy.to_action(raw))
        steps.append(step)
    by_hand = jax.tree.map(lambda *x: np.stack(x), *steps)
    for name in ("reward", "terminated", "truncated", "final_obs"):
        np.testing.assert_array_equal(getattr(rollout, name), getattr(by_hand, name))
    np.testing.assert_array_equal(last.obs, state.obs)
    whole = by_hand.metrics
    np.testing.assert_allclose(summary["return"], whole["episode_return"][ended].mean(), rtol=1e-5)
    np.testing.assert_allclose(summary["episode_length"], whole["episode_length"][ended].mean())
    assert summary["episodes"] == ended.sum() > 0
    assert summary["diverged"] == 0
    np.testing.assert_allclose(summary["x"], whole["x"].mean(), rtol=1e-5)


def test_without_a_whole_episode_the_return_is_unknown(env, policy):
    """NaN, or under JAX's alarm, which is on here, minus infinity."""
    worlds = Worlds(Env(toys.Puck(), "fake"), 3, episode_length=100)
    _, _, summary = unroll(worlds, worlds.reset(jax.random.key(0)), policy, jax.random.key(1), 4)
    assert summary["episodes"] == 0
    assert summary["return"] == summary["episode_length"] == -np.inf
    with jax.debug_nans(False):
        keys = jax.random.key(0), jax.random.key(1)
        _, _, summary = unroll(worlds, worlds.reset(keys[0]), policy, keys[1], 4)
    assert np.isnan(summary["return"]) and np.isnan(summary["episode_length"])


def episode(env: Env, policy: Policy, key: Any, limit: int) -> tuple[float, int, float]:
    """An episode under the most likely actions in plain Python: return, length, mean metric x."""
    state, total, xs = jax.jit(env.reset)(key), 0.0, []
    step = jax.jit(env.step)
    while len(xs) < limit and not state.terminated:
        state = step(state, policy(state.obs))
        total += float(state.reward)
        xs.append(float(state.metrics["x"]))
    return total, len(xs), float(np.mean(xs))


def test_an_evaluation_is_episodes_by_hand(env, policy):
    limit, episodes = 30, 8
    result = evaluator(env, episodes, episode_length=limit)(policy, jax.random.key(5))
    start_key, _ = jax.random.split(jax.random.key(5))
    lengths = []
    for world in range(episodes):
        key = jax.random.split(jax.random.fold_in(start_key, world), 3)[1]
        total, length, x = episode(env, policy, key, limit)
        np.testing.assert_allclose(result.episode_return[world], total, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(result.metrics["x"][world], x, rtol=1e-4, atol=1e-4)
        assert result.episode_length[world] == length
        lengths.append(length)
    assert min(lengths) < limit == max(lengths)


def test_an_evaluation_follows_its_key(env, policy):
    drawn = evaluator(env, 4, deterministic=False)
    likely = evaluator(env, 4)
    first, again, other = (drawn(policy, jax.random.key(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.episode_return, again.episode_return)
    assert (first.episode_return != other.episode_return).any()
    assert (first.episode_return != likely(policy, jax.random.key(1)).episode_return).any()


def test_an_evaluation_is_traced_once(policy):
    traced = []

    class Watched(toys.Puck):
        def observe(self, physics: Any, memory: Any) -> Any:
            traced.append(physics)
            return super().observe(physics, memory)

    env = Env(Watched(wall=0.3), "native")
    evaluate = evaluator(env, 4)
    evaluate(policy, jax.random.key(1))
    times = len(traced)
    evaluate(policy_of(env), jax.random.key(2))
    assert len(traced) == times


def test_episodes_without_an_end_cannot_be_evaluated(env):
    with pytest.raises(ConfigError, match=r"without a time limit.*; give episode_length"):
        evaluator(env, 2, episode_length=0)


def test_a_recording_is_one_episode(env, policy):
    limit, lengths = 12, set()
    for seed in range(6):
        recorded = record(env, policy, jax.random.key(seed), limit)
        start_key, _ = jax.random.split(jax.random.key(seed))
        start = env.reset(start_key)
        start_key, _ = jax.random.split(jax.random.key(seed))
        total, length, _ = episode(env, policy, start_key, limit)
        assert recorded.qpos.shape == (length, 2)
        assert recorded.reward.shape == (length,)
        np.testing.assert_array_equal(recorded.qpos[0], start.physics.qpos)
        np.testing.assert_allclose(recorded.reward.sum(), total, rtol=1e-4, atol=1e-4)
        lengths.add(length)
    assert len(lengths) > 1


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Unsure(toys.Puck):
    """A metric that is NaN in about half of the worlds, and one that is NaN in all."""

    def outcome(self, before: Any, action: Any, after: Any, memory: Any) -> Any:
        outcome = super().outcome(before, action, after, memory)
        half = jnp.where(after.qpos[0] > 0, 1.0, jnp.nan)
        return dataclasses.replace(outcome, metrics={"half": half, "none": jnp.nan * half})


@pytest.mark.usefixtures("nans_allowed")
def test_a_mean_is_that_of_the_worlds_that_have_a_number(policy):
    worlds = Worlds(Env(Unsure(), "fake"), 16)
    state = worlds.reset(jax.random.key(0))
    *_, summary = unroll(worlds, state, policy, jax.random.key(1), 4)
    assert summary["half"] == 1
    unknown = {name for name, value in summary.items() if not np.isfinite(value)}
    assert unknown == {"none", "return", "episode_length"}
    evaluated = evaluator(worlds.env, 16, episode_length=4)(policy, jax.random.key(0)).metrics
    assert not np.isfinite(evaluated["none"]).any()
    half = np.asarray(evaluated["half"])
    assert (half[np.isfinite(half)] == 1).all()
    assert np.isfinite(half).any()


def test_worlds_that_are_done_are_not_simulated(env, policy, monkeypatch):
    masks, step = [], Worlds.step

    def watched(self, state, action, mask=None):
        jax.debug.callback(lambda mask: masks.append(int(mask.sum())), mask)
        return step(self, state, action, mask)

    monkeypatch.setattr(Worlds, "step", watched)
    result = evaluator(env, 8, episode_length=30)(policy, jax.random.key(5))
    jax.effects_barrier()
    assert sum(masks) == result.episode_length.sum()
