"""Keys of both of JAX's kinds give the same random numbers; what is no key is refused."""

from typing import Any

import jax
import numpy as np
import pytest

import toys
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.sac import SACConfig, sac
from worldline.learn.shac import SHACConfig, shac

ENV = Env(toys.Puck(), "fake")


def words(tree: Any) -> list[np.ndarray]:
    is_key = lambda x: jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key)  # noqa: E731
    leaves = jax.tree.leaves(tree)
    return [np.asarray(jax.random.key_data(x) if is_key(x) else x) for x in leaves]


def assert_same(ours: Any, theirs: Any) -> None:
    for a, b in zip(words(ours), words(theirs), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("reset", [ENV.reset, jax.jit(ENV.reset), ENV.reset_to])
def test_an_environment_takes_both_kinds(reset):
    assert_same(reset(jax.random.PRNGKey(3)), reset(jax.random.key(3)))


@pytest.mark.parametrize("num_worlds", [1, 2, 4])
def test_worlds_take_both_kinds_one_key_or_one_each(num_worlds):
    worlds = Worlds(ENV, num_worlds)
    assert_same(worlds.reset(jax.random.PRNGKey(3)), worlds.reset(jax.random.key(3)))

    def one_each(kind):
        return jax.random.split(kind(3), num_worlds)

    new = worlds.reset(one_each(jax.random.key))
    assert_same(worlds.reset(one_each(jax.random.PRNGKey)), new)
    assert_same(worlds.reset(np.asarray(one_each(jax.random.PRNGKey))), new)


CONFIGS = [
    (ppo, PPOConfig(num_worlds=4, unroll_length=4, minibatches=1)),
    (sac, SACConfig(num_worlds=4, unroll_length=4, replay_capacity=64)),
    (shac, SHACConfig(num_worlds=4, unroll_length=4)),
]


@pytest.mark.parametrize(("algorithm", "config"), CONFIGS)
def test_learners_take_both_kinds(algorithm, config):
    learner = algorithm(Worlds(ENV, 4), config)
    assert_same(learner.init(jax.random.PRNGKey(3)), learner.init(jax.random.key(3)))


@pytest.mark.parametrize(
    "wrong", [0, np.float32(1), np.arange(2), np.zeros(3, np.uint32), None, "seed"]
)
def test_what_is_no_key_is_refused(wrong):
    for reset in (ENV.reset, Worlds(ENV, 2).reset):
        with pytest.raises(ConfigError, match=r"the key is .*; give jax\.random\.key\(seed\)"):
            reset(wrong)
