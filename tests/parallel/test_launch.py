"""Processes that are started here: their cores, their end, and how a run goes on after one is lost.

Most tests start small programs in place of a training.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from worldline.cli.local import without
from worldline.cli.main import main
from worldline.errors import ConfigError
from worldline.parallel.config import ClusterConfig
from worldline.parallel.launch import cores_by_node, shares

CORES = sorted(os.sched_getaffinity(0))

#: A process that writes down what it was given, and does what its first argument says.
PROGRAM = """
import json, os, pathlib, signal, sys, time
what, folder, *cluster = sys.argv[1:]
number = int(cluster[-1])
(pathlib.Path(folder) / f"{what}-{number}").write_text(
    json.dumps([os.getpid(), sorted(os.sched_getaffinity(0)), cluster])
)
if what == "fail" and number == 1:
    sys.exit("error: it is broken")
if what == "killed" and number == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if what in ("fail", "killed", "wait"):
    time.sleep(60)
if what == "stop":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    (pathlib.Path(folder) / f"ready-{number}").touch()
    if number == 0:
        time.sleep(60)
"""

#: Starts two processes, from a process without JAX; the next of its first argument's each time.
LAUNCHER = """
import sys
from worldline.parallel import launch
launch._PATIENCE_S = 0.5
commands = iter(sys.argv[1].split(","))
status = launch.launch(
    lambda: (next(commands), sys.argv[2]), 2, int(sys.argv[3]), program=sys.argv[4:]
)
print(*commands)
sys.exit(status)
"""

needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="two processes need two cores")


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return (sys.executable, str(file))


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    try:
        return "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True


def test_cores_are_shared_evenly_and_by_memory(tmp_path):
    for node, cores in {0: "0-1,4", 1: "2-3,5-7"}.items():
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(cores)
    inside = [core for core in (0, 1, 4, 2, 3, 5, 6, 7) if core in CORES]
    ordered = cores_by_node(tmp_path)
    assert [core for core in ordered if core < 8] == inside
    assert sorted(ordered) == CORES
    assert shares([0, 1, 4, 2, 3, 5], 2) == [[0, 1, 4], [2, 3, 5]]
    assert shares([0, 1, 2, 3, 4], 2) == [[0, 1], [2, 3]]
    with pytest.raises(ConfigError, match=r"processes is 3, but .* use 2 cores; give 2 at most"):
        shares([0, 1], 3)


@needs_two_cores
def test_each_process_has_its_number_and_its_cores(tmp_path, program):
    assert launched("done", tmp_path, 0, program).returncode == 0
    given = [json.loads((tmp_path / f"done-{number}").read_text()) for number in range(2)]
    mine = shares(cores_by_node(), 2)
    assert [sorted(cores) for cores in mine] == [cores for _, cores, _ in given]
    (_, _, one), (_, _, other) = given
    assert one[:1] == ["--coordinator"] and one[1] == other[1]
    assert one[2:] == ["--processes", "2", "--process", "0"]
    assert other[2:] == ["--processes", "2", "--process", "1"]


@needs_two_cores
@pytest.mark.parametrize(
    ("how", "status", "line"),
    [
        ("fail", 1, "process 1 of 2 ended with 1: error: it is broken"),
        ("killed", 137, "process 1 of 2 was killed by SIGKILL"),
    ],
)
def test_one_that_fails_ends_the_others(how, status, line, tmp_path, program):
    done = launched(how, tmp_path, 0, program)
    assert done.returncode == status
    assert done.stderr.splitlines() == [line]
    for number in range(2):
        pid, *_ = json.loads((tmp_path / f"{how}-{number}").read_text())
        assert is_gone(pid)


@needs_two_cores
def test_it_goes_on_after_a_failure_as_often_as_allowed(tmp_path, program):
    done = launched("fail,killed,done,never", tmp_path, 5, program)
    lines = done.stderr.splitlines()
    assert done.returncode == 0
    assert "starting again from the last checkpoint (4 restarts left)" in lines[0]
    assert "SIGKILL; starting again from the last checkpoint (3 restarts left)" in lines[1]
    assert len(lines) == 2
    assert done.stdout.split() == ["never"]
    assert launched("fail,fail,never", tmp_path, 1, program).returncode == 1


def launcher(what: str, folder: Path, program: tuple[str, ...]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", LAUNCHER, what, str(folder), "3", *program])


def launched(commands: str, folder: Path, restarts: int, program: tuple[str, ...]):
    command = [sys.executable, "-c", LAUNCHER, commands, str(folder), str(restarts), *program]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@needs_two_cores
def test_a_signal_goes_to_the_first_and_nothing_is_begun_again(tmp_path, program):
    process = launcher("stop", tmp_path, program)
    until(lambda: all((tmp_path / f"ready-{number}").exists() for number in range(2)))
    process.terminate()
    assert process.wait(timeout=60) == 0


@needs_two_cores
def test_processes_end_with_their_launcher(tmp_path, program):
    process = launcher("wait", tmp_path, program)
    files = [tmp_path / f"wait-{number}" for number in range(2)]
    until(lambda: all(file.exists() and file.read_text() for file in files))
    process.kill()
    process.wait()
    for file in files:
        pid, *_ = json.loads(file.read_text())
        until(lambda pid=pid: is_gone(pid))


def test_options_of_the_launcher_are_taken_out():
    options = {"--local": 0, "--processes": 1, "--restarts": 1}
    argv = ["gym/ant", "--local", "--processes", "2", "--seed", "3", "--restarts=4", "--quiet"]
    assert without(argv, options) == ["gym/ant", "--seed", "3", "--quiet"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"local": True}, "local needs the number of processes"),
        ({"restarts": 1}, "restarts is 1, which works only with local"),
        (
            {"local": True, "processes": 2, "process": 1},
            "local sets the coordinator and the process number",
        ),
        ({"local": True, "processes": 2, "coordinator": "a:1"}, "local sets the coordinator"),
    ],
)
def test_wrong_settings_are_refused(wrong, says):
    with pytest.raises(ConfigError, match=says):
        ClusterConfig(**wrong)


def test_more_processes_than_cores_are_one_line(capfd):
    many = str(len(CORES) + 1)
    assert main(["train", "robot/reach", "--local", "--processes", many]) == 2
    assert f"processes is {many}, but this machine lets you use" in capfd.readouterr().err


@needs_two_cores
@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_run_that_lost_a_process_ends_as_one_that_lost_none(tmp_path):
    """Killed at random moments; the policies are equal bit for bit."""
    command = [
        *(sys.executable, "-m", "worldline.cli", "train", "robot/reach", "--num-worlds", "8"),
        *("--unroll-length", "8", "--minibatches", "2", "--steps", "12000", "--evaluations", "4"),
        *("--eval-episodes", "2", "--no-video", "--local", "--processes", "2", "--restarts", "1"),
    ]

    def run(folder: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*command, "--out", str(folder)], start_new_session=True)

    whole = run(tmp_path / "whole")
    assert whole.wait(timeout=300) == 0
    expected = np.load(tmp_path / "whole" / "policy.npz")
    generator = np.random.default_rng(0)
    for kill in range(10):
        folder = tmp_path / f"killed-{kill}"
        process = run(folder)
        until((folder / "metrics.jsonl").exists)
        time.sleep(generator.uniform(0, 3))
        children = subprocess.run(
            ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False
        )
        for pid in children.stdout.split()[kill % 2 :][:1]:
            os.kill(int(pid), signal.SIGKILL)
        assert process.wait(timeout=300) == 0
        found = np.load(folder / "policy.npz")
        for name in expected.files:
            np.testing.assert_array_equal(found[name], expected[name])
