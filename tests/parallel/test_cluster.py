"""Several processes that train as one: on loopback, CPUs and gloo, by the command line."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import worldline
from worldline.errors import ConfigError
from worldline.learn.ppo import PPOConfig
from worldline.parallel.cluster import (
    any_of,
    is_first,
    join,
    of_first,
    report_lost_process,
)
from worldline.parallel.config import ClusterConfig
from worldline.train import TrainConfig, resume, train

PPO = PPOConfig(num_worlds=8, unroll_length=8, minibatches=2, epochs=2, discount=0.95)
PER_UPDATE = PPO.num_worlds * PPO.unroll_length
RUN = TrainConfig(steps=8 * PER_UPDATE, evaluations=2, eval_episodes=2, quiet=True, video=False)
FOREVER = "100000000"


@pytest.fixture(autouse=True)
def optax_allowed() -> Iterator[None]:
    with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to an integer count
        yield


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"devices": -1}, "devices is -1"),
        ({"processes": 2}, "processes is 2, but there is no coordinator"),
        ({"coordinator": "auto", "process": 0}, "process is 0, but there is no coordinator"),
        ({"coordinator": "node1"}, "coordinator is 'node1'; give host:port"),
        ({"coordinator": "node1:1234", "processes": 2}, "also give processes"),
        ({"coordinator": "a:1", "processes": 2, "process": 2}, "process is 2 of 2; give 0 to 1"),
    ],
)
def test_a_wrong_cluster_is_refused(wrong, says):
    with pytest.raises(ConfigError, match=says):
        ClusterConfig(**wrong)


def test_one_process_asks_nobody():
    assert join(ClusterConfig()) is None
    assert is_first()
    assert of_first("runs/ant") == "runs/ant"
    assert any_of(False, True) == (False, True)
    with pytest.raises(ConfigError, match="devices is 3, but this process has 1"):
        join(ClusterConfig(devices=3))


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="Linux alone has this policy")
def test_the_threads_of_several_processes_wait_for_the_core():
    """Or gloo's thread spins on one core, and each message takes a tick of the clock."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = f"""if True:
        import os
        from worldline.parallel.cluster import join
        from worldline.parallel.config import ClusterConfig
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
        join(ClusterConfig(coordinator="127.0.0.1:{port}", processes=1, process=0))
        threads = list(map(int, os.listdir("/proc/self/task")))
        waiting = [t for t in threads if os.sched_getscheduler(t) == os.SCHED_BATCH]
        assert os.getpid() in waiting and len(waiting) > 3, (threads, waiting)
        print("they wait")
        """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "they wait\n", done.stderr


def test_an_error_of_ones_own_is_no_lost_process():
    with pytest.raises(ValueError, match="Gloo"), report_lost_process("resume"):
        raise ValueError("Gloo AllGather failed")


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path):
    """The same curve; each layout goes on with the other's run; a signal to one stops both; one
    that is killed ends the other in a line, and leaves a checkpoint.
    """
    alone = train_alone(tmp_path / "alone")
    begun = shutil.copytree(tmp_path / "alone", tmp_path / "begun")

    # Begun by two, until one that is not the first is asked to stop.
    pair = tmp_path / "pair"
    with processes("train", *TRAIN, "--steps", FOREVER, "--out", str(pair)) as both:
        wait_for(lambda: len(rows(pair)) >= 8, both)
        both[1].send_signal(signal.SIGTERM)
        said = [process.communicate(timeout=100) for process in both]
        assert [process.returncode for process in both] == [0, 0], said
    assert_same_curve(rows(pair)[:8], alone)
    assert "robot/reach: return" in said[0][0]
    assert "robot/reach" not in said[1][0] + said[1][1]
    assert {path.name for path in tmp_path.iterdir()} == {"alone", "begun", "pair"}
    assert {"policy.npz", "curves.png", "checkpoints"} <= {path.name for path in pair.iterdir()}

    # What two have saved, one goes on with.
    reached = int(rows(pair)[-1]["step"])
    resume(pair, steps=reached + PER_UPDATE, quiet=True)
    assert int(rows(pair)[-1]["step"]) == reached + PER_UPDATE

    # What one has saved, two go on with, until one is killed.
    resume(tmp_path / "alone", steps=11 * PER_UPDATE, quiet=True)
    with processes("resume", str(begun), "--steps", FOREVER) as both:
        wait_for(lambda: len(rows(begun)) >= 11, both)
        both[1].kill()
        _, err = both[0].communicate(timeout=100)
        assert both[0].returncode == 2, err
    assert_same_curve(rows(begun)[:11], rows(tmp_path / "alone"))
    (error,) = [line for line in err.splitlines() if line.startswith("error:")]
    assert "process 0 of 2 has lost another process" in error
    assert f"`worldline resume {begun}`" in error
    assert "Traceback" not in err
    reached = int(rows(begun)[-1]["step"])
    resume(begun, steps=reached + PER_UPDATE, quiet=True)
    assert int(rows(begun)[-1]["step"]) == reached + PER_UPDATE


TRAIN = (
    *("robot/reach", "--num-worlds", "8", "--unroll-length", "8", "--minibatches", "2"),
    *("--epochs", "2", "--eval-episodes", "2", "--no-video", "--evaluations", "2"),
)


def train_alone(folder: Path) -> list[dict[str, Any]]:
    """A run of `TRAIN` in this process; its metrics."""
    env = worldline.make("robot/reach")
    train("robot/reach", env, TrainConfig(**vars(RUN) | {"out": folder}), PPO)
    return rows(folder)


@contextlib.contextmanager
def processes(command: str, *arguments: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Two processes of a command, which are gone when the context ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "JAX_PLATFORMS": "cpu"}
    cluster = ("--coordinator", f"127.0.0.1:{port}", "--processes", "2", "--process")
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "worldline.cli", command, *arguments, *cluster, str(index)],
            env=os.environ | quick,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    try:
        yield both
    finally:
        for process in both:
            process.kill()
            with process:  # waits, and closes its pipes
                pass


def wait_for(condition: Callable[[], bool], both: list[subprocess.Popen[str]]) -> None:
    """Returns when the condition holds; fails when a process ends before, or nothing happens."""
    for _ in range(1500):
        if condition():
            return
        for process in both:
            assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise AssertionError([process.args for process in both])


def rows(folder: Path) -> list[dict[str, Any]]:
    file = folder / "metrics.jsonl"
    whole = file.read_text().split("\n")[:-1] if file.exists() else []
    return [json.loads(line) for line in whole]


def assert_same_curve(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    """The metrics of learning agree up to the order of sums, which each update makes larger."""
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        for name in ("step", "train/return", "train/distance", "loss/value", "ppo/kl"):
            values = one.get(name, 0), other.get(name, 0)
            np.testing.assert_allclose(*values, rtol=5e-3, atol=1e-4, err_msg=name)
