"""Brax's environments as worlds: the same numbers as by Brax, and our promises kept."""

import copy
import functools
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
import scipy.stats

import toys
import worldline
from worldline.errors import ActionError, ConfigError, ModelError, TaskError, VariationError
from worldline.variation import Domain, Uniform, scale, set_

pytest.importorskip("brax")

from brax import envs
from brax_envs import Slide, Swing, slides

from brax_steps import alarms_off, assert_as_by_brax, rolled
from worldline.bridges.brax import BraxWorlds
from worldline.report import render_episode
from worldline.tasks.brax import brax_env
from worldline.train.video import make_video

B, N, LENGTH = 4, 25, 8
ACTIONS = np.random.default_rng(0).uniform(-1, 1, (N, B, 1)).astype(np.float32)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with alarms_off():
        yield


@pytest.mark.parametrize("make", [Slide, Swing])
def test_steps_and_flags_are_those_of_brax_bit_for_bit(make: Any) -> None:
    worlds = slides(B, LENGTH) if make is Slide else BraxWorlds(make(), B, LENGTH)
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
    worlds, actions = slides(B, LENGTH), ACTIONS.copy()
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


class Counted(envs.Wrapper):
    """An environment that counts how often its step is traced."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.traces: list[None] = []

    def step(self, state: Any, action: Any) -> Any:
        self.traces.append(None)
        return self.env.step(state, action)


def size(tree: Any) -> int:
    """The bytes of all its arrays, but for keys."""
    leaves = [
        leaf
        for leaf in jax.tree.leaves(tree)
        if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    ]
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


class Remembering(Slide):
    """It writes into the state that it is given, as Playground's environments do."""

    def reset(self, rng: Any) -> Any:
        state = super().reset(rng)
        return state.replace(info={**state.info, "last": jnp.zeros(1)})

    def step(self, state: Any, action: Any) -> Any:
        state.info["last"] = action
        return super().step(state, action)


@pytest.mark.usefixtures("nans_allowed")
def test_a_world_that_fails_stays_as_it_was() -> None:
    env = brax_env(Remembering())
    step = jax.jit(env.step)
    after = step(env.reset(jax.random.key(0)), jnp.ones(1))
    assert after.physics.engine.info["last"] == 1
    failed = step(after, jnp.full(1, jnp.nan))
    assert failed.diverged
    assert failed.physics.engine.info["last"] == 1


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
        state = slides(B, LENGTH).reset(jax.random.key(0), {"body.mass": mass, "drag": drag})
        _, steps = slides(B, LENGTH).step(state, ACTIONS[0])
        for world in range(B):
            own = Slide()
            own.sys = own.sys.replace(body=own.sys.body.replace(mass=mass[world]), drag=drag[world])
            engine = jax.tree.map(lambda x: x[world], state.env.physics.engine)  # noqa: B023
            after = jax.jit(own.step)(engine, ACTIONS[0, world])
            np.testing.assert_allclose(steps.final_obs["state"][world], after.obs["state"], 1e-6)
        np.testing.assert_array_equal(env.sys.body.mass, [0.5, 1.5])

    @pytest.mark.exhaustive
    @pytest.mark.parametrize(
        ("backend", "field", "of_world"),
        [("generalized", "link.inertia.mass", 0), ("mjx", "body_mass", 1)],
    )
    def test_masses_of_humanoids(self, backend: str, field: str, of_world: int) -> None:
        """Brax's issue 446: masses of `(B, nbody)`, new ones each episode; one trace.

        Nothing else of the system is carried but what they are drawn from, once for all worlds; and
        a world moves as an environment that was made with its masses.
        """
        env = Counted(envs.get_environment("humanoid", backend=backend))
        worlds = BraxWorlds(env, 3, 2, Domain(scale(field, Uniform(0.5, 2.0))))
        key, step = jax.random.key(0), jax.jit(worlds.step)
        start = worlds.reset(key)
        masses = np.asarray(start.variation[field])
        assert masses.shape == (3, worlds.env.model.mj.nbody - 1 + of_world)
        plain = jax.eval_shape(BraxWorlds(env, 3, 2).reset, key)
        assert size(start.ranges) == 2 * 4  # a lowest and a highest factor
        assert size(start) - size(plain) == masses.nbytes + size(start.ranges)
        action = np.zeros((3, worlds.env.action_low.size), np.float32)
        before = len(env.traces)
        state, first = step(start, action)
        traced = len(env.traces)
        for _ in range(3):
            state, _ = step(state, action)
        assert len(env.traces) == traced > before
        assert (np.asarray(state.variation[field]) != masses).any(axis=1).all()
        own = envs.get_environment("humanoid", backend=backend)
        own.sys = own.sys.tree_replace({field: jnp.asarray(masses[1])})
        engine = jax.tree.map(lambda x: x[1], start.env.physics.engine)
        after = jax.jit(own.step)(engine, action[1])
        np.testing.assert_allclose(first.final_obs[1], after.obs, rtol=1e-3, atol=1e-3)
        assert np.abs(np.diff(first.final_obs, axis=0)).max() > 1e-3

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
            slides(B, LENGTH).reset(jax.random.key(0), {field: np.ones((B, 1))})

    def test_a_wrong_shape_is_refused(self) -> None:
        with pytest.raises(VariationError, match=r"has shape \(3,\); the model's has \(2,\)"):
            slides(B, LENGTH).reset(jax.random.key(0), {"body.mass": np.ones((B, 3))})


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


class InNumPy(Slide):
    """Its `step` computes with NumPy."""

    def step(self, state: Any, action: Any) -> Any:
        return super().step(state, np.clip(np.asarray(action), -1, 1))


class Unlike(Slide):
    """Its `step` observes more than its `reset`."""

    def step(self, state: Any, action: Any) -> Any:
        after = super().step(state, action)
        return after.replace(obs={**after.obs, "more": jnp.zeros(1)})


def test_other_refusals() -> None:
    fails = r"Broken fails in its own code, at line \d+ of .*test_brax.*a_min.*with brax .* and jax"
    with pytest.raises(ConfigError, match=fails):
        BraxWorlds(Broken(), B)
    with pytest.raises(
        ConfigError, match=r"InNumPy computes with NumPy, at line \d+ of .*test_brax"
    ):
        BraxWorlds(InNumPy(), B)
    with pytest.raises(ConfigError, match="returns 'obs/more' as None in reset, "):
        BraxWorlds(Unlike(), B)
    with pytest.raises(ConfigError, match="num_worlds is 0"):
        BraxWorlds(Slide(), 0)
    with pytest.raises(ConfigError, match="episode_length is -1"):
        BraxWorlds(Slide(), B, -1)
    with pytest.raises(ConfigError, match="object has no 'reset'; give an environment of Brax"):
        BraxWorlds(object(), B)
    with pytest.raises(ModelError, match="give your environment to BraxWorlds"):
        worldline.Env(toys.Puck(), physics="brax")
    with pytest.raises(TaskError, match=r"no environment 'aunt'.*'ant'"):
        worldline.make("brax:aunt")


def test_versions_that_do_not_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of Brax cannot be imported, as where it calls what its JAX does not have."""
    monkeypatch.setitem(sys.modules, "brax.envs", None)
    said = r"brax 0\S+, jax \S+ do not work together \(.*\); pip install 'brax>=0.14.2,<0.15'"
    with pytest.raises(ConfigError, match=said):
        worldline.make("brax:ant")


class OnRails(Slide):
    """It says what it looks like."""

    def __init__(self) -> None:
        super().__init__()
        body = '<body><joint type="slide" axis="1 0 0"/><geom size="0.1"/></body>'
        text = f"<mujoco><worldbody>{body}</worldbody></mujoco>"
        self.mj_model = mujoco.MjModel.from_xml_string(text)


def test_what_has_a_model_of_mujoco_can_be_drawn(tmp_path: Path) -> None:
    env, png = brax_env(OnRails()), tmp_path / "strip.png"
    qpos = np.asarray(env.reset(jax.random.key(0)).physics.qpos)
    timestep = env.control_timestep
    render_episode(env.model, qpos[None], png=png, timestep=timestep, size=(32, 32))
    assert png.stat().st_size > 100
    nothing: Any = None
    note = make_video(nothing, brax_env(Slide()), nothing, jax.random.key(0))
    assert note == "no video: the environment's states place no bodies of a MuJoCo model"


def test_worlds_are_copied_and_pickled() -> None:
    state = slides(B, LENGTH).reset(jax.random.key(0))
    _, step = slides(B, LENGTH).step(state, ACTIONS[0])
    for other in (copy.deepcopy(slides(B, LENGTH)), pickle.loads(pickle.dumps(slides(B, LENGTH)))):
        again = other.step(other.reset(jax.random.key(0)), ACTIONS[0])[1]
        np.testing.assert_array_equal(again.final_obs["state"], step.final_obs["state"])
