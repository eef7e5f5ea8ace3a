"""Disturbances as a part of an environment: its configuration has them, and so does a run."""

import json

import jax
import numpy as np
import pytest

import toys
import worldline
from worldline.env.disturb import (
    ActionDelay,
    ActionNoise,
    Disturbance,
    Disturbed,
    ObservationNoise,
    Pushes,
)
from worldline.env.options import read_disturbances
from worldline.errors import ConfigError, ModelError, TaskError
from worldline.learn.ppo import PPOConfig
from worldline.report import RunFolder
from worldline.train import TrainConfig, train
from worldline.train.stored import environment_of
from worldline.variation import Choice, Domain, Uniform, scale

ROUGH = (
    ObservationNoise(std=0.01),
    ActionDelay(steps=Choice([0, 1, 2])),
    Pushes(body="puck", force=Uniform(1.0, 2.0)),
)


def some_steps(env):
    state = env.reset(jax.random.key(1))
    seen = [state.obs]
    for _ in range(4):
        state = env.step(state, np.full(env.action_low.shape, 0.5, np.float32))
        seen.append(state.obs)
    return np.stack(seen)


def test_an_environment_takes_disturbances_as_a_disturbed_task_does():
    plain = toys.Puck()
    one = worldline.Env(plain, disturbances=ROUGH)
    other = worldline.Env(Disturbed(task=plain, disturbances=ROUGH))
    joined = worldline.Env(Disturbed(task=plain, disturbances=ROUGH[:1]), disturbances=ROUGH[1:])
    np.testing.assert_array_equal(some_steps(one), some_steps(other))
    np.testing.assert_array_equal(some_steps(one), some_steps(joined))
    assert one.config.disturbances == other.config.disturbances == ROUGH
    assert not worldline.Env(plain).config.disturbances
    again = worldline.Env.from_config(plain, one.config)
    np.testing.assert_array_equal(some_steps(one), some_steps(again))
    assert some_steps(one).tolist() != some_steps(worldline.Env(plain)).tolist()


class Own(Disturbance):
    def start(self, task, key):
        return ()

    def next(self, task, memory, action):
        return ()


def test_a_run_has_the_disturbances_and_the_domain(tmp_path):
    env = worldline.make("robot/reach", "fake", disturbances=(ActionNoise(std=0.1), ROUGH[1]))
    domain = Domain(scale("body_mass", Uniform(0.5, 1.5)))
    config = TrainConfig(
        steps=16, out=tmp_path / "run", domain=domain, evaluations=1, eval_episodes=2, video=False,
        quiet=True,
    )  # fmt: skip
    small = PPOConfig(num_worlds=2, unroll_length=8, minibatches=1, epochs=1)
    with jax.numpy_dtype_promotion("standard"):
        folder = RunFolder.open(train("robot/reach", env, config, small).folder)
    again = environment_of(folder)
    assert again.config == env.config
    np.testing.assert_array_equal(some_steps(again), some_steps(env))
    assert folder.config["domain"]["terms"][0]["operation"] == "scale"
    json.dumps(folder.config)
    own = worldline.Env(env.task, "fake", disturbances=(Own(),))
    assert own.config.not_stored == ("the disturbance Own of your own",)


def test_noise_leaves_what_a_critic_knows():
    noise = ObservationNoise(std=1.0)
    obs = {"state": np.zeros(3, np.float32), "privileged_state": np.zeros(3, np.float32)}
    memory = noise.start(toys.Puck(), jax.random.key(0))
    seen = noise.observe(toys.Puck(), memory, obs)
    assert np.all(seen["state"] != 0) and np.all(seen["privileged_state"] == 0)


@pytest.mark.parametrize(
    ("option", "disturbances"),
    [
        ({}, ()),
        ({"delay": "2"}, (ActionDelay(steps=2),)),
        ({"noise": "0.02"}, (ObservationNoise(std=0.02),)),
        ({"noise": "state=0.02,goal=1"}, (ObservationNoise(std={"state": 0.02, "goal": 1.0}),)),
        ({"push": "20:60"}, (Pushes(body="puck", force=Uniform(20, 60)),)),
        ({"push": "puck=5"}, (Pushes(body="puck", force=Uniform(5, 5)),)),
    ],
)
def test_options_are_read(option, disturbances):
    assert read_disturbances(toys.Puck(), **option) == disturbances


def test_a_range_of_delays_draws_each_alike():
    (delay,) = read_disturbances(toys.Puck(), delay="1:3")
    np.testing.assert_array_equal(delay.steps.values, [1, 2, 3])


@pytest.mark.parametrize(
    ("option", "error", "said"),
    [
        (
            {"delay": "x"},
            ConfigError,
            "delay contains 'x'; give whole control steps, for example 2",
        ),
        ({"delay": "1.5"}, ConfigError, "delay contains '1.5'"),
        ({"delay": "3:1"}, ConfigError, "delay is '3:1': the first number is larger"),
        ({"delay": "-2"}, TaskError, "ActionDelay of -2 to -2 steps; give 0 to 999"),
        ({"noise": "-1"}, TaskError, "has std -1.0; give 0 or more"),
        ({"noise": "0.1,state=0.2"}, ConfigError, "noise is '0.1,state=0.2'; give a standard dev"),
        ({"push": "puk=20"}, ModelError, "puk"),
        ({"push": "20:x"}, ConfigError, "push contains 'x'; give a force in newtons"),
    ],
)
def test_what_is_wrong_with_an_option_is_said(option, error, said):
    with pytest.raises(error, match=said):
        worldline.Env(toys.Puck(), disturbances=read_disturbances(toys.Puck(), **option))
