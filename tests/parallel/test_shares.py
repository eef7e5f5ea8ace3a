"""Checkpoints by shares: what some processes write, any number of them read, bit for bit.

The processes are those of `sharing.py`, on loopback.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import sharing

from worldline.train import resume

HERE = Path(__file__).parent
LAST = "step-000000000004.npz"


@contextlib.contextmanager
def started(
    processes: int, *tasks: str, devices: int = 1, **settings: str
) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that do these tasks as one, which are gone when the context ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = f"--xla_force_host_platform_device_count={devices}"
    paths = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    settings |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": paths}
    found = [
        subprocess.Popen(
            [sys.executable, "sharing.py", str(port), str(process), str(processes), *tasks],
            cwd=HERE,
            env=os.environ | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(processes)
    ]
    try:
        yield found
    finally:
        for process in found:
            process.kill()
            with process:  # waits, and closes its pipes
                pass


def told(processes: int, *tasks: str, devices: int = 1, **settings: str) -> list[list[Any]]:
    """What each process prints, by process and task."""
    with started(processes, *tasks, devices=devices, **settings) as running:
        said = [process.communicate(timeout=120) for process in running]
    assert not any(process.returncode for process in running), said
    lines = [out.splitlines() for out, _ in said]  # some are of JAX's network
    return [[json.loads(line[6:]) for line in each if line[:6] == "found "] for each in lines]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folders of one process, of two and of four, with the same checkpoints."""
    root = tmp_path_factory.mktemp("written")
    for processes in (1, 2, 4):
        (root / str(processes)).mkdir()
    sharing.write(root / "1")
    told(2, f"write:{root / '2'}")
    told(4, f"write:{root / '4'}")
    return root


@pytest.fixture
def two(written: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoints of two processes."""
    return shutil.copytree(written / "2", tmp_path / "two")


def names(run: Path) -> list[str]:
    return sorted(file.name for file in (run / "checkpoints").iterdir())


@pytest.mark.slow
def test_each_process_writes_its_share_and_old_ones_go_as_a_whole(written):
    kept = (1, 3, 4)  # the best and the last two
    for processes in (1, 2, 4):
        shares = [
            f"share-{step:012}-{process}-of-{processes}.npz"
            for step in kept
            for process in range(processes if processes > 1 else 0)
        ]
        assert names(written / str(processes)) == sorted(
            [*shares, *(f"step-{step:012}.npz" for step in kept)]
        )


@pytest.mark.slow
def test_a_share_holds_its_rows_and_the_checkpoint_none_of_them(written):
    folder = written / "4" / "checkpoints"
    replay = sharing.numbers(4).replay
    with np.load(folder / LAST) as index:
        about = json.loads(str(index["about"]))
        alone = len(index.files) - 1
    assert [share["bytes"] for share in about["shares"]] == [
        (folder / share["file"]).stat().st_size for share in about["shares"]
    ]
    for process, share in enumerate(about["shares"]):
        with np.load(folder / share["file"]) as content:
            rows = len(replay.record.action) // 4
            (actions,) = [a for a in content.values() if a.shape[1:] == (2,) and len(a) == rows]
            mine = replay.record.action[process * rows : (process + 1) * rows]
            np.testing.assert_array_equal(actions, mine)
            assert len(content.files) + alone == len(about["leaves"])


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "devices"), [(2, 1), (4, 1), (1, 4), (2, 2)])
def test_any_number_of_processes_reads_what_any_wrote(written, processes, devices):
    tasks = [f"read:{written / name}" for name in "124"]
    for said in told(processes, *tasks, devices=devices):
        assert said == [{"step": 4, "notes": []}] * 3


@pytest.mark.slow
def test_one_process_reads_what_any_wrote(written):
    for name in "124":
        assert sharing.read(written / name) == {"step": 4, "notes": ()}


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def from_another_time(file: Path) -> None:
    shutil.copy(file.with_name(file.name.replace("04-", "03-")), file)


DAMAGES = [flip, cut, from_another_time, Path.unlink]


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("share", [0, 1])
def test_a_damaged_share_means_the_checkpoint_before(two, damage: Callable[[Path], Any], share):
    damage(two / "checkpoints" / f"share-000000000004-{share}-of-2.npz")
    found = sharing.read(two)
    assert found["step"] == 3
    (note,) = found["notes"]
    assert f"{LAST}' is truncated or damaged (" in note
    assert note.endswith("); using the checkpoint before it")


@pytest.mark.slow
def test_a_bit_anywhere_in_a_checkpoint_of_two_is_told_or_harmless(two):
    for file in (two / "checkpoints").glob("*000004*"):
        content = file.read_bytes()
        for place in np.random.default_rng(0).integers(0, len(content), 25):
            bad = bytes([content[place] ^ 0x10])
            file.write_bytes(content[:place] + bad + content[place + 1 :])
            found = sharing.read(two)
            told = len(found["notes"]) == 1 and found["step"] == 3
            assert told or (found["step"] == 4 and file.name == LAST)
        file.write_bytes(content)


@pytest.mark.slow
def test_processes_agree_which_checkpoint_is_whole(written, tmp_path):
    """Of two, the second alone reads the share that is damaged; then both are."""
    second, both = (shutil.copytree(written / "2", tmp_path / name) for name in ("second", "both"))
    flip(second / "checkpoints" / "share-000000000004-1-of-2.npz")
    for step in (1, 3, 4):
        flip(both / "checkpoints" / f"share-{step:012}-{step % 2}-of-2.npz")
    for said in told(2, f"read:{second}", f"read:{both}"):
        assert said[0]["step"] == 3
        assert "share-000000000004-1-of-2.npz has another SHA-256" in said[0]["notes"][0]
        assert f"'{both}' has no complete checkpoint: " in said[1]["error"]


@pytest.mark.slow
def test_a_link_in_place_of_a_share_is_replaced_not_followed(written, tmp_path):
    outside, run = tmp_path / "outside", tmp_path / "run"
    outside.write_text("of somebody else")
    (run / "checkpoints").mkdir(parents=True)
    for name in ("share-000000000004-1-of-2.npz", "share-000000000004-0-of-2.npz.partial"):
        (run / "checkpoints" / name).symlink_to(outside)
    told(2, f"write:{run}")
    assert outside.read_text() == "of somebody else"
    assert names(run) == names(written / "2")
    assert not any(file.is_symlink() for file in (run / "checkpoints").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(("task", "killed"), [("die", 0), ("die_before_its_share", 1)])
def test_a_kill_leaves_the_checkpoint_before(tmp_path, task, killed):
    """Between the shares and the file that names them, and before one of the shares."""
    with started(2, f"{task}:{tmp_path}") as running:
        assert running[killed].wait(timeout=120) == -9, running[killed].communicate()
    first = ["share-000000000001-0-of-2.npz", "share-000000000001-1-of-2.npz"]
    left = ["share-000000000002-0-of-2.npz", "share-000000000002-1-of-2.npz"][: 2 - killed]
    assert names(tmp_path) == [*first, *left, "step-000000000001.npz"]
    assert sharing.read(tmp_path) == {"step": 1, "notes": ()}

    # What was left is deleted with the next checkpoint, of one process.
    with sharing.CheckpointWriter(tmp_path, sharing.CONFIG, sharing.VERSIONS) as writer:
        writer.save(sharing.on_its_devices(None, 2), sharing.Moment(2, 0.2, None))
    assert names(tmp_path) == [*first, "step-000000000001.npz", "step-000000000002.npz"]
    assert sharing.read(tmp_path) == {"step": 2, "notes": ()}


@pytest.mark.slow
def test_a_process_without_space_is_named_by_all(tmp_path):
    for (said,) in told(2, f"full:{tmp_path}"):
        assert "process 1: No space left on device; free some space, then" in said["error"]
    assert sharing.read(tmp_path) == {"step": 1, "notes": ()}


@pytest.mark.slow
def test_no_process_holds_the_whole_replay_buffer(tmp_path):
    """Of 88 MB each of two has one half, and while it writes or reads a second time that half."""
    for (found,) in told(2, f"large:{tmp_path / 'run'}"):
        half = found["whole"] / 2
        assert found["whole"] > 8e7
        assert found["here"] == [half, half]
        assert max(found["beside"]) < 1.5 * half  # with 16 MB of what is read at once
    shares = list((tmp_path / "run" / "checkpoints").glob("share-*"))
    assert [abs(file.stat().st_size / half - 1) < 0.01 for file in shares] == [True, True]
    (index,) = (tmp_path / "run" / "checkpoints").glob("step-*")
    assert index.stat().st_size < 0.01 * half


@pytest.mark.slow
def test_sac_goes_on_with_its_replay_buffer_in_two_processes_and_in_one(tmp_path):
    """In two with the bits of a run that did not stop; in one up to the order of sums."""
    told(2, f"train_sac:{tmp_path}", JAX_DISABLE_MOST_OPTIMIZATIONS="1")
    whole, again = (tmp_path / name / "checkpoints" for name in ("whole", "again"))
    last = f"{sharing.RUN.steps:012}"
    shares = [f"share-{last}-{process}-of-2.npz" for process in range(2)]
    assert [(whole / name).read_bytes() for name in shares] == [
        (again / name).read_bytes() for name in shares
    ]
    with np.load(whole / f"step-{last}.npz") as one, np.load(again / f"step-{last}.npz") as other:
        for name in one.files[1:]:
            assert one[name].tobytes() == other[name].tobytes()

    alone = shutil.copytree(tmp_path / "whole", tmp_path / "alone")
    (alone / "checkpoints" / f"step-{last}.npz").unlink()
    with jax.numpy_dtype_promotion("standard"):
        resume(alone, quiet=True)
    assert f"step-{last}.npz" in names(alone)
    assert not any(name in names(alone) for name in shares)
    policies = [np.load(folder / "policy.npz") for folder in (tmp_path / "whole", alone)]
    for name in policies[0].files[1:]:
        np.testing.assert_allclose(*(policy[name] for policy in policies), rtol=5e-3, atol=1e-4)
