"""`gradual=True`: humanoids whose episodes become harder while few of them fall."""

import copy
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import worldline
from worldline.env.disturb import ActionNoise, Disturbed
from worldline.errors import TaskError
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.rollout import evaluator
from worldline.tasks.playground import gradual
from worldline.tasks.terrain import Terrain

HUMANOIDS = [
    "g1-joystick-flat",
    "t1-joystick-flat",
    "berkeley-joystick-flat",
    "apollo-joystick-flat",
]


@functools.lru_cache
def worlds_of(name, number=64, **options):
    """Worlds of a task."""
    return worldline.Worlds(worldline.make(f"playground/{name}", **options), number)


def starts(name, level=None, **options):
    """Worlds at their start; with a level, that of `gradual=True`."""
    worlds = worlds_of(name, gradual=level is not None, **options)
    ranges = None if level is None else {**worlds.ranges, gradual.LEVEL: jnp.float32(level)}
    return worlds.reset(jax.random.key(0), ranges=ranges)


def exact(state):
    """All numbers of the worlds' physics, memories and observations."""
    env = state.env
    return jax.tree.leaves(
        (env.physics.qpos, env.physics.qvel, env.physics.fields, env.memory, state.obs)
    )


@pytest.mark.parametrize("name", HUMANOIDS)
def test_the_easiest_episodes_begin_at_rest(name):
    state = starts(name, 0.0)
    assert not np.any(state.env.physics.qvel)


@pytest.mark.parametrize("name", HUMANOIDS)
def test_the_hardest_episodes_are_those_of_the_task_itself(name):
    hardest = starts(name, 1.0)
    plain = starts(name)
    pairs = zip(*map(exact, (hardest, plain)), strict=True)
    for ours, own in pairs:
        np.testing.assert_array_equal(ours, own)


@pytest.mark.parametrize("level", [0.25, 0.5])
def test_the_throw_grows_with_the_level_and_all_else_stays(level):
    part = starts("g1-joystick-flat", level)
    whole = starts("g1-joystick-flat")
    np.testing.assert_array_equal(part.env.physics.qvel, np.float32(level) * whole.env.physics.qvel)
    np.testing.assert_array_equal(part.env.physics.qpos, whole.env.physics.qpos)
    commands = [state.env.memory.command.velocity for state in (part, whole)]
    np.testing.assert_array_equal(*commands)


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_the_noise_grows_with_the_level(level):
    state = starts("g1-joystick-flat", level)
    silent = starts("g1-joystick-flat", level, noise_level=0.0)
    noise = np.abs(state.obs["state"] - silent.obs["state"])[:, :3]
    assert noise.max() == pytest.approx(0.1 * level, abs=0.01)


def test_a_push_has_the_size_of_its_episode():
    def speeds(level):
        task = worldline.make(
            "playground/g1-joystick-flat", push_wait=(0.02, 0.02), gradual=True
        ).task
        start = task.start_within(jax.random.key(1), {gradual.LEVEL: jnp.float32(level)})
        physics = worldline.make("playground/g1-joystick-flat").reset(jax.random.key(0)).physics
        change = task.control(jnp.zeros(29), physics, start.memory)["qvel"] - physics.qvel
        return float(jnp.linalg.norm(change[:2]))

    whole = speeds(1.0)
    assert 0.1 <= whole <= 2.0
    assert speeds(0.0) == 0.0
    assert speeds(0.5) == pytest.approx(whole / 2, rel=1e-5)


def first_steps(level):
    """The reward for the first steps of robots that fall, by time and world, and by hand."""
    worlds = worlds_of("g1-joystick-flat", number=16, gradual=True, first_steps_weight=10.0)
    ranges = {**worlds.ranges, gradual.LEVEL: jnp.float32(level)}
    state = worlds.reset(jax.random.key(0), ranges=ranges)
    rewards, by_hand = [], []
    for _ in range(40):
        feet = state.env.memory.feet
        state, step = worlds.step(state, jnp.zeros((16, 29)))
        live = ~step.terminated
        contact = state.env.memory.feet.contact
        before = np.where(feet.contact, 0.0, feet.air_time)
        landed = (before > 0) & (contact | feet.contact)
        swings = np.where(landed, np.minimum(before + 0.02, 0.5), 0.0).sum(-1)
        rewards.append(np.where(live, step.metrics["reward/first_steps"], 0.0))
        by_hand.append(np.where(live, 10.0 * (1 - level) * swings, 0.0))
    return np.array(rewards), np.array(by_hand)


@pytest.mark.parametrize("level", [0.0, 0.5])
def test_a_swing_of_a_foot_is_worth_its_time_in_the_easiest_episodes(level):
    rewards, by_hand = first_steps(level)
    assert by_hand.max() > 0
    np.testing.assert_allclose(rewards, by_hand, rtol=1e-5, atol=1e-6)


def test_a_swing_of_a_foot_is_worth_nothing_in_the_hardest_episodes():
    assert not first_steps(1.0)[0].any()


@pytest.mark.parametrize("option", [{"first_steps_weight": 120.0}, {"first_following": 0.25}])
def test_an_option_that_changes_nothing_without_gradual_is_refused(option):
    (name,) = option
    with pytest.raises(TaskError, match=f"^{name} is .* without gradual; set gradual=True"):
        worldline.make("playground/t1-joystick-flat", **option)


@pytest.mark.parametrize(("level", "share"), [(0.0, 0.2), (0.5, 0.6), (1.0, 1.0)])
def test_following_counts_less_in_the_easiest_episodes(level, share):
    def rewards(first_following):
        options = {"gradual": True, "first_following": first_following}
        worlds = worlds_of("g1-joystick-flat", number=16, **options)
        ranges = {**worlds.ranges, gradual.LEVEL: jnp.float32(level)}
        state = worlds.reset(jax.random.key(0), ranges=ranges)
        step = worlds.step(state, jnp.zeros((16, 29)))[1]
        return {k: v for k, v in step.metrics.items() if k.startswith("reward/")}

    whole, part = rewards(1.0), rewards(0.2)
    for name, reward in whole.items():
        counts = share if "tracking" in name else 1.0
        np.testing.assert_allclose(part[name], counts * reward, rtol=1e-5)
    assert np.all(whole["reward/tracking_lin_vel"] > 0)


def after(steps, falls, level):
    """The ranges after steps of 100 worlds with so many falls each."""
    ranges = {gradual.LEVEL: jnp.float32(level), gradual.FALLS: jnp.float32(falls / 100)}
    for _ in range(steps):
        ranges = gradual.adapted(ranges, (jnp.int32(falls), jnp.int32(100)))
    return ranges


def test_the_level_rises_without_falls_and_sinks_with_many():
    assert after(60, falls=0, level=0.5)[gradual.LEVEL] == pytest.approx(0.52, abs=1e-5)
    assert after(60, falls=1, level=0.5)[gradual.LEVEL] == pytest.approx(0.48, abs=1e-5)
    assert after(60, falls=0, level=1.0)[gradual.LEVEL] == 1.0
    assert after(60, falls=1, level=0.0)[gradual.LEVEL] == 0.0


def test_the_falls_are_a_moving_average():
    ranges = {gradual.LEVEL: jnp.float32(0.0), gradual.FALLS: jnp.float32(0.02)}
    once = gradual.adapted(ranges, (jnp.int32(3), jnp.int32(100)))
    assert once[gradual.FALLS] == pytest.approx(0.02 + 0.01 * (0.03 - 0.02))


def stepped(steps, **ranges):
    """The ranges of G1s without a policy, which fall about every 55 control steps."""
    worlds = worlds_of("g1-joystick-flat", number=8, gradual=True, fast=True)
    given = {name: jnp.float32(value) for name, value in ranges.items()}
    state = worlds.reset(jax.random.key(0), ranges={**worlds.ranges, **given})
    for _ in range(steps):
        state, _ = worlds.step(state, jnp.zeros((8, 29)))
    return state.ranges


def test_robots_that_fall_get_no_harder_episodes():
    after_falls = stepped(400)
    assert after_falls[gradual.LEVEL] == 0.0
    assert after_falls[gradual.FALLS] == pytest.approx(1 / 55, rel=0.5)


def test_robots_that_have_not_fallen_get_harder_episodes():
    after_none = stepped(12, episode_level=0.0, falls=0.0)
    assert after_none[gradual.FALLS] == 0.0
    assert after_none[gradual.LEVEL] == pytest.approx(12 / 3000, rel=1e-4)


@pytest.mark.parametrize("name", HUMANOIDS)
def test_without_the_option_nothing_adapts(name):
    assert not worldline.make(f"playground/{name}").task.start_ranges


def untrained(env):
    """An untrained policy."""
    config = PPOConfig(num_worlds=8, unroll_length=8, minibatches=2)
    learner = ppo(worldline.Worlds(env, 8), config)
    return learner.policy(learner.init(jax.random.key(0)))


@pytest.mark.parametrize("name", ["g1-joystick-flat", "apollo-joystick-flat"])
def test_an_evaluation_has_the_hardest_episodes(name):
    policy = untrained(worldline.make(f"playground/{name}", fast=True))
    plain, easy_first = (
        evaluator(worldline.make(f"playground/{name}", fast=True, gradual=growing), 8)(
            policy, jax.random.key(3)
        )
        for growing in (False, True)
    )
    np.testing.assert_array_equal(easy_first.episode_length, plain.episode_length)
    np.testing.assert_array_equal(easy_first.episode_return, plain.episode_return)
    np.testing.assert_array_equal(easy_first.metrics["episode_level"], 1.0)


def test_worlds_that_do_not_adapt_keep_their_ranges():
    env = worldline.make("playground/g1-joystick-flat", gradual=True)
    worlds = worldline.Worlds(env, 8, adaptive=False)
    state = begun = worlds.reset(jax.random.key(0))
    assert begun.env.memory.level.tolist() == [1.0] * 8
    for _ in range(100):  # each falls at least once
        state, _ = worlds.step(state, jnp.zeros((8, 29)))
    assert state.episode_index.min() > 0
    assert state.env.memory.level.tolist() == [1.0] * 8
    jax.tree.map(np.testing.assert_array_equal, state.ranges, begun.ranges)


def test_worlds_that_do_not_adapt_stay_so_in_a_copy():
    env = worldline.make("playground/g1-joystick-flat", gradual=True)
    worlds = worldline.Worlds(env, 2, adaptive=False)
    for other in (worlds.repeating(2), copy.copy(worlds)):
        assert other.reset(jax.random.key(0)).env.memory.level.tolist() == [1.0, 1.0]


def on_terrain():
    ground = Terrain(kinds=("rough",), levels=2)
    return worldline.make("playground/g1-joystick-flat", gradual=True, terrain=ground)


def disturbed():
    task = worldline.make("playground/g1-joystick-flat", gradual=True).task
    return worldline.Env(Disturbed(task=task, disturbances=(ActionNoise(std=0.1),)))


@pytest.mark.parametrize("make", [on_terrain, disturbed])
def test_episodes_become_harder_under_another_task_too(make):
    worlds = worldline.Worlds(make(), 8)
    state = begun = worlds.reset(jax.random.key(0))
    assert not np.any(begun.env.physics.qvel)
    for _ in range(20):
        state, _ = worlds.step(state, jnp.zeros((8, 29)))
    assert state.ranges[gradual.FALLS] < begun.ranges[gradual.FALLS]


@pytest.mark.parametrize("make", [on_terrain, disturbed])
def test_evaluations_are_as_hard_as_the_task_under_another_task_too(make):
    state = worldline.Worlds(make(), 8, adaptive=False).reset(jax.random.key(0))
    assert np.all(np.abs(state.env.physics.qvel[:, :6]).max(-1) > 0.01)
