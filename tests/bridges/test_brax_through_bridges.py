"""Worlds of Brax's environments behind the interfaces of other libraries."""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("brax")

from brax import envs
from brax_envs import Slide, Swing, slides

from brax_steps import alarms_off, rolled
from worldline.bridges.brax import BraxWorlds

B, N, LENGTH, LONGEST = 4, 25, 8, 50
ACTIONS = np.random.default_rng(0).uniform(-1, 1, (N, B, 1)).astype(np.float32)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with alarms_off():
        yield


class Endless(envs.Wrapper):
    """An environment that never ends an episode."""

    def step(self, state: Any, action: Any) -> Any:
        return self.env.step(state, action).replace(done=jnp.zeros(()))


class TestThroughBridges:
    @pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
    def test_vectors_return_the_same_transitions(self, mode: str) -> None:
        from worldline.bridges.gymnasium import VectorEnv, seed_keys

        _, steps = rolled(slides(B, LENGTH), slides(B, LENGTH).reset(seed_keys(range(B))), ACTIONS)
        vector, taken = VectorEnv(slides(B, LENGTH), mode), np.zeros(B, int)
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

    def test_vectors_of_learners_do_too(self) -> None:
        """Those of Stable-Baselines3 and rsl_rl, which show the next episode at once."""
        torch = pytest.importorskip("torch")
        pytest.importorskip("stable_baselines3")
        pytest.importorskip("rsl_rl")
        from worldline.bridges import rsl_rl, sb3
        from worldline.bridges.resets import seed_keys

        worlds = slides(B, LENGTH)
        _, steps = rolled(worlds, worlds.reset(seed_keys(range(B))), ACTIONS)
        of_sb3, of_rsl_rl = sb3.VecEnv(worlds), rsl_rl.VecEnv(worlds, seed=0)
        of_sb3.seed(0)
        of_sb3.reset()
        for n, action in enumerate(ACTIONS[:12]):
            obs, reward, done, infos = of_sb3.step(action)
            groups, rewards, dones, extras = of_rsl_rl.step(torch.from_numpy(action))
            for seen in (obs["state"], groups["state"]):
                np.testing.assert_allclose(seen, steps.obs["state"][n], 1e-5, 1e-6)
            for earned in (reward, rewards):
                np.testing.assert_allclose(earned, steps.reward[n], 1e-5)
            ended = steps.terminated[n] | steps.truncated[n]
            np.testing.assert_array_equal(done, ended)
            np.testing.assert_array_equal(dones, ended)
            np.testing.assert_array_equal(extras["time_outs"], steps.truncated[n])
            for world in np.flatnonzero(ended):
                last = infos[world]["terminal_observation"]["state"]
                np.testing.assert_allclose(last, steps.final_obs["state"][n, world], 1e-5, 1e-6)
        assert steps.truncated[:12].any()

    @pytest.mark.parametrize(
        "make",
        [
            Slide,
            pytest.param(Swing, marks=pytest.mark.exhaustive),
            pytest.param(
                functools.partial(envs.get_environment, "reacher"), marks=pytest.mark.exhaustive
            ),
        ],
    )
    def test_gradients_of_torchrl_are_those_of_jax(self, make: Any) -> None:
        """Of rollouts of 3, 8 and 50 steps: the gradient by the actions of each step."""
        torch = pytest.importorskip("torch")
        pytest.importorskip("torchrl")
        from worldline.bridges.torchrl import WorldlineWrapper, seed_keys

        env = Endless(make())  # a new episode would cut the gradients
        wrapper = WorldlineWrapper(BraxWorlds(env, B, 1000), requires_grad=True)
        size = (LONGEST, B, env.action_size)
        actions = np.random.default_rng(0).uniform(-0.25, 0.25, size).astype(np.float32)

        def loss(actions: Any, steps: Any) -> Any:
            """Brax's own code alone."""

            def step(state: Any, action: Any) -> Any:
                state = jax.vmap(env.step)(state, action)
                return state, state.reward.sum()

            keys = jax.vmap(lambda key: jax.random.key_data(jax.random.split(key, 4)[1]))
            start = jax.vmap(env.reset)(keys(seed_keys(range(B))))
            rewards = jax.lax.scan(step, start, actions)[1]
            return jnp.where(jnp.arange(LONGEST) < steps, rewards, 0.0).sum()

        gradients = jax.jit(jax.grad(loss))
        for steps in (3, 8, LONGEST):
            leaves = [torch.tensor(action, requires_grad=True) for action in actions[:steps]]
            wrapper.set_seed(0)
            tensordict, total = wrapper.reset(), torch.zeros(())
            for leaf in leaves:
                now, tensordict = wrapper.step_and_maybe_reset(tensordict.set("action", leaf))
                total = total + now["next", "reward"].sum()
            total.backward()
            ours, right = np.stack([leaf.grad for leaf in leaves]), gradients(actions, steps)
            norms = [np.linalg.norm(each, axis=(1, 2)) for each in (ours, right[:steps])]
            assert (norms[0] > 0).all()
            np.testing.assert_allclose(*norms, rtol=1e-5)
            np.testing.assert_allclose(ours, right[:steps], rtol=1e-4, atol=1e-5)
