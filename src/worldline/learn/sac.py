"""Soft actor-critic: Haarnoja et al. (2018), "Soft Actor-Critic Algorithms and Applications".

With what makes it good today: critics with layer normalisation (Hiraoka et al. 2022, "Dropout
Q-functions for doubly efficient reinforcement learning"; Ball et al. 2023, "Efficient online
reinforcement learning with offline data"), a policy that learns less often than the critics
(Fujimoto et al. 2018, "Addressing function approximation error in actor-critic methods"), and many
worlds that act side by side.

An update is two programs: one acts (a rollout, which calls the engine), one remembers and learns
(pure arithmetic, which JAX's compilation cache can keep between processes). Each is traced once.
Neither changes its arguments: who holds an older state can go on from it, which costs a copy of the
replay buffer an update.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from worldline.env.worlds import Worlds, WorldsState
from worldline.errors import ConfigError
from worldline.learn.curriculum import Curriculum, moved
from worldline.learn.nets import (
    ACTIVATIONS,
    MLP,
    Activation,
    Gaussian,
    StateDependentActor,
    log_tanh_slope,
)
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy, select
from worldline.learn.replay import Replay, Transitions
from worldline.learn.rollout import Rollout, unroll
from worldline.learn.run import Learner
from worldline.types import Array, Key, Metrics, Observation, PyTree
from worldline.variation.domain import Ranges


@dataclasses.dataclass(frozen=True, kw_only=True)
class SACConfig:
    """How SAC trains."""

    num_worlds: int = 16
    """Worlds that act side by side (B)."""
    unroll_length: int = 16
    """Control steps each world takes between two rounds of learning (T)."""
    critic_steps: int = 128
    """Gradient steps of the critics in a round; over num_worlds * unroll_length it is the number of
    them for each environment step."""
    actor_delay: int = 2
    """Gradient steps of the critics to one of the policy and the temperature; divides critic_steps.
    """
    batch_size: int = 256
    """Transitions that a gradient step looks at, drawn anew for each."""
    replay_capacity: int = 1_000_000
    """Transitions remembered."""
    learning_starts: int = 5000
    """Environment steps, over all worlds, before the first gradient step; the first policy's
    actions are spread over their whole range."""
    learning_rate: float = 3e-4
    """Of Adam, for the policy and the temperature."""
    critic_learning_rate: float = 1e-3
    """Of Adam, for the critics."""
    target_rate: float = 0.005
    """How far the target critics go to the critics in a gradient step, in (0, 1]."""
    discount: float = 0.99
    """Per control step."""
    target_entropy: float = -1.0
    """Entropy that the temperature holds the policy at: nats for each action, with actions in
    [-1, 1]."""
    initial_temperature: float = 0.1
    """Weight of the entropy before the first gradient step."""
    num_critics: int = 2
    """Critics of which the lowest counts."""
    actor_obs: tuple[str, ...] = ("state",)
    """Parts of a dict of observations that the policy reads."""
    critic_obs: tuple[str, ...] | None = None
    """Parts that the critics read; None: the policy's, and `privileged_state` where there is one.
    """
    normalize_observations: bool = True
    """By the running mean and variance of all observations."""
    layer_norm: bool = True
    """In the critics, before each activation."""
    actor_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the policy."""
    critic_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of each critic."""
    activation: Activation = "relu"
    """Between layers."""

    def __post_init__(self) -> None:
        sizes = ("num_worlds", "unroll_length", "critic_steps", "actor_delay", "batch_size")
        rates = ("learning_rate", "critic_learning_rate", "target_rate", "initial_temperature")
        for name in (*sizes, *rates, "num_critics"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be positive")
        for name in ("discount", "target_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be in [0, 1]")
        if self.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ConfigError(f"activation is {self.activation!r}; there are {known}")
        if self.critic_steps % self.actor_delay:
            raise ConfigError(
                f"critic_steps is {self.critic_steps} and actor_delay {self.actor_delay}; "
                "the first must be a multiple of the second"
            )
        steps = self.num_worlds * self.unroll_length
        if self.replay_capacity < 2 * steps:
            raise ConfigError(
                f"replay_capacity is {self.replay_capacity}; {self.num_worlds} worlds x "
                f"{self.unroll_length} steps need {2 * steps} or more"
            )


class Numbers(eqx.Module):
    """The configuration's numbers as arrays: changing one recompiles nothing."""

    learning_starts: Array
    learning_rate: Array
    critic_learning_rate: Array
    target_rate: Array
    discount: Array
    target_entropy: Array


class Networks(eqx.Module):
    """What gradients change."""

    actor: StateDependentActor
    critics: MLP
    """The values of an observation and an action; its leaves begin with the number of critics."""
    log_temperature: Array


class Acting(eqx.Module):
    """The part of the training state that acting reads and moves on."""

    worlds: WorldsState
    key: Key


class Learning(eqx.Module):
    """The part of the training state that learning reads and moves on; the replay is beside it."""

    networks: Networks
    target_critics: MLP
    optimizers: Networks
    """Adam's moments, in place of what they belong to."""
    statistics: RunningStatistics
    """Of what the policy observes."""
    critic_statistics: RunningStatistics
    """Of what the critics observe."""
    numbers: Numbers
    updates: Array
    """Updates so far, `()` int32."""


class SACState(eqx.Module):
    """All that training is, in one pytree."""

    acting: Acting
    learning: Learning
    replay: Replay
    key: Key
    """Of learning."""


def sac(
    worlds: Worlds, config: SACConfig, *, curriculum: Curriculum | None = None
) -> Learner[SACState]:
    """SAC on worlds.

    Args:
        worlds: where to act; as many as `config.num_worlds`.
        config: how to train.
        curriculum: moves the ranges that episodes are drawn from, after every update. It is
            compiled; the ranges keep their names and shapes.

    Raises:
        ConfigError: the number of worlds is not the configuration's.
    """
    if worlds.num_worlds != config.num_worlds:
        raise ConfigError(f"{worlds.num_worlds} worlds, but num_worlds is {config.num_worlds}")
    env = worlds.env
    low, high = jnp.asarray(env.action_low), jnp.asarray(env.action_high)
    bounded = jnp.isfinite(low) & jnp.isfinite(high)

    def policy(learning: Learning) -> Policy:
        return Policy(
            actor=learning.networks.actor,
            statistics=learning.statistics,
            low=low,
            high=high,
            squash="tanh",
            obs_keys=config.actor_obs,
        )

    @jax.jit
    def act(acting: Acting, policy: Policy) -> tuple[Acting, Rollout, Metrics]:
        key, unroll_key = jax.random.split(acting.key)
        state, rollout, summary = unroll(
            worlds, acting.worlds, policy, unroll_key, config.unroll_length
        )
        return Acting(state, key), rollout, summary

    @jax.jit
    def begin_learning(key: Key, obs: Observation) -> tuple[Learning, Replay]:
        learning = _begin_learning(config, key, obs, low.shape[0])
        return learning, Replay.empty(config.replay_capacity, _kept(config, obs), low.shape[0])

    @jax.jit
    def learn_from(
        learning: Learning,
        replay: Replay,
        ranges: Ranges,
        key: Key,
        rollout: Rollout,
        summary: Metrics,
    ) -> tuple[Learning, Replay, Ranges, Key, Metrics]:
        key, learn_key = jax.random.split(key)
        learning, replay = remember(config, learning, replay, rollout, bounded)
        learning, measured = learn(config, learning, replay, learn_key, bounded)
        learning = dataclasses.replace(learning, updates=learning.updates + 1)
        measured["train/updates"] = learning.updates
        metrics = {f"train/{name}": value for name, value in summary.items()} | measured
        if curriculum is not None:
            ranges = moved(curriculum, metrics, ranges)
        return learning, replay, ranges, key, metrics

    def init(key: Key) -> SACState:
        worlds_key, act_key, begin_key, learn_key = jax.random.split(key, 4)
        state = worlds.reset(worlds_key)
        learning, replay = begin_learning(begin_key, state.obs)
        return SACState(Acting(state, act_key), learning, replay, learn_key)

    def update(state: SACState) -> tuple[SACState, Metrics]:
        acting, rollout, summary = act(state.acting, policy(state.learning))
        learning, replay, ranges, key, metrics = learn_from(
            state.learning, state.replay, acting.worlds.ranges, state.key, rollout, summary
        )
        state_of_worlds = dataclasses.replace(acting.worlds, ranges=ranges)
        return SACState(Acting(state_of_worlds, acting.key), learning, replay, key), metrics

    return Learner(
        init=init,
        update=update,
        policy=lambda state: policy(state.learning),
        steps_per_update=config.num_worlds * config.unroll_length,
        parts=_PARTS,
    )


#: What another run may begin with.
_PARTS: dict[str, Callable[[SACState], PyTree]] = {
    "actor": lambda state: state.learning.networks.actor,
    "critic": lambda state: (state.learning.networks.critics, state.learning.target_critics),
    "statistics": lambda state: (state.learning.statistics, state.learning.critic_statistics),
}


def _critic_obs(config: SACConfig, obs: Observation) -> tuple[str, ...]:
    """The parts of an observation that the critics read."""
    if config.critic_obs is not None:
        return config.critic_obs
    privileged = isinstance(obs, dict) and "privileged_state" in obs
    return (*config.actor_obs, "privileged_state") if privileged else config.actor_obs


def _kept(config: SACConfig, obs: Observation) -> Observation:
    """The parts of an observation that a network reads."""
    if not isinstance(obs, dict):
        return obs
    return {key: select(obs, (key,)) for key in {*config.actor_obs, *_critic_obs(config, obs)}}


def _begin_learning(config: SACConfig, key: Key, obs: Observation, nact: int) -> Learning:
    """Networks, optimisers and statistics before any training."""
    actor_key, critic_key = jax.random.split(key)
    nobs = select(obs, config.actor_obs).shape[-1]
    ncritic = select(obs, _critic_obs(config, obs)).shape[-1]
    actor_sizes = (nobs, *config.actor_hidden, 2 * nact)
    critic_sizes = (ncritic + nact, *config.critic_hidden, 1)

    def critic(key: Key) -> MLP:
        return MLP.initial(
            key, critic_sizes, config.activation, last_gain=1.0, layer_norm=config.layer_norm
        )

    networks = Networks(
        # So small a last gain makes the first actions tanh of a standard normal, everywhere:
        # nearly uniform.
        actor=StateDependentActor(
            MLP.initial(actor_key, actor_sizes, config.activation, last_gain=0.01)
        ),
        critics=jax.vmap(critic)(jax.random.split(critic_key, config.num_critics)),
        log_temperature=jnp.log(jnp.float32(config.initial_temperature)),
    )
    return Learning(
        networks=networks,
        target_critics=networks.critics,
        optimizers=Networks(
            actor=_ADAM.init(networks.actor),
            critics=_ADAM.init(networks.critics),
            log_temperature=_ADAM.init(networks.log_temperature),
        ),
        statistics=RunningStatistics.zero((nobs,)),
        critic_statistics=RunningStatistics.zero((ncritic,)),
        numbers=Numbers(
            **{
                field.name: jnp.float32(getattr(config, field.name))
                for field in dataclasses.fields(Numbers)
            }
        ),
        updates=jnp.int32(0),
    )


_ADAM = optax.scale_by_adam()


def remember(
    config: SACConfig, learning: Learning, replay: Replay, rollout: Rollout, bounded: Array
) -> tuple[Learning, Replay]:
    """A rollout put into the replay buffer and the statistics. Pure."""
    steps = Transitions(
        obs=_kept(config, rollout.obs),
        action=_squashed(rollout.action, bounded),
        reward=rollout.reward,
        terminated=rollout.terminated,
        next_obs=_kept(config, rollout.final_obs),
    )
    if config.normalize_observations:
        obs, critic_obs = _read(config, rollout.obs)
        learning = dataclasses.replace(
            learning,
            statistics=learning.statistics.update(obs),
            critic_statistics=learning.critic_statistics.update(critic_obs),
        )
    return learning, replay.push(steps, rollout.terminated | rollout.truncated)


class Batch(NamedTuple):
    """What a gradient step looks at; every leaf begins with the number of transitions, n."""

    obs: Array
    """What the policy observes, normalised."""
    critic_obs: Array
    """What the critics observe, normalised."""
    action: Array
    """In [-1, 1] where it is bounded."""
    reward: Array
    terminated: Array
    next_obs: Array
    next_critic_obs: Array
    noise: Array
    """Standard normal, to draw the policy's next actions."""


def learn(
    config: SACConfig, learning: Learning, replay: Replay, key: Key, bounded: Array
) -> tuple[Learning, Metrics]:
    """A round of gradient steps, or none while there are too few transitions. Pure."""
    slots_key, critic_key, actor_key = jax.random.split(key, 3)
    delay, size = config.actor_delay, config.batch_size
    rounds, nact = config.critic_steps // delay, bounded.shape[0]
    # All drawn at once: a generator run in the loop would cost more.
    slots = replay.draw(slots_key, (rounds, delay + 1, size))
    noise = jax.random.normal(critic_key, (rounds, delay, size, nact))
    actor_noise = jax.random.normal(actor_key, (rounds, size, nact))

    def critic_step(learning: Learning, draw: tuple[Array, Array]) -> tuple[Learning, Metrics]:
        slots, noise = draw
        return _critic_step(learning, _batch(config, learning, replay.at(slots), noise), bounded)

    def gradient_round(
        learning: Learning, draws: tuple[Array, Array, Array]
    ) -> tuple[Learning, Metrics]:
        """`actor_delay` steps of the critics, then one of policy and temperature."""
        slots, noise, actor_noise = draws
        learning, of_critics = jax.lax.scan(critic_step, learning, (slots[:-1], noise))
        batch = _batch(config, learning, replay.at(slots[-1]), actor_noise)
        learning, of_actor = _actor_step(learning, batch, bounded)
        return learning, of_critics | of_actor

    def gradient_steps(learning: Learning) -> tuple[Learning, Metrics]:
        draws = (slots, noise, actor_noise)
        learning, measured = jax.lax.scan(gradient_round, learning, draws)
        return learning, {name: measured[name].mean() for name in _MEASURED}

    def nothing(learning: Learning) -> tuple[Learning, Metrics]:
        return learning, dict.fromkeys(_MEASURED, jnp.zeros(()))

    enough = replay.pushed.astype(jnp.float32) >= learning.numbers.learning_starts
    learning, metrics = jax.lax.cond(enough, gradient_steps, nothing, learning)
    metrics["sac/temperature"] = jnp.exp(learning.networks.log_temperature)
    metrics["sac/replay_size"] = replay.size
    return learning, metrics


#: What the gradient steps report.
_MEASURED = ("loss/critic", "loss/actor", "sac/value", "sac/entropy")


def _critic_step(learning: Learning, batch: Batch, bounded: Array) -> tuple[Learning, Metrics]:
    """A gradient step of the critics, and a small one of their targets towards them."""
    networks, numbers = learning.networks, learning.numbers
    target = soft_target(networks, learning.target_critics, batch, numbers.discount, bounded)

    def loss(critics: MLP) -> tuple[Array, Array]:
        value = values(critics, batch.critic_obs, batch.action)
        return 0.5 * ((value - target) ** 2).mean(axis=1).sum(), value.mean()

    (measured, value), gradient = jax.value_and_grad(loss, has_aux=True)(networks.critics)
    direction, moments = _ADAM.update(gradient, learning.optimizers.critics)
    critics = _descend(networks.critics, direction, numbers.critic_learning_rate)
    target_critics = jax.tree.map(
        lambda old, new: old + numbers.target_rate * (new - old), learning.target_critics, critics
    )
    return dataclasses.replace(
        learning,
        networks=dataclasses.replace(networks, critics=critics),
        target_critics=target_critics,
        optimizers=dataclasses.replace(learning.optimizers, critics=moments),
    ), {"loss/critic": measured, "sac/value": value}


def _actor_step(learning: Learning, batch: Batch, bounded: Array) -> tuple[Learning, Metrics]:
    """A gradient step of the policy, and one of the temperature."""
    networks, numbers, optimizers = learning.networks, learning.numbers, learning.optimizers
    temperature = jnp.exp(networks.log_temperature)

    def actor_loss(actor: StateDependentActor) -> tuple[Array, Array]:
        """Haarnoja et al. (2018), equation 7."""
        action, log_prob = squashed_draw(actor(batch.obs), batch.noise, bounded)
        value = values(networks.critics, batch.critic_obs, action).min(axis=0)
        return (temperature * log_prob - value).mean(), -log_prob.mean()

    (measured, entropy), gradient = jax.value_and_grad(actor_loss, has_aux=True)(networks.actor)
    direction, actor_moments = _ADAM.update(gradient, optimizers.actor)
    excess = entropy - numbers.target_entropy * bounded.shape[0]
    # Equation 18: the gradient of temperature * excess by the temperature's logarithm.
    direction_of_temperature, temperature_moments = _ADAM.update(
        temperature * excess, optimizers.log_temperature
    )
    rate = numbers.learning_rate
    networks = dataclasses.replace(
        networks,
        actor=_descend(networks.actor, direction, rate),
        log_temperature=_descend(networks.log_temperature, direction_of_temperature, rate),
    )
    optimizers = dataclasses.replace(
        optimizers, actor=actor_moments, log_temperature=temperature_moments
    )
    return dataclasses.replace(learning, networks=networks, optimizers=optimizers), {
        "loss/actor": measured,
        "sac/entropy": entropy,
    }


def soft_target(
    networks: Networks,
    target_critics: MLP,
    batch: Batch,
    discount: Array,
    bounded: Array,
) -> Array:
    """What the critics learn, `(n,)`: Haarnoja et al. (2018), equations 3 and 5, one action drawn.

    Nothing follows a termination. After a truncation the value goes on, from the true successor.
    """
    action, log_prob = squashed_draw(networks.actor(batch.next_obs), batch.noise, bounded)
    value = values(target_critics, batch.next_critic_obs, action).min(axis=0)
    soft_value = value - jnp.exp(networks.log_temperature) * log_prob
    return batch.reward + discount * jnp.where(batch.terminated, 0.0, soft_value)


def values(critics: MLP, obs: Array, action: Array) -> Array:
    """What each critic gives `n` observations and actions in [-1, 1], `(num_critics, n)`."""
    seen = jnp.concatenate([obs, action], axis=-1)
    return jax.vmap(lambda critic: critic(seen)[..., 0])(critics)


def squashed_draw(distribution: Gaussian, noise: Array, bounded: Array) -> tuple[Array, Array]:
    """The action that noise draws, in [-1, 1] where it is bounded, and its log density there.

    Haarnoja et al. (2018), appendix C, equation 26.

    Returns:
        The action `(..., nact)` and its log density `(...)`.
    """
    raw = distribution.at(noise)
    slope = jnp.where(bounded, log_tanh_slope(raw), 0.0)
    return _squashed(raw, bounded), distribution.log_prob(raw) - slope.sum(axis=-1)


def _squashed(raw: Array, bounded: Array) -> Array:
    """The policy's own choice, brought into [-1, 1] where the action is bounded."""
    return jnp.where(bounded, jnp.tanh(raw), raw)


def _batch(config: SACConfig, learning: Learning, transitions: Transitions, noise: Array) -> Batch:
    """Transitions as the networks read them."""
    actor, critic = learning.statistics.normalize, learning.critic_statistics.normalize
    obs, critic_obs = _read(config, transitions.obs)
    next_obs, next_critic_obs = _read(config, transitions.next_obs)
    return Batch(
        obs=actor(obs),
        critic_obs=critic(critic_obs),
        action=transitions.action,
        reward=transitions.reward,
        terminated=transitions.terminated,
        next_obs=actor(next_obs),
        next_critic_obs=critic(next_critic_obs),
        noise=noise,
    )


def _read(config: SACConfig, obs: Observation) -> tuple[Array, Array]:
    """What the policy reads of an observation, and what the critics read."""
    return select(obs, config.actor_obs), select(obs, _critic_obs(config, obs))


def _descend(parameters: PyTree, direction: PyTree, rate: Array) -> PyTree:
    return jax.tree.map(lambda p, d: p - rate * d, parameters, direction)
