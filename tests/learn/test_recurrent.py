"""Networks with a memory: the unit against Equinox's, segments against steps, fresh starts."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from worldline.errors import ConfigError
from worldline.learn.networks.actor_critic import ActorCritic, Segments
from worldline.learn.networks.mlp import MLP, Actor
from worldline.learn.networks.network import Network
from worldline.learn.networks.recurrent import GRU, GRUNetwork

T, B, NIN, SIZE = 7, 3, 4, 5


def network() -> GRUNetwork:
    gru_key, head_key = jax.random.split(jax.random.key(0))
    head = MLP.initial(head_key, (NIN + SIZE, 8, 2), "tanh", last_gain=1.0)
    gru = GRU.initial(gru_key, NIN, SIZE)
    bias_keys = jax.random.split(jax.random.key(1), 2)
    gru = eqx.tree_at(
        lambda g: (g.bias, g.candidate_bias),
        gru,
        (
            jax.random.normal(bias_keys[0], (3 * SIZE,)),
            jax.random.normal(bias_keys[1], (SIZE,)),
        ),
    )
    return GRUNetwork(gru, Actor(head, jnp.zeros(2)))


class Mean(Network):
    """A network of one's own: the mean of what was seen in the episode."""

    def start(self, *lead: int) -> Any:
        return {"sum": jnp.zeros((*lead, NIN)), "count": jnp.zeros(lead)}

    def step(self, memory: Any, x: Any) -> Any:
        memory = {"sum": memory["sum"] + x, "count": memory["count"] + 1}
        return memory, memory["sum"] / memory["count"][..., None]


def sequence() -> tuple[jax.Array, jax.Array]:
    """What three worlds see: one whose episode goes on, one with an end, and one with ends in a row
    and at the first step.
    """
    x = jax.random.normal(jax.random.key(2), (T, B, NIN))
    first = np.zeros((T, B), bool)
    first[3, 1] = first[0, 2] = first[1, 2] = first[2, 2] = first[6, 2] = True
    return x, jnp.asarray(first)


def test_the_unit_is_equinoxs():
    gru = network().gru
    cell = eqx.nn.GRUCell(NIN, SIZE, key=jax.random.key(3))
    cell = eqx.tree_at(
        lambda c: (c.weight_ih, c.weight_hh, c.bias, c.bias_n),
        cell,
        (gru.of_input.T, gru.of_memory.T, gru.bias, gru.candidate_bias),
    )
    x, memory = jax.random.normal(jax.random.key(4), (B, NIN)), jnp.ones((B, SIZE))
    theirs = jax.vmap(cell)(x, memory)
    np.testing.assert_allclose(gru(memory, gru.read(x)), theirs, rtol=1e-5, atol=1e-6)


def test_weights_begin_orthogonal():
    gru = GRU.initial(jax.random.key(0), NIN, SIZE)
    for gate in np.split(np.asarray(gru.of_memory), 3, axis=1):
        np.testing.assert_allclose(gate.T @ gate, np.eye(SIZE), atol=1e-5)
    np.testing.assert_allclose(gru.of_input @ gru.of_input.T, np.eye(NIN), atol=1e-5)
    assert not gru.bias.any() and not gru.candidate_bias.any()


@pytest.mark.parametrize("make", [network, Mean])
def test_a_segment_is_episodes_step_by_step(make):
    """However episodes lie in a segment, each begins with a fresh memory and keeps its own."""
    net, (x, first) = make(), sequence()
    before = jax.tree.map(lambda leaf: leaf + 0.5, net.start(B))
    memories, out = net.over(before, x, first)
    for world in range(B):
        memory = jax.tree.map(lambda leaf, world=world: leaf[world], before)
        for t in range(T):
            memory = net.start() if first[t, world] else memory
            memory, expected = net.step(memory, x[t, world])
            for ours, theirs in ((memories, memory), (out, expected)):
                for leaf, by_hand in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
                    np.testing.assert_allclose(leaf[t, world], by_hand, rtol=1e-5, atol=1e-6)


def test_segments_are_worlds_in_any_order():
    net, (x, first) = network(), sequence()
    before = jnp.ones((B, SIZE))
    _, out = net.over(before, x, first)
    order = jnp.array([2, 0])
    obs = {"state": x.swapaxes(0, 1)[order]}
    segments = Segments(obs, obs, first.T[order], before[order], ())
    critic = MLP.initial(jax.random.key(5), (NIN, 1), "tanh", last_gain=1.0)
    distribution, value = ActorCritic(net, critic).evaluate(segments)
    np.testing.assert_allclose(
        distribution.mean, out.mean.swapaxes(0, 1)[order], rtol=1e-5, atol=1e-6
    )
    expected = critic(x)[..., 0].swapaxes(0, 1)[order]
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)


def test_gradients_go_back_in_time_but_not_over_the_end_of_an_episode():
    net, (x, first) = network(), sequence()

    def last_of_world_one(x):
        return net.over(net.start(B), x, first)[1].mean[-1, 1].sum()

    gradient = np.abs(jax.grad(last_of_world_one)(x)).max(axis=-1)
    assert (gradient[3:, 1] > 0).all()  # its episode began at step 3
    assert not gradient[:3, 1].any() and not gradient[:, [0, 2]].any()


def test_a_memory_is_made_fresh_where_an_episode_ended():
    ended = jnp.array([True, False, True])
    memory = {"sum": jnp.ones((B, NIN)), "count": jnp.full(B, 2.0)}
    fresh = Mean().restart(memory, ended)
    np.testing.assert_array_equal(fresh["count"], [0, 2, 0])
    np.testing.assert_array_equal(fresh["sum"][:, 0], [0, 1, 0])


def test_a_network_without_a_memory_is_one_with_an_empty_memory():
    x, first = sequence()
    net = MLP.initial(jax.random.key(5), (NIN, 2), "tanh", last_gain=1.0)
    assert net.start(B) == net.restart((), first[0]) == ()
    for memory, out in (net.over((), x, first), net.step((), x)):
        assert memory == ()
        np.testing.assert_array_equal(out, net(x))


def test_what_is_no_network_is_refused():
    plain = eqx.nn.Linear(NIN, 2, key=jax.random.key(0))
    with pytest.raises(ConfigError, match="actor is a Linear; derive its class from worldline"):
        ActorCritic(plain, network())
