"""A training run: what it leaves behind, however it ends."""

import contextlib
import dataclasses
import itertools
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import worldline
from worldline.env.disturb import undisturbed
from worldline.errors import ConfigError, RunError, TrainingDivergedError
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.rollout import evaluator
from worldline.learn.run import Learner
from worldline.report import RunFolder
from worldline.tasks.reach import Reach
from worldline.tasks.registry import list_tasks, load_task, task_class
from worldline.train import records, resume, train
from worldline.train import run as train_module
from worldline.train.config import TrainConfig
from worldline.train.stored import environment_of, made_again, resolved_config, saved_config

#: An update is 32 steps; of four worlds two end an episode in it.
PPO = PPOConfig(num_worlds=4, unroll_length=8, minibatches=1, epochs=1, actor_hidden=(4,))
RUN = TrainConfig(steps=320, evaluations=5, eval_episodes=2, quiet=True, video=False)


@pytest.fixture(scope="module")
def env():
    return worldline.make("robot/reach", physics="fake", episode_length=16)


@pytest.fixture(scope="module")
def learner(env):
    return ppo(worldline.Worlds(env, PPO.num_worlds), PPO)


@pytest.fixture(scope="module")
def evaluate(env):
    return evaluator(env, RUN.eval_episodes)


@pytest.fixture
def run(env, learner, evaluate, tmp_path, monkeypatch):
    """A short run. All of them share what is compiled: a learner is nothing but pure functions."""

    def start(folder="run", stop_signal=None, learner=learner, draw=False, **changes):
        if not draw:  # which takes longer than the rest
            monkeypatch.setattr(RunFolder, "plot", lambda folder: folder.curves_file.touch())
        monkeypatch.setattr(train_module, "evaluator", lambda *_, **__: evaluate)
        config = dataclasses.replace(RUN, out=tmp_path / folder, **changes)
        stop_signal = stop_signal or contextlib.nullcontext(lambda: False)
        with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to an integer count
            return train("robot/reach", env, config, PPO, None, stop_signal, lambda *_: learner)

    return start


def rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_it_evaluates_evenly_and_at_the_end(run):
    finished = run()
    evaluated = [row["step"] for row in rows(finished.folder) if "eval/return" in row]
    assert evaluated == [64, 128, 192, 256, 320]
    assert [row["step"] for row in rows(finished.folder)] == list(range(32, 321, 32))
    assert finished.steps == 320
    assert not finished.interrupted
    last = rows(finished.folder)[-1]
    assert last["eval/return"] == pytest.approx(finished.evaluation.episode_return.mean())
    assert last["seconds"] <= finished.seconds + 1e-3


def test_the_folder_holds_the_policy_that_was_evaluated_last(run, evaluate):
    finished = run()
    policy = worldline.load_policy(finished.folder)
    _, eval_key, _ = jax.random.split(jax.random.key(RUN.seed), 3)
    again = evaluate(policy, eval_key)
    np.testing.assert_array_equal(again.episode_return, finished.evaluation.episode_return)


def test_the_folder_is_complete(run):
    finished = run(draw=True)
    assert sorted(file.name for file in finished.folder.iterdir()) == [
        ".lock",
        "best_policy.npz",
        "checkpoints",
        "config.json",
        "curves.png",
        "metrics.jsonl",
        "policies",
        "policy.npz",
        "tensorboard",
    ]
    assert finished.video_note == "no video: --no-video"


def test_a_run_repeats_itself(run):
    first, second = (run(name).folder / "policy.npz" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
    other = run("other", seed=1).folder / "policy.npz"
    assert first.read_bytes() != other.read_bytes()


def test_a_request_to_stop_ends_it_well_after_the_update(run, monkeypatch):
    monkeypatch.setattr(train_module, "make_video", None)  # it has none
    asked = itertools.chain([False, False], itertools.repeat(True))
    stop = contextlib.nullcontext(lambda: next(asked))
    result = run(stop_signal=stop, video=True, evaluations=1)
    assert (result.steps, result.interrupted) == (96, True)
    # It is evaluated to tell how good it is; what is written is what is written without a stop.
    assert [("eval/return" in row) for row in rows(result.folder)] == [False, False, False]
    assert result.evaluation.episode_return.shape == (2,)
    assert (result.folder / "checkpoints" / "step-000000000096.npz").exists()
    assert (
        result.video_note == f"no video: interrupted; `worldline render {result.folder}` makes one"
    )
    assert (result.folder / "curves.png").exists()
    worldline.load_policy(result.folder)


def test_ctrl_c_in_the_video_costs_the_video_alone(run, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(train_module, "make_video", interrupt)
    result = run(steps=32, evaluations=1, video=True)
    assert "no video: interrupted" in result.video_note
    assert (result.folder / "curves.png").exists()


@pytest.mark.parametrize("error", [RunError("the disk is full"), KeyboardInterrupt()])
def test_what_breaks_it_off_costs_nothing_learned(run, tmp_path, monkeypatch, error):
    policies = []
    write, save = RunFolder.write_metrics, records.save_policy

    def write_twice(folder, step, *arguments):
        if step == 96:
            raise error
        write(folder, step, *arguments)

    def spy(folder, policy):
        policies.append(policy)
        return save(folder, policy)

    monkeypatch.setattr(RunFolder, "write_metrics", write_twice)
    monkeypatch.setattr(records, "save_policy", spy)
    with pytest.raises(type(error)):
        run(evaluations=1)
    assert len(policies) == 1
    assert policies[0].statistics.count == 96
    jax.tree.map(
        np.testing.assert_array_equal, worldline.load_policy(tmp_path / "run"), policies[0]
    )
    assert (tmp_path / "run" / "curves.png").exists()


def test_the_training_state_is_held_once(run, learner):
    """However far the run is, one state is alive when an update begins."""
    shape, alive = (1013,), []

    def init(key):
        return learner.init(key), jnp.ones(shape)

    def update(state):
        alive.append(sum(array.shape == shape for array in jax.live_arrays()))
        inner, metrics = learner.update(state[0])
        return (inner, state[1] + 1.0), metrics

    run(learner=Learner(init, update, lambda state: learner.policy(state[0]), 32), steps=128)
    assert alive == [1, 1, 1, 1]


def test_an_update_may_consume_the_state(run, learner, tmp_path):
    """The policy that is saved when one fails is that of the update before."""
    updates = itertools.count()

    def update(state):
        if next(updates) == 3:
            jax.tree.map(lambda leaf: leaf.delete(), state)
            raise KeyboardInterrupt
        return learner.update(state)

    with pytest.raises(KeyboardInterrupt):
        run(learner=learner._replace(update=update), evaluations=1)
    assert worldline.load_policy(tmp_path / "run").statistics.count == 96


@pytest.mark.usefixtures("nans_allowed")
def test_a_run_that_diverges_leaves_the_last_good_policy(run, learner, tmp_path):
    huge = jnp.float32(1e30)

    def reckless(key):
        return eqx.tree_at(lambda state: state.learning.learning_rate, learner.init(key), huge)

    with pytest.raises(TrainingDivergedError, match="lower the learning rate"):
        run(learner=learner._replace(init=reckless))
    policy = worldline.load_policy(tmp_path / "run")
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(policy))


def test_means_over_no_episodes_are_not_reported(run, env):
    # The first episode to end is cut after 10 steps, in the second update.
    learner = ppo(worldline.Worlds(env, PPO.num_worlds, episode_length=40), PPO)
    reported = [
        (row["train/episodes"], "train/return" in row, "train/episode_length" in row)
        for row in rows(run(learner=learner, steps=64).folder)
    ]
    assert reported == [(0, False, False), (1, True, True)]


def test_episodes_of_training_can_be_shorter_than_those_of_evaluation(env, run):
    """Training's are cut after 4 of the task's 16 steps, evaluations are not."""
    short = dataclasses.replace(RUN, episode_length=4)
    made = train_module._prepare(env, short, PPO, None, mesh=None).learner
    rows = RunFolder.open(run("short", learner=made).folder).read_metrics()
    lengths = [row["train/episode_length"] for row in rows if row.get("train/episodes")]
    assert lengths[-1] == max(lengths) == 4  # the first ones are cut to end in turn
    assert {row["eval/length"] for row in rows if "eval/length" in row} == {16.0}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.exhaustive) if name.startswith("playground/") else name
        for name in list_tasks()
    ],
)
def test_the_configuration_of_a_task_comes_back(name, tmp_path):
    task = load_task(name, episode_length=7)
    algorithm = PPOConfig(**task.defaults.get("ppo", {}))
    config = TrainConfig(**task.defaults.get("train", {}), seed=5)
    env = worldline.Env(task, "fake")
    resolved = resolved_config(name, env, config, algorithm)
    saved = saved_config(RunFolder.create(tmp_path / "run", resolved))
    again = undisturbed(made_again(saved, tmp_path).task)[0]
    for field in dataclasses.fields(task_class(name)):
        before, after = getattr(task, field.name), getattr(again, field.name)
        assert before == after, field.name
        assert type(before) is type(after), field.name
    assert PPOConfig(**saved["ppo"]) == algorithm
    names = [field.name for field in dataclasses.fields(TrainConfig)]
    assert TrainConfig(**{name: saved[name] for name in names}) == config


def test_a_configuration_of_something_else_is_refused(tmp_path):
    folder = RunFolder.create(tmp_path / "run", {"task": "gym/ant", "seed": 1})
    with pytest.raises(RunError, match=r"is not a training run: its config\.json has no 'code'"):
        saved_config(folder)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("steps", 0),
        ("episode_length", -1),
        ("evaluations", 0),
        ("eval_episodes", -1),
        ("seed", -1),
        ("seed", 2**32),
    ],
)
def test_a_setting_that_cannot_be_is_refused(setting, value):
    with pytest.raises(ConfigError, match=f"{setting} is {value}; give"):
        TrainConfig(**{setting: value})


def made_as(env):
    """How an environment is made: what must come back from a run folder."""
    return type(env.task), env.config, env.physics.name, env.observation_space


def test_a_run_folder_describes_the_environment_that_was_trained(tmp_path):
    env = worldline.Env(
        load_task("robot/reach", episode_length=16),
        "fake",
        context=["gravity"],
        action_repeat=2,
        last_action=True,
    )
    config = dataclasses.replace(RUN, steps=32, evaluations=1, out=tmp_path / "run")
    with jax.numpy_dtype_promotion("standard"):
        folder = RunFolder.open(train("robot/reach", env, config, PPO).folder)
        assert folder.config["env"]["physics"] == "fake"
        assert made_as(environment_of(folder)) == made_as(env)
        # The policy reads what the environment shows, without being told to.
        assert worldline.load_policy(folder.path).obs_keys == ("state", "last_action", "context")
        other = env.but(action_repeat=3)
        with pytest.raises(RunError, match=r"trained with action_repeat 2, but the .* env has 3"):
            resume(folder.path, steps=64, quiet=True, env=other)
        assert resume(folder.path, steps=64, quiet=True).steps == 64


def test_what_a_run_folder_cannot_make_again_it_says(tmp_path, capsys):
    class Mine(Reach):
        """A task that no file has under its name."""

    env = worldline.Env(Mine(episode_length=16), "fake")
    config = dataclasses.replace(RUN, steps=32, evaluations=1, out=tmp_path / "run", quiet=False)
    with jax.numpy_dtype_promotion("standard"):
        path = train("robot/reach", env, config, PPO).folder
        said = " ".join(capsys.readouterr().err.split())
        why = "the class of its task, Mine, is not in a file; put it into a Python file"
        assert f"does not store its environment: {why}; resume it with env=" in said
        with pytest.raises(RunError, match=f"{why}; make the environment in Python"):
            resume(path, steps=64, quiet=True)
        assert resume(path, steps=64, quiet=True, env=env).steps == 64
