"""Independent jobs: their cores, their ends, and what a signal does to them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from worldline.errors import ConfigError
from worldline.parallel.jobs import run_jobs

CORES = sorted(os.sched_getaffinity(0))


def test_each_has_its_cores_and_one_that_fails_stops_no_other(tmp_path):
    program = (
        "import os, sys; open(sys.argv[1], 'w').write(repr(sorted(os.sched_getaffinity(0)))); "
        "sys.exit('three is bad' if sys.argv[1].endswith('3') else 0)"
    )
    files = [tmp_path / str(number) for number in range(5)]
    ends, seen = [], []
    at_once = min(2, len(CORES))
    assert run_jobs(
        [[sys.executable, "-c", program, str(file)] for file in files],
        at_once,
        ends.append,
        lambda running: seen.append(len(running)),
    )
    assert sorted((end.number, end.status) for end in ends) == [
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 1),
        (4, 0),
    ]
    assert [end.why for end in ends if end.status] == [": three is bad"]
    assert max(seen) == at_once
    each = len(CORES) // at_once
    assert all(len(eval(file.read_text())) == each for file in files)
    with pytest.raises(ConfigError, match="cores"):
        run_jobs([], len(CORES) + 1)


LAUNCHER = """
import sys
from worldline.parallel.jobs import run_jobs
wait = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
commands = [[sys.executable, "-c", wait, name] for name in ("one", "two")]
print(run_jobs(commands, 1, print), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_those_that_run_and_no_other_begins(number, tmp_path):
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    while not (tmp_path / "one").exists():
        time.sleep(0.02)
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    (child,) = children.read_text().split()
    launcher.send_signal(number)
    said, _ = launcher.communicate(timeout=60)
    end = time.monotonic() + 60
    while runs(child):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert not (tmp_path / "two").exists()
    if number == signal.SIGINT:
        assert said.splitlines()[-1] == "False"


def runs(process):
    try:
        return ") Z" not in Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
