"""PPO taken apart: other pieces, other observations, numbers as data, curricula, populations."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import toys
from worldline.env.env import Env
from worldline.env.task import Outcome, Start
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError, TaskError
from worldline.learn.networks.mlp import Gaussian
from worldline.learn.networks.network import Network
from worldline.learn.population import population
from worldline.learn.ppo import ActorCritic, PPOConfig, ppo, with_hyperparameters
from worldline.learn.ppo import update as ppo_module
from worldline.learn.returns import generalized_advantage
from worldline.learn.rollout import unroll
from worldline.variation import Domain, Uniform, scale

CONFIG = PPOConfig(
    num_worlds=4, unroll_length=8, minibatches=2, epochs=1, actor_hidden=(4,), critic_hidden=(4,)
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Guess(toys.Puck):
    """The value lies in what the policy does not see: reward 1 a step, or -1, by a hidden coin."""

    def start(self, key: jax.Array) -> Start:
        coin = jnp.where(jax.random.bernoulli(key), 1.0, -1.0)
        return Start(qpos=jnp.zeros(2), qvel=jnp.zeros(2), memory=coin)

    def observe(self, physics: Any, memory: Any) -> dict[str, jax.Array]:
        return {
            "state": physics.qpos,
            "velocity": 100.0 * physics.qvel,
            "privileged_state": memory[None],
        }

    def outcome(self, before: Any, action: jax.Array, after: Any, memory: Any) -> Outcome:
        return Outcome(reward=memory, terminated=jnp.asarray(True), memory=memory)


@functools.cache
def guess_worlds() -> Worlds:
    return Worlds(Env(Guess(), "fake"), CONFIG.num_worlds)


def puck_worlds(**options: Any) -> Worlds:
    return Worlds(Env(toys.Puck(), "fake"), CONFIG.num_worlds, **options)


def sizes(config: PPOConfig) -> tuple[int, int]:
    """How much the policy sees, and how much the critic."""
    state = jax.eval_shape(ppo(guess_worlds(), config).init, jax.random.key(0))
    networks = state.learning.networks
    return networks.actor.mean.weights[0].shape[0], networks.critic.weights[0].shape[0]


def test_the_critic_sees_what_is_privileged_and_the_policy_does_not():
    assert sizes(CONFIG) == (2, 3)
    assert sizes(dataclasses.replace(CONFIG, actor_obs=("state", "velocity"))) == (4, 5)
    assert sizes(dataclasses.replace(CONFIG, critic_obs=("velocity",))) == (2, 2)
    with pytest.raises(TaskError, match=r"no 'speed' for the policy to read"):
        sizes(dataclasses.replace(CONFIG, actor_obs=("speed",)))


def test_only_a_critic_that_sees_the_coin_knows_the_value():
    explained = {}
    for keys in (None, ("state",)):
        config = dataclasses.replace(
            CONFIG, critic_obs=keys, learning_rate=1e-2, epochs=4, target_kl=0.0
        )
        learner = ppo(guess_worlds(), config)
        state = learner.init(jax.random.key(0))
        for _ in range(25):
            state, metrics = learner.update(state)
        explained[keys] = float(metrics["ppo/explained_variance"])
        # And the policy goes on what it sees alone.
        policy = learner.policy(state)
        assert policy({"state": np.zeros(2, np.float32)}).shape == (2,)
    assert explained[None] > 0.9
    assert explained["state",] < 0.5


def test_each_part_of_an_observation_has_its_own_statistics():
    config = dataclasses.replace(CONFIG, actor_obs=("velocity", "state"))
    learner = ppo(guess_worlds(), config)
    state = learner.init(jax.random.key(0))
    policy = learner.policy(state)
    _, rollout, _ = unroll(guess_worlds(), state.acting.worlds, policy, jax.random.key(1), 8)
    _, learning = ppo_module.prepare(config, state.learning, rollout)
    for statistics, keys in (
        (learning.statistics.actor, ("velocity", "state")),
        (learning.statistics.critic, ("velocity", "state", "privileged_state")),
    ):
        seen = np.concatenate([rollout.obs[key].reshape(32, -1) for key in keys], axis=1)
        np.testing.assert_allclose(statistics.mean, seen.mean(0), atol=1e-5)
        np.testing.assert_allclose(statistics.variance, seen.var(0), rtol=1e-4, atol=1e-6)


def test_numbers_are_changed_by_name():
    learner = ppo(puck_worlds(), CONFIG)
    state = learner.init(jax.random.key(0))
    changed = with_hyperparameters(state, clip=0.1, learning_rate=jnp.float32(5e-4))
    assert changed.learning.hyperparameters.clip == jnp.float32(0.1)
    assert changed.learning.learning_rate == jnp.float32(5e-4)
    assert changed.learning.hyperparameters.discount == state.learning.hyperparameters.discount
    with pytest.raises(ConfigError, match="no hyperparameter 'clp'; did you mean 'clip'"):
        with_hyperparameters(state, clp=0.1)


def test_advantages_below_the_floor_are_divided_by_it():
    """Then the gradient is as small as they are; above it no floor is felt."""
    config = dataclasses.replace(
        CONFIG,
        minibatches=1,
        learning_rate=1e3,
        value_weight=0.0,
        max_grad_norm=1e9,
        target_kl=0.0,
    )
    learner = ppo(puck_worlds(), config, optimizer=optax.identity())

    def step(floor: float) -> np.ndarray:
        state = learner.init(jax.random.key(0))
        after, _ = learner.update(with_hyperparameters(state, advantage_floor=floor))
        moved = jax.tree.map(
            lambda new, old: new - old,
            after.learning.networks.actor,
            state.learning.networks.actor,
        )
        return np.concatenate([np.ravel(x) for x in jax.tree.leaves(moved)])

    assert np.abs(step(50.0)).max() > 1e-3
    np.testing.assert_array_equal(step(1e-6), step(0.0))
    np.testing.assert_allclose(step(50.0), 2.0 * step(100.0), rtol=1e-3, atol=1e-6)
    assert np.abs(step(50.0)).max() < np.abs(step(0.0)).max() / 10


class Line(Network):
    """The smallest policy: a line, and a spread that is its own."""

    slope: jax.Array

    def __call__(self, obs: jax.Array) -> Gaussian:
        mean = obs[..., :2] * self.slope
        return Gaussian(mean, jnp.zeros_like(mean) - 1.0)


class Position(Network):
    """A critic without a parameter."""

    def __call__(self, obs: jax.Array) -> jax.Array:
        return obs[..., :1]


def test_every_piece_can_be_another():
    """Plain gradient ascent on the return, with a network of one number."""
    used = set()

    def networks(key: jax.Array, nobs: int, ncritic: int, nact: int) -> ActorCritic:
        assert (nobs, ncritic, nact) == (4, 4, 2)
        return ActorCritic(Line(jnp.zeros(2)), Position())

    def loss(networks: Any, batch: Any, numbers: Any) -> Any:
        used.add("loss")
        loss = -(
            networks.actor(batch.segments.obs["state"]).log_prob(batch.action) * batch.advantage
        ).mean()
        return loss, {"ppo/kl": jnp.float32(0.01), "loss/mine": loss}

    def advantage(reward: jax.Array, *rest: Any) -> jax.Array:
        used.add("advantage")
        return generalized_advantage(reward, *rest)

    def rollout(*args: Any) -> Any:
        used.add("rollout")
        return unroll(*args)

    learner = ppo(
        puck_worlds(),
        dataclasses.replace(CONFIG, normalize_advantages=False, target_kl=0.0, minibatches=1),
        networks=networks,
        loss=loss,
        optimizer=optax.identity(),
        advantage=advantage,
        rollout=rollout,
    )
    state = learner.init(jax.random.key(0))
    after, metrics = learner.update(state)
    assert used == {"loss", "advantage", "rollout"}
    assert "loss/mine" in metrics and "loss/policy" not in metrics
    # With the identity for an optimiser the step is the gradient, cut to its largest norm.
    step = after.learning.networks.actor.slope - state.learning.networks.actor.slope
    norm = min(float(metrics["ppo/grad_norm"]), CONFIG.max_grad_norm)
    np.testing.assert_allclose(np.linalg.norm(step), CONFIG.learning_rate * norm, rtol=1e-4)


def test_a_curriculum_moves_the_ranges_of_the_episodes_to_come():
    domain = Domain(scale(("body_mass", "body_inertia"), Uniform(1.0, 1.0), name="load"))

    def heavier(metrics: Any, ranges: Any) -> Any:
        assert "train/return" in metrics and "ppo/kl" in metrics
        ends = lambda r: (r["load"].low, r["load"].high)  # noqa: E731
        return eqx.tree_at(ends, ranges, replace_fn=lambda x: x + 0.5)

    learner = ppo(puck_worlds(domain=domain, episode_length=4), CONFIG, curriculum=heavier)
    state = learner.init(jax.random.key(0))
    own = Env(toys.Puck(), "fake").model.constant("body_mass")[-1]
    # At the end of an update all worlds have just begun an episode, from the ranges before it.
    for load in (1.0, 1.0, 1.5, 2.0):
        np.testing.assert_allclose(state.acting.worlds.variation["body_mass"][:, -1], load * own)
        state, _ = learner.update(state)


def test_a_curriculum_that_loses_a_range_is_refused():
    domain = Domain(scale(("body_mass", "body_inertia"), Uniform(1.0, 1.0), name="load"))
    learner = ppo(puck_worlds(domain=domain), CONFIG, curriculum=lambda metrics, ranges: {})
    state = learner.init(jax.random.key(0))
    with pytest.raises(ConfigError, match="the curriculum turned ranges of shapes"):
        learner.update(state)


def test_a_population_is_its_members():
    learner = ppo(puck_worlds(), CONFIG)
    members = population(learner)
    clips, keys = jnp.array([0.1, 0.3, 0.2, 0.2]), [jax.random.key(seed) for seed in range(3, 7)]
    states = members.init(jnp.stack([jax.random.clone(key) for key in keys]))
    states = jax.vmap(lambda state, clip: with_hyperparameters(state, clip=clip))(states, clips)
    alone = [
        with_hyperparameters(learner.init(key), clip=clip)
        for key, clip in zip(keys, clips, strict=True)
    ]
    for _ in range(2):
        states, metrics = members.update(states)
        for index, state in enumerate(alone):
            alone[index], of_one = learner.update(state)
            for name, value in of_one.items():
                np.testing.assert_allclose(
                    metrics[name][index], value, rtol=5e-3, atol=2e-4, err_msg=name
                )
    assert metrics["train/episodes"].all()  # so that returns are among what was compared
    policies = members.policy(states)
    obs = np.ones((4, 4), np.float32)
    actions = jax.vmap(lambda policy, obs: policy(obs))(policies, jnp.asarray(obs))
    for index, state in enumerate(alone):
        np.testing.assert_allclose(actions[index], learner.policy(state)(obs[index]), atol=1e-3)
