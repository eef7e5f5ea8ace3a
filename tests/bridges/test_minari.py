"""Minari datasets: its own loader takes them, and every episode can be made again bit for bit."""

import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import toys
import worldline
from worldline.env.env import Env
from worldline.errors import ConfigError
from worldline.learn.policy import Policy
from worldline.learn.ppo import PPOConfig, ppo
from worldline.variation import Domain, Uniform, scale

minari = pytest.importorskip("minari")
pytest.importorskip("h5py")

from worldline.bridges.minari import record_dataset  # noqa: E402

NAME = "toys/puck-v0"
DOMAIN = Domain(scale(("actuator_gainprm",), Uniform(0.5, 2.0), per="world"))


@pytest.fixture(autouse=True)
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Minari's datasets."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def puck(**config: Any) -> Env:
    """A puck whose motors are as strong as the context says, which it observes."""
    return Env(toys.Puck(wall=0.8, **config), context=["actuator_strength"])


def policy_of(env: Env) -> Policy:
    config = PPOConfig(num_worlds=2, unroll_length=2, minibatches=1, actor_obs=("state", "context"))
    learner = ppo(worldline.Worlds(env, 2), config)
    with jax.numpy_dtype_promotion("standard"):
        return learner.policy(learner.init(jax.random.key(0)))


def recorded(**options: Any) -> Any:
    env = puck()
    context = {"actuator_strength": Uniform(0.5, 2.0)}
    drawn = {"domain": DOMAIN, "context": context, "num_worlds": 4, "seed": 5}
    return record_dataset(env, policy_of(env), NAME, 10, **drawn | options)


@pytest.mark.parametrize("deterministic", [True, False])
def test_an_episode_is_made_again_from_its_metadata_bit_for_bit(deterministic: bool) -> None:
    recorded(deterministic=deterministic)
    dataset = minari.load_dataset(NAME)
    assert dataset.total_episodes == 10
    env = dataset.recover_environment()
    assert isinstance(env.unwrapped, worldline.bridges.gymnasium.Env)
    lengths, strengths = set(), set()
    for episode in dataset.iterate_episodes():
        (metadata,) = dataset.storage.get_episode_metadata([episode.id])
        assert metadata["seed"] == 5 + episode.id
        options = metadata["options"]
        obs, _ = env.reset(seed=metadata["seed"], options=options)
        assert_row(episode.observations, 0, obs)
        for n, action in enumerate(episode.actions):
            obs, reward, terminated, truncated, _ = env.step(action)
            assert_row(episode.observations, n + 1, obs)
            assert reward == episode.rewards[n]
            assert terminated == episode.terminations[n]
            assert truncated == episode.truncations[n]
        assert terminated or truncated
        lengths.add(len(episode.actions))
        strengths.add(float(options["variation"]["actuator_gainprm"][0, 0]))
        np.testing.assert_array_equal(options["context"]["actuator_strength"], obs["context"][0])
        assert metadata["memory"]["value"] == 0
    assert len(lengths) > 1
    assert len(strengths) == 10


def assert_row(observations: Any, n: int, obs: Any) -> None:
    for name, value in obs.items():
        np.testing.assert_array_equal(observations[name][n], value)


def test_an_episode_is_the_same_whatever_it_is_recorded_with() -> None:
    several = recorded()
    alone = record_dataset(
        puck(), policy_of(puck()), "toys/alone-v0", 1, seed=7, domain=DOMAIN, num_worlds=1,
        context={"actuator_strength": Uniform(0.5, 2.0)},
    )  # fmt: skip
    first, second = several[2], alone[0]
    np.testing.assert_array_equal(first.observations["state"], second.observations["state"])
    np.testing.assert_array_equal(first.actions, second.actions)


def test_minaris_own_accounts_are_right() -> None:
    about = {"algorithm_name": "ppo", "author": {"me"}, "description": "pucks"}
    dataset = recorded(about=about)
    spec = minari.load_dataset(NAME).spec
    assert spec.dataset_id == NAME
    assert spec.total_steps == sum(len(episode) for episode in dataset)
    assert dataset.storage.metadata["algorithm_name"] == "ppo"
    assert NAME in minari.list_local_datasets()
    half, _ = minari.split_dataset(dataset, [5, 5], seed=0)
    assert half.total_episodes == 5


def test_episodes_are_on_the_disk_before_the_next_are_made(datasets: Path) -> None:
    seen: list[tuple[int, int]] = []

    def show(count: int) -> None:
        (file,) = datasets.rglob("main_data.hdf5")
        seen.append((count, file.stat().st_size))

    recorded(show=show)
    assert [count for count, _ in seen][-1] == 10
    assert len(seen) >= 3
    assert all(later[1] > earlier[1] for earlier, later in itertools.pairwise(seen))


def test_one_that_is_broken_off_leaves_nothing(datasets: Path) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recorded(show=stop)
    assert not [file for file in datasets.rglob("*") if file.is_file()]


def test_refusals() -> None:
    env, policy = puck(), policy_of(puck())
    with pytest.raises(ConfigError, match="name is 'puck'; give namespace/name-v0"):
        record_dataset(env, policy, "puck", 1)
    with pytest.raises(ConfigError, match="give episode_length"):
        record_dataset(env, policy, NAME, 1, episode_length=0)
    record_dataset(env, policy, NAME, 1)
    with pytest.raises(ConfigError, match=r"already exists in .* give another name"):
        record_dataset(env, policy, NAME, 1)
    engine = Env(
        toys.Puck(), lambda model, reads: worldline.physics.make_physics("fake", model, reads)
    )
    with pytest.raises(ConfigError, match="a file cannot store the engine"):
        record_dataset(engine, policy, "toys/other-v0", 1)
