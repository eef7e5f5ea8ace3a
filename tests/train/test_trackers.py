"""Trackers: what they are sent is what the run folder holds, and they never stop a training."""

import dataclasses
import json
import math

import jax
import pytest

import worldline
from worldline.errors import ConfigError, MissingExtraError, RunError
from worldline.learn.ppo import PPOConfig
from worldline.report import RunFolder
from worldline.train import TrainConfig, resume, trackers, train

PPO = PPOConfig(num_worlds=4, unroll_length=8, minibatches=1, epochs=1, actor_hidden=(4,))
RUN = TrainConfig(steps=96, evaluations=3, eval_episodes=2, quiet=True, video=False)


@pytest.fixture(scope="module")
def env():
    return worldline.make("robot/reach", physics="fake", episode_length=16)


@pytest.fixture(autouse=True)
def optax_raises_a_float_to_an_integer_count():
    with jax.numpy_dtype_promotion("standard"):
        yield


def numbers(folder):
    """`(step, name)` to number, of all that a run folder holds."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        (line["step"], name): value
        for line in lines
        for name, value in line.items()
        if name not in ("step", "seconds") and value is not None
    }


def wandb_records(file):
    """The records of an offline file: a log of LevelDB, blocks of 32 KiB after a head."""
    from wandb.proto import wandb_internal_pb2

    data, at, parts = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole record, or the last part of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def wandb_numbers(folder):
    sent = {}
    for file in (folder / "wandb").glob("offline-run-*/*.wandb"):
        for record in wandb_records(file):
            row = {
                ".".join([item.key] if item.key else item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            step = row.pop("step", None)
            sent |= {(step, n): v for n, v in row.items() if not n.startswith("_")}
    return sent


@pytest.mark.exhaustive
def test_weights_and_biases_offline_holds_the_run_and_its_continuation(env, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = tmp_path / "run"
    train("robot/reach", env, dataclasses.replace(RUN, out=folder, track=("wandb",)), PPO)
    resume(folder, steps=160, quiet=True, env=env)
    assert len(list((folder / "wandb").glob("offline-run-*"))) == 2
    (name,) = {file.name for file in (folder / "wandb").glob("offline-run-*/*.wandb")}
    assert name == f"run-{json.loads((folder / 'trackers.json').read_text())['wandb']}.wandb"
    assert wandb_numbers(folder) == pytest.approx(numbers(folder))


@pytest.mark.filterwarnings("ignore:.*noload")  # of SQLAlchemy 2.1, in MLflow 3.17
def test_mlflow_holds_the_run_and_its_continuation(env, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    folder = tmp_path / "run"
    train("robot/reach", env, dataclasses.replace(RUN, out=folder, track=("mlflow",)), PPO)
    resume(folder, steps=160, quiet=True, env=env)
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("worldline").experiment_id
    (run,) = client.search_runs([experiment])
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "run"
    assert run.data.params["ppo.num_worlds"] == "4"
    assert run.data.params["task"] == "robot/reach"
    sent = {
        (row.step, name): row.value
        for name in run.data.metrics
        for row in client.get_metric_history(run.info.run_id, name)
    }
    assert sent == pytest.approx(numbers(folder))


class Broken:
    """A tracker whose service goes away after the first numbers."""

    library = "json"
    id = "1"

    def __init__(self, folder, run_id):
        self.sent = 0

    def write(self, step, metrics):
        self.sent += 1
        if self.sent > 1:
            raise ConnectionError("no route to\nhost")

    def close(self, failed):
        raise AssertionError("it is left out")


class Absent(Broken):
    def __init__(self, folder, run_id):
        raise ConnectionError("refused")


class Counting(Broken):
    closed = []

    def write(self, step, metrics):
        self.sent += 1

    def close(self, failed):
        self.closed.append((self.sent, failed))


@pytest.fixture
def folder(tmp_path):
    with RunFolder.create(tmp_path / "run", {"task": "toy"}) as folder:
        yield folder


def test_a_tracker_that_fails_is_left_out_with_a_warning(folder, monkeypatch):
    monkeypatch.setitem(trackers.TRACKERS, "broken", Broken)
    monkeypatch.setitem(trackers.TRACKERS, "counting", Counting)
    with trackers.Trackers(folder, ("broken", "counting")) as both:
        both.write(1, {"a": math.pi})
        with pytest.warns(UserWarning, match="broken failed.*no route to host; the run continues"):
            both.write(2, {"a": math.pi})
        both.write(3, {"a": math.pi})
    assert Counting.closed.pop() == (3, False)


def test_a_run_that_fails_is_told_to_have_failed(folder, monkeypatch):
    monkeypatch.setitem(trackers.TRACKERS, "counting", Counting)
    with pytest.raises(KeyError), trackers.Trackers(folder, ("counting",)):
        raise KeyError
    assert Counting.closed.pop() == (0, True)


def test_a_tracker_that_cannot_be_reached_ends_the_run_before_it_begins(folder, monkeypatch):
    monkeypatch.setitem(trackers.TRACKERS, "counting", Counting)
    monkeypatch.setitem(trackers.TRACKERS, "absent", Absent)
    with pytest.raises(RunError, match="absent cannot be reached: refused; fix it, or train"):
        trackers.Trackers(folder, ("counting", "absent"))
    assert Counting.closed.pop() == (0, True)


def test_what_is_no_tracker_or_is_not_installed(env, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="no tracker 'wandbb'; did you mean 'wandb'"):
        config = dataclasses.replace(RUN, out=tmp_path / "run", track=("wandbb",))
        train("robot/reach", env, config, PPO)
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(Absent, "library", "no_such_library")
    monkeypatch.setitem(trackers.TRACKERS, "absent", Absent)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[absent\]'"):
        trackers.check_trackers(("absent",))


def test_a_process_that_writes_nothing_tracks_nothing(monkeypatch):
    monkeypatch.setitem(trackers.TRACKERS, "absent", Absent)
    with trackers.Trackers(None, ("absent",)) as none:
        none.write(1, {"a": 1.0})
