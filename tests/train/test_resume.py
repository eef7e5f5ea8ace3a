"""A run that goes on is the run that never ended: bit for bit, with variation and curriculum."""

import contextlib
import dataclasses
import itertools
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import worldline
from worldline.errors import ConfigError, RunError
from worldline.learn.ppo import PPOConfig, clipped_loss, ppo
from worldline.learn.rollout import evaluator, unroll
from worldline.learn.sac import SACConfig, sac
from worldline.report import RunFolder
from worldline.train import run as train_module
from worldline.train.begin import begin_from
from worldline.train.run import TrainConfig, resume, train
from worldline.variation import Domain, Uniform, scale

#: An update is 32 steps; an episode ends in every second one.
PPO = PPOConfig(num_worlds=4, unroll_length=8, minibatches=2, epochs=2, actor_hidden=(4,))
RUN = TrainConfig(steps=320, evaluations=5, eval_episodes=2, quiet=True, video=False)
TRACES = Counter[str]()


def counted(name: str, function: Any) -> Any:
    def wrapper(*args: Any) -> Any:
        TRACES[name] += 1
        return function(*args)

    return wrapper


def harder(metrics, ranges):
    """A curriculum: what is drawn spreads with every update, faster where returns are high."""
    step = 0.01 + 0.001 * jnp.tanh(metrics["train/return"])
    (term,) = ranges
    return eqx.tree_at(lambda ranges: ranges[term].high, ranges, replace_fn=lambda x: x + step)


@pytest.fixture(scope="module")
def env():
    return worldline.make("robot/reach", physics="native", episode_length=16)


@pytest.fixture(scope="module")
def learner(env):
    domain = Domain(scale(("body_mass", "body_inertia"), Uniform(0.9, 1.1)))
    worlds = worldline.Worlds(env, PPO.num_worlds, domain=domain)
    pieces = {"rollout": counted("act", unroll), "loss": counted("learn", clipped_loss)}
    return ppo(worlds, PPO, curriculum=harder, **pieces)


@pytest.fixture(scope="module")
def evaluate(env):
    return evaluator(env, RUN.eval_episodes)


@pytest.fixture(autouse=True)
def quick(evaluate, monkeypatch):
    """What is compiled is shared, and nothing is drawn."""
    monkeypatch.setattr(train_module, "evaluator", lambda *_, **__: evaluate)
    monkeypatch.setattr(RunFolder, "plot", lambda folder: folder.curves_file.touch())
    with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to an integer count
        yield


@pytest.fixture(scope="module")
def whole(env, learner, evaluate, tmp_path_factory):
    """A run without a break, and copies of its folder as a kill would leave it at some steps."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    write = RunFolder.write_metrics

    def write_and_copy(run, step, *arguments):
        write(run, step, *arguments)
        killed = folder.parent / f"killed-{step}"
        shutil.copytree(run.path, killed, copy_function=copy_what_is_there)

    with pytest.MonkeyPatch.context() as patch, jax.numpy_dtype_promotion("standard"):
        patch.setattr(train_module, "evaluator", lambda *_, **__: evaluate)
        patch.setattr(RunFolder, "write_metrics", write_and_copy)
        patch.setattr(RunFolder, "plot", lambda folder: folder.curves_file.touch())
        start(env, learner, folder)
    return folder


def copy_what_is_there(source: str, target: str) -> None:
    """For `copytree`, which may have listed a file that is gone once a checkpoint is written."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)


def start(env, learner, folder, stop_signal=None, **changes):
    config = dataclasses.replace(RUN, out=folder, **changes)
    stop_signal = stop_signal or contextlib.nullcontext(lambda: False)
    return train("robot/reach", env, config, PPO, None, stop_signal, lambda *_: learner)


def go_on(env, learner, folder, **changes):
    return resume(folder, quiet=True, env=env, make_learner=lambda *_: learner, **changes)


def rows(folder: Path) -> list[dict[str, Any]]:
    """The metrics, but for the clock."""
    text = (folder / "metrics.jsonl").read_text()
    clock = ("seconds", "speed/steps_per_s")
    found = [json.loads(line) for line in text.splitlines()]
    return [{name: value for name, value in row.items() if name not in clock} for row in found]


def last_state(folder: Path) -> dict[str, bytes]:
    newest = max((folder / "checkpoints").glob("step-*.npz"))
    with np.load(newest) as file:
        arrays = {name: file[name] for name in file.files if name != "about"}
    return {"file": newest.name.encode(), **{n: a.tobytes() for n, a in arrays.items()}}


def named_state(folder: Path, learner: Any) -> dict[str, bytes]:
    """The last checkpoint's arrays under the paths that the learner's state has for them."""
    like = jax.eval_shape(learner.init, jax.random.key(0))
    state = last_state(folder)
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(like)]
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path in paths]
    return {name: state[str(number)] for number, name in enumerate(names)}


def assert_same_run(one: Path, other: Path) -> None:
    assert rows(one) == rows(other)
    assert last_state(one) == last_state(other)
    assert (one / "policy.npz").read_bytes() == (other / "policy.npz").read_bytes()


def test_the_curriculum_and_the_domain_are_in_what_is_compared(whole, learner):
    state = named_state(whole, learner)
    (high,) = (v for n, v in state.items() if n.startswith("acting.worlds.ranges.") and "high" in n)
    assert 1.15 < np.frombuffer(high, np.float32)[0] < 1.25
    masses = np.frombuffer(state["acting.worlds.env.physics.variation.body_mass"], np.float32)
    assert len(np.unique(masses.reshape(PPO.num_worlds, -1)[:, -1])) == PPO.num_worlds


# Before the first checkpoint, between two, with one being written, and at the end.
@pytest.mark.parametrize("step", [32, 64, 160, 192, 320])
def test_a_killed_run_goes_on_bit_for_bit(whole, env, learner, tmp_path, step):
    folder = shutil.copytree(whole.parent / f"killed-{step}", tmp_path / "run")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 999, "sec')
    traces = TRACES.copy()
    result = go_on(env, learner, folder)
    assert (result.steps, result.interrupted) == (320, False)
    assert_same_run(folder, whole)
    assert traces == TRACES  # nothing is traced again


def test_a_run_that_was_stopped_goes_on_bit_for_bit(whole, env, learner, tmp_path):
    asked = itertools.chain([False, False], itertools.repeat(True))
    stop = contextlib.nullcontext(lambda: next(asked))
    stopped = start(env, learner, tmp_path / "run", stop)
    assert (stopped.steps, stopped.interrupted) == (96, True)
    assert rows(stopped.folder) == rows(whole)[:3]
    go_on(env, learner, stopped.folder)
    assert_same_run(stopped.folder, whole)


def test_twice_the_steps_are_the_steps_twice(whole, env, learner, tmp_path):
    folder = start(env, learner, tmp_path / "run", steps=160).folder
    first = rows(folder)
    result = go_on(env, learner, folder, steps=320)
    assert result.steps == 320
    assert last_state(folder) == last_state(whole)
    assert rows(folder)[:5] == first
    assert RunFolder.open(folder).config["steps"] == 320
    with pytest.raises(ConfigError, match="steps is 100, but the run has already taken 320"):
        go_on(env, learner, folder, steps=100)


def test_a_run_that_is_complete_stays_as_it_is(whole, env, learner, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    before = rows(folder)
    result = go_on(env, learner, folder)
    assert result.steps == 320
    assert rows(folder) == before
    assert result.evaluation.episode_return.mean() == pytest.approx(before[-1]["eval/return"])


def test_another_configuration_than_the_checkpoints_is_refused(whole, env, learner, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    run = RunFolder.open(folder)
    run.replace_config(ppo={**run.config["ppo"], "clip": 0.1})
    with pytest.raises(RunError, match=r"^ppo.clip is 0.1, but the checkpoint .* made with 0.2"):
        go_on(env, learner, folder)


def test_a_run_that_is_being_written_is_refused(whole, env, learner, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    with RunFolder.open(folder) as other:
        other.lock()
        before = rows(folder)
        with pytest.raises(RunError, match="another run is writing to"):
            go_on(env, learner, folder)
    assert rows(folder) == before


def test_a_damaged_checkpoint_is_named_and_the_run_goes_on(whole, env, learner, tmp_path, capsys):
    folder = shutil.copytree(whole, tmp_path / "run")
    newest = folder / "checkpoints" / "step-000000000320.npz"
    newest.write_bytes(newest.read_bytes()[:5000])
    resume(folder, env=env, make_learner=lambda *_: learner)
    assert f"{str(newest)!r} is truncated or damaged" in capsys.readouterr().err
    assert_same_run(folder, whole)


def test_a_run_begins_with_parts_of_another(whole, learner):
    key = jax.random.key(5)
    fresh = learner.init(key).learning
    all_of_it = begin_from(whole, learner, tuple(learner.parts)).init(jax.random.clone(key))
    actor_alone = begin_from(whole, learner, ("actor",)).init(jax.random.clone(key)).learning
    saved, networks = named_state(whole, learner), all_of_it.learning.networks

    def weights(network):
        return np.asarray(network.weights[0]).tobytes()

    assert weights(networks.actor.mean) == saved["learning.networks.actor.mean.weights.0"]
    assert weights(networks.critic) == saved["learning.networks.critic.weights.0"]
    assert all_of_it.learning.statistics.actor.count == 320
    assert all_of_it.learning.updates == 0
    assert weights(actor_alone.networks.actor.mean) == weights(networks.actor.mean)
    assert weights(actor_alone.networks.critic) == weights(fresh.networks.critic)
    assert actor_alone.statistics.actor.count == 0


def test_what_a_run_cannot_begin_with(whole, learner, tmp_path):
    with pytest.raises(ConfigError, match="no part 'acter' to begin with; did you mean 'actor'"):
        begin_from(whole, learner, ("acter",))
    with pytest.raises(RunError, match="is not a run folder"):
        begin_from(tmp_path / "none", learner, ("actor",))
    wider = dataclasses.replace(PPO, actor_hidden=(8,))
    worlds = worldline.Worlds(worldline.make("robot/reach", physics="fake"), PPO.num_worlds)
    with pytest.raises(
        RunError, match=r"the actor in the checkpoint .* \('.*mean.weights.0'\); give"
    ):
        begin_from(whole, ppo(worlds, wider), ("actor",)).init(jax.random.key(0))


@pytest.mark.exhaustive
@pytest.mark.usefixtures("key_reuse_allowed")  # JAX's check does not follow keys into a `vmap`
def test_several_seeds_train_as_each_alone(whole, env, learner, tmp_path):
    result = start(env, learner, tmp_path / "run", seeds=2, steps=128, evaluations=2)
    assert result.evaluation.episode_return.shape == (2, 2)
    other = start(env, learner, tmp_path / "other", seed=1, steps=128, evaluations=2)
    members = [rows(result.folder / f"seed-{seed}") for seed in (0, 1)]
    for member, alone in zip(members, (rows(whole), rows(other.folder)), strict=True):
        assert [row["step"] for row in member] == [32, 64, 96, 128]
        for ours, theirs in zip(member, alone, strict=False):
            for name in ("loss/value", "ppo/kl", "train/reward_distance"):
                if name in theirs:
                    assert ours[name] == pytest.approx(theirs[name], rel=2e-3, abs=1e-5), name
            if "train/return" in theirs:
                assert ours["train/return"] == pytest.approx(theirs["train/return"], rel=1e-3)
    # The run's own folder holds the means, the deviation over seeds, and the best policy.
    ends = [member[-1]["eval/return"] for member in members]
    assert rows(result.folder)[-1]["eval/return"] == pytest.approx(np.mean(ends))
    assert rows(result.folder)[-1]["eval/return_std"] == pytest.approx(np.std(ends))
    best = result.folder / f"seed-{np.argmax(ends)}" / "policy.npz"
    assert (result.folder / "policy.npz").read_bytes() == best.read_bytes()
    for seed in (0, 1):
        assert RunFolder.open(result.folder / f"seed-{seed}").config["seed"] == seed
        assert (result.folder / f"seed-{seed}" / "curves.png").exists()

    killed = shutil.copytree(result.folder, tmp_path / "killed")
    (killed / "checkpoints" / "step-000000000128.npz").unlink()
    go_on(env, learner, killed)
    for name in (".", "seed-0", "seed-1"):
        assert rows(killed / name) == rows(result.folder / name)
    assert last_state(killed) == last_state(result.folder)

    for seed in (0, 1):
        liked = shutil.copytree(result.folder, tmp_path / f"liked-{seed}")
        with RunFolder.open(liked / f"seed-{seed}") as member:
            member.write_metrics(128, 1.0, {"eval/return": 1e6})
        state = begin_from(liked, learner, ("actor",)).init(jax.random.key(5))
        policy = worldline.load_policy(liked / f"seed-{seed}")
        jax.tree.map(np.testing.assert_array_equal, state.learning.networks.actor, policy.actor)


@pytest.mark.slow
def test_sac_goes_on_bit_for_bit_with_its_memory(env, tmp_path):
    """Killed where the replay buffer has begun to forget, with variation and a curriculum."""
    config = SACConfig(
        num_worlds=4,
        unroll_length=8,
        critic_steps=4,
        batch_size=16,
        replay_capacity=100,
        learning_starts=64,
        actor_hidden=(4,),
        critic_hidden=(4,),
    )
    worlds = worldline.Worlds(
        env, 4, domain=Domain(scale(("body_mass", "body_inertia"), Uniform(0.9, 1.1)))
    )
    learner = sac(worlds, config, curriculum=harder)
    run = dataclasses.replace(RUN, steps=256, evaluations=4, out=tmp_path / "whole")
    make = {"make_learner": lambda *_: learner}
    whole = train("robot/reach", env, run, config, **make).folder
    killed = shutil.copytree(whole, tmp_path / "killed")
    (killed / "checkpoints" / "step-000000000256.npz").unlink()
    resume(killed, quiet=True, env=env, **make)
    assert_same_run(killed, whole)
    state = named_state(whole, learner)
    assert np.frombuffer(state["replay.pushed"], np.int32).sum() == 256 > config.replay_capacity
