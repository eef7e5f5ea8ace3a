"""The dm_env adapter, with dm_env's own conformance tests."""

import copy
import functools
from typing import Any

import numpy as np
import pytest
from puck_twin import LIMIT, PuckWithDict, puck

from worldline.bridges.gymnasium import Env

dm_env = pytest.importorskip("dm_env")

from absl.testing import absltest  # noqa: E402
from dm_env import specs, test_utils  # noqa: E402

from worldline.bridges.dm_env import Environment  # noqa: E402

PUSH = np.array([0.5, 0.0])


@functools.cache
def compiled() -> Environment:
    return Environment(puck())


def fresh(seed: int) -> Environment:
    """An environment as new, compiled once for all tests."""
    env = copy.copy(compiled())
    env._seed, env._over = seed, True
    return env


class TestConformance(test_utils.EnvironmentTestMixin, absltest.TestCase):
    """What dm_env asks of every environment."""

    def make_object_under_test(self) -> Environment:
        env = fresh(seed=0)
        env.close = lambda: None  # the next test goes on with what it is made of
        return env

    def make_action_sequence(self) -> Any:
        yield from [PUSH] * 20


def test_it_is_gymnasiums_with_other_words() -> None:
    ours, theirs = fresh(seed=3), Env(puck())
    obs, _ = theirs.reset(seed=3)
    step, discounts = ours.reset(), set()
    for _ in range(40):
        np.testing.assert_array_equal(step.observation, obs)
        if step.last():
            step, (obs, _) = ours.step(PUSH), theirs.reset()
            assert step.first()
            continue
        step, (obs, reward, terminated, truncated, _) = ours.step(PUSH), theirs.step(PUSH)
        assert step.reward == reward
        assert step.last() == (terminated or truncated)
        if step.last():
            discounts.add((terminated, step.discount))
    assert discounts == {(True, 0.0), (False, 1.0)}


def test_specs() -> None:
    env = Environment(puck(PuckWithDict), seed=0, episode_length=2)
    action = env.action_spec()
    assert isinstance(action, specs.BoundedArray)
    np.testing.assert_array_equal(action.maximum, np.ones(2))
    first = env.reset()
    for name, spec in env.observation_spec().items():
        spec.validate(first.observation[name])
    assert not env.step(-PUSH).last()
    assert env.step(-PUSH).last()
    assert LIMIT > 2
