"""Some processes act and others learn: on loopback, CPUs and gloo, by the command line."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import worldline
from worldline.cli.main import main
from worldline.errors import ConfigError
from worldline.learn.ppo import PPOConfig, ppo
from worldline.parallel.config import ClusterConfig
from worldline.report import RunFolder

PPO = PPOConfig(num_worlds=8, unroll_length=8, minibatches=2, epochs=2, discount=0.95)
PER_UPDATE = PPO.num_worlds * PPO.unroll_length
TRAIN = (
    *("train", "robot/reach", "--num-worlds", "8", "--unroll-length", "8", "--minibatches", "2"),
    *("--epochs", "2", "--eval-episodes", "2", "--no-video", "--evaluations", "2"),
)
FOREVER = "100000000"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"actors": 2}, "actors is 2, which are processes: give local"),
        ({"learners": 1}, "learners is 1, and needs actors"),
        ({"actors": 3, "learners": 2, "local": True}, "2 learners do not divide 3 actors"),
        ({"actors": 2, "processes": 2, "local": True}, "processes is 2, but .* are 3; leave"),
        ({"actors": 2, "devices": 2, "local": True}, "devices is 2: with actors each .* one"),
        ({"actors": 2, "coordinator": "a:1", "process": 3}, "process is 3 of 3; give 0 to 2"),
    ],
)
def test_wrong_roles_are_refused(wrong, says):
    with pytest.raises(ConfigError, match=says):
        ClusterConfig(**wrong)


def test_learners_and_processes_follow_from_the_actors():
    config = ClusterConfig(actors=4, learners=2, local=True)
    assert (config.learners, config.processes) == (2, 6)
    assert ClusterConfig(actors=3, coordinator="auto").learners == 1
    assert ClusterConfig().learners is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("actors", "learners"), [(2, 1), pytest.param(2, 2, marks=pytest.mark.exhaustive)]
)
def test_they_train_as_one_that_lags_behind(actors, learners, tmp_path):
    """A plain loop is the reference: while a rollout is learned from, the policy before acts."""
    out = tmp_path / "run"
    with processes(actors, learners, *TRAIN, "--steps", str(6 * PER_UPDATE), "--out", out) as all_:
        said = [process.communicate(timeout=300) for process in all_]
    assert [process.returncode for process in all_] == [0] * len(all_), said
    assert f"{actors} of {actors + learners} processes act" in said[0][1] + said[0][0]
    assert {path.name for path in tmp_path.iterdir()} == {"run"}
    assert {"policy.npz", "curves.png", "checkpoints"} <= {path.name for path in out.iterdir()}
    assert RunFolder.open(out).config["ppo"]["lag"] == 1

    with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to an integer count
        learner = ppo(worldline.Worlds(worldline.make("robot/reach"), PPO.num_worlds), PPO)
        assert learner.halves is not None
        act, learn = learner.halves.act, learner.halves.learn
        start = learner.init(jax.random.split(jax.random.key(0), 3)[0])
        learning, (acting, rollout) = start.learning, act(start.acting, start.learning)
        for update, found in enumerate(rows(out)):
            before = learning
            learning, expected = learn(learning, rollout)
            acting, rollout = act(acting, before)
            assert found["step"] == (update + 1) * PER_UPDATE
            for name in ("train/distance", "loss/value", "loss/entropy", "ppo/kl"):
                close(found[name], expected[name], name)
    assert update == 5
    leaves = jax.tree.leaves(learner.policy(start.__class__(acting, learning)).actor)
    first_layer = next(leaf for leaf in leaves if leaf.ndim == 2)
    policy = np.load(out / "policy.npz")
    found = next(policy[name] for name in policy.files if policy[name].shape == first_layer.shape)
    close(found, first_layer, "weights")


def close(found: Any, expected: Any, name: str) -> None:
    """Equal up to the order of sums, which each update makes larger."""
    np.testing.assert_allclose(found, expected, rtol=5e-3, atol=1e-4, err_msg=name)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_an_actor_that_is_killed_ends_the_run_and_it_goes_on_bit_for_bit(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    until(whole, 12, TRAIN)
    until(killed, 4, TRAIN)
    with processes(2, 1, "resume", killed, "--steps", FOREVER) as all_:
        while len(rows(killed)) < 9:
            assert [process.poll() for process in all_] == [None] * 3
            time.sleep(0.05)
        all_[2].kill()
        said = [process.communicate(timeout=100)[1] for process in all_]
    (error,) = [line for line in said[0].splitlines() if line.startswith("error:")]
    assert "process 0 of 3 has lost another process" in error
    codes = [process.returncode for process in all_]  # JAX itself may end the other actor
    assert codes[0] == 2 and codes[1] != 0 and codes[2] == -9, said
    until(killed, 12, ("resume", killed))
    one, other = (np.load(folder / "policy.npz") for folder in (whole, killed))
    for name in one.files:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    # And one process goes on with what three have saved.
    steps = str(14 * PER_UPDATE)
    assert main(["resume", str(killed), "--steps", steps, "--quiet"]) == 0
    assert rows(killed)[-1]["step"] == 14 * PER_UPDATE


def until(folder: Path, updates: int, command: tuple[Any, ...]) -> None:
    """Two actors and a learner, until so many updates are done."""
    out = ("--out", folder) if command[0] == "train" else ()
    with processes(2, 1, *command, *out, "--steps", str(updates * PER_UPDATE)) as all_:
        said = [process.communicate(timeout=300) for process in all_]
    assert [process.returncode for process in all_] == [0, 0, 0], said


@contextlib.contextmanager
def processes(actors: int, learners: int, *command: Any) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes of a command, which are gone when the context ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "JAX_PLATFORMS": "cpu"}
    roles = ("--actors", str(actors), "--learners", str(learners))
    cluster = (*roles, "--coordinator", f"127.0.0.1:{port}", "--process")
    arguments = [*map(str, command), *cluster]
    all_ = [
        subprocess.Popen(
            [sys.executable, "-m", "worldline.cli", *arguments, str(index)],
            env=os.environ | quick,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(actors + learners)
    ]
    try:
        yield all_
    finally:
        for process in all_:
            process.kill()
            with process:  # waits, and closes its pipes
                pass


def rows(folder: Path) -> list[dict[str, Any]]:
    file = folder / "metrics.jsonl"
    whole = file.read_text().split("\n")[:-1] if file.exists() else []
    return [json.loads(line) for line in whole]
