"""Cameras as they are configured: in Python, on the command line, in a run that goes on."""

import jax
import numpy as np
import pytest

from worldline.cli import main as cli
from worldline.cli.arguments import EnvSettings
from worldline.env.env import Env
from worldline.errors import ConfigError
from worldline.export.policy_file import load_policy
from worldline.learn.ppo import PPOConfig
from worldline.learn.sac import SACConfig
from worldline.rendering.camera import Camera, image_names, read_cameras
from worldline.report import RunFolder
from worldline.tasks.robot.pick_cube import PickCube
from worldline.train.config import reading_all


def test_cameras_from_texts():
    assert read_cameras(["fixed", "front=84x96"], stack=3, depth=True) == {
        "fixed": Camera("fixed", 64, 64, depth=True, stack=3),
        "front": Camera("front", 84, 96, depth=True, stack=3),
    }
    assert read_cameras([]) == {}


@pytest.mark.parametrize("text", ["front=84", "=64x64", "front=axb", "front=64x", ""])
def test_texts_that_are_none(text):
    with pytest.raises(ConfigError, match="is not a camera; give NAME, or NAME=HEIGHTxWIDTH"):
        read_cameras([text])


def test_what_a_camera_adds():
    assert Camera("c", rgb=False, depth=True).images("v") == {"depth/v": (1, np.uint16)}
    assert list(Camera("c", depth=True).images("v")) == ["pixels/v", "depth/v"]
    assert image_names(["state", "pixels/a", "context", "depth/a"]) == ["pixels/a", "depth/a"]


def test_cameras_need_an_algorithm_that_sees(capsys):
    arguments = ["train", "suite/cartpole-balance", "--pixels", "fixed=16x16"]
    assert cli.main([*arguments, "--algorithm", "shac"]) == 2
    assert "with --pixels, give --algorithm ppo or sac" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("read", "through"),
    [
        (("state",), ("pixels/front",)),
        (("state", "privileged_state"), ("state", "pixels/front")),
        (("state", "pixels/front"), ("state", "pixels/front")),
    ],
)
def test_images_take_the_place_of_what_only_a_simulator_knows(read, through):
    env = Env(PickCube(), "fake", cameras={"front": Camera("front", 16, 16)})
    for config in (PPOConfig(actor_obs=read), SACConfig(actor_obs=read)):
        assert reading_all(config, env).actor_obs == through


def test_an_action_repeat_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="action_repeat is 0; give 1 to 10000"):
        EnvSettings(action_repeat=0).environment(PickCube())


def test_the_last_action_is_read_beside_what_is_seen():
    settings = EnvSettings(pixels=("front=16x16",), last_action=True, physics="fake")
    env = settings.environment(PickCube())
    assert set(env.observation_space) >= {"last_action", "pixels/front"}
    read = reading_all(PPOConfig(), env).actor_obs
    assert read == ("pixels/front", "last_action")
    told = SACConfig(critic_obs=("state",))
    assert reading_all(told, env).critic_obs == ("state",)


@pytest.mark.slow
def test_a_run_from_pixels_and_its_continuation(tmp_path, capsys, monkeypatch):
    # Keeps the command from setting up JAX's compilation cache, which would last for all tests.
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1")
    run = tmp_path / "run"
    size = ["--num-worlds", "2", "--unroll-length", "8", "--minibatches", "1", "--epochs", "1"]
    short = ["--task.episode-length", "10", "--eval-episodes", "2", "--evaluations", "1"]
    quiet = ["--no-video", "--quiet", "--out", str(run)]
    images = ["--pixels", "fixed=16x16", "--frames", "2", "--random-shift", "1"]
    arguments = ["suite/cartpole-balance", "--steps", "16", *size, *short, *quiet, *images]
    with jax.numpy_dtype_promotion("standard"):  # for Optax
        assert cli.main(["train", *arguments]) == 0
        assert cli.main(["resume", str(run), "--steps", "32", "--quiet"]) == 0
    config = RunFolder.open(run).config
    assert config["ppo"]["actor_obs"] == ["pixels/fixed"]
    assert config["steps"] == 32
    policy = load_policy(run)
    action = policy({"pixels/fixed": np.zeros((16, 16, 6), np.uint8)})
    assert action.shape == (1,)
    assert cli.main(["eval", str(run), "--episodes", "2"]) == 0
    assert "deterministic" in capsys.readouterr().out
