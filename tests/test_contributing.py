"""The patches of docs/contributing.md apply, touch one room each, and what they add works."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "contributing.md").read_text()
ADDED = re.findall(r"## (A new \w+)\n.*?```diff\n(.*?)```\n\n```python\n(.*?)```", PAGE, re.S)


def test_an_engine_a_task_and_a_network_are_on_the_page():
    assert [what for what, _, _ in ADDED] == [
        "A new engine",
        "A new task",
        "A new network",
    ]


@pytest.mark.parametrize(("what", "patch", "program"), ADDED, ids=[what for what, *_ in ADDED])
def test_a_patch_touches_one_room_and_works(what, patch, program, tmp_path):
    rooms = re.findall(r"^\+\+\+ b/src/worldline/(\w+)/", patch, re.M)
    assert len(rooms) == patch.count("\n+++ ") >= 2
    assert len(set(rooms)) == 1
    shutil.copytree(ROOT / "src", tmp_path / "src")
    applied = subprocess.run(
        ["git", "apply", "-"], input=patch, capture_output=True, text=True, cwd=tmp_path
    )
    assert applied.returncode == 0, applied.stderr
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
    )
    assert done.returncode == 0, done.stderr
