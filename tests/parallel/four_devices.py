"""What `test_devices.py` runs in a process of its own, which has four virtual devices."""

import dataclasses
import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
import worldline
from worldline.errors import ConfigError
from worldline.learn.placement import on_devices, on_mesh, place
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.replay import Replay, Transitions
from worldline.learn.rollout import unroll
from worldline.learn.sac import SACConfig, sac
from worldline.learn.sac.update import _begin, learn
from worldline.parallel.mesh import BY_WORLD, STEPS_BY_WORLD, shared, world_mesh
from worldline.train.checkpoint import CheckpointWriter, Moment, restore
from worldline.variation import Domain, Uniform, scale

B = 8
DOMAIN = Domain(scale(("body_mass", "body_inertia"), Uniform(0.5, 1.5)))
PPO = PPOConfig(num_worlds=B, unroll_length=8, minibatches=2, epochs=2, actor_hidden=(8,))
SAC = SACConfig(
    num_worlds=B, replay_capacity=300, batch_size=16, learning_starts=16, critic_steps=8
)

#: A message between devices, in a compiled program.
COLLECTIVE = r" (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)[-a-z]*\("


@pytest.fixture(scope="module")
def env():
    return worldline.make("robot/reach", episode_length=5)


@pytest.fixture(scope="module")
def mesh():
    mesh = world_mesh()
    assert mesh is not None and mesh.size == 4
    return mesh


def steps_of(worlds: worldline.Worlds) -> tuple[Any, Any]:
    actions = jax.random.uniform(jax.random.key(1), (12, B, 2), minval=-1)
    state = worlds.reset(jax.random.key(0))
    state, steps = jax.lax.scan(worlds.step, state, actions)
    return worlds.reset_where(state, jnp.arange(B) % 3 == 0), steps


def test_worlds_are_the_same_bit_for_bit_and_each_on_its_device(env, mesh):
    alone = steps_of(worldline.Worlds(env, B, domain=DOMAIN))
    state, steps = steps_of(worldline.Worlds(env, B, domain=DOMAIN, mesh=mesh))
    assert int(steps.truncated.sum()) == 2 * B  # and fresh episodes begin
    jax.tree.map(np.testing.assert_array_equal, _words(alone), _words((state, steps)))
    shares = state.env.physics.qpos.addressable_shards
    assert [shard.data.shape[0] for shard in shares] == [B // 4] * 4


def test_ranges_of_a_task_move_with_the_worlds_of_all_devices(mesh):
    falls = jnp.arange(B)[:, None] % 3 == 0  # three of eight, at their first step
    for where in (None, mesh):
        worlds = worldline.Worlds(worldline.Env(toys.Doors()), B, mesh=where)
        state, _ = worlds.step(worlds.reset(jax.random.key(0)), falls.astype(jnp.float32))
        assert state.ranges["falls"].tolist() == [0, 3, 0]


def test_each_device_has_simulations_of_its_own(env, mesh):
    worlds = worldline.Worlds(env, B, domain=DOMAIN, mesh=mesh)
    jax.block_until_ready(steps_of(worlds))
    devices = {device for device, devices in worlds.env.physics._pools if devices == 4}
    assert devices == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("make", "config", "devices"),
    [(ppo, PPO, 4), (sac, SAC, 4), pytest.param(sac, SAC, 2, marks=pytest.mark.exhaustive)],
)
def test_learning_is_that_of_one_device(env, make, config, devices, tmp_path):
    traces, mesh = [], world_mesh(jax.devices()[:devices])

    def learner_on(mesh, **pieces):
        worlds = worldline.Worlds(env, B, domain=DOMAIN, mesh=mesh)
        return on_devices(make(worlds, config, **pieces), mesh)

    def counted(*args):
        traces.append(1)
        return unroll(*args)

    pieces = {"rollout": counted} if make is ppo else {}
    alone, shared = learner_on(None), learner_on(mesh, **pieces)
    one, many = (learner.init(jax.random.key(3)) for learner in (alone, shared))
    before = _layout(many)
    if make is sac:
        _assert_shared(one.replay, many.replay, devices)
    for _ in range(2):
        one, expected = alone.update(one)
        many, metrics = shared.update(many)
        for name in expected:
            np.testing.assert_allclose(metrics[name], expected[name], 2e-4, 1e-5, err_msg=name)
    assert _layout(many) == before
    assert len(traces) == len(pieces)  # and so one compilation
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, 1e-3, 1e-4),
        alone.policy(one),
        shared.policy(many),
    )

    with CheckpointWriter(tmp_path, {}, {}) as checkpoints:
        checkpoints.save(many, Moment(1, 0.0, None))
    shapes = jax.eval_shape(alone.init, jax.random.key(3))
    for like in (shapes, on_mesh(mesh, shapes)):
        found = restore(tmp_path, like, {}, {})
        assert found is not None
        jax.tree.map(_assert_same, _words(found.state), _words(many))
        assert _layout(place(mesh, found.state)) == before
    assert place(mesh, found.state).acting.key is found.state.acting.key  # it lies there already


def test_minibatches_are_shared_and_a_gradient_step_sends_one_message(env, mesh):
    """Within the loops: the gradient and what is reported, as one vector."""
    learner = ppo(worldline.Worlds(env, B, mesh=mesh), PPO)
    state = on_devices(learner, mesh).init(jax.random.key(0))
    text = jax.jit(learner.update).lower(state).compile().as_text()
    sent = [line for line in text.splitlines() if " all-reduce(" in line and "while/body" in line]
    of_steps = [line for line in sent if "_std" not in line]  # advantages, once a pass
    (vector,) = of_steps
    parameters = sum(leaf.size for leaf in jax.tree.leaves(state.learning.networks))
    size = int(vector.partition("f32[")[2].partition("]")[0])
    assert parameters < size < parameters + 16


def test_a_gradient_step_of_sac_sends_one_message(env, mesh):
    """One for the critics, one for the policy: the gradient and what is measured, as a vector."""
    learner = sac(worldline.Worlds(env, B, mesh=mesh), SAC)
    state = on_devices(learner, mesh).init(jax.random.key(0))
    text = jax.jit(learner.update).lower(state).compile().as_text()
    sent = [line for line in text.splitlines() if re.search(COLLECTIVE, line)]
    in_loops = [line for line in sent if "while/body" in line]
    sizes = sorted(int(re.findall(r"f32\[(\d+)\]", line)[0]) for line in in_loops)
    networks = state.learning.networks
    of_steps = [
        sum(leaf.size for leaf in jax.tree.leaves(part)) + 2
        for part in (networks.actor, networks.critics)
    ]
    assert sizes == sorted(of_steps)
    assert all("all-reduce(" in line for line in sent)  # and nothing else in all of an update
    large = [line for line in sent if line not in in_loops and re.search(r"\[\d{3,}", line)]
    assert not large  # sums of statistics


def test_images_of_shares_are_changed_as_those_of_all(mesh):
    """Transitions with images, some of them stored: weights after gradient steps of all devices."""
    config = dataclasses.replace(
        SAC, actor_obs=("state", "pixels/eye"), critic_steps=2, image_features=4, random_shift=2
    )
    rng, bounded = np.random.default_rng(0), jnp.ones(1, bool)

    def seen(*shape: int) -> dict[str, jax.Array]:
        image = rng.integers(0, 256, (*shape, 8, 8, 3), np.uint8)
        return {"pixels/eye": jnp.asarray(image), "state": jnp.asarray(rng.random((*shape, 2)))}

    steps = Transitions(
        seen(4, B), jnp.ones((4, B, 1)), jnp.ones((4, B)), jnp.zeros((4, B), bool), seen(4, B)
    )

    @functools.partial(jax.jit, static_argnums=1)
    def weights(steps: Transitions, mesh: Any) -> Any:
        obs = jax.tree.map(lambda x: x[0], steps.obs)
        shapes = {"pixels/eye": (8, 8, 3)}
        learning, replay = _begin(config, 1, shapes, mesh, jax.random.key(0), obs)
        push = shared(mesh, Replay.push, (BY_WORLD, STEPS_BY_WORLD, STEPS_BY_WORLD), BY_WORLD)
        replay = push(replay, steps, steps.terminated)
        return learn(config, learning, replay, jax.random.key(1), bounded, mesh)[0].networks

    both = weights(steps, None), weights(steps, mesh)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, 1e-3, 1e-4), *both)


def test_devices_that_do_not_divide_the_groups_are_refused(env):
    config = dataclasses.replace(SAC, replay_groups=2)
    with pytest.raises(ConfigError, match=r"4 devices do not divide the 2 groups .*groups=4, or"):
        sac(worldline.Worlds(env, B, mesh=world_mesh()), config)


def test_worlds_that_do_not_divide_are_refused(env, mesh):
    with pytest.raises(ConfigError, match="6 worlds do not divide over 4 devices; give 4 or 8"):
        worldline.Worlds(env, 6, mesh=mesh)


def test_some_of_the_devices(env):
    worlds = worldline.Worlds(env, 6, mesh=world_mesh(jax.devices()[:2]))
    state = worlds.reset(jax.random.key(0))
    assert len(state.obs.sharding.device_set) == 2
    assert world_mesh(jax.devices()[:1]) is None


def _assert_same(one: Any, other: Any) -> None:
    assert one.shape == other.shape
    if one.size:
        np.testing.assert_array_equal(one, other)


def _words(tree: Any) -> Any:
    """A tree with the words of its keys in their place."""
    return jax.tree.map(
        lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x,
        tree,
    )


def _assert_shared(whole: Any, replay: Any, devices: int) -> None:
    """Of every array of a replay buffer, each device has its share and no more."""
    for of_one, leaf in zip(jax.tree.leaves(whole), jax.tree.leaves(replay), strict=True):
        assert leaf.shape == of_one.shape
        share = (leaf.shape[0] // devices, *leaf.shape[1:])
        assert [shard.data.shape for shard in leaf.addressable_shards] == [share] * devices


def _layout(state: Any) -> list[str]:
    return [str(leaf.sharding) for leaf in jax.tree.leaves(dataclasses.replace(state))]
