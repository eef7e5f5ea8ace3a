"""Processes on Ray: a real cluster of two workers on this machine."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from test_cluster import TRAIN, assert_same_curve, rows, train_alone

from worldline.cli.main import main
from worldline.errors import ConfigError
from worldline.parallel.config import ClusterConfig

#: Keeps a cluster of two workers with a core each, until its input ends.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
for _ in range(2):
    cluster.add_node(num_cpus=1)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"ray": "auto"}, "ray needs the number of processes"),
        ({"ray": "auto", "local": True, "processes": 2}, "local and ray both start"),
        ({"ray": "auto", "processes": 2, "process": 1}, "ray sets the coordinator"),
    ],
)
def test_wrong_settings_are_refused(wrong, says):
    with pytest.raises(ConfigError, match=says):
        ClusterConfig(**wrong)


def test_a_cluster_that_is_not_there_and_ray_that_is_not_installed_are_one_line(
    monkeypatch, capsys
):
    command = ["train", "robot/reach", "--ray", "auto", "--processes", "2"]
    with monkeypatch.context() as hidden:
        hidden.setitem(sys.modules, "ray", None)
        assert main(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --ray needs an optional library: pip install")
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", "/tmp/no-ray-here")
    done = subprocess.run(
        [sys.executable, "-m", "worldline.cli", *command], capture_output=True, text=True
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: cannot reach a Ray cluster at 'auto': ")


@contextlib.contextmanager
def cluster() -> Iterator[str]:
    """The address of a cluster, which is gone when the context ends."""
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
    keeper = subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **quiet, "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        text=True,
    )
    try:
        assert keeper.stdout is not None
        yield keeper.stdout.readline().strip()
    finally:
        with keeper:  # ends its input, and waits
            pass


@pytest.mark.slow
@pytest.mark.exhaustive
def test_two_workers_train_as_one_and_one_that_is_killed_comes_back(tmp_path):
    pytest.importorskip("ray")
    alone = train_alone(tmp_path / "alone")
    steps = str(alone[-1]["step"])
    with cluster() as address:
        start = ("--ray", address, "--processes", "2", "--restarts", "1")
        run = tmp_path / "run"
        done = subprocess.run(
            [*COMMAND, *TRAIN, "--steps", steps, "--out", str(run), *start],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert_same_curve(rows(run), alone)
        assert "robot/reach: return" in done.stdout + done.stderr

        killed = tmp_path / "killed"
        many = str(40 * int(steps))
        launcher = subprocess.Popen(
            [*COMMAND, *TRAIN, "--steps", many, "--out", str(killed), *start],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for(lambda: len(rows(killed)) > 20, launcher)
        worker_of(1, killed).kill()
        said = launcher.communicate(timeout=300)[1]
        assert launcher.returncode == 0, said
        assert "starting again from the last checkpoint (0 restarts left)" in said
        assert str(rows(killed)[-1]["step"]) == many

        too_many = subprocess.run(
            [*COMMAND, *TRAIN, "--ray", address, "--processes", "3"],
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert too_many.returncode == 2
        assert "3 processes of 1 cores do not fit" in too_many.stderr.splitlines()[-1]


COMMAND = (sys.executable, "-m", "worldline.cli", "train")


def wait_for(condition, launcher) -> None:
    end = time.monotonic() + 200
    while not condition():
        assert launcher.poll() is None, launcher.communicate()
        assert time.monotonic() < end
        time.sleep(0.1)


def worker_of(process: int, folder: Path) -> psutil.Process:
    """Ray's process that has started this one of the training in a folder."""
    for each in psutil.process_iter(["cmdline"]):
        words = each.info["cmdline"] or []
        if str(folder) in words and words[-2:] == ["--process", str(process)]:
            parent = each.parent()
            assert parent is not None
            return parent
    raise AssertionError(f"process {process} does not run")
