"""What `test_devices.py` runs in a process of its own, which has four virtual devices."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
import worldline
from worldline.errors import ConfigError
from worldline.learn.placement import on_devices, place, whole
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.rollout import unroll
from worldline.learn.sac import SACConfig, sac
from worldline.parallel.mesh import world_mesh
from worldline.train.checkpoint import CheckpointWriter, Moment, restore
from worldline.variation import Domain, Uniform, scale

B = 8
DOMAIN = Domain(scale(("body_mass", "body_inertia"), Uniform(0.5, 1.5)))
PPO = PPOConfig(num_worlds=B, unroll_length=8, minibatches=2, epochs=2, actor_hidden=(8,))
SAC = SACConfig(num_worlds=B, replay_capacity=256, batch_size=16, learning_starts=16)


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


@pytest.mark.parametrize(("make", "config"), [(ppo, PPO), (sac, SAC)], ids=["ppo", "sac"])
def test_learning_is_that_of_one_device(env, mesh, make, config, tmp_path):
    traces = []

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
        checkpoints.save(whole(mesh, many), Moment(1, 0.0, None))
    found = restore(tmp_path, jax.eval_shape(alone.init, jax.random.key(3)), {}, {})
    assert found is not None
    jax.tree.map(_assert_same, _words(found.state), _words(many))
    placed = place(mesh, found.state)
    assert _layout(placed) == before


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


def _layout(state: Any) -> list[str]:
    return [str(leaf.sharding) for leaf in jax.tree.leaves(dataclasses.replace(state))]
