"""Ctrl-C, SIGTERM and SIGKILL in the middle of `worldline train`."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import worldline
from worldline.errors import RunError
from worldline.report import RunFolder

pytestmark = pytest.mark.slow

WORLDLINE = Path(sys.executable).parent / "worldline"


def train(folder: Path, until: str, *more: str) -> subprocess.Popen[str]:
    """A training run without an end that has come to the point where it writes a file."""
    command = [WORLDLINE, "train", "robot/reach", "--out", folder, "--steps", "1000000000"]
    process = subprocess.Popen(
        [*command, "--evaluations", "5000", "--num-worlds", "64", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (folder / until).exists():
        assert process.poll() is None
        time.sleep(0.01)
    return process


@pytest.mark.parametrize(
    ("file", "number"),
    [
        ("config.json", signal.SIGINT),
        ("metrics.jsonl", signal.SIGTERM),
        *(
            pytest.param(file, number, marks=pytest.mark.exhaustive)
            for file, number in (
                ("config.json", signal.SIGTERM),
                ("metrics.jsonl", signal.SIGINT),
                ("policy.npz", signal.SIGINT),
                ("policy.npz", signal.SIGTERM),
            )
        ),
    ],
)
def test_one_signal_ends_training_well(tmp_path, file, number):
    folder = tmp_path / "run"
    process = train(folder, file)
    process.send_signal(number)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0
    assert "stopping after this update" in err
    assert ", interrupted\n" in out
    assert f"no video: interrupted; `worldline render {folder}` makes one" in out
    assert "Traceback" not in out + err
    worldline.load_policy(folder)
    last = RunFolder.open(folder).read_metrics()[-1]["step"]
    assert (folder / "checkpoints" / f"step-{last:012.0f}.npz").exists()
    assert (folder / "curves.png").stat().st_size > 0


def test_a_second_one_ends_it_at_once(tmp_path):
    # An update of this one takes minutes.
    process = train(tmp_path / "run", "config.json", "--unroll-length", "1000000")
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=5)
    assert process.returncode == 130
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("file", "delay"),
    [
        ("metrics.jsonl", 0.0),
        ("policy.npz", 0.3),
        *(
            pytest.param(file, delay, marks=pytest.mark.exhaustive)
            for file, delay in (
                ("config.json", 0.0),
                ("config.json", 0.3),
                ("metrics.jsonl", 0.3),
                ("policy.npz", 0.0),
            )
        ),
    ],
)
def test_a_kill_leaves_a_policy_or_none_and_metrics_that_can_be_read(tmp_path, file, delay):
    folder = tmp_path / "run"
    process = train(folder, file)
    time.sleep(delay)
    process.kill()
    process.communicate()
    try:
        worldline.load_policy(folder)
    except RunError as error:
        assert "has no policy yet" in str(error)
        assert file != "policy.npz"
    rows = RunFolder.open(folder).read_metrics()
    steps = [row["step"] for row in rows]
    assert steps == sorted(set(steps))


#: Small updates, with episodes that end, evaluations, and varied physics by the native engine.
SHORT = [
    *("--num-worlds", "4", "--unroll-length", "8", "--actor-hidden", "4", "--critic-hidden", "4"),
    *("--eval-episodes", "2", "--task.episode-length", "16", "--domain", "light"),
    *("--no-video", "--quiet"),
]
ALGORITHMS = {
    "ppo": ["--minibatches", "1", "--epochs", "1"],
    # What it remembers is forgotten soon, so that the ring goes round.
    "sac": [
        *("--algorithm", "sac", "--critic-steps", "4", "--batch-size", "16"),
        *("--replay-capacity", "100", "--learning-starts", "64"),
    ],
}


def run(*arguments: str | Path) -> None:
    subprocess.run([WORLDLINE, *arguments], check=True, capture_output=True, timeout=200)


def what_it_came_to(folder: Path) -> dict[str, object]:
    """All that a run leaves behind, but for the clock."""
    clock = ("seconds", "speed/steps_per_s")
    rows = RunFolder.open(folder).read_metrics()
    newest = max((folder / "checkpoints").glob("step-*.npz"))
    with np.load(newest) as file:
        state = {name: file[name].tobytes() for name in file.files if name != "about"}
    return {
        "metrics": [{n: v for n, v in row.items() if n not in clock} for row in rows],
        "policy": (folder / "policy.npz").read_bytes(),
        "checkpoint": newest.name,
        **state,
    }


@pytest.mark.parametrize(
    ("algorithm", "kills"),
    [
        ("ppo", 3),
        pytest.param("ppo", 20, marks=pytest.mark.exhaustive),
        pytest.param("sac", 20, marks=pytest.mark.exhaustive),
    ],
)
def test_kills_at_random_moments_cost_nothing(tmp_path, algorithm, kills):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    length = ["--steps", str(3200 * kills), "--evaluations", str(2 * kills)]  # 100 updates a kill
    options = ["robot/reach", *SHORT, *ALGORITHMS[algorithm], *length]
    run("train", *options, "--out", whole)
    command = ["train", *options, "--out", killed]
    random = np.random.default_rng()  # another moment each time the tests run
    for _ in range(kills):
        process = subprocess.Popen(
            [WORLDLINE, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        written = killed / "metrics.jsonl"
        size = written.stat().st_size if written.exists() else 0
        while process.poll() is None and (
            not written.exists() or written.stat().st_size == size
        ):  # compiling
            time.sleep(0.01)
        time.sleep(random.uniform(0.0, 0.5))
        process.kill()
        process.wait()
        command = ["resume", str(killed), "--quiet"]
    run(*command)
    assert what_it_came_to(killed) == what_it_came_to(whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["train robot/reach", "list"])
def test_a_signal_while_a_command_begins_ends_it_without_a_word(tmp_path, command, number):
    """While Python itself starts, a tenth of a second, a Ctrl-C is Python's own."""
    for delay in (0.2, 0.5, 1.0, 1.7):
        process = subprocess.Popen(
            [WORLDLINE, *command.split(), *(["--out", tmp_path / "run"] * (command != "list"))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(delay)
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
        assert "Traceback" not in err
        assert "Exception" not in err
        ended = (process.returncode, err.strip()) == (-number, "")
        assert ended or (tmp_path / "run" / "config.json").exists() or command == "list"


@pytest.mark.exhaustive
def test_a_run_goes_on_with_its_numbers_on_fewer_cores(tmp_path):
    """XLA divides its sums among threads, and takes as many as the run began with."""
    task = ["robot/quadruped-joystick", "--num-worlds", "64", "--no-video", "--quiet"]
    for name, steps in (("whole", "16000"), ("parts", "8000")):
        out = ["--out", tmp_path / name, "--evaluations", "1", "--eval-episodes", "1"]
        run("train", *task, *out, "--steps", steps)
    one_core = "import os, sys; os.sched_setaffinity(0, {0}); os.execv(sys.argv[1], sys.argv[1:])"
    resume = [WORLDLINE, "resume", tmp_path / "parts", "--steps", "16000", "--quiet"]
    subprocess.run([sys.executable, "-c", one_core, *resume], check=True, timeout=300)
    whole, parts = (dict(np.load(tmp_path / name / "policy.npz")) for name in ("whole", "parts"))
    for name, array in whole.items():
        np.testing.assert_array_equal(array, parts[name], err_msg=name)
