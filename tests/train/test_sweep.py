"""A policy over a grid of contexts, against single evaluations in worlds of each context."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.image import imread

import toys
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError, VariationError
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.rollout import evaluator
from worldline.report.figures import plot_contexts
from worldline.train.sweep import sweep
from worldline.variation import Context

AXES = {"gravity": np.array([-1.0, -5.0, -20.0]), "mass_pole": np.array([0.5, 4.0])}


@pytest.fixture(scope="module")
def policy():
    config = PPOConfig(num_worlds=2, unroll_length=4, minibatches=1)
    learner = ppo(Worlds(Env(toys.Swing()), 2), config)
    return learner.policy(learner.init(jax.random.key(0)))


def test_every_point_is_what_an_evaluation_there_gives(policy):
    shares = []
    returns = sweep(Env(toys.Swing()), policy, AXES, 60, jax.random.key(1), shares.append)
    assert returns.shape == (3, 2, 60)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    env = Env(toys.Swing(), context=Context(AXES, visible=()))
    evaluate = evaluator(env, 60)
    for i, j in ((0, 0), (2, 1)):
        context = {"gravity": AXES["gravity"][i], "mass_pole": AXES["mass_pole"][j]}
        fixed = {name: jnp.full(60, value) for name, value in context.items()}
        alone = np.asarray(evaluate(policy, jax.random.key(1), fixed).episode_return)
        if (i, j) == (0, 0):  # its starts are those of the first worlds of a batch
            np.testing.assert_allclose(returns[i, j], alone, rtol=1e-5)
        assert returns[i, j].mean() == pytest.approx(alone.mean(), rel=0.3)
    # A pendulum swings further from rest under more gravity in the same time: it is no constant.
    assert np.ptp(returns.mean(axis=-1)) > 0.1


def test_pictures_of_one_and_of_two_features(tmp_path):
    returns = np.random.default_rng(0).normal(size=(11, 5, 3))
    x, y = np.linspace(-15, -5, 11), np.linspace(0.5, 1.5, 5)
    trained = {"gravity": (-12.0, -8.0)}
    plot_contexts({"gravity": x}, returns[:, 0], tmp_path / "line.png", "ant", trained)
    plot_contexts({"gravity": x, "friction": y}, returns, tmp_path / "map.png", "ant", trained)
    for name in ("line.png", "map.png"):
        assert imread(tmp_path / name).std() > 0.05
    with pytest.raises(ConfigError, match="give one or two"):
        plot_contexts({"a": x, "b": x, "c": x}, returns, tmp_path / "no.png")


def test_what_cannot_be_gone_through(policy):
    env, key = Env(toys.Swing()), jax.random.key(0)
    with pytest.raises(VariationError, match="did you mean 'gravity'"):
        sweep(env, policy, {"gravty": np.array([1.0])}, 2, key)
    with pytest.raises(VariationError, match="is -1; give"):
        sweep(env, policy, {"mass_pole": np.array([1.0, -1.0])}, 2, key)
    with pytest.raises(ConfigError, match="context is empty; give features"):
        sweep(env, policy, {}, 2, key)
