"""SAC: densities and targets by hand, its two programs, exact repetition, and known answers."""

import dataclasses
import functools
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
import worldline
from worldline.env.env import Env
from worldline.env.task import Outcome, Start, Task
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError
from worldline.learn.curriculum import automatic
from worldline.learn.hyperparameters import with_hyperparameters
from worldline.learn.networks.mlp import Gaussian, log_tanh_slope
from worldline.learn.placement import on_devices
from worldline.learn.population import population
from worldline.learn.rollout import evaluator
from worldline.learn.run import run
from worldline.learn.sac import SACConfig, memory, sac
from worldline.learn.sac import update as sac_module
from worldline.learn.sac.loss import Batch, soft_target
from worldline.learn.sac.networks import squashed_draw, values
from worldline.parallel.mesh import BY_WORLD
from worldline.variation import Domain, Uniform, scale

SMALL = SACConfig(
    num_worlds=4,
    unroll_length=4,
    critic_steps=8,
    batch_size=16,
    replay_capacity=512,
    learning_starts=16,
    actor_hidden=(16,),
    critic_hidden=(16,),
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Probe(Task):
    """Episodes of one step, of three kinds, and the observation tells which.

    The first two have reward 1, and end by a termination or by the time limit; the third has the
    negative squared distance of the action from 0.3, and ends by a termination.
    """

    episode_length: int = 1

    @property
    def control_timestep(self) -> float:
        return 0.01

    def mjcf(self) -> str:
        return toys.PENDULUM

    def start(self, key: jax.Array) -> Start:
        return Start(jnp.zeros(1), jnp.zeros(1), memory=jax.random.randint(key, (), 0, 3))

    def observe(self, physics: Any, memory: jax.Array) -> jax.Array:
        return jax.nn.one_hot(memory, 3)

    def outcome(self, before: Any, action: jax.Array, after: Any, memory: jax.Array) -> Outcome:
        reward = jnp.where(memory == 2, -((action[0] - 0.3) ** 2), 1.0)
        return Outcome(reward, memory != 1, memory)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Watched(toys.Puck):
    """The puck, of which the critics see more than the policy, and nobody the picture."""

    def observe(self, physics: Any, memory: Any) -> Any:
        return {
            "state": physics.qpos,
            "privileged_state": physics.qvel,
            "pixels/eye": jnp.zeros((2, 2), jnp.uint8),
        }


#: Long enough for episodes to end at different times: some steps end one, most do not.
PUCK = toys.Puck(episode_length=7, wall=0.6)


@functools.cache
def learner_of(task: Task, config: SACConfig) -> Any:
    return sac(Worlds(Env(task, "fake"), config.num_worlds), config)


def bits(tree: Any) -> list[np.ndarray]:
    def plain(x: jax.Array) -> np.ndarray:
        is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(x) if is_key else x)

    return [plain(x) for x in jax.tree.leaves(tree)]


def trained(learner: Any, state: Any, updates: int) -> Any:
    for _ in range(updates):
        state, _ = learner.update(state)
    return state


# --- by hand


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.7, 0.3), (-1.5, 0.8)])
def test_the_density_of_an_action_is_that_of_what_is_drawn(mean: float, std: float) -> None:
    """Its integral over the actions is 1, and over those below a it is the share of draws there."""
    noise = np.linspace(-7, 7, 4001)[:, None].astype(np.float32)
    distribution = Gaussian(jnp.full(1, mean), jnp.full(1, np.float32(np.log(std))))
    action, log_prob = squashed_draw(distribution, noise, jnp.ones(1, bool))
    exact = np.tanh(mean + std * noise[:, 0].astype(np.float64))
    np.testing.assert_allclose(action[:, 0], exact, atol=1e-6)
    density = np.exp(np.asarray(log_prob, np.float64))
    share = np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(exact))
    gauss = np.exp(-0.5 * noise[:, 0].astype(np.float64) ** 2) / np.sqrt(2 * np.pi)
    drawn = np.cumsum(0.5 * (gauss[1:] + gauss[:-1]) * np.diff(noise[:, 0]))
    np.testing.assert_allclose(share, drawn, atol=2e-4)
    np.testing.assert_allclose(share[-1], 1.0, atol=2e-4)


def test_actions_without_bounds_keep_the_density_of_the_normal_distribution() -> None:
    distribution = Gaussian(jnp.array([0.5, -1.0]), jnp.log(jnp.array([2.0, 0.5])))
    bounded = jnp.array([True, False])
    action, log_prob = squashed_draw(distribution, jnp.array([1.0, -2.0]), bounded)
    np.testing.assert_allclose(action, [np.tanh(2.5), -2.0], rtol=1e-6)
    normal = -0.5 * (1 + 4) - np.log(2 * np.pi) - np.log(2.0 * 0.5)
    np.testing.assert_allclose(log_prob, normal - np.log(1 - np.tanh(2.5) ** 2), rtol=1e-5)


def test_the_slope_of_tanh_is_exact_far_from_zero() -> None:
    x = np.array([0.0, 0.5, -3.0, 20.0, -40.0])
    exact = -2 * np.log(np.cosh(x))  # 1 - tanh^2 = 1 / cosh^2; float64 holds it
    np.testing.assert_allclose(log_tanh_slope(jnp.asarray(x, jnp.float32)), exact, atol=1e-6)


def constant(network: Any, output: Any) -> Any:
    """A network that gives the same whatever it is given."""
    still = jax.tree.map(jnp.zeros_like, network)
    return eqx.tree_at(lambda n: n.biases[-1], still, jnp.asarray(output, jnp.float32))


def test_the_target_stops_at_a_termination_and_nowhere_else() -> None:
    """Reward 2, discount 0.9, critics that say 5 and 7, temperature 0.5, one action drawn at 0."""
    networks = learner_of(PUCK, SMALL).init(jax.random.key(0)).learning.networks
    networks = dataclasses.replace(
        networks,
        actor=dataclasses.replace(
            networks.actor, network=constant(networks.actor.network, np.zeros(4))
        ),
        log_temperature=jnp.log(0.5),
    )
    critics = constant(networks.critics, [[5.0], [7.0]])
    batch = Batch(
        obs={"state": jnp.zeros((2, 4))},
        critic_obs={"state": jnp.zeros((2, 4))},
        action=jnp.zeros((2, 2)),
        reward=jnp.full(2, 2.0),
        terminated=jnp.array([False, True]),
        next_obs={"state": jnp.ones((2, 4))},
        next_critic_obs={"state": jnp.ones((2, 4))},
        noise=jnp.zeros((2, 2)),
    )
    bounded = jnp.ones(2, bool)
    target = soft_target(networks, critics, batch, jnp.float32(0.9), bounded)
    entropy = np.log(2 * np.pi)  # minus the log density at 0 of two standard normals; tanh'(0) = 1
    np.testing.assert_allclose(target, [2 + 0.9 * (5 + 0.5 * entropy), 2.0], rtol=1e-6)


@functools.cache
def solved_probe() -> tuple[Any, Any]:
    """A learner of the probe, at discount 0.9, and its state when it has nothing more to learn."""
    config = dataclasses.replace(
        SMALL,
        critic_steps=64,
        batch_size=32,
        discount=0.9,
        learning_rate=3e-3,
        critic_learning_rate=5e-3,
        target_rate=0.1,
        initial_temperature=1e-6,
    )
    learner = learner_of(Probe(), config)
    return learner, trained(learner, learner.init(jax.random.key(0)), 60)


def test_value_ends_at_a_termination_and_goes_on_over_a_time_limit() -> None:
    """Reward 1 a step, discount 0.9: worth 1 if each step is the last, 10 if time just ran out."""
    learning = solved_probe()[1].learning
    obs = learning.statistics.critic.normalize(jnp.eye(3)[:2])
    action = jnp.tanh(
        learning.networks.actor(learning.statistics.actor.normalize(jnp.eye(3)[:2])).mean
    )
    value = values(learning.networks.critics, obs, action)
    np.testing.assert_allclose(value, [[1.0, 10.0], [1.0, 10.0]], rtol=0.05)


def test_finds_the_best_action() -> None:
    learner, state = solved_probe()
    action = learner.policy(state)(np.array([0, 0, 1], np.float32))
    np.testing.assert_allclose(action, [0.3], atol=0.05)


# --- the learner


def test_what_is_remembered_is_what_happened() -> None:
    """The worlds stepped by hand with the actions remembered: the same observations and rewards."""
    worlds = Worlds(Env(PUCK, "fake"), SMALL.num_worlds)
    learner = learner_of(PUCK, dataclasses.replace(SMALL, replay_groups=1))
    state = learner.init(jax.random.key(5))
    by_hand = state.acting.worlds
    state = trained(learner, with_hyperparameters(state, learning_starts=1000), 4)
    total = 4 * learner.steps_per_update
    remembered = state.replay.at(jnp.arange(total))
    ends = 0
    for time in range(total // SMALL.num_worlds):
        rows = slice(time * SMALL.num_worlds, (time + 1) * SMALL.num_worlds)
        row = jax.tree.map(lambda x: x[rows], remembered)  # noqa: B023
        np.testing.assert_allclose(row.obs, by_hand.obs, atol=1e-6)
        by_hand, step = worlds.step(by_hand, row.action)
        np.testing.assert_allclose(row.next_obs, step.final_obs, atol=1e-6)
        np.testing.assert_allclose(row.reward, step.reward, atol=1e-6)
        np.testing.assert_array_equal(row.terminated, step.terminated)
        ends += int((step.terminated | step.truncated).sum())
    assert ends > SMALL.num_worlds
    assert float(remembered.terminated.sum()) not in (0, ends)  # both kinds of ends are in it


def test_nothing_is_learnt_before_learning_starts() -> None:
    learner = learner_of(PUCK, SMALL)
    first = learner.init(jax.random.key(0))
    state = trained(learner, with_hyperparameters(first, learning_starts=17), 1)
    for a, b in zip(bits(first.learning.networks), bits(state.learning.networks), strict=True):
        np.testing.assert_array_equal(a, b)
    assert int(state.replay.size.sum()) == learner.steps_per_update
    state = trained(learner, state, 1)
    changed = zip(bits(first.learning.networks), bits(state.learning.networks), strict=True)
    assert all(not np.array_equal(a, b) for a, b in changed)


def test_the_first_actions_are_spread_over_the_whole_range() -> None:
    learner = learner_of(PUCK, SMALL)
    policy = learner.policy(learner.init(jax.random.key(0)))
    obs = np.random.default_rng(0).normal(size=(4000, 4)).astype(np.float32)
    action = policy(obs, jax.random.key(1))
    quarters = np.histogram(action, bins=4, range=(-1, 1))[0] / action.size
    assert quarters.min() > 0.15
    np.testing.assert_allclose(quarters, quarters[::-1], atol=0.03)


def test_the_temperature_goes_where_the_entropy_is_wanted() -> None:
    learner = learner_of(PUCK, SMALL)
    first = learner.init(jax.random.key(0))
    temperatures = []
    with jax.debug_key_reuse(False):  # both begin in the same state
        for wanted in (-50.0, 50.0):  # far below and far above what the policy has
            state = trained(learner, with_hyperparameters(first, target_entropy=wanted), 3)
            temperatures.append(float(jnp.exp(state.learning.networks.log_temperature)))
    assert temperatures[0] < SMALL.initial_temperature < temperatures[1]


def test_two_programs_each_traced_once_and_exact_from_a_saved_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The training state is all there is: a copy of it in another learner goes on as the first.

    With masses that are drawn each episode, from ranges that a curriculum widens.
    """
    traces = {"act": 0, "learn": 0}

    def counted(name: str, function: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            traces[name] += 1
            return function(*args, **kwargs)

        return wrapper

    monkeypatch.setattr(sac_module, "collect", counted("act", sac_module.collect))
    monkeypatch.setattr(sac_module, "learn", counted("learn", sac_module.learn))
    domain = Domain(scale("body_mass", Uniform(1.0, 1.0)))
    widest = {"body_mass": Uniform(0.5, 2.0)}
    wider = automatic(domain.ranges, widest, widen_at=-99.0, narrow_at=-99.0, updates=20)

    def learner() -> Any:
        worlds = Worlds(Env(PUCK, "fake"), SMALL.num_worlds, domain=domain)
        return sac(worlds, SMALL, curriculum=wider)

    one, other = learner(), learner()
    state = trained(one, one.init(jax.random.key(3)), 4)
    assert float(state.acting.worlds.ranges["body_mass"].high) > 1.0
    leaves, structure = jax.tree.flatten(state)
    copied = jax.tree.unflatten(structure, [jnp.copy(leaf) for leaf in leaves])
    first, second = trained(one, state, 4), trained(other, copied, 4)
    for a, b in zip(bits(first), bits(second), strict=True):
        np.testing.assert_array_equal(a, b)

    changed = {field.name: 0.5 for field in dataclasses.fields(sac_module.Hyperparameters)}
    trained(one, with_hyperparameters(first, **changed), 1)
    trained(one, one.init(jax.random.key(4)), 1)
    assert traces == {"act": 2, "learn": 2}  # two learners


def test_an_update_leaves_the_state_it_was_given_as_it_was() -> None:
    learner = learner_of(PUCK, SMALL)
    state = trained(learner, learner.init(jax.random.key(4)), 2)
    before = [np.copy(x) for x in bits(state)]
    trained(learner, state, 1)
    for a, b in zip(before, bits(state), strict=True):
        np.testing.assert_array_equal(a, b)


def many(learner: Any) -> tuple[Any, Any]:
    members = population(learner)
    return members, members.init(jax.random.split(jax.random.key(5), 2))


def spread(learner: Any) -> tuple[Any, Any]:
    mesh = jax.make_mesh((1,), tuple(BY_WORLD), (jax.sharding.AxisType.Auto,))
    placed = on_devices(learner, mesh)
    return placed, placed.init(jax.random.key(5))


def single(learner: Any) -> tuple[Any, Any]:
    return learner, learner.init(jax.random.key(5))


@pytest.mark.parametrize(
    "made", [single, *(pytest.param(m, marks=pytest.mark.exhaustive) for m in (many, spread))]
)
def test_a_run_reuses_the_replay_buffer_and_learns_what_updates_by_hand_do(
    made: Any, nans_allowed: None
) -> None:
    """Without JAX's check for NaN, under which it does not reuse arrays."""
    learner, first = made(sac(Worlds(Env(PUCK, "fake"), SMALL.num_worlds), SMALL))
    by_hand = trained(learner, first, 3)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(first))
    progress, older = None, []
    with jax.debug_key_reuse(False):  # both begin in the same state
        for progress in run(learner, first, 3 * learner.steps_per_update):
            older.append(progress.state)
    for state in (first, *older[:-1]):
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state.replay.observations))
    assert progress is not None
    for a, b in zip(bits(progress.state), bits(by_hand), strict=True):
        np.testing.assert_array_equal(a, b)
    learner.policy(progress.state)


#: Trains with a small replay buffer, to have all else in memory, then with one of 400 MB.
MEMORY = """
import dataclasses, resource, jax, jax.numpy as jnp, toys
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.learn.run import run
from worldline.learn.sac import SACConfig, sac

class Wide(toys.Puck):
    def observe(self, physics, memory):
        return jnp.pad(physics.qpos, (0, 1000 - physics.qpos.size))

def trained(capacity):
    config = SACConfig(num_worlds=4, unroll_length=4, critic_steps=8, batch_size=16,
        replay_capacity=capacity, learning_starts=16, actor_hidden=(16,), critic_hidden=(16,))
    learner = sac(Worlds(Env(Wide(episode_length=7), "fake"), 4), config)
    for progress in run(learner, learner.init(jax.random.key(0)), 64):
        state = progress.state
    return jax.block_until_ready(state.replay)

def peak():
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1000 * kilobytes

trained(512)
before = peak()
replay = trained(100_000)
print((peak() - before) / sum(leaf.nbytes for leaf in jax.tree.leaves(replay)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak has another unit, or none")
@pytest.mark.exhaustive  # compiles in a process of its own
def test_a_run_holds_the_replay_buffer_once() -> None:
    path = os.pathsep.join([str(Path(toys.__file__).parent), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", MEMORY]
    grown = subprocess.check_output(command, env=environment, text=True, timeout=300)
    assert float(grown.splitlines()[-1]) < 1.7


@pytest.mark.parametrize("capacity", [600, 1000])
def test_a_replay_buffer_for_which_there_is_no_memory_is_refused(
    monkeypatch: pytest.MonkeyPatch, capacity: int
) -> None:
    """A checkpoint on a CPU needs it once more: all of the memory is too much for it."""
    learner = learner_of(PUCK, SMALL)
    replay = learner.init(jax.random.key(0)).replay
    pages = 2 * sum(leaf.nbytes for leaf in jax.tree.leaves(replay))
    sizes = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": pages}
    monkeypatch.setattr(memory, "os", types.SimpleNamespace(sysconf=sizes.get))
    learner_of(PUCK, SMALL).init(jax.random.key(0))
    config = dataclasses.replace(SMALL, replay_capacity=capacity)
    with pytest.raises(ConfigError, match=r"lower replay_capacity, to 512 or less"):
        learner_of(PUCK, config).init(jax.random.key(0))


def test_a_population_learns_as_its_members_would_alone() -> None:
    learner = learner_of(PUCK, SMALL)
    keys = jax.random.split(jax.random.key(7), 2)
    together = jax.vmap(learner.init)(keys)
    update = jax.vmap(learner.update)
    for _ in range(2):
        together, metrics = update(together)
    with jax.debug_key_reuse(False):
        alone = learner.init(keys[1])
    for _ in range(2):
        alone, of_one = learner.update(alone)
    np.testing.assert_allclose(metrics["loss/critic"][1], of_one["loss/critic"], rtol=1e-4)
    for a, b in zip(bits(together.learning), bits(alone.learning), strict=True):
        np.testing.assert_allclose(a[1], b, rtol=1e-3, atol=1e-4)


def test_the_critics_may_see_more_than_the_policy() -> None:
    learner = learner_of(Watched(), SMALL)
    state, metrics = learner.update(learner.init(jax.random.key(0)))
    assert float(metrics["loss/critic"]) > 0
    assert state.learning.statistics.actor.mean.shape == (2,)
    assert state.learning.statistics.critic.mean.shape == (4,)
    assert set(state.replay.observations) == {"state", "privileged_state"}
    policy = learner.policy(state)
    assert policy({"state": np.zeros((5, 2), np.float32)}).shape == (5, 2)
    blind = dataclasses.replace(SMALL, critic_obs=("state",))
    state = jax.eval_shape(learner_of(Watched(), blind).init, jax.random.key(0))
    assert set(state.replay.observations) == {"state"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_worlds": 0}, "num_worlds is 0"),
        ({"actor_delay": 3}, "critic_steps is 8, not a multiple of actor_delay"),
        ({"replay_groups": 3}, "replay_groups is 3: it must divide 4 worlds"),
        ({"replay_capacity": 31}, "4 worlds x 4 steps need 32 or more"),
        ({"critic_learning_rate": -1.0}, "critic_learning_rate is -1.0"),
        ({"target_rate": 1.5}, "target_rate is 1.5"),
        ({"activation": "sigmoid"}, "give 'tanh' or"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(SMALL, **change)


def test_the_number_of_worlds_must_be_the_configurations() -> None:
    with pytest.raises(ConfigError, match="3 worlds, but num_worlds is 4"):
        sac(Worlds(Env(PUCK, "fake"), 3), SMALL)


@pytest.mark.slow
def test_balances_the_pendulum() -> None:
    env = worldline.make("gym/inverted-pendulum")
    config = SACConfig(**env.task.defaults["sac"])
    learner = sac(Worlds(env, config.num_worlds), config)
    evaluate, returns = evaluator(env, 8), []
    for progress in run(learner, learner.init(jax.random.key(0)), 20_000):
        if progress.step % 2048 == 0:
            result = evaluate(learner.policy(progress.state), jax.random.key(1))
            returns.append(float(result.episode_return.mean()))
    # How soon it does hangs on the last bits of a processor's arithmetic.
    assert max(returns) > 900
