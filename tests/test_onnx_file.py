"""Policies as ONNX files, run by ONNX Runtime and compared with the policies themselves."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import worldline
from worldline import cli
from worldline.errors import ExportError, MissingExtraError, RunError
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy
from worldline.learn.ppo import PPOConfig
from worldline.learn.ppo_networks import networks_for
from worldline.onnx_file import save_onnx

ENV = worldline.make("robot/reach")
SHAPES = {"state": ENV.observation_space.shape}


def policy_of(**config):
    """A policy before any training, but for what it normalises by."""
    networks = networks_for(PPOConfig(**config), ENV)(jax.random.key(0), 5, 5, 2)
    statistics = RunningStatistics(jnp.float32(9), jnp.arange(5.0), 1.0 + jnp.arange(5.0))
    low, high = jnp.asarray(ENV.action_low), jnp.asarray(ENV.action_high)
    return Policy(networks.actor, statistics, low, high, "tanh")


def session(path):
    return pytest.importorskip("onnxruntime").InferenceSession(path)


def test_its_actions_are_the_policys_for_any_number_of_observations(tmp_path):
    pytest.importorskip("jax2onnx")
    policy = policy_of()
    save_onnx(tmp_path / "p.onnx", policy, SHAPES)
    run = session(tmp_path / "p.onnx").run
    random = np.random.default_rng(1)
    for rows in (1, 7):
        obs = random.normal(0, 3, (rows, 5)).astype(np.float32)
        (action,) = run(None, {"state": obs})
        np.testing.assert_allclose(action, policy(obs), rtol=1e-5, atol=1e-5)


def test_a_memory_goes_in_and_comes_out(tmp_path):
    pytest.importorskip("jax2onnx")
    policy = policy_of(recurrent_size=8)
    save_onnx(tmp_path / "p.onnx", policy, SHAPES)
    run = session(tmp_path / "p.onnx").run
    ours, theirs = policy.start(3), np.zeros((3, 8), np.float32)
    for obs in np.random.default_rng(2).normal(size=(5, 3, 5)).astype(np.float32):
        action, ours = policy.step(obs, ours)
        found, theirs = run(None, {"state": obs, "memory_0": theirs})
        np.testing.assert_allclose(found, action, rtol=1e-5, atol=1e-5)


def test_what_cannot_be_written_is_said(tmp_path, monkeypatch):
    pytest.importorskip("jax2onnx")
    policy = policy_of()
    with pytest.raises(RunError, match="cannot write"):
        save_onnx(tmp_path / "none" / "p.onnx", policy, SHAPES)
    monkeypatch.setattr("worldline.onnx_file._difference", lambda *_: 0.1)
    with pytest.raises(ExportError, match="differ from the policy's by"):
        save_onnx(tmp_path / "p.onnx", policy, SHAPES)
    assert not (tmp_path / "p.onnx").exists()


def test_without_the_extra_the_install_line_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'worldline\[onnx\]'"):
        save_onnx(tmp_path / "p.onnx", policy_of(), SHAPES)


def test_the_command_line_exports_a_run(tmp_path, capsys):
    pytest.importorskip("jax2onnx")
    run = tmp_path / "run"
    options = "--steps 512 --num-worlds 4 --unroll-length 32 --evaluations 1 --no-video --quiet"
    with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to an integer count
        assert cli.main(["train", "robot/reach", *options.split(), "--out", str(run)]) == 0
    capsys.readouterr()
    assert cli.main(["export", str(run)]) == 0
    assert "state, of each world (5,)" in capsys.readouterr().out
    obs = np.zeros((2, 5), np.float32)
    (action,) = session(run / "policy.onnx").run(None, {"state": obs})
    np.testing.assert_allclose(action, worldline.load_policy(run)(obs), rtol=1e-5, atol=1e-5)
