"""Brax's environments as worlds: the same numbers as by Brax, and our promises kept."""

import copy
import functools
import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import toys
import worldline
from worldline.errors import ActionError, ConfigError, ModelError, TaskError, VariationError
from worldline.variation import Domain, Uniform, scale, set_

pytest.importorskip("brax")

from brax import envs
from brax_envs import Slide, Swing

from worldline.bridges.brax import BraxWorlds, as_brax_env
from worldline.tasks.brax import brax_env

B, N, LENGTH = 4, 25, 8


@pytest.fixture(autouse=True)
def alarms_off() -> Iterator[None]:
    """Environments of others promote types and use keys as they like."""
    with jax.numpy_dtype_promotion("standard"), jax.debug_key_reuse(False):
        yield


ACTIONS = np.random.default_rng(0).uniform(-1, 1, (N, B, 1)).astype(np.float32)


@functools.cache
def program(worlds: BraxWorlds) -> Any:
    """Steps worlds with actions `(N, B, nact)`: their states before each step, and the steps."""

    def step(state: Any, action: Any) -> Any:
        after, step = worlds.step(state, action)
        return after, (state, step)

    return jax.jit(lambda state, actions: jax.lax.scan(step, state, actions)[1])


def rolled(worlds: BraxWorlds, state: Any, actions: np.ndarray) -> Any:
    return jax.device_get(program(worlds)(state, actions))


@functools.cache
def slides() -> BraxWorlds:
    return BraxWorlds(Slide(), B, LENGTH)


def assert_as_by_brax(worlds: BraxWorlds, states: Any, steps: Any, actions: np.ndarray) -> None:
    """Each step is that of Brax's own `EpisodeWrapper`, bit for bit, from the same state."""
    env = worlds.env.model.env  # type: ignore[attr-defined]
    wrapped = envs.training.EpisodeWrapper(env, worlds.episode_length, 1)

    def theirs(state: Any, steps: Any, action: Any) -> Any:
        begun = wrapped.reset(jnp.zeros(2, jnp.uint32))
        info = {**begun.info, **state.info, "steps": steps.astype(jnp.float32)}
        return wrapped.step(state.replace(info=info), action)

    every = jax.jit(jax.vmap(jax.vmap(theirs)))
    after = jax.device_get(every(states.env.physics.engine, states.steps, actions))
    jax.tree.map(np.testing.assert_array_equal, steps.final_obs, after.obs)
    np.testing.assert_array_equal(steps.reward, after.reward)
    for name, value in after.metrics.items():
        np.testing.assert_array_equal(steps.metrics[name], value)
    np.testing.assert_array_equal(steps.terminated | steps.truncated, after.done > 0)
    np.testing.assert_array_equal(steps.truncated, after.info["truncation"] > 0)


@pytest.mark.parametrize("make", [Slide, Swing])
def test_steps_and_flags_are_those_of_brax_bit_for_bit(make: Any) -> None:
    worlds = slides() if make is Slide else BraxWorlds(make(), B, LENGTH)
    states, steps = rolled(worlds, worlds.reset(jax.random.key(0)), ACTIONS)
    assert_as_by_brax(worlds, states, steps, ACTIONS)
    ended = steps.terminated | steps.truncated
    assert steps.terminated.sum() > 2
    assert steps.truncated.sum() > 2
    first, last, now = (
        x["state"] if isinstance(x, dict) else x for x in (steps.obs, steps.final_obs, states.obs)
    )
    np.testing.assert_array_equal(first[~ended], last[~ended])
    np.testing.assert_array_equal(first[:-1], now[1:])
    assert (first[ended][:, 1] == 0).all()  # each start is at rest
    assert (last[ended][:, 1] != 0).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["generalized", "spring", "positional", "mjx"])
@pytest.mark.parametrize("name", ["ant", "reacher"])
def test_brax_own_environments_are_themselves(name: str, backend: str) -> None:
    env = envs.get_environment(name, backend=backend)
    worlds = BraxWorlds(env, 2, 5)
    actions = np.random.default_rng(1).uniform(-1, 1, (8, 2, env.action_size)).astype(np.float32)
    states, steps = rolled(worlds, worlds.reset(jax.random.key(0)), actions)
    assert_as_by_brax(worlds, states, steps, actions)
    assert steps.truncated.any()


def test_ten_thousand_starts_are_fresh() -> None:
    worlds = BraxWorlds(Slide(), 500, 1)
    idle = np.zeros((20, 500, 1), np.float32)
    states, _ = rolled(worlds, worlds.reset(jax.random.key(0)), idle)
    starts = states.obs["state"][..., 0].ravel()
    assert len(np.unique(starts)) > 0.99 * len(starts)
    assert scipy.stats.kstest(starts, scipy.stats.uniform(-1, 2).cdf).pvalue > 0.01
    assert len(set(map(bytes, states.env.physics.engine.info["rng"].reshape(-1, 2)))) == 10_000


def test_a_start_costs_only_the_worlds_whose_episodes_ended() -> None:
    """A reset of a few among many is a loop over a few rows: so many does `reset` see at a time."""
    seen: list[int] = []

    class Counted(Slide):
        def reset(self, rng: Any) -> Any:
            jax.debug.callback(lambda _: seen.append(1), rng)
            return super().reset(rng)

    worlds = BraxWorlds(Counted(), 64, 10)
    state = jax.block_until_ready(worlds.reset(jax.random.key(0)))
    seen.clear()
    mask = np.arange(64) < 3
    jax.block_until_ready(worlds.reset_where(state, mask))
    jax.effects_barrier()
    assert 3 <= len(seen) <= 4


@pytest.mark.usefixtures("nans_allowed")
def test_one_bad_world_stays_alone() -> None:
    worlds, actions = slides(), ACTIONS.copy()
    start = worlds.reset(jax.random.key(0))
    _, good = rolled(worlds, start, ACTIONS)
    actions[1, 2] = np.nan
    _, steps = rolled(worlds, start, actions)
    assert steps.metrics["diverged"].sum() == 1
    assert steps.truncated[1, 2]
    assert not steps.terminated[1, 2]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(steps))
    others = [0, 1, 3]
    np.testing.assert_array_equal(steps.reward[:, others], good.reward[:, others])
    with pytest.raises(ActionError, match="nan"):
        worlds.step(start, actions[1])


class TestTheSystemIsData:
    @pytest.mark.parametrize(
        ("make", "field", "low", "high"),
        [
            (Slide, "drag", 0.1, 2.0),
            pytest.param(Swing, "link.inertia.mass", 0.5, 5.0, marks=pytest.mark.exhaustive),
            pytest.param(
                functools.partial(Swing, "mjx"),
                "opt.viscosity",
                0.1,
                2.0,
                marks=pytest.mark.exhaustive,
            ),
        ],
    )
    def test_only_what_varies_is_carried_and_nothing_recompiles(
        self, make: Any, field: str, low: float, high: float
    ) -> None:
        """Brax's `System` in the state, with one field of it that differs from world to world."""
        env = make()
        worlds = BraxWorlds(env, B, 2, Domain(set_(field, Uniform(low, high), name="it")))
        assert len(jax.tree.leaves(worlds.env.model.system)) > 1  # type: ignore[attr-defined]
        state, step = worlds.reset(jax.random.key(0)), jax.jit(worlds.step)
        assert list(state.variation) == [field]
        drawn, traced = [state.variation[field].ravel()], 0
        for _ in range(4):
            state, taken = step(state, jnp.ones((B, 1)))
            traced = traced or len(env.traces)
            drawn.append(state.variation[field].ravel())
        assert ((np.stack(drawn) > low) & (np.stack(drawn) < high)).all()
        np.testing.assert_array_equal(drawn[0], drawn[1])
        assert (drawn[1] != drawn[2]).all()
        assert len(set(taken.reward.tolist())) == B
        far = {"it": Uniform(jnp.float32(9.0), jnp.float32(9.0))}
        state = worlds.reset(jax.random.key(1), ranges=far)
        for _ in range(2):
            state, _ = step(state, jnp.zeros((B, 1)))
        np.testing.assert_array_equal(state.variation[field].ravel(), np.full(B, 9.0))
        assert len(env.traces) == traced

    def test_a_world_is_that_of_an_environment_with_these_constants(self) -> None:
        env, mass = Slide(), np.float32([[0.5, 1.5], [2.0, 3.0], [0.1, 0.1], [9.0, 1.0]])
        drag = np.float32([0.1, 0.5, 0.0, 2.0])
        state = slides().reset(jax.random.key(0), {"body.mass": mass, "drag": drag})
        _, steps = slides().step(state, ACTIONS[0])
        for world in range(B):
            own = Slide()
            own.sys = own.sys.replace(body=own.sys.body.replace(mass=mass[world]), drag=drag[world])
            engine = jax.tree.map(lambda x: x[world], state.env.physics.engine)  # noqa: B023
            after = jax.jit(own.step)(engine, ACTIONS[0, world])
            np.testing.assert_allclose(steps.final_obs["state"][world], after.obs["state"], 1e-6)
        np.testing.assert_array_equal(env.sys.body.mass, [0.5, 1.5])

    @pytest.mark.exhaustive
    @pytest.mark.parametrize(
        ("backend", "field", "count"),
        [("generalized", "link.inertia.mass", 11), ("mjx", "body_mass", 14)],
    )
    def test_masses_of_humanoids(self, backend: str, field: str, count: int) -> None:
        """Each world has its own; it moves as an environment that was made with them."""
        make = functools.partial(envs.get_environment, "humanoid", backend=backend)
        worlds = BraxWorlds(make(), 3, 50, Domain(scale(field, Uniform(0.5, 2.0))))
        state = worlds.reset(jax.random.key(0))
        assert state.variation[field].shape == (3, count)
        action = np.zeros((3, worlds.env.action_low.size), np.float32)
        _, steps = worlds.step(state, action)
        own = make()
        own.sys = own.sys.tree_replace({field: state.variation[field][1]})
        engine = jax.tree.map(lambda x: x[1], state.env.physics.engine)
        after = jax.jit(own.step)(engine, action[1])
        np.testing.assert_allclose(steps.final_obs[1], after.obs, rtol=1e-3, atol=1e-3)
        assert np.abs(np.diff(steps.final_obs, axis=0)).max() > 1e-3

    def test_a_function_may_draw(self) -> None:
        def draw(key: Any, model: Any, ranges: Any) -> Any:
            mass = model.system.body.mass
            return {"body.mass": mass * jax.random.uniform(key, mass.shape, minval=0.5)}

        state = BraxWorlds(Slide(), B, 2, draw).reset(jax.random.key(0))
        assert len(np.unique(state.variation["body.mass"])) == 2 * B

    @pytest.mark.parametrize(
        ("field", "said"),
        [
            ("body.mas", "body has no field 'mas'; did you mean 'mass'"),
            ("body", "'body' is Body; give a path to real numbers"),
            ("count", "'count' is int; give a path to real numbers"),
            ("colour", "Slide does not read 'colour' .* on the backend 'slide'"),
        ],
    )
    def test_fields_that_cannot_vary(self, field: str, said: str) -> None:
        with pytest.raises(VariationError, match=said):
            BraxWorlds(Slide(), B, domain=Domain(set_(field, Uniform(0.5, 2.0))))
        with pytest.raises(VariationError, match=said):
            slides().reset(jax.random.key(0), {field: np.ones((B, 1))})

    def test_a_wrong_shape_is_refused(self) -> None:
        with pytest.raises(VariationError, match=r"has shape \(3,\); the model's has \(2,\)"):
            slides().reset(jax.random.key(0), {"body.mass": np.ones((B, 3))})


@pytest.mark.parametrize("wrap", [envs.training.wrap, envs.training.VmapWrapper])
def test_what_is_wrapped_for_training_is_refused(wrap: Any) -> None:
    with pytest.raises(ConfigError, match=r"wrapped for training \(\w+\).*; give env\.unwrapped"):
        BraxWorlds(wrap(Slide()), B)


def test_a_wrapper_of_ones_own_stays() -> None:
    class Doubled(envs.Wrapper):
        def step(self, state: Any, action: Any) -> Any:
            after = self.env.step(state, action)
            return after.replace(reward=2 * after.reward)

    worlds = BraxWorlds(Doubled(Slide()), B, LENGTH, Domain(set_("drag", Uniform(0.0, 1.0))))
    state = worlds.reset(jax.random.key(0))
    assert len(np.unique(state.variation["drag"])) == B
    _, step = worlds.step(state, ACTIONS[0])
    np.testing.assert_allclose(step.reward, 2 * (1 - step.final_obs["state"][:, 0] ** 2), 1e-5)


class Broken(Slide):
    """Its `step` calls what JAX does not have."""

    def step(self, state: Any, action: Any) -> Any:
        return super().step(state, jnp.clip(action, a_min=0.0))


class Unlike(Slide):
    """Its `step` observes more than its `reset`."""

    def step(self, state: Any, action: Any) -> Any:
        after = super().step(state, action)
        return after.replace(obs={**after.obs, "more": jnp.zeros(1)})


def test_other_refusals() -> None:
    fails = r"Broken fails in its own code, at line \d+ of .*test_brax.*a_min.*with brax .* and jax"
    with pytest.raises(ConfigError, match=fails):
        BraxWorlds(Broken(), B)
    with pytest.raises(ConfigError, match="gives 'obs/more' as None in reset and"):
        BraxWorlds(Unlike(), B)
    with pytest.raises(ConfigError, match="num_worlds is 0"):
        BraxWorlds(Slide(), 0)
    with pytest.raises(ConfigError, match="episode_length is -1"):
        BraxWorlds(Slide(), B, -1)
    with pytest.raises(ConfigError, match="object has no 'reset'; give an environment of Brax"):
        BraxWorlds(object(), B)
    with pytest.raises(ModelError, match="give BraxWorlds your environment"):
        worldline.Env(toys.Puck(), physics="brax")
    with pytest.raises(TaskError, match=r"no environment 'aunt'.*'ant'"):
        worldline.make("brax:aunt")


def test_versions_that_do_not_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of Brax cannot be imported, as where it calls what its JAX does not have."""
    monkeypatch.setitem(sys.modules, "brax.envs", None)
    said = r"brax 0\S+, jax \S+ do not work together \(.*\); pip install 'brax>=0.14.2,<0.15'"
    with pytest.raises(ConfigError, match=said):
        worldline.make("brax:ant")


def test_worlds_are_copied_and_pickled() -> None:
    state = slides().reset(jax.random.key(0))
    _, step = slides().step(state, ACTIONS[0])
    for other in (copy.deepcopy(slides()), pickle.loads(pickle.dumps(slides()))):
        again = other.step(other.reset(jax.random.key(0)), ACTIONS[0])[1]
        np.testing.assert_array_equal(again.final_obs["state"], step.final_obs["state"])


class Endless(envs.Wrapper):
    """An environment that never ends an episode."""

    def step(self, state: Any, action: Any) -> Any:
        return self.env.step(state, action).replace(done=jnp.zeros(()))


class TestThroughBridges:
    @pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
    def test_vectors_return_the_same_transitions(self, mode: str) -> None:
        from worldline.bridges.gymnasium import VectorEnv, seed_keys

        _, steps = rolled(slides(), slides().reset(seed_keys(range(B))), ACTIONS)
        vector, taken = VectorEnv(slides(), mode), np.zeros(B, int)
        vector.reset(seed=0)
        ended = np.zeros(B, bool)
        for _ in range(12):
            now = ACTIONS[np.minimum(taken, N - 1), np.arange(B)]
            if mode == "Disabled" and ended.any():
                vector.reset(options={"reset_mask": ended})
            obs, reward, terminated, truncated, info = vector.step(now)
            moved = ~ended if mode == "NextStep" else np.ones(B, bool)
            ended = terminated | truncated
            last = obs["state"].copy()
            if mode == "SameStep":
                for world in np.flatnonzero(ended):
                    last[world] = info["final_obs"][world]["state"]
            each = taken[moved], np.flatnonzero(moved)
            # Programs that XLA compiled otherwise may round otherwise.
            np.testing.assert_allclose(last[moved], steps.final_obs["state"][each], 1e-5, 1e-6)
            np.testing.assert_allclose(reward[moved], steps.reward[each], 1e-5)
            np.testing.assert_array_equal(terminated[moved], steps.terminated[each])
            taken += moved

    @pytest.mark.parametrize(
        ("make", "length"),
        [
            (Slide, 3),
            (Slide, 8),
            pytest.param(Slide, 50, marks=pytest.mark.exhaustive),
            *(pytest.param(Swing, n, marks=pytest.mark.exhaustive) for n in (3, 8, 50)),
        ],
    )
    def test_gradients_of_torchrl_are_those_of_jax(self, make: Any, length: int) -> None:
        torch = pytest.importorskip("torch")
        pytest.importorskip("torchrl")
        from worldline.bridges.torchrl import WorldlineWrapper, seed_keys

        env = Endless(make())  # a new episode would cut the gradients
        worlds = BraxWorlds(env, B, 1000)
        actions = np.resize(ACTIONS, (length, B, 1)) / 4
        wrapper = WorldlineWrapper(worlds, requires_grad=True, seed=0)
        leaves = [torch.tensor(action, requires_grad=True) for action in actions]
        tensordict, total = wrapper.reset(), torch.zeros(())
        for leaf in leaves:
            now, tensordict = wrapper.step_and_maybe_reset(tensordict.set("action", leaf))
            total = total + now["next", "reward"].sum()
        total.backward()
        ours = np.stack([leaf.grad for leaf in leaves])

        def loss(actions: Any) -> Any:
            """Brax's own code alone."""

            def step(state: Any, action: Any) -> Any:
                state = jax.vmap(env.step)(state, action)
                return state, state.reward.sum()

            keys = jax.vmap(lambda key: jax.random.key_data(jax.random.split(key, 4)[1]))
            start = jax.vmap(env.reset)(keys(seed_keys(range(B))))
            return jax.lax.scan(step, start, actions)[1].sum()

        right = jax.jit(jax.grad(loss))(actions)
        norms = [np.linalg.norm(each, axis=(1, 2)) for each in (ours, right)]
        np.testing.assert_allclose(*norms, rtol=1e-5)
        np.testing.assert_allclose(ours, right, rtol=1e-4, atol=1e-5)


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
            action = ACTIONS[n, :2, 0]
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
