"""Streams that are closed, and disks that are full: one line each, and nothing lost."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from worldline.files import read_archive

CLI = [sys.executable, "-m", "worldline.cli"]
TINY = [
    *("--physics", "fake", "--num-worlds", "2", "--unroll-length", "8", "--minibatches", "1"),
    *("--epochs", "1", "--actor-hidden", "4", "--evaluations", "2", "--eval-episodes", "2"),
    *("--task.episode-length", "8", "--steps", "32", "--no-video", "--quiet"),
]
CLOSED = [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"]


def closed(command: list[str], how: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    line = f'"$@" {how}'
    shell = ["bash", "-c", line, "bash", *CLI, *command]
    return subprocess.run(shell, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("how", CLOSED)
def test_a_command_does_without_its_streams(how, tmp_path):
    assert closed(["list", "gym/ant"], how, tmp_path).returncode == 0
    wrong = closed(["eval", "nowhere"], how, tmp_path)
    assert wrong.returncode == 2 and "Traceback" not in wrong.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", CLOSED)
def test_training_does_without_its_streams(how, tmp_path):
    """What libraries print to a closed stream must not go into a file of the run."""
    done = closed(["train", "robot/reach", *TINY, "--out", "run"], how, tmp_path)
    assert done.returncode == 0, done.stderr
    for file in (tmp_path / "run").rglob("*.npz"):
        with np.load(file) as content:
            assert content.files
    for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines():
        json.loads(line)
    assert closed(["eval", "run"], how, tmp_path).returncode == 0


SIZES = [0, 1, 700, 3000, 4500, 9000, 20_000]


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", SIZES)
def test_a_disk_that_is_full_is_said_in_a_line_and_loses_nothing(size, tmp_path):
    """No file may become larger than `size` bytes, as on a disk with so much room."""

    limit = (
        "import os, resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, 2 * (int(sys.argv[1]),))\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
    )

    def limited(*command: str) -> "subprocess.CompletedProcess[str]":
        program = [sys.executable, "-c", limit, str(size), *CLI[1:], *command]
        own = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "0"}
        return subprocess.run(
            program, cwd=tmp_path, capture_output=True, text=True, timeout=300, env=own
        )

    whole = subprocess.run(
        [*CLI, "train", "robot/reach", *TINY, "--out", "whole"], cwd=tmp_path, capture_output=True
    )
    assert whole.returncode == 0
    begun = limited("train", "robot/reach", *TINY, "--out", "run")
    shutil.copytree(tmp_path / "whole", tmp_path / "more")
    further = limited("resume", "more", "--steps", "64", "--quiet")
    for done in (begun, further):
        assert done.returncode in (0, 2), done.stderr
        assert "Traceback" not in done.stderr
        if done.returncode:
            (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
            assert "cannot write" in error, error
    for file in (tmp_path / "more").rglob("*.npz"):
        assert read_archive(file)  # whole, by the sum of each array
    resumed = [*CLI, "resume", "more", "--steps", "64", "--quiet"]
    done = subprocess.run(resumed, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
