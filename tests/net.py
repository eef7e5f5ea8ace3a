"""A net under a redesign: six short trainings, and hashes of all that they left behind.

    python tests/net.py > before.json      # on the code before
    python tests/net.py > after.json       # on the code after
    python tests/net.py --compare before.json after.json

Everything goes through the command line, whose options stay while modules move. The hashes do not
depend on names or on the order of leaves, so that renaming a class or a field changes none of them:

- `policy`: the arrays of `policy.npz`;
- `metrics`: `metrics.jsonl` without what a clock measured, a hash for each name;
- `checkpoint`: the learner's and the worlds' arrays in the last checkpoint.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

#: The trainings, by name: tasks, algorithms and options of users.
RUNS = {
    "ppo": "gym/half-cheetah --steps 40_000 --num-worlds 32 --domain light",
    "gru": "gym/hopper --steps 20_000 --num-worlds 32 --recurrent-size 16",
    "pixels": (
        "suite/cartpole-balance --steps 2_000 --num-worlds 8 --unroll-length 16 --minibatches 4"
        " --pixels fixed=32x32 --frames 2"
    ),
    "sac": "gym/inverted-pendulum --algorithm sac --steps 4_000",
    "shac": "gym/inverted-pendulum --algorithm shac --physics mjx --steps 4_000 --num-worlds 16",
    "quadruped": "robot/quadruped-joystick --steps 20_000 --num-worlds 64",
}
_ALWAYS = "--evaluations 2 --eval-episodes 4 --no-video --quiet"

#: What a clock measured.
_TIMED = ("speed/", "time/", "seconds")


def main() -> int:
    """Runs the trainings, or compares two runs of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", choices=RUNS, default=list(RUNS))
    parser.add_argument("--compare", nargs=2, type=Path)
    arguments = parser.parse_args()
    if arguments.compare:
        before, after = (json.loads(file.read_text()) for file in arguments.compare)
        return compare(before, after)
    print(json.dumps({name: hashes(RUNS[name]) for name in arguments.only}, indent=1))
    return 0


def hashes(options: str) -> dict[str, Any]:
    """Trains, and hashes what the run left."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "worldline.cli", "train", *options.split()]
        command += [*_ALWAYS.split(), "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return {"failed": done.stderr.strip().splitlines()[-1:]}
        last = max(out.glob("checkpoints/step-*.npz"))
        return {
            "policy": of_arrays(out / "policy.npz"),
            "metrics": of_metrics(out / "metrics.jsonl"),
            "checkpoint": of_arrays(last),
        }


def of_arrays(file: Path) -> list[str]:
    """A hash for each array of numbers of an archive that is not all zeros or ones, sorted."""
    found = []
    with np.load(file, allow_pickle=False) as content:
        for name in content.files:
            array = content[name]
            plain = array.dtype.kind in "USb" or not array.size
            if not plain and not (array == 0).all() and not (array == 1).all():
                head = f"{array.dtype.itemsize} {array.shape}".encode()
                found.append(hashlib.sha256(head + array.tobytes()).hexdigest()[:12])
    return sorted(found)


def of_metrics(file: Path) -> dict[str, str]:
    """A hash for each metric over the whole run."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    names = sorted({name for row in rows for name in row if not name.startswith(_TIMED)})
    return {
        name: hashlib.sha256(json.dumps([row.get(name) for row in rows]).encode()).hexdigest()[:12]
        for name in names
    }


def compare(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Says what differs; 1 where something does."""
    differs = 0
    for run in before:
        for part, was in before[run].items():
            now = after.get(run, {}).get(part)
            if was == now:
                print(f"{run:10} {part:11} equal ({len(was)})")
                continue
            differs = 1
            if isinstance(was, dict) and isinstance(now, dict):
                names = [n for n in sorted({*was, *now}) if was.get(n) != now.get(n)]
                print(f"{run:10} {part:11} DIFFERS in {len(names)} of {len(was)}: {names[:6]}")
            else:
                gone, new = set(was) - set(now or ()), set(now or ()) - set(was)
                print(f"{run:10} {part:11} DIFFERS: {len(gone)} gone, {len(new)} new")
    return differs


if __name__ == "__main__":
    raise SystemExit(main())
