"""SAC from pixels: what it makes of images, what it stores of them, and that it learns."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spot import Spot, Told, spot_env

from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError
from worldline.export.policy_file import load_policy, save_policy
from worldline.learn.sac import SACConfig, sac
from worldline.learn.sac.loss import actor_loss, batch_of, critic_loss, image_changes
from worldline.rendering.camera import Camera

CONFIG = SACConfig(
    num_worlds=4,
    unroll_length=6,
    critic_steps=2,
    actor_delay=1,
    batch_size=8,
    replay_capacity=60,
    replay_groups=1,
    learning_starts=24,
    actor_obs=("state", "pixels/top"),
    image_features=8,
    actor_hidden=(16,),
    critic_hidden=(16,),
    random_shift=2,
)
BOUNDED = jnp.ones(1, bool)


@functools.cache
def trained():
    learner = sac(Worlds(spot_env(), CONFIG.num_worlds), CONFIG)
    state = learner.init(jax.random.key(0))
    return learner, state, *learner.update(state)


@functools.cache
def batch():
    """Remembered transitions as a gradient step reads them."""
    _, _, state, _ = trained()
    steps = state.replay.at(jnp.arange(CONFIG.batch_size))
    noise = jax.random.normal(jax.random.key(3), (CONFIG.batch_size, 1))
    changes = image_changes(CONFIG, jax.random.key(4), CONFIG.batch_size, steps.obs)
    return batch_of(CONFIG, state.learning.statistics, steps, noise, changes), steps


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def test_an_update_changes_encoder_critics_and_policy():
    _, before, after, metrics = trained()
    for part in ("encoder", "actor", "critics"):
        old, new = (leaves(getattr(s.learning.networks, part)) for s in (before, after))
        assert old
        assert any((a != b).any() for a, b in zip(old, new, strict=True)), part
    assert all(np.isfinite(value).all() for value in metrics.values())
    assert after.learning.statistics.actor.mean.shape == (1,)  # of the numbers alone


def test_the_critics_loss_alone_reaches_the_encoder():
    """Every other loss has a gradient of exactly zero there."""
    networks = trained()[2].learning.networks
    seen, _ = batch()

    def of_actor(networks):
        return actor_loss((networks.actor_encoder, networks.actor), networks, seen, BOUNDED)[0]

    def of_critics(networks):
        target = jnp.ones(CONFIG.batch_size)
        return critic_loss((networks.encoder, networks.critics), seen, target)[0]

    gradient = eqx.filter_jit(jax.grad(of_actor))(networks)
    assert all((leaf == 0).all() for leaf in leaves(gradient.encoder))
    assert any((leaf != 0).any() for leaf in leaves(gradient.actor))
    gradient = eqx.filter_jit(jax.grad(of_critics))(networks)
    assert all((leaf != 0).any() for leaf in leaves(gradient.encoder.encoders[0].layers[0].weights))


ASYMMETRIC = dataclasses.replace(
    CONFIG, actor_obs=("pixels/top",), critic_obs=("state", "privileged_state")
)


def test_an_image_for_the_policy_alone_has_an_encoder_of_the_policy():
    learner = sac(Worlds(spot_env(Told), CONFIG.num_worlds), ASYMMETRIC)
    before = learner.init(jax.random.key(0))
    after, metrics = learner.update(before)
    networks = after.learning.networks
    assert not networks.encoder.encoders
    assert networks.actor_encoder.names == ("pixels/top",)
    weights = [
        s.learning.networks.actor_encoder.encoders[0].layers[0].weights[0] for s in (before, after)
    ]
    assert (weights[0] != weights[1]).any()
    assert all(np.isfinite(value).all() for value in metrics.values())

    steps = after.replay.at(jnp.arange(CONFIG.batch_size))
    noise = jnp.ones((CONFIG.batch_size, 1))
    changes = image_changes(ASYMMETRIC, jax.random.key(4), CONFIG.batch_size, steps.obs)
    seen = batch_of(ASYMMETRIC, after.learning.statistics, steps, noise, changes)
    stored = (steps.obs["pixels/top"], steps.next_obs["pixels/top"])
    for read, kept in zip((seen.obs, seen.next_obs), stored, strict=True):
        assert (read["pixels/top"] != kept).any()  # shifted
    assert seen.critic_obs.keys() == {"state"}

    def loss(networks):
        learned = (networks.actor_encoder, networks.actor)
        return actor_loss(learned, networks, seen, BOUNDED)[0]

    gradient = eqx.filter_jit(jax.grad(loss))(networks)
    assert (gradient.actor_encoder.encoders[0].layers[0].weights[0] != 0).any()


def test_it_acts_through_eyes_of_the_critics_and_of_its_own(tmp_path):
    config = dataclasses.replace(
        CONFIG, actor_obs=("pixels/one", "pixels/two"), critic_obs=("pixels/two", "state")
    )
    cameras = {name: Camera("top", 16, 16) for name in ("one", "two")}
    learner = sac(Worlds(Env(Spot(), cameras=cameras), CONFIG.num_worlds), config)
    state, _ = learner.update(learner.init(jax.random.key(0)))
    networks, policy = state.learning.networks, learner.policy(state)
    assert networks.encoder.names == ("pixels/two",)
    assert networks.actor_encoder.names == ("pixels/one",)
    assert policy.encoder.names == config.actor_obs
    obs = jax.tree.map(lambda x: x[:1], state.acting.worlds.obs)
    action = np.asarray(policy(obs))
    for name in config.actor_obs:  # it looks at both
        assert (np.asarray(policy({**obs, name: 255 - obs[name]})) != action).all()
    save_policy(tmp_path, policy)
    np.testing.assert_array_equal(load_policy(tmp_path)(obs), action)


def test_each_image_is_shifted_on_its_own():
    """What the batch holds is the remembered image moved by up to `random_shift` pixels."""
    seen, steps = batch()
    shifts = {}
    for name, read in (("obs", seen.critic_obs), ("next_obs", seen.next_critic_obs)):
        stored = np.asarray(getattr(steps, name)["pixels/top"])
        changed = np.asarray(read["pixels/top"])
        assert changed.dtype == np.uint8
        found = [
            [
                (y, x)
                for y in range(-2, 3)
                for x in range(-2, 3)
                if (np.pad(image, ((2, 2), (2, 2), (0, 0)), "edge")[2 - y : 18 - y, 2 - x : 18 - x]
                    == moved).all()
            ]
            for image, moved in zip(stored, changed, strict=True)
        ]  # fmt: skip
        assert all(found)  # each is some shift of its own image
        shifts[name] = [one[0] for one in found]
    assert len(set(shifts["obs"])) > 1
    assert shifts["obs"] != shifts["next_obs"]


def test_images_are_stored_once_as_bytes():
    state = trained()[2]
    images = [leaf for leaf in jax.tree.leaves(state.replay) if leaf.dtype == jnp.uint8]
    assert sum(leaf.nbytes for leaf in images) == (60 + 4) * 16 * 16 * 6
    others = [leaf for leaf in jax.tree.leaves(state.replay) if leaf.dtype != jnp.uint8]
    assert max(leaf.ndim for leaf in others) <= 2


def test_what_follows_an_end_is_the_last_image_of_the_old_episode():
    """Episodes of four steps, in which the ball does not move: both images of a step are alike."""
    state = trained()[2]
    steps = state.replay.at(jnp.arange(24))
    np.testing.assert_array_equal(steps.obs["pixels/top"], steps.next_obs["pixels/top"])
    first = np.asarray(steps.obs["pixels/top"]).reshape(6, 4, -1)
    assert (first[3] == first[0]).all()  # one episode
    assert (first[4] != first[3]).any(axis=-1).all()  # and the next


def test_a_policy_that_sees_is_saved_and_loaded(tmp_path):
    learner, _, state, _ = trained()
    policy = learner.policy(state)
    save_policy(tmp_path, policy)
    loaded = load_policy(tmp_path)
    obs = state.acting.worlds.obs
    np.testing.assert_array_equal(loaded(obs), policy(obs))
    assert loaded(jax.device_get(obs)).shape == (4, 1)


def test_the_state_is_all_there_is():
    """A copy of it in another learner goes on bit for bit."""
    learner, _, state, _ = trained()
    parts, structure = jax.tree.flatten(state)
    copied = jax.tree.unflatten(structure, [jnp.copy(leaf) for leaf in parts])
    other = sac(Worlds(spot_env(), CONFIG.num_worlds), CONFIG)
    with jax.debug_key_reuse(False):  # both go on from one state
        one, two = learner.update(state)[0], other.update(copied)[0]

    def plain(x):
        return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x

    for a, b in zip(*(leaves(jax.tree.map(plain, s)) for s in (one, two)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_another_run_can_begin_with_its_parts():
    learner, before, after, _ = trained()
    for name in ("actor", "critic", "statistics"):
        where = learner.parts[name]
        begun = eqx.tree_at(where, before, where(after))
        for ours, theirs in zip(*map(leaves, (where(begun), where(after))), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_mistakes_are_told():
    with pytest.raises(ConfigError, match="has no 'pixels/top'; give the environment"):
        sac(Worlds(Env(Spot()), 4), CONFIG)
    with pytest.raises(ConfigError, match="has no 'pixels/tip'; did you mean 'pixels/top'"):
        sac(Worlds(spot_env(), 4), dataclasses.replace(CONFIG, actor_obs=("pixels/tip",)))
    large = sac(Worlds(spot_env(), 4), dataclasses.replace(CONFIG, replay_capacity=10**9))
    with pytest.raises(
        ConfigError, match=r"replay_capacity of 10{9} needs .* GB, but .* lower replay_cap"
    ):
        large.init(jax.random.key(0))
    with pytest.raises(ConfigError, match="cutout is -1"):
        dataclasses.replace(CONFIG, cutout=-1)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("task", "critic_obs"), [(Spot, None), (Told, ("privileged_state",))], ids=["sees", "is told"]
)
def test_it_learns_what_only_the_image_tells(task, critic_obs):
    """Without seeing, the mean of 1 - E[x^2] over a uniform place in +-0.8 is 0.787 a step."""
    config = dataclasses.replace(
        CONFIG,
        num_worlds=16,
        unroll_length=8,
        critic_steps=32,
        actor_delay=2,
        batch_size=64,
        replay_capacity=20_000,
        learning_starts=512,
        learning_rate=1e-3,
        actor_obs=("pixels/top",),
        critic_obs=critic_obs,
        image_features=16,
        discount=0.0,
        random_shift=1,
    )
    learner = sac(Worlds(spot_env(task), config.num_worlds), config)
    state = learner.init(jax.random.key(0))
    for _ in range(40):
        state, _ = learner.update(state)
    policy = learner.policy(state)
    start = jax.vmap(spot_env(task).reset)(jax.random.split(jax.random.key(9), 64))
    error = np.asarray(policy(start.obs))[:, 0] - np.asarray(start.physics.qpos)[:, 0]
    assert float(np.mean(error**2)) < 0.05  # of 0.213 without seeing
