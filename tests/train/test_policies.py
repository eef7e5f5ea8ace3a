"""Which policies a run keeps, and what it says of returns that nobody knows."""

import dataclasses
import json
import math

import jax
import numpy as np
import pytest

import worldline
from worldline.cli import main as cli
from worldline.errors import ConfigError, RunError
from worldline.export.policy_file import load_policy, policy_about, save_policy
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.run import run
from worldline.report import RunFolder
from worldline.train import TrainConfig, train
from worldline.train import run as train_module

PPO = PPOConfig(num_worlds=2, unroll_length=8, minibatches=1, epochs=1, actor_hidden=(4,))
RUN = TrainConfig(steps=64, evaluations=4, eval_episodes=2, video=False, quiet=True)


@pytest.fixture(autouse=True)
def standard():
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def env():
    return worldline.make("robot/reach", "fake", episode_length=8)


@pytest.fixture
def graded(monkeypatch):
    """Evaluations whose returns are 1, 3, 2, 0."""
    grades, evaluator = iter([1.0, 3.0, 2.0, 0.0]), train_module.evaluator

    def with_grades(*args, **options):
        inner = evaluator(*args, **options)

        def measure(policy, key):
            result = inner(policy, key)
            shape = result.episode_return.shape
            return result._replace(episode_return=np.full(shape, next(grades), np.float32))

        return measure

    monkeypatch.setattr(train_module, "evaluator", with_grades)


def test_the_best_policy_is_kept_beside_the_last(env, graded, tmp_path, capsys):
    folder = train("reach", env, dataclasses.replace(RUN, out=tmp_path / "run"), PPO).folder
    names = sorted(file.name for file in (folder / "policies").iterdir())
    assert names == [f"step-{step:012}.npz" for step in (16, 32, 48, 64)]
    about = {which: policy_about(folder / which) for which in ("best_policy.npz", "policy.npz")}
    assert [(each["step"], each["return"]) for each in about.values()] == [(32, 3.0), (64, 0.0)]
    policies = {c: load_policy(folder, checkpoint=c) for c in ("best", 32, "32", "last", 64, 16)}
    leaves = {c: [x.tobytes() for x in jax.tree.leaves(p)] for c, p in policies.items()}
    assert leaves["best"] == leaves[32] == leaves["32"] != leaves[16]
    assert leaves["last"] == leaves[64] != leaves["best"]
    with pytest.raises(RunError, match="checkpoint is '33'; give best, last or one of 16, 32, 48"):
        load_policy(folder, checkpoint="33")
    assert cli.main(["eval", str(folder), "--checkpoint", "best", "--episodes", "2"]) == 0
    said = capsys.readouterr().err.splitlines()[0]
    assert said == f"policy {folder}/best_policy.npz, after 32 steps, evaluated at 3.0"


def test_a_policy_finds_or_makes_its_folder(env, tmp_path):
    learner = ppo(worldline.Worlds(env, PPO.num_worlds), PPO)
    policy = learner.policy(learner.init(jax.random.key(0)))
    file = save_policy(tmp_path / "new" / "folder", policy)
    assert file.is_file() and load_policy(file.parent) is not None


def test_a_return_that_nobody_knows_is_nan(env):
    """With JAX's alarm, which makes an exception of NaN in a program's result, and without."""
    for alarm in (True, False):
        with jax.debug_nans(alarm):
            worlds = worldline.Worlds(env, PPO.num_worlds, episode_length=40)
            learner = ppo(worlds, PPO)
            state = learner.init(jax.random.key(0))
            seen = [dict(p.metrics) for p in run(learner, state, 64)]
            ended = [m["train/episodes"] for m in seen]
            assert ended[0] == 0 and sum(ended) > 0
            for metrics in seen:
                unknown = metrics["train/episodes"] == 0
                assert math.isnan(metrics["train/return"]) == unknown
                assert math.isnan(metrics["train/episode_length"]) == unknown


def test_a_running_return_is_over_a_hundred_episodes(env, tmp_path, monkeypatch):
    from worldline.train import records

    monkeypatch.setattr(records, "_EPISODES", 3)
    config = dataclasses.replace(RUN, steps=96, out=tmp_path / "run")
    rows = RunFolder.open(train("reach", env, config, PPO).folder).read_metrics()
    episodes = [(row["train/episodes"], row.get("train/return")) for row in rows]
    for index, row in enumerate(rows):
        window, count = [], 0
        for n, mean in reversed(episodes[: index + 1]):
            if n and count < 3:
                window.append((n, mean))
                count += n
        expected = sum(n * mean for n, mean in window) / count if count else None
        assert row.get("train/return_recent") == (expected and pytest.approx(expected, rel=1e-6))


def test_a_job_that_starts_again_continues(env, tmp_path):
    config = dataclasses.replace(RUN, out=tmp_path / "run", resume=True)
    begun = train("reach", env, dataclasses.replace(config, steps=32, evaluations=2), PPO)
    assert begun.steps == 32
    again = train("reach", env, dataclasses.replace(config, steps=64), PPO)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert again.steps == 64 and steps == [16, 32, 48, 64]
    other = dataclasses.replace(PPO, learning_rate=0.5)
    with pytest.raises(RunError, match=r"ppo.learning_rate is 0\.5, but the run in .* has 0\.001"):
        train("reach", env, config, other)
    with pytest.raises(ConfigError, match="resume needs the folder of the run"):
        TrainConfig(resume=True)
