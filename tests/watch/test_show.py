"""Worlds in a notebook: the page is inside what the notebook shows."""

import jax
import numpy as np
import pytest

pytest.importorskip("viser")

import toys
from worldline import show
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError, RunError
from worldline.export.policy_file import save_policy
from worldline.learn.networks.mlp import MLP, Actor
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy
from worldline.learn.ppo import PPOConfig
from worldline.learn.rollout import Trajectory
from worldline.report import RunFolder
from worldline.train import TrainConfig
from worldline.train.stored import resolved_config
from worldline.watch import page as page_module
from worldline.watch.source import open_source


@pytest.fixture(scope="module")
def env():
    return Env(toys.Puck(wall=0.3))


@pytest.fixture
def frames(monkeypatch):
    """The frames of each page that is made; the pages themselves are empty."""
    made = []

    def page_of(model, frames, seconds, num_worlds):
        made.append((list(frames), seconds, num_worlds))
        return b"<html></html>"

    monkeypatch.setattr(page_module, "page_of", page_of)
    monkeypatch.setattr("worldline.report.page.page_of", page_of)
    return made


def test_the_page_plays_inside_a_notebook(env, new_page, until, tmp_path):
    qpos = np.linspace([0.0, 0.0], [0.2, 0.1], 100)
    shown = show(Trajectory(qpos, {}, np.zeros(100), {}), env)
    assert "MB; page.save(FILE) writes it" in repr(shown)
    shown.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes() == shown.content
    cell = tmp_path / "cell.html"
    cell.write_text(f"<!doctype html><h1>A notebook</h1>{shown._repr_html_()}")
    asked = []
    page = new_page(cell.as_uri(), asked)
    inside = page.frame_locator("iframe")
    slider = inside.locator("[role=slider]")
    slider.wait_for(state="attached")
    seconds = 100 * env.control_timestep
    assert float(slider.get_attribute("aria-valuemax")) == pytest.approx(seconds, abs=0.1)
    first = slider.get_attribute("aria-valuenow")
    until(lambda: slider.get_attribute("aria-valuenow") != first)
    assert {url for url in asked if not url.startswith(("about:", "blob:", "data:"))} == {
        cell.as_uri()
    }


def test_a_state_goes_on_from_where_it_is(env, frames, tmp_path):
    worlds = Worlds(env, 2)
    state = worlds.reset(jax.random.key(3))
    show((worlds, state), seconds=0)
    ((only,), _, count) = frames[0]
    assert count == 2
    np.testing.assert_array_equal(only.qpos, state.env.physics.qpos)
    show((worlds, state), seconds=1)
    several, seconds, _ = frames[1]
    assert len(several) * seconds == pytest.approx(1, abs=seconds)
    np.testing.assert_array_equal(several[0].qpos, only.qpos)
    stride = round(seconds / env.control_timestep)
    for _ in range(stride):
        state, _ = worlds.step(state, np.zeros((2, 2), np.float32))
    np.testing.assert_allclose(several[1].qpos, state.env.physics.qpos, atol=1e-6)
    with pytest.raises(RunError, match="not a state"):
        show(tmp_path / "none.npz")


def test_a_run_acts_by_its_policy_and_an_environment_rests(env, frames, tmp_path):
    config = resolved_config("puck", env, TrainConfig(), PPOConfig())
    RunFolder.create(tmp_path / "run", config).close()
    network = MLP.initial(jax.random.key(0), (env.observation_space.shape[0], 4, 2), "tanh", 0.0)
    pushes = MLP(network.weights, [*network.biases[:-1], np.ones(2, np.float32)], "tanh")
    actor = Actor(pushes, np.zeros(2, np.float32))
    statistics = RunningStatistics.zero(env.observation_space.shape)
    policy = Policy(actor, statistics, env.action_low, env.action_high, "clip")
    save_policy(tmp_path / "run", policy)
    show(str(tmp_path / "run"), worlds=3, seconds=0.3)
    same = open_source(str(tmp_path / "run")).env
    show(same, policy=policy, worlds=3, seconds=0.3)
    show(same, worlds=3, seconds=0.3)
    by_folder, by_policy, at_rest = (made[0][-1].qpos for made in frames)
    assert by_folder.shape == (3, 2)
    np.testing.assert_allclose(by_folder, by_policy, atol=1e-6)
    assert np.abs(by_policy - at_rest).min() > 1e-3


def test_episodes_wait_for_the_longest(env, frames):
    episodes = [Trajectory(np.full((n, 2), float(n)), {}, np.zeros(n), {}) for n in (30, 60)]
    show(episodes, env)
    ((played, seconds, count),) = frames
    assert count == 2
    assert len(played) * seconds == pytest.approx(60 * env.control_timestep, abs=seconds)
    np.testing.assert_array_equal(played[-1].qpos, [[30, 30], [60, 60]])


def test_what_cannot_be_shown_is_one_line(env):
    with pytest.raises(ConfigError, match="cannot show a int"):
        show(3)
    with pytest.raises(ConfigError, match="give env too"):
        show(Trajectory(np.zeros((3, 2)), {}, np.zeros(3), {}))
    with pytest.raises(ConfigError, match="is not a run folder, a task or an MJCF file"):
        show("robot/reech")
