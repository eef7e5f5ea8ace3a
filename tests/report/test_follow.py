"""A run is followed while another process writes to it."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from worldline.report import RunFolder
from worldline.report.follow import RunFollower

WRITER = """
import sys
from worldline.report import RunFolder
folder = RunFolder.open(sys.argv[1])
folder.rewind(int(sys.argv[2]))
for step in range(int(sys.argv[2]) + 100, int(sys.argv[3]) + 1, 100):
    evaluation = {"eval/return": step / 10} if step % 200 == 0 else {}
    folder.write_metrics(step, step / 50, {"train/return": -step, **evaluation})
"""


def write(path, after, last):
    subprocess.run([sys.executable, "-c", WRITER, path, str(after), str(last)], check=True)


@pytest.fixture
def folder(tmp_path):
    with RunFolder.create(tmp_path / "run", {"task": "t", "seed": 0, "steps": 1000}) as made:
        return made


def test_rows_arrive_as_another_process_writes_them(folder):
    run = RunFollower(folder)
    assert not run.poll()
    assert len(run) == 0
    assert run.steps[0] == 0
    write(folder.path, 0, 300)
    assert run.poll()
    assert not run.poll()
    np.testing.assert_array_equal(run.curve("eval/return"), [[200], [20]])
    np.testing.assert_array_equal(
        run.curve("train/return", "seconds"), [[2, 4, 6], [-100, -200, -300]]
    )
    assert run.steps == (300, 1000)
    assert run.seconds_left == 700 / 50
    write(folder.path, 200, 500)  # as a run that was killed and goes on
    assert run.poll()
    assert run.curve("train/return")[0].tolist() == [100, 200, 300, 400, 500]
    assert run.names == ["eval/return", "train/return"]
    assert np.isnan(run.last("ppo/kl"))


def test_half_a_line_waits_for_its_other_half_and_a_damaged_one_is_left_out(folder):
    run = RunFollower(folder)
    lines = [json.dumps({"step": n, "seconds": n, "x": None if n == 2 else n}) for n in (1, 2, 3)]
    text = "\n".join([lines[0], lines[1], "{no", lines[2], ""])
    folder.metrics_file.write_text(text[:-4])
    assert run.poll()
    assert run.curve("x")[0].tolist() == [1]
    with folder.metrics_file.open("a") as file:
        file.write(text[-4:])
    assert run.poll()
    assert run.curve("x")[0].tolist() == [1, 3]


def test_a_run_without_news_is_quiet_unless_it_is_at_its_end(folder):
    run = RunFollower(folder)
    for last, quiet in ((900, True), (1000, False)):
        write(folder.path, last - 300, last)
        os.utime(folder.metrics_file, (0, 0))
        run.poll()
        assert (run.quiet_for > 1e6) == quiet
