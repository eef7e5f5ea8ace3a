"""MuJoCo Playground's environments as worlds: their own steps, bit for bit, on MJX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from playground_peer import on_mjx

from brax_steps import alarms_off, assert_as_by_brax, rolled
from worldline.bridges.brax import BraxWorlds
from worldline.errors import ConfigError
from worldline.variation import Domain, Uniform, scale

B, LENGTH = 3, 6


@pytest.fixture(autouse=True)
def playground():
    """What imports a module of Playground."""
    with on_mjx() as imported, alarms_off():
        yield imported


def falling(playground):
    """Their cart-pole, as a user may change it: an episode ends where the pole leans."""
    cartpole = playground("dm_control_suite.cartpole")

    class Falling(cartpole.Balance):
        def step(self, state, action):
            after = super().step(state, action)
            leans = after.data.xmat[2, 2, 2] < 0.9997
            return after.replace(done=leans.astype(jnp.float32))

    return Falling(swing_up=False, sparse=False, config_overrides={"impl": "jax"})


def actions_of(worlds, count):
    size = (count, worlds.num_worlds, worlds.env.action_low.size)
    return np.random.default_rng(0).uniform(-1, 1, size).astype(np.float32)


def test_steps_and_flags_are_theirs_bit_for_bit(playground):
    env = falling(playground)
    worlds = BraxWorlds(env, B, LENGTH)
    actions = actions_of(worlds, 25)
    states, steps = rolled(worlds, worlds.reset(jax.random.key(0)), actions)
    assert_as_by_brax(worlds, states, steps, actions)
    assert steps.terminated.sum() > 2
    assert steps.truncated.sum() > 2
    starts = states.obs[states.steps == 0]
    assert len(np.unique(starts, axis=0)) == len(starts)


@pytest.mark.exhaustive
def test_their_model_is_data(playground):
    """Masses of `(B, nbody)`, drawn for each episode: the worlds of environments with them."""
    env = falling(playground)
    worlds = BraxWorlds(env, B, LENGTH, Domain(scale("body_mass", Uniform(0.5, 2.0))))
    actions = actions_of(worlds, 8)
    states, steps = rolled(worlds, worlds.reset(jax.random.key(0)), actions)
    masses = states.variation["body_mass"]
    assert list(states.variation) == ["body_mass"]
    assert masses.shape == (8, B, env.mj_model.nbody)
    assert (masses[0] != masses[-1]).any(axis=1).all()
    other = falling(playground)
    other._mjx_model = other.mjx_model.replace(body_mass=masses[0, 1])
    engine = jax.tree.map(lambda x: x[0, 1], states.env.physics.engine)
    after = jax.jit(other.step)(engine, actions[0, 1])
    np.testing.assert_allclose(steps.final_obs[0, 1], after.obs, 1e-5, 1e-6)


def test_what_they_wrap_for_training_is_refused(playground):
    wrapped = playground("wrapper").wrap_for_brax_training(falling(playground))
    with pytest.raises(ConfigError, match=r"wrapped for training \(BraxAutoResetWrapper\)"):
        BraxWorlds(wrapped, B)


@pytest.mark.exhaustive
def test_the_go1_is_itself(playground):
    joystick = playground("locomotion.go1.joystick")
    overrides = {"impl": "jax", "pert_config.enable": True}
    env = joystick.Joystick(task="flat_terrain", config_overrides=overrides)
    worlds = BraxWorlds(env, B, LENGTH)
    actions = actions_of(worlds, 8)
    states, steps = rolled(worlds, worlds.reset(jax.random.key(0)), actions)
    assert_as_by_brax(worlds, states, steps, actions)
    assert sorted(steps.final_obs) == ["privileged_state", "state"]
    assert steps.truncated.any()
