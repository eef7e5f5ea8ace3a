"""PPO that remembers what it saw."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spot import Spot, spot_env

from worldline.env.env import Env
from worldline.env.task import Outcome, Start
from worldline.env.worlds import Worlds
from worldline.export.policy_file import load_policy, save_policy
from worldline.learn.networks.recurrent import GRUNetwork
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.ppo.update import prepare
from worldline.learn.rollout import unroll
from worldline.rendering.camera import Camera

CONFIG = PPOConfig(
    num_worlds=4,
    unroll_length=6,
    epochs=2,
    minibatches=2,
    actor_obs=("state", "pixels/top"),
    image_features=8,
    recurrent_size=3,
)


@functools.cache
def worlds():
    return Worlds(spot_env(), CONFIG.num_worlds)


@functools.cache
def trained():
    learner = ppo(worlds(), CONFIG)
    state = learner.init(jax.random.key(0))
    return learner, state, *learner.update(state)


def test_an_update_changes_what_is_seen_and_what_is_remembered():
    _, before, after, metrics = trained()
    assert isinstance(after.learning.networks.actor, GRUNetwork)
    for part in ("actor", "encoder", "critic", "critic_encoder"):
        old, new = (jax.tree.leaves(getattr(s.learning.networks, part)) for s in (before, after))
        assert max(float(jnp.abs(a - b).max()) for a, b in zip(old, new, strict=True)) > 0, part
    assert all(np.isfinite(value).all() for value in metrics.values())
    assert after.acting.memory.shape == (CONFIG.num_worlds, CONFIG.recurrent_size)


def test_it_learns_from_what_it_acted_on():
    """Over ends of episodes too, of four steps here: the probabilities are those it acted with."""
    learner, _, state, _ = trained()
    policy, memory = learner.policy(state), state.acting.memory
    key = jax.random.key(4)
    _, taken, _ = unroll(worlds(), state.acting.worlds, policy, key, CONFIG.unroll_length, memory)
    assert (taken.truncated | taken.terminated).any()
    samples, learning = prepare(CONFIG, state.learning, taken, memory)
    distribution, value = learning.networks.evaluate(samples.segments)
    np.testing.assert_allclose(
        distribution.log_prob(samples.action), samples.log_prob, rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(value, samples.value, rtol=1e-4, atol=1e-4)


def test_its_policy_is_saved_and_loaded(tmp_path):
    learner, _, state, _ = trained()
    policy = learner.policy(state)
    loaded = load_policy(save_policy(tmp_path, policy))
    obs, memory = state.acting.worlds.obs, policy.start(CONFIG.num_worlds)
    for _ in range(2):
        (ours, memory), (theirs, _) = (p.step(obs, memory) for p in (policy, loaded))
        np.testing.assert_array_equal(ours, theirs)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Glimpse(Spot):
    """The ball is seen at the start alone: then it is gone, and its place is still what counts."""

    def mjcf(self):
        gone = '<joint name="y" type="slide" axis="0 1 0"/>'
        return super().mjcf().replace("<geom", f"{gone}<geom", 1)

    def start(self, key):
        x = jax.random.uniform(key, (), minval=-0.8, maxval=0.8)
        return Start(qpos=jnp.array([x, 0.0]), qvel=jnp.array([0.0, 100.0]))

    def outcome(self, before, action, after, memory):
        error = action[0] - after.qpos[0]
        return Outcome(reward=1 - error**2, terminated=jnp.asarray(False))


@pytest.mark.slow
@pytest.mark.exhaustive
def test_it_learns_what_only_an_earlier_image_told():
    """Without a memory, actions after the first are as good as blind: 0.787 a step at best."""
    env = Env(Glimpse(), cameras={"top": Camera("top", 16, 16)})
    config = PPOConfig(
        num_worlds=32,
        unroll_length=8,
        epochs=4,
        minibatches=4,
        actor_obs=("pixels/top",),
        image_features=16,
        recurrent_size=16,
        discount=0.0,
        squash="tanh",
    )
    learner = ppo(Worlds(env, config.num_worlds), config)
    state = learner.init(jax.random.key(0))
    for _ in range(80):
        state, _ = learner.update(state)
    policy = learner.policy(state)
    seen = jax.vmap(env.reset)(jax.random.split(jax.random.key(9), 64))
    action, memory = policy.step(seen.obs, policy.start(64))
    gone = jax.vmap(env.step)(seen, action)
    images = np.asarray(gone.obs["pixels/top"])
    assert (images == images[0]).all()
    action, _ = policy.step(gone.obs, memory)
    error = np.asarray(action)[:, 0] - np.asarray(seen.physics.qpos)[:, 0]
    assert float(np.mean(error**2)) < 0.1  # of 0.213 without a memory
