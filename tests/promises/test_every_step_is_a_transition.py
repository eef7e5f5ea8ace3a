"""N steps of `Worlds` are N transitions of worlds that `Env` steps alone.

From the same state the physics, the observation and the ends are the same bit for bit. Starts are
drawn by arithmetic that XLA compiles anew for every program: `Env.reset` in a program of its own
gives the start of `Worlds` but for a rounding.
"""

import jax
import numpy as np
import pytest
from worlds_of_users import EPISODE_LENGTH, STEPS, actions, env_of

import worldline

WORLDS, WATCHED = 7, (0, 5)
ROUNDING = 2e-6


def bits(tree):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(jax.device_get(tree))]


def of(world, tree):
    return jax.tree.map(lambda x: x[world], tree)


@pytest.mark.parametrize("task", ["gym/ant", "arm/pick-cube"])
def test_steps_are_those_of_worlds_alone(task):
    env = env_of(task)
    domain = env.task.domains["light"]
    worlds = worldline.Worlds(env, WORLDS, EPISODE_LENGTH, domain=domain)
    step_alone = jax.jit(env.step)
    reset_alone = jax.jit(lambda key, draw: env.reset(key, domain(draw, env.model, domain.ranges)))
    state = worlds.reset(jax.random.key(8))
    taken, ends = actions(env)[:, :WORLDS], 0
    for t in range(STEPS):
        before = state
        state, step = worlds.step(before, taken[t])
        for world in WATCHED:
            alone = step_alone(of(world, before.env), taken[t, world])
            got = of(world, step)
            assert bits(got.final_obs) == bits(alone.obs)
            assert got.terminated == alone.terminated
            out_of_time = before.steps[world] + 1 == EPISODE_LENGTH
            assert got.truncated == ((alone.diverged | out_of_time) & ~alone.terminated)
            np.testing.assert_allclose(got.reward, alone.reward, rtol=ROUNDING, atol=ROUNDING)
            if not (got.terminated | got.truncated):
                assert bits(got.obs) == bits(alone.obs)
                assert bits(of(world, state.env.physics)) == bits(alone.physics)
                continue
            ends += 1
            _, start_key, draw_key, _ = jax.random.split(before.key[world], 4)
            start = reset_alone(start_key, draw_key)
            for ours, theirs in zip(
                jax.tree.leaves(got.obs), jax.tree.leaves(start.obs), strict=True
            ):
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert ends >= len(WATCHED)
