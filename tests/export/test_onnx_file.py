"""Policies as ONNX files, run by ONNX Runtime and compared with the policies themselves."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import worldline
from worldline.cli import main as cli
from worldline.errors import ExportError, MissingExtraError, RunError
from worldline.export.onnx_file import save_onnx
from worldline.learn.networks.mlp import MLP, Actor
from worldline.learn.networks.vision import ImageEncoder
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy
from worldline.learn.ppo import PPOConfig
from worldline.learn.ppo.networks import actor_critic

ENV = worldline.make("robot/reach")
SPACE = ENV.observation_space


def policy_of(**config):
    """A policy before any training, but for what it normalises by."""
    networks = actor_critic(PPOConfig(**config))(jax.random.key(0), 5, 5, 2)
    statistics = RunningStatistics(jnp.float32(9), jnp.arange(5.0), 1.0 + jnp.arange(5.0))
    low, high = jnp.asarray(ENV.action_low), jnp.asarray(ENV.action_high)
    return Policy(networks.actor, statistics, low, high, "tanh")


def session(path):
    return pytest.importorskip("onnxruntime").InferenceSession(path)


def test_its_actions_are_the_policys_for_any_number_of_observations(tmp_path):
    pytest.importorskip("jax2onnx")
    policy = policy_of()
    save_onnx(tmp_path / "p.onnx", policy, SPACE)
    run = session(tmp_path / "p.onnx").run
    random = np.random.default_rng(1)
    for rows in (1, 7):
        obs = random.normal(0, 3, (rows, 5)).astype(np.float32)
        (action,) = run(None, {"state": obs})
        np.testing.assert_allclose(action, policy(obs), rtol=1e-5, atol=1e-5)


def test_a_memory_goes_in_and_comes_out(tmp_path):
    pytest.importorskip("jax2onnx")
    policy = policy_of(recurrent_size=8)
    save_onnx(tmp_path / "p.onnx", policy, SPACE)
    run = session(tmp_path / "p.onnx").run
    ours, theirs = policy.start(3), np.zeros((3, 8), np.float32)
    for obs in np.random.default_rng(2).normal(size=(5, 3, 5)).astype(np.float32):
        action, ours = policy.step(obs, ours)
        found, theirs = run(None, {"state": obs, "memory_0": theirs})
        np.testing.assert_allclose(found, action, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("encoder", ["patches", "nature"])
@pytest.mark.parametrize("normalize", [False, True])
def test_images_are_seen_as_by_the_policy(tmp_path, encoder, normalize):
    """Colours, of bytes, and distances, of millimetres, beside numbers."""
    pytest.importorskip("jax2onnx")
    whole = {"depth/front": (np.uint16, 1), "pixels/front": (np.uint8, 6)}
    images = {
        name: spaces.Box(0, np.iinfo(dtype).max, (40, 44, channels), dtype)
        for name, (dtype, channels) in whole.items()
    }
    eyes = ImageEncoder.initial(
        jax.random.key(0),
        {name: space.shape for name, space in images.items()},
        encoder,
        16,
        normalize_channels=normalize,
    )
    head = MLP.initial(jax.random.key(1), (5 + eyes.size, 8, 2), "elu", last_gain=1.0)
    plain = policy_of()
    policy = Policy(
        Actor(head, jnp.zeros(2)),
        plain.statistics,
        plain.low,
        plain.high,
        "tanh",
        obs_keys=("state", *images),
        encoder=eyes,
    )
    space = spaces.Dict({"state": SPACE, **images})
    save_onnx(tmp_path / "p.onnx", policy, space)
    run = session(tmp_path / "p.onnx").run
    for seed in range(3):
        space.seed(seed)
        samples = [space.sample() for _ in range(1 + seed)]  # any number of them
        obs = {name: np.stack([sample[name] for sample in samples]) for name in space}
        (action,) = run(None, obs)
        np.testing.assert_allclose(action, policy(obs), rtol=1e-5, atol=1e-5)


def test_what_cannot_be_written_is_said(tmp_path, monkeypatch):
    pytest.importorskip("jax2onnx")
    policy = policy_of()
    with pytest.raises(RunError, match="cannot write"):
        save_onnx(tmp_path / "none" / "p.onnx", policy, SPACE)
    monkeypatch.setattr("worldline.export.onnx_file._difference", lambda *_: 0.1)
    with pytest.raises(ExportError, match="differ from the policy's by"):
        save_onnx(tmp_path / "p.onnx", policy, SPACE)
    assert not (tmp_path / "p.onnx").exists()


def test_without_the_extra_the_install_line_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[onnx\]'"):
        save_onnx(tmp_path / "p.onnx", policy_of(), SPACE)


def test_the_command_line_exports_a_run(tmp_path, capsys):
    pytest.importorskip("jax2onnx")
    run = tmp_path / "run"
    options = "--steps 512 --num-worlds 4 --unroll-length 32 --evaluations 1 --no-video --quiet"
    with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to an integer count
        assert cli.main(["train", "robot/reach", *options.split(), "--out", str(run)]) == 0
    capsys.readouterr()
    assert cli.main(["export", str(run), "--out", str(run / "alone.onnx")]) == 0
    assert "state, of each world (5,)" in capsys.readouterr().out
    obs = np.zeros((2, 5), np.float32)
    (action,) = session(run / "alone.onnx").run(None, {"state": obs})
    np.testing.assert_allclose(action, worldline.load_policy(run)(obs), rtol=1e-5, atol=1e-5)
    assert cli.main(["export", str(run)]) == 0
    assert "run_policy.py --check` repeats an episode" in capsys.readouterr().out
    assert sorted(file.name for file in (run / "deploy").iterdir()) == [
        "contract.json", "model.xml", "policy.onnx", "reference.npz", "run_policy.py"
    ]  # fmt: skip
    contract = json.loads((run / "deploy" / "contract.json").read_text())
    assert contract["training"]["task"] == "robot/reach"
    assert contract["training"]["step"] == 512
    (action,) = session(run / "deploy" / "policy.onnx").run(None, {"state": obs})
    np.testing.assert_allclose(action, worldline.load_policy(run)(obs), rtol=1e-5, atol=1e-5)
