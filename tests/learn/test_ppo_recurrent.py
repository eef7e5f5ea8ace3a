"""PPO with a memory: what it acted on, what it learns from, what it takes away."""

import dataclasses
import functools
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
import worldline
from worldline.cli import main as cli
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError, TaskError
from worldline.export.policy_file import load_policy, save_policy
from worldline.learn.networks.actor_critic import Segments
from worldline.learn.networks.mlp import MLP, Actor
from worldline.learn.networks.network import Network
from worldline.learn.population import population
from worldline.learn.ppo import ActorCritic, Batch, PPOConfig, clipped_loss, ppo
from worldline.learn.ppo.update import prepare
from worldline.learn.rollout import evaluator, record, unroll
from worldline.learn.run import run
from worldline.learn.shuffle import shuffled
from worldline.tasks.gym.pendulums import InvertedPendulum
from worldline.train.checkpoint import CheckpointWriter, Moment, restore

B, T = 4, 12
CONFIG = PPOConfig(
    num_worlds=B,
    unroll_length=T,
    minibatches=2,
    epochs=2,
    recurrent_size=3,
    actor_hidden=(4,),
    critic_hidden=(4,),
)
TRACES = Counter[str]()


@functools.cache
def env() -> Env:
    """Episodes end at a wall, or after seven steps."""
    return Env(toys.Puck(wall=0.3, episode_length=7), "fake")


@functools.cache
def worlds() -> Worlds:
    return Worlds(env(), B)


@functools.cache
def learner() -> Any:
    pieces = {"rollout": counted("act", unroll), "loss": counted("learn", clipped_loss)}
    return ppo(worlds(), CONFIG, **pieces)


def counted(name: str, function: Any) -> Any:
    def wrapper(*args: Any) -> Any:
        TRACES[name] += 1
        return function(*args)

    return wrapper


@functools.cache
def begun() -> Any:
    """A state in the middle of episodes."""
    state = learner().init(jax.random.key(0))
    for _ in range(2):
        state, _ = learner().update(state)
    return state


@functools.cache
def next_rollout() -> Any:
    """What the policy does from there, and what is learned from."""
    state = begun()
    policy = learner().policy(state)
    program = jax.jit(functools.partial(unroll, worlds()), static_argnums=3)
    key = jax.random.key(1)
    _, rollout, _ = program(state.acting.worlds, policy, key, T, state.acting.memory)
    samples, learning = jax.jit(functools.partial(prepare, CONFIG))(
        state.learning, rollout, state.acting.memory
    )
    return rollout, samples, learning


def by_hand(policy: Any, network: Network, memory: Any, obs: Any, ended: Any) -> Any:
    """The memory before and after each step, the one after before any fresh start: `(T, B, ...)`.

    A loop in Python over steps and worlds.
    """
    befores, afters = np.zeros((2, T, B, CONFIG.recurrent_size))
    step = jax.jit(lambda memory, x: network.step(memory, policy.statistics.normalize(x))[0])
    for world in range(B):
        now = memory[world]
        for t in range(T):
            befores[t, world] = now
            now = step(now, obs[t, world])
            afters[t, world] = now
            now = network.start() if ended[t, world] else now
    return befores, afters


def test_acting_remembers_an_episode_and_no_more():
    state, (rollout, _, _) = begun(), next_rollout()
    policy, ended = learner().policy(state), rollout.terminated | rollout.truncated
    assert np.abs(state.acting.memory).min(axis=1).any()  # the segment begins within episodes
    assert rollout.terminated.any() and rollout.truncated.any() and not ended[:-1].all()
    _, after = by_hand(policy, policy.actor, state.acting.memory, rollout.obs, ended)
    fresh = np.where(ended[..., None], 0.0, after)
    np.testing.assert_allclose(rollout.memory, fresh, rtol=1e-4, atol=1e-5)


def test_learning_sees_what_acting_did():
    """Before any gradient step the policy is, step by step, what the actions were drawn from."""
    state, (rollout, samples, _) = begun(), next_rollout()
    networks = state.learning.networks
    assert samples.segments.obs["state"].shape == (B, T, 4) and samples.action.shape == (B, T, 2)
    distribution = networks.evaluate(samples.segments)[0]
    np.testing.assert_allclose(
        distribution.mean, rollout.distribution.mean.swapaxes(0, 1), rtol=1e-4, atol=1e-5
    )
    _, metrics = clipped_loss(networks, samples, state.learning.hyperparameters)
    assert abs(float(metrics["ppo/kl"])) < 1e-6
    # With the memory of other worlds it is another policy.
    wrong = samples.segments._replace(memory=samples.segments.memory[::-1])
    assert np.abs(networks.evaluate(wrong)[0].mean - distribution.mean).max() > 1e-4


def test_a_step_is_worth_what_follows_in_its_own_episode():
    """Values, and those of true successors, in which the episode is still remembered."""
    state, (rollout, samples, learning) = begun(), next_rollout()
    critic, statistics = state.learning.networks.critic, state.learning.statistics.critic
    ended = rollout.terminated | rollout.truncated
    like = dataclasses.replace(learner().policy(state), statistics=statistics)
    before, after = by_hand(like, critic, state.learning.critic_memory, rollout.obs, ended)
    value, next_value = (
        critic.step(jnp.float32(memory), statistics.normalize(obs))[1][..., 0]
        for memory, obs in ((before, rollout.obs), (after, rollout.final_obs))
    )
    np.testing.assert_allclose(samples.value.T, value, rtol=1e-4, atol=1e-5)
    # One step's advantage, where a truncated episode ends: its reward and its successor's value.
    reward = rollout.reward / np.sqrt(learning.reward_scale.statistics.variance + 1e-8)
    error = np.clip(reward, -10, 10) - value
    error += CONFIG.discount * np.where(rollout.terminated, 0.0, next_value)
    np.testing.assert_allclose(
        samples.advantage.T[ended], error[np.asarray(ended)], rtol=1e-3, atol=1e-4
    )
    fresh = np.where(ended[-1][:, None], 0.0, after[-1])
    np.testing.assert_allclose(learning.critic_memory, fresh, rtol=1e-4, atol=1e-5)


def test_minibatches_are_whole_worlds():
    mark = jnp.broadcast_to(jnp.arange(B)[:, None], (1, B, T))
    seen = {"state": mark[..., None]}
    segments = Segments(seen, seen, mark > 0, mark[..., :1], mark[..., :1])
    batch = Batch(segments, *[mark] * (len(Batch._fields) - 1))
    batches, _ = shuffled(batch, jax.random.key(3), 2)
    leaves = [np.asarray(leaf).reshape(2, 2, -1) for leaf in jax.tree.leaves(batches)]
    assert leaves[0].shape == (2, 2, T)
    assert sorted(batches.value[..., 0].ravel().tolist()) == list(range(B))
    for leaf in leaves:
        assert (leaf == leaf[..., :1]).all()
    np.testing.assert_array_equal(batches.segments.memory[..., 0], batches.value[..., 0])


def test_a_checkpoint_holds_the_memory_and_goes_on_bit_for_bit(tmp_path):
    state = begun()
    with CheckpointWriter(tmp_path, {}, {}) as writer:
        writer.save(state, Moment(96, 0.0, None))
    like = jax.eval_shape(learner().init, jax.random.key(0))
    restored = restore(tmp_path, like, {}, {}).state
    np.testing.assert_array_equal(restored.acting.memory, state.acting.memory)
    assert np.any(restored.acting.memory) and np.any(restored.learning.critic_memory)
    with jax.debug_key_reuse(False):
        ends = [learner().update(start)[0] for start in (state, restored)]
    for one, other in zip(*map(jax.tree.leaves, ends), strict=True):
        is_key = jnp.issubdtype(one.dtype, jax.dtypes.prng_key)
        ours, theirs = map(jax.random.key_data, (one, other)) if is_key else (one, other)
        np.testing.assert_array_equal(ours, theirs)


def test_a_population_is_its_members():
    members, keys = population(learner()), [jax.random.key(seed) for seed in (3, 4)]
    states = members.init(jnp.stack([jax.random.clone(key) for key in keys]))
    alone = [learner().init(key) for key in keys]
    for _ in range(2):
        states, metrics = members.update(states)
        for index, state in enumerate(alone):
            alone[index], of_one = learner().update(state)
            for name, value in of_one.items():
                np.testing.assert_allclose(
                    metrics[name][index], value, rtol=5e-3, atol=2e-4, err_msg=name
                )
    for index, state in enumerate(alone):
        np.testing.assert_allclose(
            states.acting.memory[index], state.acting.memory, rtol=1e-2, atol=1e-3
        )


def test_a_policy_that_is_taken_away_acts_as_in_training(tmp_path):
    state, (rollout, _, _) = begun(), next_rollout()
    policy = load_policy(save_policy(tmp_path, learner().policy(state)))
    # World by world with NumPy from the robot, and all worlds at once, over the ends of episodes.
    ended = np.asarray(rollout.terminated | rollout.truncated)
    many, one = state.acting.memory, state.acting.memory[1]
    for t in range(T):
        expected = np.asarray(policy.to_action(rollout.distribution.mean[t]))
        actions, many = policy.step(rollout.obs[t], many)
        np.testing.assert_allclose(actions, expected, atol=1e-5)
        action, one = policy.step(np.asarray(rollout.obs[t, 1]), one)
        assert isinstance(action, np.ndarray)
        np.testing.assert_allclose(action, expected[1], atol=1e-5)
        many = policy.restart(many, jnp.asarray(ended[t]))
        one = policy.start() if ended[t, 1] else one
    np.testing.assert_array_equal(policy.start(2, 3), np.zeros((2, 3, CONFIG.recurrent_size)))


def test_a_policy_with_a_memory_says_how_it_is_used():
    policy = learner().policy(begun())
    obs = np.zeros((5, 4), np.float32)
    with pytest.raises(TaskError, match=r"memory = policy.start\(\), then action, memory = policy"):
        policy(obs)
    with pytest.raises(TaskError, match=r"shape \(3,\), but for \(5,\) .* needs \(5, 3\)"):
        policy.step(obs, policy.start())
    without = dataclasses.replace(policy, actor=policy.actor.head)
    assert without.start(5) == ()


def episode(policy: Any, key: Any, limit: int) -> tuple[float, int]:
    """One episode in plain Python: its return and its length."""
    state, memory, total, length = jax.jit(env().reset)(key), policy.start(), 0.0, 0
    step = jax.jit(env().step)
    while length < limit and not state.terminated:
        action, memory = policy.step(state.obs, memory)
        state = step(state, action)
        total, length = total + float(state.reward), length + 1
    return total, length


def test_evaluations_and_recordings_carry_the_memory():
    policy = learner().policy(begun())
    result = evaluator(env(), 3)(policy, jax.random.key(5))
    start_key, _ = jax.random.split(jax.random.key(5))
    for world in range(3):
        key = jax.random.split(jax.random.fold_in(start_key, world), 3)[1]
        total, length = episode(policy, key, 7)
        np.testing.assert_allclose(result.episode_return[world], total, rtol=1e-4, atol=1e-4)
        assert result.episode_length[world] == length
    recorded = record(env(), policy, jax.random.key(6), 7)
    total, length = episode(policy, jax.random.split(jax.random.key(6))[0], 7)
    assert len(recorded.reward) == length
    np.testing.assert_allclose(recorded.reward.sum(), total, rtol=1e-4, atol=1e-4)


class Latest(Network):
    """A network of one's own: it sees the observation before beside the present one."""

    head: Any

    def start(self, *lead: int) -> Any:
        return jnp.zeros((*lead, 4))

    def step(self, memory: Any, x: Any) -> Any:
        return x, self.head(jnp.concatenate([x, memory], axis=-1))


def latest_networks(key: Any, nobs: int, ncritic: int, nact: int) -> ActorCritic:
    """A policy with a memory, and a critic without."""
    mean = MLP.initial(key, (2 * nobs, 4, nact), "tanh", last_gain=1.0)
    critic = MLP.initial(jax.random.key(9), (ncritic, 4, 1), "tanh", last_gain=1.0)
    return ActorCritic(Latest(Actor(mean, jnp.zeros(nact))), critic)


def test_a_memory_of_ones_own(tmp_path):
    config = dataclasses.replace(CONFIG, recurrent_size=0)
    mine = ppo(worlds(), config, networks=latest_networks)
    state = mine.init(jax.random.key(2))
    before = state.learning.networks
    state, metrics = mine.update(state)
    assert np.isfinite(metrics["loss/policy"]) and state.learning.critic_memory == ()
    changed = jax.tree.map(lambda a, b: bool((a != b).any()), before, state.learning.networks)
    assert all(jax.tree.leaves(changed))
    # What it remembers is what it saw last, normalised as it was then.
    assert state.acting.memory.shape == (B, 4) and np.any(state.acting.memory)
    policy = mine.policy(state)
    loaded = load_policy(save_policy(tmp_path, policy), kinds=[Latest])
    obs = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(
        loaded.step(obs, loaded.start(2))[0], policy.step(obs, policy.start(2))[0]
    )
    with pytest.raises(ConfigError, match="4 worlds do not divide into 3 minibatches of whole"):
        odd = dataclasses.replace(config, minibatches=3)
        ppo(worlds(), odd, networks=latest_networks).init(jax.random.key(0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"recurrent_size": -1}, "recurrent_size is -1"),
        ({"minibatches": 3}, "4 worlds do not divide into 3 minibatches of whole worlds"),
        ({"random_shift": 2}, "networks with a memory do not support image augmentation"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(CONFIG, **change)


def test_nothing_is_traced_again():
    state, before = begun(), TRACES.copy()
    assert before["act"] >= 1 and before["learn"] >= 1
    state = learner().init(jax.random.key(7))
    for _ in range(2):
        state, _ = learner().update(state)
    assert before == TRACES


@pytest.mark.slow
def test_on_the_command_line(tmp_path):
    """Two seeds with a memory: trained, evaluated, and taken away."""
    sizes = ["--num-worlds", "4", "--unroll-length", "8", "--minibatches", "2", "--epochs", "1"]
    memory = ["--recurrent-size", "4", "--seeds", "2"]
    folder = str(tmp_path / "run")
    short = ["--steps", "64", "--eval-episodes", "2", "--no-video", "--quiet", "--out", folder]
    with jax.debug_key_reuse(False):  # it takes one seed's key for those of all
        assert cli.main(["train", "gym/inverted-pendulum", *sizes, *memory, *short]) == 0
        assert cli.main(["eval", folder, "--episodes", "2"]) == 0
    assert worldline.load_policy(folder).start().shape == (4,)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Unsteady(InvertedPendulum):
    """The pole on a cart, without its velocities: what to do depends on what was."""

    def observe(self, physics: Any, memory: Any) -> jax.Array:
        return physics.qpos


@pytest.mark.slow
@pytest.mark.exhaustive
def test_only_a_memory_balances_a_pole_whose_velocity_is_hidden():
    hidden = Env(Unsteady(), "native")
    returns = {}
    for size in (0, 32):
        config = PPOConfig(num_worlds=32, unroll_length=64, minibatches=8, recurrent_size=size)
        learner = ppo(Worlds(hidden, config.num_worlds), config)
        state = learner.init(jax.random.key(0))
        for progress in run(learner, state, steps=65_536):
            state = progress.state
        evaluation = evaluator(hidden, 16)(learner.policy(state), jax.random.key(1))
        returns[size] = float(evaluation.episode_return.mean())
    assert returns[0] < 100  # of 1000
    assert returns[32] > 900
