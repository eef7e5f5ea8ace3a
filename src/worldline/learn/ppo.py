"""Proximal policy optimisation: Schulman et al. (2017), "Proximal Policy Optimization Algorithms".

With what makes it good in continuous control (Andrychowicz et al. 2021, "What matters in on-policy
reinforcement learning?"; Huang et al. 2022, "The 37 implementation details of PPO"): running
statistics of observations and of returns, generalised advantages that bootstrap where an episode
was cut, orthogonal initialisation, gradient clipping, and a learning rate that is fixed, annealed
or led by the KL divergence.

An update is two programs: one acts (a rollout, which calls the engine), one learns (pure
arithmetic, which JAX's compilation cache can keep between processes). Each is traced once.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from worldline.env.worlds import Worlds, WorldsState
from worldline.errors import ConfigError
from worldline.learn.nets import ACTIVATIONS, MLP, Activation, Actor, Gaussian
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy, Squash, state_of
from worldline.learn.returns import discounted_return_so_far, generalized_advantage
from worldline.learn.rollout import Rollout, unroll
from worldline.learn.run import Learner
from worldline.types import Array, Key, Metrics, PyTree


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """How PPO trains. The defaults suit small bodies; each task brings its own beside it."""

    num_worlds: int = 128
    """Worlds that act side by side (B)."""
    unroll_length: int = 64
    """Control steps each world takes between two rounds of learning (T)."""
    epochs: int = 5
    """Passes over a rollout."""
    minibatches: int = 16
    """Gradient steps in a pass; divides num_worlds * unroll_length."""
    learning_rate: float = 1e-3
    """Of Adam; where it starts, if it is annealed or adaptive."""
    anneal_steps: int = 0
    """Environment steps over which the learning rate falls linearly to a tenth; 0: it stays."""
    target_kl: float = 0.02
    """KL divergence at the end of a pass that the learning rate is led to; 0: it is fixed."""
    discount: float = 0.99
    """Per control step."""
    gae_lambda: float = 0.95
    """Of generalised advantage estimation."""
    clip: float = 0.2
    """How far the probability ratio may go from 1 before its gradient stops."""
    value_clip: float = 0.0
    """The same for the value, in units of its target's scale; 0: not clipped."""
    value_weight: float = 0.5
    """Of the value loss beside the policy loss."""
    entropy_weight: float = 0.0
    """Of the entropy bonus."""
    max_grad_norm: float = 0.5
    """Gradients are scaled down to this norm."""
    normalize_observations: bool = True
    """By the running mean and variance of all observations."""
    normalize_rewards: bool = True
    """By the running standard deviation of the discounted return."""
    normalize_advantages: bool = True
    """In each minibatch."""
    actor_hidden: tuple[int, ...] = (64, 64)
    """Hidden layers of the policy."""
    critic_hidden: tuple[int, ...] = (64, 64)
    """Hidden layers of the value function."""
    activation: Activation = "tanh"
    """Between layers."""
    initial_log_std: float = -0.5
    """Spread of the first policy, in units of half the action range."""
    squash: Squash = "clip"
    """How the policy's unbounded choice comes into the action bounds."""

    def __post_init__(self) -> None:
        counts = ("num_worlds", "unroll_length", "epochs", "minibatches")
        positive = (*counts, "learning_rate", "max_grad_norm", "clip")
        for name in positive:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be positive")
        for name in ("discount", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be in [0, 1]")
        if self.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ConfigError(f"activation is {self.activation!r}; there are {known}")
        if self.anneal_steps and self.target_kl:
            raise ConfigError(
                f"anneal_steps is {self.anneal_steps} and target_kl is {self.target_kl}: both lead "
                "the learning rate; set one of them to 0"
            )
        steps = self.num_worlds * self.unroll_length
        if steps % self.minibatches:
            raise ConfigError(
                f"{self.num_worlds} worlds x {self.unroll_length} steps = {steps} do not divide "
                f"into {self.minibatches} minibatches; change one of the three"
            )


class Numbers(eqx.Module):
    """The configuration's numbers as arrays: changing one recompiles nothing."""

    discount: Array
    gae_lambda: Array
    clip: Array
    value_clip: Array
    value_weight: Array
    entropy_weight: Array
    max_grad_norm: Array
    initial_learning_rate: Array
    anneal_updates: Array
    target_kl: Array


class Networks(eqx.Module):
    """What gradients change."""

    actor: Actor
    critic: MLP


class Acting(eqx.Module):
    """The part of the training state that acting reads and moves on."""

    worlds: WorldsState
    key: Key


class Learning(eqx.Module):
    """The part of the training state that learning reads and moves on."""

    networks: Networks
    optimizer: PyTree
    learning_rate: Array
    statistics: RunningStatistics
    """Of the observations."""
    return_so_far: Array
    """Each world's discounted sum of rewards in its episode, `(B,)`."""
    return_statistics: RunningStatistics
    """Of those sums."""
    numbers: Numbers
    updates: Array
    """Updates so far, `()` int32."""
    key: Key


class PPOState(eqx.Module):
    """All that training is, in one pytree."""

    acting: Acting
    learning: Learning


class Batch(NamedTuple):
    """What one gradient step looks at; every leaf begins with the number of samples."""

    obs: Array
    """Normalised."""
    action: Array
    log_prob: Array
    mean: Array
    value: Array
    advantage: Array
    target: Array


def ppo(worlds: Worlds, config: PPOConfig) -> Learner[PPOState]:
    """PPO on worlds.

    Args:
        worlds: where to act; as many as `config.num_worlds`.
        config: how to train.

    Raises:
        ConfigError: the number of worlds is not the configuration's.
    """
    if worlds.num_worlds != config.num_worlds:
        raise ConfigError(f"{worlds.num_worlds} worlds, but num_worlds is {config.num_worlds}")
    env = worlds.env
    low, high = jnp.asarray(env.action_low), jnp.asarray(env.action_high)

    def policy(learning: Learning) -> Policy:
        return Policy(learning.networks.actor, learning.statistics, low, high, config.squash)

    @jax.jit
    def act(acting: Acting, policy: Policy) -> tuple[Acting, Rollout, Metrics]:
        key, unroll_key = jax.random.split(acting.key)
        state, rollout, summary = unroll(
            worlds, acting.worlds, policy, unroll_key, config.unroll_length
        )
        return Acting(state, key), rollout, summary

    @jax.jit
    def begin_learning(key: Key, obs: Array) -> Learning:
        return _begin_learning(config, key, obs.shape[-1], low.shape[0])

    @jax.jit
    def learn_from(learning: Learning, rollout: Rollout) -> tuple[Learning, Metrics]:
        return learn(config, learning, rollout)

    def init(key: Key) -> PPOState:
        worlds_key, act_key, learn_key = jax.random.split(key, 3)
        state = worlds.reset(worlds_key)
        learning = begin_learning(learn_key, state_of(state.obs))
        return PPOState(Acting(state, act_key), learning)

    def update(state: PPOState) -> tuple[PPOState, Metrics]:
        acting, rollout, summary = act(state.acting, policy(state.learning))
        learning, measured = learn_from(state.learning, rollout)
        train = {f"train/{name}": value for name, value in summary.items()}
        return PPOState(acting, learning), train | measured

    steps_per_update = config.num_worlds * config.unroll_length
    return Learner(init, update, lambda state: policy(state.learning), steps_per_update)


def _begin_learning(config: PPOConfig, key: Key, nobs: int, nact: int) -> Learning:
    """Networks, optimiser and statistics before any training."""
    actor_key, critic_key, key = jax.random.split(key, 3)
    actor_sizes = (nobs, *config.actor_hidden, nact)
    critic_sizes = (nobs, *config.critic_hidden, 1)
    networks = Networks(
        actor=Actor(
            mean=MLP.initial(actor_key, actor_sizes, config.activation, last_gain=0.01),
            log_std=jnp.full(nact, jnp.float32(config.initial_log_std)),
        ),
        critic=MLP.initial(critic_key, critic_sizes, config.activation, last_gain=1.0),
    )
    steps_per_update = config.num_worlds * config.unroll_length
    numbers = {
        name: jnp.float32(getattr(config, name))
        for name in Numbers.__dataclass_fields__
        if hasattr(config, name)
    }
    return Learning(
        networks=networks,
        optimizer=_ADAM.init(eqx.filter(networks, eqx.is_array)),
        learning_rate=jnp.float32(config.learning_rate),
        statistics=RunningStatistics.zero((nobs,)),
        return_so_far=jnp.zeros(config.num_worlds),
        return_statistics=RunningStatistics.zero(()),
        numbers=Numbers(
            **numbers,
            initial_learning_rate=jnp.float32(config.learning_rate),
            anneal_updates=jnp.float32(config.anneal_steps / steps_per_update),
        ),
        updates=jnp.int32(0),
        key=key,
    )


_ADAM = optax.scale_by_adam(eps=1e-5)


def learn(config: PPOConfig, learning: Learning, rollout: Rollout) -> tuple[Learning, Metrics]:
    """One round of learning from a rollout: targets, then passes of gradient steps. Pure."""
    samples, learning = _prepare(config, learning, rollout)
    key, shuffle_key = jax.random.split(learning.key)
    epoch_keys = jax.random.split(shuffle_key, config.epochs)
    old_log_std = learning.networks.actor.log_std
    carry = (learning.networks, learning.optimizer, _annealed(learning))

    def gradient_step(carry: PyTree, batch: Batch) -> tuple[PyTree, Metrics]:
        networks, optimizer, learning_rate = carry
        gradient_of = jax.value_and_grad(loss, has_aux=True)
        (_, measured), gradient = gradient_of(
            networks, batch, old_log_std, learning.numbers, config.normalize_advantages
        )
        gradient, measured["ppo/grad_norm"] = _clip_norm(gradient, learning.numbers.max_grad_norm)
        direction, optimizer = _ADAM.update(gradient, optimizer)
        networks = jax.tree.map(lambda p, d: p - learning_rate * d, networks, direction)
        return (networks, optimizer, learning_rate), measured

    def epoch(carry: PyTree, key: Key) -> tuple[PyTree, Metrics]:
        batches = _shuffled(samples, key, config.minibatches)
        (networks, optimizer, learning_rate), measured = jax.lax.scan(gradient_step, carry, batches)
        adapted = _adapted(learning_rate, measured["ppo/kl"][-1], learning.numbers.target_kl)
        return (networks, optimizer, adapted), measured

    carry, measured = jax.lax.scan(epoch, carry, epoch_keys)
    networks, optimizer, learning_rate = carry
    metrics = {name: value.mean() for name, value in measured.items()}
    metrics["ppo/explained_variance"] = _explained_variance(samples.value, samples.target)
    metrics["ppo/learning_rate"] = learning_rate
    metrics["ppo/action_std"] = jnp.exp(networks.actor.log_std).mean()
    return dataclasses.replace(
        learning,
        networks=networks,
        optimizer=optimizer,
        learning_rate=learning_rate,
        key=key,
        updates=learning.updates + 1,
    ), metrics


def loss(
    networks: Networks,
    batch: Batch,
    old_log_std: Array,
    numbers: Numbers,
    normalize_advantages: bool,
) -> tuple[Array, Metrics]:
    """PPO's objective: Schulman et al. (2017), equation 9, with the policy term of equation 7.

    Returns:
        The loss `()`, and what to report of it.
    """
    distribution = networks.actor(batch.obs)
    log_ratio = distribution.log_prob(batch.action) - batch.log_prob
    ratio = jnp.exp(log_ratio)
    advantage = batch.advantage
    if normalize_advantages:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped = jnp.clip(ratio, 1 - numbers.clip, 1 + numbers.clip)
    policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage).mean()

    value = networks.critic(batch.obs)[..., 0]
    value_loss = _value_loss(value, batch, numbers.value_clip)
    entropy = distribution.entropy().mean()
    total = policy_loss + numbers.value_weight * value_loss - numbers.entropy_weight * entropy
    old = Gaussian(batch.mean, old_log_std)
    return total, {
        "loss/policy": policy_loss,
        "loss/value": value_loss,
        "loss/entropy": entropy,
        "ppo/kl": distribution.kl_from(old).mean(),
        "ppo/clip_fraction": (jnp.abs(ratio - 1) > numbers.clip).mean(),
    }


def _prepare(config: PPOConfig, learning: Learning, rollout: Rollout) -> tuple[Batch, Learning]:
    """Advantages and value targets of a rollout as flat samples; statistics moved on.

    Observations are normalised by the statistics the policy acted with, so that its ratio starts
    at 1; what this rollout adds to them counts from the next one on.
    """
    normalize = learning.statistics.normalize
    raw_obs = state_of(rollout.obs)
    obs, final_obs = normalize(raw_obs), normalize(state_of(rollout.final_obs))
    value, next_value = (learning.networks.critic(x)[..., 0] for x in (obs, final_obs))
    ended = rollout.terminated | rollout.truncated
    return_so_far, returns = discounted_return_so_far(
        learning.return_so_far, rollout.reward, ended, learning.numbers.discount
    )
    return_statistics = learning.return_statistics.update(returns)
    reward = rollout.reward
    if config.normalize_rewards:
        reward = jnp.clip(reward / jnp.sqrt(return_statistics.variance + 1e-8), -10, 10)
    advantage = generalized_advantage(
        reward,
        value,
        next_value,
        rollout.terminated,
        rollout.truncated,
        learning.numbers.discount,
        learning.numbers.gae_lambda,
    )
    samples = Batch(
        obs=obs,
        action=rollout.action,
        log_prob=rollout.log_prob,
        mean=rollout.mean,
        value=value,
        advantage=advantage,
        target=advantage + value,
    )
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), samples)
    statistics = learning.statistics
    if config.normalize_observations:
        statistics = statistics.update(raw_obs)
    return flat, dataclasses.replace(
        learning,
        statistics=statistics,
        return_so_far=return_so_far,
        return_statistics=return_statistics,
    )


def _value_loss(value: Array, batch: Batch, value_clip: Array) -> Array:
    """Half the mean squared error, or with the value's move clipped the worse of the two."""
    reach = jnp.where(value_clip > 0, value_clip, jnp.inf)
    near = batch.value + jnp.clip(value - batch.value, -reach, reach)
    worse = jnp.maximum((value - batch.target) ** 2, (near - batch.target) ** 2)
    return 0.5 * worse.mean()


def _shuffled(samples: Batch, key: Key, minibatches: int) -> Batch:
    """The samples in random order, split: `(minibatches, samples / minibatches, ...)`."""
    order = jax.random.permutation(key, samples.value.shape[0])
    return jax.tree.map(lambda x: x[order].reshape(minibatches, -1, *x.shape[1:]), samples)


def _clip_norm(gradient: PyTree, largest: Array) -> tuple[PyTree, Array]:
    """The gradient scaled down to a norm of at most `largest`, and its norm before."""
    norm = optax.tree.norm(gradient)
    scale = jnp.minimum(1.0, largest / (norm + 1e-6))
    return jax.tree.map(lambda g: g * scale, gradient), norm


def _annealed(learning: Learning) -> Array:
    """The learning rate of this update."""
    numbers = learning.numbers
    updates = learning.updates.astype(jnp.float32)
    progress = jnp.clip(updates / jnp.maximum(numbers.anneal_updates, 1.0), 0.0, 1.0)
    annealed = numbers.initial_learning_rate * (1.0 - 0.9 * progress)
    return jnp.where(numbers.anneal_updates > 0, annealed, learning.learning_rate)


def _adapted(learning_rate: Array, kl: Array, target: Array) -> Array:
    """The learning rate led by the KL divergence: Schulman et al. (2017), section 4, for Adam."""
    factor = jnp.where(kl > 2.0 * target, 1 / 1.5, jnp.where(kl < 0.5 * target, 1.5, 1.0))
    adapted = jnp.clip(learning_rate * factor, 1e-5, 1e-2)
    return jnp.where(target > 0, adapted, learning_rate)


def _explained_variance(value: Array, target: Array) -> Array:
    """The share of the targets' variance that the value function explains, `()`; 1 is all."""
    return 1.0 - (target - value).var() / (target.var() + 1e-8)
