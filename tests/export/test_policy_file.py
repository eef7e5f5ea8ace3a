"""Policies on disk: what comes back is what was saved, or an error that says why not."""

import json
import subprocess
import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import worldline
from worldline.errors import RunError, TaskError
from worldline.export.policy_file import save_policy
from worldline.learn.networks.mlp import MLP, Actor, Gaussian, StateDependentActor
from worldline.learn.networks.network import Network
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy

HERE = Path(__file__).parent
NOBS, NACT = 5, 2


def make_policy(seed: int = 0, squash: str = "clip") -> Policy:
    key, obs_key, std_key = jax.random.split(jax.random.key(seed), 3)
    obs = 1.0 + 3.0 * jax.random.normal(obs_key, (100, NOBS))
    return Policy(
        actor=Actor(
            mean=MLP.initial(key, (NOBS, 16, 8, NACT), "swish", last_gain=1.0),
            log_std=0.1 * jax.random.normal(std_key, (NACT,)),
        ),
        statistics=RunningStatistics.zero((NOBS,)).update(obs),
        low=jnp.array([-1.0, -jnp.inf]),
        high=jnp.array([2.0, jnp.inf]),
        squash=squash,
    )


class Linear(Network):
    """A network that is not one of Worldline's."""

    weight: jax.Array
    sizes: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, obs: jax.Array) -> Gaussian:
        mean = obs @ self.weight
        return Gaussian(mean, jnp.zeros_like(mean))


def observations(*lead: int) -> np.ndarray:
    return np.random.default_rng(0).normal(1.0, 3.0, (*lead, NOBS)).astype(np.float32)


@pytest.mark.parametrize("squash", ["clip", "tanh"])
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_a_policy_comes_back_bit_for_bit(tmp_path, squash, lead):
    policy = make_policy(squash=squash)
    save_policy(tmp_path, policy)
    loaded = worldline.load_policy(tmp_path)
    assert jax.tree.structure(loaded) == jax.tree.structure(policy)
    jax.tree.map(np.testing.assert_array_equal, loaded, policy)
    obs = observations(*lead)
    np.testing.assert_array_equal(loaded(obs), policy(obs))
    keys = [jax.random.key(1), jax.random.key(1)]
    np.testing.assert_array_equal(loaded(obs, keys[0]), policy(obs, keys[1]))


def test_numpy_gives_numpy_and_jax_gives_jax(tmp_path):
    policy = worldline.load_policy(save_policy(tmp_path, make_policy()))
    obs = observations(3)
    for given, kind in ((obs, np.ndarray), (jnp.asarray(obs), jax.Array)):
        for action, shape in ((policy(given), (3, NACT)), (policy(given[0]), (NACT,))):
            assert isinstance(action, kind)
            assert (action.shape, action.dtype) == (shape, np.float32)


def test_an_observation_of_another_size_is_refused(tmp_path):
    policy = worldline.load_policy(save_policy(tmp_path, make_policy()))
    with pytest.raises(TaskError, match=r"shape \(3, 4\); this policy takes \(\.\.\., 5\)"):
        policy(np.zeros((3, 4), np.float32))


def test_the_file_is_enough_to_run_the_policy_without_worldline(tmp_path):
    policy = make_policy()
    file = np.load(save_policy(tmp_path, policy))
    about = json.loads(str(file["about"]))
    assert about["format"] == 3
    assert about["policy"]["squash"] == "clip"
    assert about["policy"]["obs_keys"] == ["state"]
    assert about["policy"]["actor"]["kind"] == "gaussian"
    assert about["policy"]["actor"]["mean"]["activation"] == "swish"
    obs = observations(50)
    std = np.sqrt(file["statistics.variance"])
    x = np.clip((obs - file["statistics.mean"]) / std, -10, 10)
    for layer in (0, 1):
        x = x @ file[f"actor.mean.weights.{layer}"] + file[f"actor.mean.biases.{layer}"]
        x = x / (1 + np.exp(-x))
    x = x @ file["actor.mean.weights.2"] + file["actor.mean.biases.2"]
    low, high = file["low"][0], file["high"][0]
    bounded = low + (np.clip(x[:, 0], -1, 1) + 1) / 2 * (high - low)
    expected = np.stack([bounded, x[:, 1]], axis=1)
    np.testing.assert_allclose(policy(obs), expected, rtol=1e-5, atol=1e-6)


def test_any_actor_and_any_parts_of_an_observation_come_back(tmp_path):
    network = MLP.initial(
        jax.random.key(1), (NOBS + 1, 4, 2 * NACT), "elu", last_gain=1.0, layer_norm=True
    )
    statistics = RunningStatistics.zero((NOBS + 1,))
    low, high = -jnp.ones(NACT), jnp.ones(NACT)
    keys = ("state", "command")
    policy = Policy(StateDependentActor(network), statistics, low, high, "tanh", keys)
    loaded = worldline.load_policy(save_policy(tmp_path, policy))
    assert jax.tree.structure(loaded) == jax.tree.structure(policy)
    obs = {"command": np.ones((3, 1), np.float32), "state": observations(3)}
    np.testing.assert_array_equal(loaded(obs), policy(obs))
    other = {**obs, "command": -obs["command"]}
    assert (loaded(other) != policy(obs)).any()


def test_a_network_of_the_users_own_comes_back_where_its_class_is_given(tmp_path):
    weight = jax.random.normal(jax.random.key(0), (NOBS, NACT))
    policy = eqx.tree_at(lambda p: p.actor, make_policy(), Linear(weight, (NOBS, NACT)))
    path = save_policy(tmp_path, policy)
    with pytest.raises(RunError, match=r"has a Linear, .*; load it with kinds=\[Linear\]"):
        worldline.load_policy(path)
    loaded = worldline.load_policy(path, kinds=[Linear])
    assert jax.tree.structure(loaded) == jax.tree.structure(policy)
    np.testing.assert_array_equal(loaded(observations(3)), policy(observations(3)))


def test_no_part_of_a_file_passes_for_a_policy(tmp_path):
    path = save_policy(tmp_path, make_policy())
    content = path.read_bytes()
    for length in range(0, len(content), 97):
        path.write_bytes(content[:length])
        with pytest.raises(
            RunError, match=r"is damaged \(.*worldline resume. with its run writes it again"
        ):
            worldline.load_policy(tmp_path)


def test_a_damaged_file_gives_an_error_or_the_policy(tmp_path):
    policy = make_policy()
    path = save_policy(tmp_path, policy)
    content = path.read_bytes()
    for place in np.random.default_rng(0).integers(0, len(content), 300):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
        try:
            loaded = worldline.load_policy(tmp_path)
        except RunError:
            continue
        jax.tree.map(np.testing.assert_array_equal, loaded, policy)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, r"no policy at .*; give a folder that `worldline train` made"),
        ({"config.json": "{}"}, r"has no policy yet; the first evaluation of a run saves one"),
        ({"policy.npz": "text"}, r"is damaged"),
    ],
)
def test_what_holds_no_policy_is_refused(tmp_path, content, message):
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(RunError, match=message):
        worldline.load_policy(tmp_path)


@pytest.mark.parametrize("version", [1, 99])
def test_a_policy_of_another_version_is_refused(tmp_path, version):
    path = save_policy(tmp_path, make_policy())
    arrays = dict(np.load(path))
    about = str(arrays["about"]).replace('"format": 3', f'"format": {version}')
    arrays["about"] = np.array(about)
    np.savez(path, **arrays)
    message = f"has format {version}, but this version reads format 3; use the version"
    with pytest.raises(RunError, match=message):
        worldline.load_policy(path)


def test_a_policy_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    before = make_policy(0)
    save_policy(tmp_path, before)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RunError, match="No space left on device; free some space, or give --out"):
        save_policy(tmp_path, make_policy(1))
    assert [file.name for file in tmp_path.iterdir()] == ["policy.npz"]
    jax.tree.map(np.testing.assert_array_equal, worldline.load_policy(tmp_path), before)
    with pytest.raises(RunError, match="cannot write"):
        save_policy(tmp_path / "none", before)


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.1])
def test_a_kill_leaves_a_whole_policy(tmp_path, delay):
    program = (
        "import pathlib, sys, test_policy_file as t\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "policies = [t.make_policy(seed) for seed in (0, 1)]\n"
        "for seed, policy in enumerate(policies):\n"
        "    (folder / str(seed)).mkdir()\n"
        "    t.save_policy(folder / str(seed), policy)\n"
        "while True:\n"
        "    for policy in policies:\n"
        "        t.save_policy(folder, policy)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, tmp_path], cwd=HERE)
    while not (tmp_path / "policy.npz").exists():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(delay)
    process.kill()
    process.wait()
    loaded = worldline.load_policy(tmp_path)
    saved = [worldline.load_policy(tmp_path / str(seed)) for seed in (0, 1)]
    means = [np.asarray(policy.statistics.mean).tolist() for policy in saved]
    jax.tree.map(
        np.testing.assert_array_equal,
        loaded,
        saved[means.index(np.asarray(loaded.statistics.mean).tolist())],
    )


def test_why_a_file_cannot_be_loaded_is_told_apart(tmp_path, monkeypatch):
    path = tmp_path / "policy.npz"
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(RunError, match=r"no 'about.*', so it is not a complete policy; give"):
        worldline.load_policy(path)
    save_policy(tmp_path, make_policy())

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", denied)
    with pytest.raises(RunError, match="cannot be read: Permission denied; check the permissions"):
        worldline.load_policy(path)
