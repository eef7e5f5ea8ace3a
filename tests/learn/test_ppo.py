"""PPO: its gradient, its two programs, exact repetition, and problems with known answers."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from worldline.env.env import Env
from worldline.env.task import Outcome, Start, Task
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError
from worldline.learn.networks.actor_critic import Segments
from worldline.learn.ppo import Batch, PPOConfig, clipped_loss, ppo, with_hyperparameters
from worldline.learn.ppo import update as ppo_module
from worldline.learn.rollout import evaluator, unroll
from worldline.learn.run import run

SMALL = PPOConfig(num_worlds=8, unroll_length=16, minibatches=4, epochs=2, actor_hidden=(16,))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Probe(Task):
    """A task whose answer is known: its reward is a function of the action alone."""

    episode_length: int = 1
    ends: bool = True

    @property
    def control_timestep(self) -> float:
        return 0.01

    def mjcf(self) -> str:
        return toys.PENDULUM

    def start(self, key: jax.Array) -> Start:
        return Start(jax.random.uniform(key, (1,)), jnp.zeros(1))

    def observe(self, physics: Any, memory: Any) -> jax.Array:
        return jnp.ones(1)

    def outcome(self, before: Any, action: jax.Array, after: Any, memory: Any) -> Outcome:
        return Outcome(-jnp.sum((action - 0.3) ** 2), jnp.asarray(self.ends))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Constant(Probe):
    """Reward 1 a step, whatever is done."""

    def outcome(self, before: Any, action: jax.Array, after: Any, memory: Any) -> Outcome:
        return Outcome(jnp.float32(1.0), jnp.asarray(self.ends))


#: Tasks that tests share, and with them the compiled programs of a learner.
PROBE, LONG_PROBE = Probe(), Probe(episode_length=5, ends=False)


@functools.cache
def learner_of(task: Task, config: PPOConfig) -> Any:
    return ppo(Worlds(Env(task, "fake"), config.num_worlds), config)


def one_sample(obs: jax.Array, distribution: Any, action: jax.Array) -> Batch:
    """An action `(1, nact)` without value or advantage."""
    seen = {"state": obs}
    return Batch(
        segments=Segments(seen, seen, jnp.zeros(1, bool), (), ()),
        action=action,
        log_prob=distribution.log_prob(action),
        distribution=distribution,
        value=jnp.zeros(1),
        advantage=jnp.zeros(1),
        target=jnp.zeros(1),
    )


def bits(tree: Any) -> list[np.ndarray]:
    def plain(x: jax.Array) -> np.ndarray:
        is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(x) if is_key else x)

    return [plain(x) for x in jax.tree.leaves(tree)]


def test_the_first_gradient_is_the_policy_gradient() -> None:
    """Before any step the ratio is 1: the objective's gradient is that of E[A log pi]."""
    worlds = Worlds(Env(LONG_PROBE, "fake"), SMALL.num_worlds)
    learner = learner_of(LONG_PROBE, SMALL)
    state = learner.init(jax.random.key(0))
    policy = learner.policy(state)
    _, rollout, _ = unroll(worlds, state.acting.worlds, policy, state.acting.key, 16)
    batch, learning = ppo_module.prepare(SMALL, state.learning, rollout)
    numbers = with_hyperparameters(state, value_weight=0.0).learning.hyperparameters

    def ours(networks: Any) -> jax.Array:
        return clipped_loss(networks, batch, numbers)[0]

    def theirs(networks: Any) -> jax.Array:
        return -(
            networks.actor(batch.segments.obs["state"]).log_prob(batch.action) * batch.advantage
        ).mean()

    _, measured = clipped_loss(learning.networks, batch, numbers)
    assert abs(float(measured["ppo/kl"])) < 1e-6
    assert float(measured["ppo/clip_fraction"]) == 0.0
    for a, b in zip(
        jax.tree.leaves(jax.grad(ours)(learning.networks)),
        jax.tree.leaves(jax.grad(theirs)(learning.networks)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_the_ratio_is_clipped_on_the_side_that_would_gain() -> None:
    """At ratio e^0.5 the gradient is gone for a good action and alive for a bad one."""
    learner = learner_of(PROBE, SMALL)
    learning = learner.init(jax.random.key(0)).learning
    networks = learning.networks
    obs = jnp.ones((1, 1))
    distribution = networks.actor(obs)
    action = distribution.mean + 0.1
    batch = one_sample(obs, distribution, action)
    batch = batch._replace(log_prob=batch.log_prob - 0.5, advantage=jnp.ones(1))

    def actor_gradient(batch: Any) -> float:
        gradient = jax.grad(lambda n: clipped_loss(n, batch, learning.hyperparameters)[0])(networks)
        return float(jnp.abs(gradient.actor.mean.biases[-1]).max())

    assert actor_gradient(batch) == 0.0
    assert actor_gradient(batch._replace(advantage=-batch.advantage)) > 0.01


@pytest.mark.parametrize(("log_std", "earned"), [(-1.0, 1.0), (0.5, 0.0)])
def test_entropy_earns_until_the_spread_is_half_the_range(log_std: float, earned: float) -> None:
    """The entropy of a normal distribution grows by 1 with its log deviation."""
    learner = learner_of(PROBE, SMALL)
    learning = learner.init(jax.random.key(0)).learning
    spread = jnp.full_like(learning.networks.actor.log_std, log_std)
    networks = eqx.tree_at(lambda n: n.actor.log_std, learning.networks, spread)
    obs = jnp.ones((1, 1))
    distribution = networks.actor(obs)
    batch = one_sample(obs, distribution, distribution.mean)
    numbers = dataclasses.replace(learning.hyperparameters, entropy_weight=jnp.float32(2.0))
    gradient = jax.grad(lambda n: clipped_loss(n, batch, numbers)[0])(networks)
    np.testing.assert_allclose(gradient.actor.log_std, -2.0 * earned, atol=1e-6)


@pytest.mark.parametrize("squash", ["clip", "tanh"])
def test_actions_beyond_the_bounds_earn_less_entropy_where_tanh_bounds_them(squash: str) -> None:
    config = dataclasses.replace(SMALL, squash=squash, entropy_weight=1.0, normalize_rewards=False)
    losses, learner = [], learner_of(PROBE, config)
    for mean in (0.0, 3.0):
        state = learner.init(jax.random.key(0))
        networks = state.learning.networks
        bias = jnp.full_like(networks.actor.mean.biases[-1], mean)
        far = eqx.tree_at(lambda n: n.actor.mean.biases[-1], networks, bias)
        learning = dataclasses.replace(state.learning, networks=far)
        _, metrics = learner.update(dataclasses.replace(state, learning=learning))
        losses.append(float(metrics["loss/entropy"]))
    if squash == "clip":
        np.testing.assert_allclose(*losses, atol=0.1)
    else:
        assert losses[1] < losses[0] - 2


def test_two_programs_each_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = {"act": 0, "learn": 0}

    def counted(name: str, function: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            traces[name] += 1
            return function(*args, **kwargs)

        return wrapper

    monkeypatch.setattr(ppo_module, "learn", counted("learn", ppo_module.learn))
    worlds = Worlds(Env(PROBE, "fake"), SMALL.num_worlds)
    learner = ppo(worlds, SMALL, rollout=counted("act", unroll))
    for seed in range(2):
        state = learner.init(jax.random.key(seed))
        for _ in range(3):
            state, _ = learner.update(state)
        changed = {field.name: 0.5 for field in dataclasses.fields(state.learning.hyperparameters)}
        learner.update(with_hyperparameters(state, **changed))
    assert traces == {"act": 1, "learn": 1}


def test_the_same_seed_gives_the_same_bits() -> None:
    learner = learner_of(PROBE, SMALL)

    def train(seed: int) -> list[np.ndarray]:
        state = learner.init(jax.random.key(seed))
        for _ in range(3):
            state, _ = learner.update(state)
        return bits(state)

    first, again, other = train(0), train(0), train(1)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_stopping_half_way_and_going_on_gives_the_same_bits() -> None:
    """The training state is all there is: a copy of it in another learner goes on as the first."""
    one, other = learner_of(PROBE, SMALL), learner_of.__wrapped__(PROBE, SMALL)
    state = one.init(jax.random.key(3))
    for _ in range(2):
        state, _ = one.update(state)
    leaves, structure = jax.tree.flatten(state)
    copied = jax.tree.unflatten(structure, [jnp.copy(leaf) for leaf in leaves])
    for a, b in zip(bits(one.update(state)), bits(other.update(copied)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_finds_the_best_action() -> None:
    config = dataclasses.replace(SMALL, num_worlds=32, learning_rate=3e-3, epochs=4)
    learner = learner_of(PROBE, config)
    for progress in run(learner, learner.init(jax.random.key(0)), 32 * 16 * 40):
        state = progress.state
    action = learner.policy(state)(np.ones(1, np.float32))
    np.testing.assert_allclose(action, [0.3], atol=0.05)


@pytest.mark.parametrize(("ends", "value"), [(True, 1.0), (False, 10.0)])
def test_value_ends_at_a_termination_and_goes_on_over_a_time_limit(
    ends: bool, value: float
) -> None:
    """Reward 1 a step, discount 0.9: worth 1 if each step is the last, 10 if time just ran out."""
    config = dataclasses.replace(
        SMALL, discount=0.9, learning_rate=1e-2, target_kl=0.0, normalize_rewards=False
    )
    learner = learner_of(Constant(episode_length=1, ends=ends), config)
    state = learner.init(jax.random.key(0))
    for _ in range(150):
        state, _ = learner.update(state)
    learning = state.learning
    obs = learning.statistics.critic.normalize(state.acting.worlds.obs)
    np.testing.assert_allclose(learning.networks.critic(obs)[:, 0], value, rtol=0.03)


@pytest.mark.parametrize("bad", ["qpos", "obs"])
def test_bad_starts_are_counted_and_reach_no_weight(bad: str, nans_allowed: None) -> None:
    learner = learner_of(toys.BadStart(bad=bad), SMALL)
    state = learner.init(jax.random.key(0))
    for _ in range(2):
        state, metrics = learner.update(state)
        assert metrics["train/diverged"] > 0
        for leaf in jax.tree.leaves((state.learning, metrics)):
            assert jnp.isfinite(leaf).all()


def test_summary_counts_the_episodes_that_ended() -> None:
    learner = learner_of(Constant(episode_length=4, ends=False), SMALL)
    state, first = learner.update(learner.init(jax.random.key(0)))
    # Of 8 worlds two begin with an episode of 4 steps, two of 3, two of 2 and two of 1.
    assert float(first["train/episodes"]) == 8 * 16 / 4
    assert float(first["train/episode_length"]) == (2 * (1 + 2 + 3 + 4) + 24 * 4) / 32
    _, metrics = learner.update(state)
    assert float(metrics["train/return"]) == 4.0
    assert float(metrics["train/episode_length"]) == 4.0
    assert float(metrics["train/episodes"]) == 8 * 16 / 4
    assert float(metrics["train/diverged"]) == 0


def test_evaluation_equals_episodes_by_hand() -> None:
    env = Env(Probe(episode_length=3, ends=False), "fake")
    learner = ppo(Worlds(env, SMALL.num_worlds), SMALL)
    policy = learner.policy(learner.init(jax.random.key(1)))
    result = evaluator(env, 5)(policy, jax.random.key(2))
    action = policy(np.ones(1, np.float32))
    np.testing.assert_allclose(result.episode_return, 3 * -((action - 0.3) ** 2).sum(), rtol=1e-5)
    assert result.episode_length.tolist() == [3] * 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_worlds": 0}, "num_worlds is 0"),
        ({"minibatches": 7}, "7 minibatches"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0"),
        ({"discount": 1.5}, "discount is 1.5"),
        ({"advantage_floor": -0.1}, "advantage_floor is -0.1"),
        ({"activation": "sigmoid"}, "give 'tanh' or"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(SMALL, **change)


def test_the_number_of_worlds_must_be_the_configurations() -> None:
    with pytest.raises(ConfigError, match="4 worlds, but num_worlds is 8"):
        ppo(Worlds(Env(Probe(), "fake"), 4), SMALL)
