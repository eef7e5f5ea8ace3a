import json
import math
import struct
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from worldline.errors import ConfigError, RunError
from worldline.report import RunFolder, run_folder

CONFIG = {"task": "gym/half-cheetah", "seed": 3, "ppo": {"epochs": 4, "range": (0.2, math.inf)}}


def _refuse(constant):
    raise ValueError(f"not JSON: {constant}")


def test_config_comes_back(tmp_path):
    config = {
        **CONFIG,
        "array": np.arange(3),
        "scalar": np.float32(0.5),
        "jax": jnp.ones(2),
        "path": Path("a/b"),
        "none": None,
        "set": {"b", "a"},
        "low": -math.inf,
    }
    RunFolder.create(tmp_path / "run", config)
    assert RunFolder.open(tmp_path / "run").config == {
        "task": "gym/half-cheetah",
        "seed": 3,
        "ppo": {"epochs": 4, "range": [0.2, math.inf]},
        "array": [0, 1, 2],
        "scalar": 0.5,
        "jax": [1.0, 1.0],
        "path": "a/b",
        "none": None,
        "set": ["a", "b"],
        "low": -math.inf,
    }


def test_config_file_is_strict_json_with_versions_and_nothing_else_is_left(tmp_path):
    run = RunFolder.create(tmp_path / "run", CONFIG)
    content = json.loads((run.path / "config.json").read_text(), parse_constant=_refuse)
    assert content["versions"] == run.versions
    assert set(run.versions) == {"worldline", "jax", "jaxlib", "mujoco", "numpy", "python", "cores"}
    assert sorted(file.name for file in run.path.iterdir()) == [".lock", "config.json"]


def test_config_that_no_file_can_hold_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"'ppo\.schedule' is a function"):
        RunFolder.create(tmp_path / "run", {"ppo": {"schedule": lambda step: step}})
    assert not (tmp_path / "run").exists()


def test_default_name_says_task_and_seed_and_is_never_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [RunFolder.create(None, CONFIG) for _ in range(3)]
    assert len({run.path for run in runs}) == 3
    for run in runs:
        assert run.path.parent == Path("runs")
        assert run.path.name.startswith("gym-half-cheetah-") and "-s3" in run.path.name


def test_folder_with_something_in_it_is_refused_and_kept(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"is not empty; give --out") as error:
        RunFolder.create(tmp_path, CONFIG)
    assert str(tmp_path) in str(error.value)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_empty_folder_is_taken(tmp_path):
    assert RunFolder.create(tmp_path, CONFIG).path == tmp_path


@pytest.mark.parametrize("path", ["/dev/null/run", "file"])
def test_unwritable_folder_is_one_line_with_the_path(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    with pytest.raises(RunError) as error:
        RunFolder.create(path, CONFIG)
    assert f"cannot write '{path}'" in str(error.value)
    assert "--out" in str(error.value) and "\n" not in str(error.value)


def test_open_of_no_run_names_its_siblings(tmp_path):
    RunFolder.create(tmp_path / "cheetah-1", CONFIG)
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"no such folder.*did you mean .*cheetah-1'\?"):
        RunFolder.open(tmp_path / "cheetah1")
    with pytest.raises(RunError, match=r"is not a run folder: no config\.json.*worldline train"):
        RunFolder.open(tmp_path / "empty")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"config": {}}'])
def test_open_of_a_damaged_config(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(RunError, match=r"config\.json is damaged"):
        RunFolder.open(tmp_path)


def test_metrics_are_on_disk_at_once_as_strict_json(tmp_path):
    run = RunFolder.create(tmp_path / "run", CONFIG)
    run.write_metrics(1024, 2.5, {"train/return": math.nan, "loss/value": jnp.float32(0.5)})
    run.write_metrics(2048, 3.0, {"train/return": 7.0, "eval/return": math.inf})
    lines = run.metrics_file.read_text().splitlines()
    assert [json.loads(line, parse_constant=_refuse) for line in lines] == [
        {"step": 1024, "seconds": 2.5, "train/return": None, "loss/value": 0.5},
        {"step": 2048, "seconds": 3.0, "train/return": 7.0, "eval/return": None},
    ]
    first, second = RunFolder.open(run.path).read_metrics()
    assert math.isnan(first["train/return"]) and second["train/return"] == 7.0
    run.close()


def test_no_metrics_yet(tmp_path):
    run = RunFolder.create(tmp_path / "run", CONFIG)
    assert run.read_metrics() == []
    with pytest.raises(RunError, match="no metrics"):
        run.plot()


def test_line_cut_off_by_a_kill_is_dropped_and_writing_goes_on(tmp_path):
    with RunFolder.create(tmp_path / "run", CONFIG) as run:
        run.write_metrics(1, 1.0, {"a": 1.0})
    with run.metrics_file.open("a") as file:
        file.write('{"step": 2, "sec')
    again = RunFolder.open(run.path)
    assert [row["step"] for row in again.read_metrics()] == [1]
    with again:
        again.write_metrics(3, 3.0, {"a": 3.0})
    assert [row["step"] for row in again.read_metrics()] == [1, 3]


def test_damage_in_the_middle_is_told_with_its_line(tmp_path):
    run = RunFolder.create(tmp_path / "run", CONFIG)
    run.metrics_file.write_text('{"step": 1, "seconds": 1}\nrubbish\n{"step": 3, "seconds": 3}\n')
    with pytest.raises(RunError, match="line 2 "):
        run.read_metrics()


def test_tensorboard_holds_the_same_finite_numbers(tmp_path):
    with RunFolder.create(tmp_path / "run", CONFIG) as run:
        run.write_metrics(10, 1.0, {"train/return": math.nan, "loss/value": 0.5})
        run.write_metrics(20, 2.0, {"train/return": 7.0})
    assert scalars(run) == [(10, "loss/value", 0.5), (20, "train/return", 7.0)]


def test_a_run_that_goes_back_to_a_step_forgets_what_came_after(tmp_path):
    with RunFolder.create(tmp_path / "run", CONFIG) as run:
        for step in (10, 20, 30):
            run.write_metrics(step, step / 10, {"loss": math.nan if step == 10 else float(step)})
        first_lines = run.metrics_file.read_text().splitlines()[:2]
        run.rewind(25)
        assert run.metrics_file.read_text().splitlines() == first_lines
        run.write_metrics(30, 3.5, {"loss": 3.0})
        run.close_files()
        assert scalars(run) == [(20, "loss", 20.0), (30, "loss", 3.0)]
    assert [row["step"] for row in run.read_metrics()] == [10, 20, 30]
    with run:
        run.rewind(0)
    assert run.read_metrics() == []


def test_one_process_writes_to_a_folder_at_a_time(tmp_path):
    first = RunFolder.create(tmp_path / "run", CONFIG)
    second = RunFolder.open(first.path)
    with pytest.raises(RunError, match=r"another run is writing to .*/run'; wait for it"):
        second.lock()
    with pytest.raises(RunError, match="is not empty"):
        RunFolder.create(first.path, CONFIG)
    first.close()
    with second:
        second.lock()


def test_a_folder_that_nobody_may_write_to_is_told(tmp_path, monkeypatch):
    def read_only(*_, **__):
        raise PermissionError(13, "Permission denied")

    RunFolder.create(tmp_path / "run", CONFIG).close()
    monkeypatch.setattr("filelock.FileLock.acquire", read_only)
    with pytest.raises(
        RunError, match=r"cannot write .*/run': Permission denied; give --out a fol"
    ):
        RunFolder.open(tmp_path / "run").lock()


def test_of_two_that_come_to_an_empty_folder_one_gets_it(tmp_path, monkeypatch):
    """The second has seen the folder empty; the first then makes its run in it."""
    check = run_folder._check_empty

    def late(folder):
        check(folder)
        monkeypatch.setattr(run_folder, "_check_empty", check)
        RunFolder.create(folder, CONFIG).close()

    monkeypatch.setattr(run_folder, "_check_empty", late)
    with pytest.raises(RunError, match="is not empty"):
        RunFolder.create(tmp_path / "run", CONFIG)


def test_a_configuration_is_replaced_in_part(tmp_path):
    run = RunFolder.create(tmp_path / "run", CONFIG)
    versions = run.versions
    run.replace_config(seed=4)
    assert RunFolder.open(run.path).config["seed"] == 4
    assert RunFolder.open(run.path).config["task"] == CONFIG["task"]
    assert RunFolder.open(run.path).versions == versions


def scalars(run):
    """What TensorBoard reads: step, name, value, in the order of the files."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for file in sorted((run.path / "tensorboard").iterdir()):
        data = file.read_bytes()
        while data:  # records of length, its checksum, an event, its checksum
            (length,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + length])
            found += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
            data = data[16 + length :]
    return found


def test_plot_writes_a_png(tmp_path):
    with RunFolder.create(tmp_path / "run", CONFIG) as run:
        run.write_metrics(10, 1.0, {"train/return": 1.0})
        assert run.plot() == run.curves_file
    assert run.curves_file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "name", ["config.json.partial", "checkpoints", "metrics.jsonl", "episode.mp4", ".lock", "a/b"]
)
def test_nothing_is_written_through_links_out_of_a_folder(tmp_path, name):
    RunFolder.create(tmp_path / "run", {"task": "a"}).close()
    outside = tmp_path / "outside"
    outside.write_text("mine")
    link = tmp_path / "run" / name
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(outside)
    with pytest.raises(RunError, match="is a link to a place outside of the run folder"):
        RunFolder.open(tmp_path / "run")
    assert outside.read_text() == "mine"


def test_a_folder_may_be_a_link_and_have_links_within(tmp_path):
    RunFolder.create(tmp_path / "run", {"task": "a"}).close()
    (tmp_path / "run" / "latest").symlink_to("config.json")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    assert RunFolder.open(tmp_path / "link").config == {"task": "a"}


def test_a_run_that_was_killed_as_it_began_leaves_a_folder_to_begin_in(tmp_path):
    for name in (".lock", "config.json.partial"):
        (tmp_path / name).touch()
    RunFolder.create(tmp_path, {"task": "a"}).close()
    assert RunFolder.open(tmp_path).config == {"task": "a"}
