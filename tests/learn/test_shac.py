"""SHAC: its objective by hand, its gradient through the worlds, and problems with known answers."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import toys
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError
from worldline.learn.algorithms import find_algorithm
from worldline.learn.hyperparameters import with_hyperparameters
from worldline.learn.rollout import evaluator
from worldline.learn.run import run
from worldline.learn.shac import SHACConfig, shac
from worldline.learn.shac import update as shac_module
from worldline.learn.shac.update import segment_return
from worldline.physics.fake import FakePhysics

SMALL = SHACConfig(num_worlds=8, unroll_length=6, actor_hidden=(16,), critic_hidden=(16,))
PUCK = toys.Puck(episode_length=4)


class Deaf(FakePhysics):
    name = "deaf"
    differentiable = False


@functools.cache
def learner_of(config: SHACConfig) -> Any:
    return shac(Worlds(Env(PUCK, "fake"), config.num_worlds), config)


class Taken(NamedTuple):
    """The part of a rollout that the objective reads."""

    reward: Any
    terminated: Any
    truncated: Any
    final_obs: Any


def test_the_objective_by_hand() -> None:
    """Five steps of three worlds: one goes on, one terminates, one is cut by a time limit."""
    reward = np.arange(15.0).reshape(5, 3)
    terminated, truncated = np.zeros((2, 5, 3), bool)
    terminated[1, 1] = truncated[2, 2] = True
    final_obs = np.random.default_rng(0).normal(size=(5, 3, 4))
    state = learner_of(SMALL).init(jax.random.key(0))
    state = with_hyperparameters(state, discount=0.9, value_weight=0.5, reward_scale=2.0)
    learning = state.learning
    taken = Taken(
        *map(jnp.asarray, (np.float32(reward), terminated, truncated, np.float32(final_obs)))
    )
    value = np.asarray(learning.target_critic(learning.statistics.normalize(taken.final_obs)))[
        ..., 0
    ]
    expected = np.zeros(3)
    for world in range(3):
        weight = 1.0
        for t in range(5):
            expected[world] += weight * 2.0 * reward[t, world]
            goes_on = truncated[t, world] or (t == 4 and not terminated[t, world])
            if goes_on:
                expected[world] += weight * 0.9 * 0.5 * value[t, world]
            ended = terminated[t, world] or truncated[t, world]
            weight = 1.0 if ended else weight * 0.9
    ours = segment_return(SMALL, learning, taken)  # type: ignore[arg-type]
    np.testing.assert_allclose(ours, expected / 5, rtol=1e-5)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_policy_climbs_the_gradient_of_what_it_earns(
    checkpoint: bool, key_reuse_allowed: None
) -> None:
    """The step of an update is Adam's first along a gradient found by differences of rollouts."""
    learner = learner_of(dataclasses.replace(SMALL, checkpoint=checkpoint))
    state = learner.init(jax.random.key(1))
    state = with_hyperparameters(state, learning_rate=1e-3, max_grad_norm=1e9, value_weight=0.0)
    after, metrics = learner.update(state)

    def lost(shift: float) -> float:
        bias = state.learning.actor.mean.biases[-1].at[0].add(shift)
        actor = jax.tree.map(lambda x: x, state.learning.actor)
        actor.mean.biases[-1] = bias
        moved = dataclasses.replace(state.learning, actor=actor)
        _, metrics = learner.update(dataclasses.replace(state, learning=moved))
        return float(metrics["loss/policy"])

    slope = (lost(0.1) - lost(-0.1)) / 0.2
    step = after.learning.actor.mean.biases[-1][0] - state.learning.actor.mean.biases[-1][0]
    assert abs(slope) > 1e-4
    np.testing.assert_allclose(step, -1e-3 * np.sign(slope), rtol=1e-3)
    moment = after.learning.actor_optimizer.mu.mean.biases[-1][0]
    np.testing.assert_allclose(moment, 0.3 * slope, rtol=2e-2)
    assert metrics["shac/exploded"] == 0


def test_how_far_gradients_explode_is_seen_before_they_are_bounded(key_reuse_allowed: None) -> None:
    learner = learner_of(SMALL)
    state = learner.init(jax.random.key(1))
    norms = []
    for scale in (1.0, 1e6):
        bounded = with_hyperparameters(
            state, max_grad_norm=1e-3, reward_scale=scale, value_weight=0.0
        )
        after, metrics = learner.update(bounded)
        norms.append(float(metrics["shac/grad_norm"]))
        moment = optax.tree.norm(after.learning.actor_optimizer.mu)
        np.testing.assert_allclose(moment, 0.3 * 1e-3, rtol=1e-2)
    assert norms[0] > 1e-3
    np.testing.assert_allclose(norms[1], 1e6 * norms[0], rtol=1e-3)


def test_two_programs_each_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = {"unroll": 0, "learn": 0}

    def count(name: str) -> None:
        function = getattr(shac_module, name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            traces[name] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(shac_module, name, wrapper)

    count("unroll")
    count("learn")
    learner = learner_of.__wrapped__(SMALL)
    for seed in range(2):
        state = learner.init(jax.random.key(seed))
        for _ in range(3):
            state, _ = learner.update(state)
    assert traces == {"unroll": 1, "learn": 1}


def test_the_same_seed_gives_the_same_bits() -> None:
    learner = learner_of(SMALL)

    def train(seed: int) -> list[np.ndarray]:
        state = learner.init(jax.random.key(seed))
        for _ in range(3):
            state, _ = learner.update(state)
        return [np.asarray(x) for x in jax.tree.leaves(learner.policy(state))]

    first, again, other = train(0), train(0), train(1)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("value_weight", [1.0, 0.0])
def test_finds_the_best_policy(value_weight: float) -> None:
    """The puck earns x plus y: full throttle on both; also as analytic policy gradients."""
    learner = learner_of(SMALL)
    state = learner.init(jax.random.key(0))
    state = with_hyperparameters(state, value_weight=value_weight, learning_rate=2e-2)
    for progress in run(learner, state, 8 * 6 * 60):
        state = progress.state
    action = learner.policy(state)(np.zeros(4, np.float32))
    np.testing.assert_allclose(action, 1.0, atol=0.05)


def test_a_gradient_that_is_not_finite_moves_nothing_and_is_counted(nans_allowed: None) -> None:
    learner = learner_of(SMALL)
    state = learner.init(jax.random.key(0))
    spoilt = jax.tree.map(lambda x: x, state)
    spoilt.learning.target_critic.biases[-1] = jnp.full(1, jnp.nan)
    # A value of NaN has a gradient of NaN only through what it multiplies.
    spoilt.learning.target_critic.weights[0] *= jnp.nan
    after, metrics = learner.update(spoilt)
    assert metrics["shac/exploded"] == 1
    for a, b in zip(
        jax.tree.leaves(after.learning.actor), jax.tree.leaves(state.learning.actor), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_an_engine_without_derivatives_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"'deaf' has no derivatives.*physics='native'"):
        shac(Worlds(Env(PUCK, Deaf), 8), SMALL)
    with pytest.raises(ConfigError, match="4 worlds, but num_worlds is 8"):
        shac(Worlds(Env(PUCK, "fake"), 4), SMALL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_worlds": 0}, "num_worlds is 0"),
        ({"minibatches": 7}, "7 minibatches"),
        ({"value_weight": 1.5}, "value_weight is 1.5"),
        ({"activation": "sigmoid"}, "give 'tanh' or"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(SMALL, **change)


def test_it_is_an_algorithm_by_name() -> None:
    assert find_algorithm("shac") == (SHACConfig, shac)


@pytest.mark.exhaustive
def test_learns_to_hang_still_through_native_physics() -> None:
    env = Env(toys.Swing(episode_length=40), "native")
    config = SHACConfig(num_worlds=16, actor_hidden=(32,), critic_hidden=(32,), learning_rate=5e-3)
    learner = shac(Worlds(env, config.num_worlds), config)
    state = learner.init(jax.random.key(0))
    evaluate = evaluator(env, num_episodes=16)
    before = evaluate(learner.policy(state), jax.random.key(1)).episode_return.mean()
    for progress in run(learner, state, steps=16 * 16 * 80):
        state = progress.state
    after = evaluate(learner.policy(state), jax.random.key(1)).episode_return.mean()
    assert before < -10 < -5 < after
