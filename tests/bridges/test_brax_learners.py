"""Learners on both sides: ours in Brax's environments, and Brax's on ours."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
import worldline
from worldline.variation import Domain, Uniform, set_

pytest.importorskip("brax")

from brax import envs
from brax_envs import Slide

from brax_steps import alarms_off
from worldline.bridges.brax import BraxWorlds, as_brax_env
from worldline.tasks.brax import brax_env

B = 4
ACTIONS = np.random.default_rng(0).uniform(-1, 1, (10, 2)).astype(np.float32)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with alarms_off():
        yield


MINE = """
from brax_envs import Slide

def make():
    return Slide()
"""

TINY = ["--num-worlds", "4", "--unroll-length", "8", "--minibatches", "2", "--epochs", "1"]
TINY += ["--eval-episodes", "2", "--evaluations", "1", "--no-video", "--quiet"]
TINY += ["--episode-length", "20", "--actor-hidden", "8", "--critic-hidden", "8"]


def arrays(folder: Path) -> dict[str, Any]:
    with np.load(folder / "policy.npz") as file:
        return {name: file[name].tobytes() for name in file.files}


@pytest.mark.slow
class TestTraining:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")

    def test_by_name_and_resumed_exactly(self, capsys: pytest.CaptureFixture[str]) -> None:
        from worldline.cli import main as cli

        train = ["train", "brax:fast", *TINY]
        assert cli.main([*train, "--steps", "96", "--out", "whole"]) == 0
        assert cli.main([*train, "--steps", "64", "--out", "part"]) == 0
        assert cli.main(["resume", "part", "--steps", "96", "--quiet"]) == 0
        assert arrays(Path("whole")) == arrays(Path("part"))
        config = json.loads(Path("whole/config.json").read_text())["config"]
        assert (config["task"], config["options"]["name"]) == ("brax:fast", "fast")
        assert config["not_rebuilt"] == ""
        capsys.readouterr()
        assert cli.main(["eval", "whole"]) == 0
        assert "20 episodes" in capsys.readouterr().out

    @pytest.mark.exhaustive
    def test_a_function_that_makes_one(self, capsys: pytest.CaptureFixture[str]) -> None:
        from worldline.cli import main as cli
        from worldline.train import resume

        Path("mine.py").write_text(MINE)
        train = ["train", "mine.py:make", *TINY]
        assert cli.main([*train, "--steps", "96", "--out", "whole"]) == 0
        assert cli.main([*train, "--steps", "64", "--out", "part"]) == 0
        assert cli.main(["eval", "part"]) == 2
        assert "give it as env=" in capsys.readouterr().err
        resume("part", steps=96, quiet=True, env=brax_env(Slide()))
        assert arrays(Path("whole")) == arrays(Path("part"))

    def test_ppo_learns_on_it(self) -> None:
        from worldline.learn.ppo import PPOConfig, ppo

        config = PPOConfig(num_worlds=16, unroll_length=32, minibatches=4, actor_hidden=(32,))
        learner = ppo(BraxWorlds(Slide(), 16, 50), config)
        state, rewards = learner.init(jax.random.key(0)), []
        for _ in range(20):
            state, metrics = learner.update(state)
            rewards.append(float(metrics["train/return"]))
        assert np.mean(rewards[-3:]) > 2 * np.mean(rewards[:3])

    def test_brax_ppo_trains_on_ours(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The pole falls after some few steps, at first."""
        monkeypatch.setattr(jax, "device_put_replicated", replicated, raising=False)
        returns = brax_ppo(as_brax_env(worldline.make("gym/inverted-pendulum")), 40_000)
        assert returns[-1] > 2 * returns[0]

    @pytest.mark.exhaustive
    def test_brax_ppo_solves_ours(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(jax, "device_put_replicated", replicated, raising=False)
        returns = brax_ppo(as_brax_env(worldline.make("gym/inverted-pendulum")), 1_000_000)
        assert returns[-1] > 900

    def test_brax_sac_trains_on_ours(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A few steps: its own evaluations see policies that differ."""
        from brax.training.agents.sac.train import train

        monkeypatch.setattr(jax, "device_put_replicated", replicated, raising=False)
        told: list[dict[str, Any]] = []
        train(
            environment=as_brax_env(worldline.make("gym/inverted-pendulum")), num_timesteps=600,
            episode_length=100, num_envs=8, batch_size=32, min_replay_size=200,
            max_replay_size=1000, grad_updates_per_step=2, normalize_observations=True,
            num_evals=3, num_eval_envs=8, progress_fn=lambda _, metrics: told.append(metrics),
        )  # fmt: skip
        first, *_, last = (float(metrics["eval/episode_reward"]) for metrics in told)
        assert first != last > 1
        assert np.isfinite(told[-1]["training/critic_loss"])


def replicated(tree: Any, devices: Any) -> Any:
    """What Brax 0.14 calls and JAX 0.10 no longer has; `docs/guides/brax.md` shows it."""
    return jax.tree.map(lambda x: jnp.stack([x] * len(devices)), tree)


def brax_ppo(env: Any, steps: int) -> list[float]:
    """The returns of Brax's own evaluations, while its PPO trains."""
    from brax.training.agents.ppo import networks
    from brax.training.agents.ppo.train import train

    returns: list[float] = []
    factory = functools.partial(
        networks.make_ppo_networks,
        policy_hidden_layer_sizes=(32, 32),
        value_hidden_layer_sizes=(32, 32),
    )
    train(
        environment=env, num_timesteps=steps, episode_length=1000, num_envs=16, unroll_length=10,
        batch_size=16, num_minibatches=8, num_updates_per_batch=4, learning_rate=1e-3,
        discounting=0.97, normalize_observations=True, num_evals=2, num_eval_envs=8,
        network_factory=factory, progress_fn=lambda _, m: returns.append(m["eval/episode_reward"]),
    )  # fmt: skip
    return [float(each) for each in returns]


class TestAsABraxEnv:
    def test_steps_are_ours(self) -> None:
        env = worldline.Env(toys.Puck(wall=0.3), physics="fake")
        theirs = as_brax_env(env, Domain(set_("body_mass", Uniform(1.0, 2.0))))
        assert (theirs.observation_size, theirs.action_size, theirs.backend) == (4, 2, "fake")
        state = theirs.reset(jax.random.PRNGKey(0))
        mass = state.pipeline_state.variation["body_mass"]
        assert 1.0 < mass[1] < 2.0
        world = state.pipeline_state
        for n in range(10):
            action = ACTIONS[n]
            world = env.step(world, action)
            state = theirs.step(state, action)
            np.testing.assert_array_equal(state.obs, world.obs)
            assert state.reward == world.reward
            assert bool(state.done) == bool(world.terminated)
            np.testing.assert_array_equal(state.pipeline_state.variation["body_mass"], mass)

    def test_their_wrappers_take_it(self) -> None:
        env = as_brax_env(worldline.Env(toys.Puck(), physics="fake"))
        wrapped = envs.training.wrap(env, episode_length=5)
        state = jax.jit(wrapped.reset)(jax.random.split(jax.random.PRNGKey(0), B))
        first, step = state.obs, jax.jit(wrapped.step)
        for _ in range(5):
            state = step(state, jnp.zeros((B, 2)))
        assert state.done.tolist() == state.info["truncation"].tolist() == [1.0] * B
        np.testing.assert_array_equal(state.obs, first)

    def test_actions_come_to_our_bounds(self) -> None:
        env = worldline.make("gym/inverted-pendulum")
        theirs = as_brax_env(env)
        state = theirs.reset(jax.random.PRNGKey(0))
        stepped = theirs.step(state, jnp.ones(1)).pipeline_state
        same = env.step(state.pipeline_state, env.action_high)
        np.testing.assert_array_equal(stepped.obs, same.obs)
