"""Values of successors without their images, beside those of a rollout that holds all images."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from spot import spot_env

from worldline.env.worlds import Worlds
from worldline.learn.bootstrap import (
    BOOTSTRAP_VALUE,
    TruncationBootstrap,
    next_values,
    values_where,
)
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.ppo.update import value_of as ppo_values
from worldline.learn.rollout import unroll

CONFIG = PPOConfig(
    num_worlds=4,
    unroll_length=7,
    minibatches=2,
    actor_obs=("state", "pixels/top"),
    image_features=8,
)


@functools.cache
def rollouts():
    """One rollout with all its images and one without; its worlds' last observation; the critic."""
    worlds = Worlds(spot_env(), CONFIG.num_worlds)
    learner = ppo(worlds, CONFIG)
    state = learner.init(jax.random.key(0))
    learning, policy = state.learning, learner.policy(state)

    value_of = functools.partial(ppo_values, CONFIG, learning)

    def rollout(worlds):
        run = jax.jit(lambda state: unroll(worlds, state, policy, jax.random.key(1), 7))
        return run.lower(state.acting.worlds).compile()

    programs = rollout(worlds), rollout(TruncationBootstrap(worlds, value_of))
    (_, full, _), (after, lean, _) = (program(state.acting.worlds) for program in programs)
    return full, lean, after.obs, value_of, programs


def test_the_values_are_those_of_the_images_that_are_not_kept():
    """Episodes of four steps are cut in the fourth of seven; the others go on."""
    full, lean, last_obs, value_of, _ = rollouts()
    np.testing.assert_array_equal(full.obs["pixels/top"], lean.obs["pixels/top"])
    assert full.truncated.any()
    ours = next_values(
        value_of(lean.obs),
        value_of(last_obs),
        lean.final_obs[BOOTSTRAP_VALUE],
        lean.terminated | lean.truncated,
    )
    np.testing.assert_allclose(ours, value_of(full.final_obs), rtol=1e-4, atol=1e-5)
    # It would not do to look across the end.
    across = jnp.concatenate([value_of(lean.obs)[1:], value_of(last_obs)[None]])
    assert (np.abs(across - ours)[np.asarray(full.truncated)] > 1e-3).any()


def test_images_are_held_once():
    """What the program gives has shrunk by T B height width channels bytes, and grown by T B
    values."""
    full, lean, *_, programs = rollouts()
    assert set(lean.final_obs) == {"state", BOOTSTRAP_VALUE}
    images = 7 * 4 * 16 * 16 * 6
    assert full.obs["pixels/top"].nbytes == images
    large, small = (p.memory_analysis().output_size_in_bytes for p in programs)
    assert abs((large - small) - (images - 7 * 4 * 4)) < 64  # a pointer or so for a leaf less


@settings(deadline=None, max_examples=30)
@given(st.lists(st.booleans(), min_size=9, max_size=9))
def test_it_evaluates_those_that_were_cut_and_no_others(cut):
    cut = jnp.asarray(cut)
    values = jax.jit(lambda cut: values_where(cut, lambda obs: 10 + obs, jnp.arange(9.0)))(cut)
    np.testing.assert_array_equal(values, np.where(cut, 10 + np.arange(9.0), 0))


def test_what_it_costs_follows_those_that_were_cut():
    """Of 256 worlds, four at a time."""
    evaluated = []

    def value_of(obs):
        jax.debug.callback(lambda x: evaluated.append(len(x)), obs)
        return obs

    for number, calls in ((0, 0), (3, 1), (9, 3)):
        evaluated.clear()
        cut = jnp.arange(256) % 28 == 5
        cut = cut & (jnp.cumsum(cut) <= number)
        values_where(cut, value_of, jnp.arange(256.0))
        jax.effects_barrier()
        assert evaluated == [4] * calls
