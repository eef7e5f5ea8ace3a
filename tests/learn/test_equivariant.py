"""Networks that are symmetric to left and right: in the mirror they do the same."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import worldline
from worldline.env.mirror import Mirror
from worldline.errors import ConfigError
from worldline.export.policy_file import load_policy, save_policy
from worldline.learn.networks.equivariant import SAME, EquivariantActor, EquivariantMLP
from worldline.learn.networks.mlp import MLP, Actor
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.ppo import PPOConfig, ppo
from worldline.tasks.registry import load_task

#: Of five inputs: two change places, one its sign. Of three outputs: two change places and signs.
IN = Mirror((1, 0, 2, 3, 4), (1.0, 1.0, -1.0, 1.0, 1.0))
OUT = Mirror((1, 0, 2), (-1.0, -1.0, 1.0))
SMALL = PPOConfig(
    num_worlds=4, unroll_length=8, minibatches=2, epochs=2, symmetry=True, learning_rate=1e-2,
    actor_hidden=(8,), critic_hidden=(8,),
)  # fmt: skip


def test_a_network_gives_the_mirror_image_for_the_mirror_image():
    network = EquivariantMLP.initial(jax.random.key(0), (6, 4), "swish", 1.0, (IN, OUT))
    x = jax.random.normal(jax.random.key(1), (7, 5))
    np.testing.assert_allclose(network(IN(x)), OUT(network(x)), rtol=1e-5, atol=1e-6)
    plain = network.dense()
    assert type(plain) is MLP
    np.testing.assert_array_equal(plain(x), network(x))
    # Outputs that may differ in the mirror do.
    assert np.abs(OUT(network(x)) - network(x))[:, :2].min() > 1e-4


def test_first_weights_are_as_large_as_those_of_a_free_network():
    mirrors = Mirror(tuple(range(40)), (1.0, -1.0) * 20), SAME
    network = EquivariantMLP.initial(jax.random.key(0), (64, 64), "tanh", 1.0, mirrors).dense()
    free = MLP.initial(jax.random.key(1), (40, 64, 64, 1), "tanh", 1.0)
    for ours, theirs in zip(network.weights, free.weights, strict=True):
        np.testing.assert_allclose(jnp.std(ours), jnp.std(theirs), rtol=0.25)


def test_the_noise_of_an_action_is_that_of_its_mirror_image():
    mean = EquivariantMLP.initial(jax.random.key(0), (4,), "tanh", 0.01, (IN, OUT))
    actor = EquivariantActor(mean, jnp.array([-1.0, 0.0, 2.0])).dense()
    assert type(actor) is Actor
    np.testing.assert_allclose(actor.log_std, [-0.5, -0.5, 2.0])


def test_statistics_count_mirror_images_by_hand():
    values = jax.random.normal(jax.random.key(0), (50, 5)) * jnp.arange(1.0, 6.0) + 1.0
    counted = RunningStatistics.zero((5,)).update(values).with_images(IN)
    both = np.concatenate([values, IN(values)])
    np.testing.assert_allclose(counted.mean, both.mean(0), atol=1e-6)
    np.testing.assert_allclose(counted.variance, both.var(0), rtol=1e-5)


def test_a_policy_stays_symmetric_and_its_file_is_that_of_a_free_one(tmp_path):
    env = worldline.make("robot/quadruped-joystick")
    learner = ppo(worldline.Worlds(env, 4), SMALL)
    state = learner.init(jax.random.key(0))
    before = learner.policy(state)
    state, metrics = learner.update(state)
    policy, obs = learner.policy(state), state.acting.worlds.obs
    mirror, action = env.task.symmetry.observation["state"], env.task.symmetry.action
    found, image = policy(obs), policy(mirror(obs))
    np.testing.assert_allclose(image, action(found), atol=1e-5)
    assert np.abs(found - before(obs)).max() > 1e-3
    assert jnp.isfinite(metrics["loss/policy"])
    save_policy(tmp_path, policy)
    np.testing.assert_array_equal(load_policy(tmp_path)(obs), found)


def test_what_has_no_symmetry_says_so():
    pendulum = worldline.Worlds(worldline.make("gym/inverted-pendulum"), 4)
    with pytest.raises(ConfigError, match="InvertedPendulum declares no symmetry"):
        ppo(pendulum, SMALL)
    env = worldline.Env(load_task("robot/quadruped-joystick"), context=["mass_FL thigh"])
    seeing = dataclasses.replace(SMALL, actor_obs=("state", "context"))
    with pytest.raises(ConfigError, match="networks read 'context', whose mirror image is not"):
        ppo(worldline.Worlds(env, 4), seeing)
    with pytest.raises(ConfigError, match="networks with a memory have no symmetry"):
        dataclasses.replace(SMALL, recurrent_size=4)
    with pytest.raises(ConfigError, match="a hidden layer has 7 units, and with symmetry"):
        EquivariantMLP.initial(jax.random.key(0), (7,), "tanh", 1.0, (IN, OUT))
