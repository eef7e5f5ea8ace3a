"""PPO from pixels: what it makes of images, and that it learns from them."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spot import Spot, spot_env

from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError
from worldline.export.policy_file import load_policy, save_policy
from worldline.learn.augmentation import Augmentation, changed, draw_changes
from worldline.learn.bootstrap import BOOTSTRAP_VALUE
from worldline.learn.networks.actor_critic import Segments
from worldline.learn.policy import select
from worldline.learn.ppo import (
    ActorCritic,
    Batch,
    PPOConfig,
    actor_critic,
    clipped_loss,
    ppo,
    with_hyperparameters,
)
from worldline.learn.rollout import unroll

CONFIG = PPOConfig(
    num_worlds=4,
    unroll_length=6,
    epochs=2,
    minibatches=2,
    actor_obs=("state", "pixels/top"),
    image_features=8,
    random_shift=1,
)


@functools.cache
def trained():
    learner = ppo(Worlds(spot_env(), CONFIG.num_worlds), CONFIG)
    state = learner.init(jax.random.key(0))
    return learner, state, *learner.update(state)


def test_an_update_changes_the_encoder():
    _, before, after, metrics = trained()
    assert after.learning.networks.critic_encoder is None
    old, new = (
        s.learning.networks.encoder.encoders[0].layers[0].weights[0] for s in (before, after)
    )
    assert float(jnp.abs(new - old).max()) > 0
    assert all(np.isfinite(value).all() for value in metrics.values())
    assert after.learning.statistics.actor.mean.shape == (1,)  # of the numbers alone


def test_changed_images_are_no_step_of_the_policy():
    """A policy that stays as it is has gone nowhere, though no image is as it was acted on: else
    the learning rate that divergence leads would fall to nothing.
    """
    learner, _, state, _ = trained()
    still = with_hyperparameters(state, learning_rate=0.0, target_kl=0.0)
    after, metrics = learner.update(still)
    assert eqx.tree_equal(after.learning.networks, still.learning.networks)
    assert float(metrics["ppo/kl"]) == pytest.approx(0, abs=1e-6)


def test_a_policy_that_sees_is_saved_and_loaded(tmp_path):
    learner, _, state, _ = trained()
    policy = learner.policy(state)
    save_policy(tmp_path, policy)
    loaded = load_policy(tmp_path)
    obs = state.acting.worlds.obs
    np.testing.assert_array_equal(loaded(obs), policy(obs))
    on_host = jax.device_get(obs)
    action = loaded(on_host)
    assert isinstance(action, np.ndarray)
    np.testing.assert_array_equal(action, policy(obs))
    one = loaded(jax.tree.map(lambda x: x[0], on_host))
    np.testing.assert_allclose(one, action[0], atol=1e-6)


def test_another_run_can_begin_with_its_parts():
    learner, before, after, _ = trained()
    for name in ("actor", "critic"):
        where = learner.parts[name]
        begun = eqx.tree_at(where, before, where(after))
        for ours, theirs in zip(*map(jax.tree.leaves, (where(begun), where(after))), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def batch_of(networks, number=6):
    keys = jax.random.split(jax.random.key(5), 3)
    obs = {
        "state": jax.random.normal(keys[0], (number, 1)),
        "pixels/top": jax.random.randint(keys[1], (number, 16, 16, 6), 0, 256).astype(jnp.uint8),
    }
    segments = Segments(obs, obs, jnp.zeros(number, bool), (), ())
    distribution, _ = networks.evaluate(segments)
    action = distribution.at(jax.random.normal(keys[2], distribution.mean.shape))
    ramp = jnp.linspace(-1.0, 1.0, number)
    return Batch(
        segments, action, distribution.log_prob(action), distribution, ramp, ramp, 0.5 * ramp
    )


def test_shared_encoders_are_the_sum_of_two_uses():
    """The loss is that of actor and critic apart; its gradient reaches the encoder from both."""
    shared = actor_critic(CONFIG, {"pixels/top": (16, 16, 6)})(jax.random.key(1), 1, 1, 1)
    apart = ActorCritic(shared.actor, shared.critic, shared.encoder, shared.encoder)
    batch = batch_of(shared)
    _, state, _, _ = trained()
    loss = eqx.filter_jit(
        jax.value_and_grad(
            lambda networks: clipped_loss(networks, batch, state.learning.hyperparameters)[0]
        )
    )
    (one, gradient), (two, gradients) = loss(shared), loss(apart)
    np.testing.assert_allclose(one, two, rtol=1e-5)
    summed = jax.tree.map(jnp.add, gradients.encoder, gradients.critic_encoder)
    for ours, theirs in zip(*map(jax.tree.leaves, (gradient.encoder, summed)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_images_of_a_world_are_changed_alike():
    """One shift for a world over the whole rollout; others for other worlds, and none for state."""
    worlds, steps = CONFIG.num_worlds, 5
    still = jax.random.randint(jax.random.key(0), (1, worlds, 8, 8, 3), 0, 256).astype(jnp.uint8)
    images = jnp.repeat(still, steps, axis=0).reshape(-1, 8, 8, 3)
    obs = {"state": None, "pixels/top": images}
    how = Augmentation(shift=3)
    changes = draw_changes(how, jax.random.key(1), worlds, obs, obs)
    after = changed(how, changes, jnp.arange(len(images)) % worlds, obs)
    assert after["state"] is None
    by_world = np.asarray(after["pixels/top"]).reshape(steps, worlds, 8, 8, 3)
    assert (by_world == by_world[:1]).all()
    shifts = np.asarray(changes["pixels/top"].shift)
    assert len(np.unique(shifts, axis=0)) > 1


def test_selected_images_stand_beside_the_numbers():
    obs = {
        "state": jnp.ones((2, 3)),
        "context": jnp.zeros((2, 1)),
        "pixels/a": jnp.ones((2, 4, 4, 3)),
    }
    chosen = select(obs, ("context", "pixels/a", "state"))
    assert sorted(chosen) == ["pixels/a", "state"]
    np.testing.assert_array_equal(chosen["state"][0], [0, 1, 1, 1])
    assert select(obs, ("pixels/a",))["state"].shape == (2, 0)


def test_mistakes_are_told():
    blind = Worlds(Env(Spot()), CONFIG.num_worlds)
    with pytest.raises(ConfigError, match="has no 'pixels/top'; give the environment"):
        ppo(blind, CONFIG)
    with pytest.raises(ConfigError, match="has no 'pixels/tip'; did you mean 'pixels/top'"):
        ppo(Worlds(spot_env(), 4), dataclasses.replace(CONFIG, actor_obs=("pixels/tip",)))
    with pytest.raises(ConfigError, match="cutout is -1"):
        dataclasses.replace(CONFIG, cutout=-1)


def test_an_image_without_an_encoder_is_told():
    blind = actor_critic(dataclasses.replace(CONFIG, actor_obs=("state",)))
    learner = ppo(Worlds(spot_env(), CONFIG.num_worlds), CONFIG, networks=blind)
    with pytest.raises(ConfigError, match="no encoder for the image 'pixels/top'; give ActorCrit"):
        learner.init(jax.random.key(0))


@pytest.mark.exhaustive
def test_it_learns_what_only_the_image_tells():
    """Without seeing, the mean of 1 - E[x^2] over a uniform place in +-0.8 is 0.787 a step."""
    config = PPOConfig(
        num_worlds=32,
        unroll_length=8,
        epochs=4,
        minibatches=4,
        actor_obs=("pixels/top",),
        image_features=16,
        discount=0.0,
        squash="tanh",
    )
    learner = ppo(Worlds(spot_env(), config.num_worlds), config)
    state, returns = learner.init(jax.random.key(0)), []
    for _ in range(40):
        state, metrics = learner.update(state)
        returns.append(float(metrics["train/return"]))
    policy = learner.policy(state)
    start = jax.vmap(spot_env().reset)(jax.random.split(jax.random.key(9), 64))
    error = np.asarray(policy(start.obs))[:, 0] - np.asarray(start.physics.qpos)[:, 0]
    assert float(np.mean(error**2)) < 0.05  # of 0.213 without seeing


def test_a_rollout_holds_its_images_once_and_learns_the_same():
    """Against a rollout that brings every final image: the same advantages, so the same update."""
    worlds, kept = Worlds(spot_env(), CONFIG.num_worlds), []

    def remember(place, *arguments):
        state, taken, summary = unroll(place, *arguments)
        kept.append(taken.final_obs.keys())
        return state, taken, summary

    lean = ppo(worlds, CONFIG, rollout=remember)
    _, metrics = lean.update(lean.init(jax.random.key(3)))
    assert kept == [{"state", BOOTSTRAP_VALUE}]

    def whole(place, *arguments):
        return unroll(place.worlds, *arguments)

    full = ppo(worlds, CONFIG, rollout=whole)
    _, expected = full.update(full.init(jax.random.key(3)))
    for name, value in metrics.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-3, atol=1e-5, err_msg=name)
