"""Short-horizon actor-critic: Xu et al. (2022), "Accelerated Policy Learning with Parallel
Differentiable Simulation".

The policy climbs the gradient of what it earns itself, taken through the simulator: of the rewards
of a short segment and the value of where it ends. The critic makes the segment's short sight good,
and a segment is short because gradients through a long one explode. Without the critic
(`value_weight=0`) it is the analytic policy gradient (Freeman et al. 2021, "Brax").

A few worlds that fall or slip would take a segment's gradient over: each world's part of it is
bounded by what is usual among them (`max_world_gradient`). And a critic that is climbed must be
smooth: both networks are layer-normalised.

What is not differentiated: how a segment begins (it ends the chain of the one before), resets, the
critic's target, and the observations' statistics.

An update is two programs: one acts and improves the policy (it calls the engine), one learns the
values (pure arithmetic). Each is traced once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from worldline.env.worlds import Worlds, WorldsState
from worldline.errors import ConfigError
from worldline.learn.gradient import averaged, clipped, descended
from worldline.learn.networks.mlp import MLP, Actor
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy, select
from worldline.learn.returns import generalized_advantage
from worldline.learn.rollout import Rollout, unroll
from worldline.learn.run import Learner
from worldline.learn.shac.adjoints import BoundedAdjoints
from worldline.learn.shac.config import SHACConfig as SHACConfig
from worldline.learn.shuffle import random_order
from worldline.types import Array, Key, Metrics, Observation, PyTree


class Hyperparameters(eqx.Module):
    """Numbers of the configuration as arrays: another value recompiles nothing."""

    learning_rate: Array
    critic_learning_rate: Array
    anneal_updates: Array
    """Updates over which the learning rates fall; 0: they stay."""
    target_rate: Array
    discount: Array
    gae_lambda: Array
    value_weight: Array
    max_grad_norm: Array
    max_world_gradient: Array
    reward_scale: Array


class CollectorState(eqx.Module):
    """The part of the training state that acting moves on: the worlds and the policy."""

    worlds: WorldsState
    actor: Actor
    optimizer: PyTree
    key: Key


class LearnerState(eqx.Module):
    """The part of the training state that learning the values moves on."""

    critic: MLP
    target_critic: MLP
    optimizer: PyTree
    statistics: RunningStatistics
    """Of the observations."""
    hyperparameters: Hyperparameters
    updates: Array
    """Updates so far, `()` int32."""
    key: Key


class SHACState(eqx.Module):
    """All that training is, in one pytree."""

    acting: CollectorState
    learning: LearnerState


class Batch(NamedTuple):
    """What one gradient step of the critic looks at."""

    obs: Array
    """Normalised, `(n, nobs)`."""
    target: Array
    """`(n,)`"""


def shac(worlds: Worlds, config: SHACConfig) -> Learner[SHACState]:
    """SHAC on worlds.

    Args:
        worlds: where to act; as many as `config.num_worlds`.
        config: how to train.

    Raises:
        ConfigError: the number of worlds is not the configuration's, or the engine has no
            derivatives.
    """
    if worlds.num_worlds != config.num_worlds:
        raise ConfigError(f"{worlds.num_worlds} worlds, but num_worlds is {config.num_worlds}")
    env = worlds.env
    if not env.physics.differentiable:
        raise ConfigError(
            f"the engine {env.physics.name!r} has no derivatives, which SHAC climbs; "
            "use physics='native' or physics='mjx'"
        )
    low, high = jnp.asarray(env.action_low), jnp.asarray(env.action_high)

    def policy(actor: Actor, statistics: RunningStatistics) -> Policy:
        return Policy(actor, statistics, low, high, config.squash, config.actor_obs)

    begin = jax.jit(functools.partial(_begin, config, nact=low.shape[0]))

    @jax.jit
    def improve(
        acting: CollectorState, learning: LearnerState
    ) -> tuple[CollectorState, Rollout, Metrics]:
        """Acts for a segment, and moves the policy along the gradient of what it earned."""
        key, unroll_key = jax.random.split(acting.key)

        def loss(actor: Actor) -> tuple[Array, tuple[WorldsState, Rollout, Metrics]]:
            numbers = learning.hyperparameters
            state, taken, summary = unroll(
                BoundedAdjoints(worlds, numbers.max_world_gradient),
                jax.lax.stop_gradient(acting.worlds),
                policy(actor, learning.statistics),
                unroll_key,
                config.unroll_length,
                checkpoint=config.checkpoint,
            )
            earned = segment_return(config, learning, taken)
            return -earned.mean(), (state, taken, summary)

        gradient_of = jax.value_and_grad(loss, has_aux=True)
        (lost, (state, taken, summary)), gradient = gradient_of(acting.actor)
        actor, optimizer, measured = _climb(acting, learning, gradient)
        metrics = {f"train/{name}": value for name, value in summary.items()} | measured
        metrics["loss/policy"] = lost
        return CollectorState(state, actor, optimizer, key), taken, metrics

    learn_from = jax.jit(functools.partial(learn, config))

    def init(key: Key) -> SHACState:
        worlds_key, act_key, begin_key = jax.random.split(key, 3)
        state = worlds.stagger(worlds.reset(worlds_key))
        actor, optimizer, learning = begin(begin_key, state.obs)
        return SHACState(CollectorState(state, actor, optimizer, act_key), learning)

    def update(state: SHACState) -> tuple[SHACState, Metrics]:
        acting, taken, metrics = improve(state.acting, state.learning)
        learning, measured = learn_from(state.learning, taken)
        return SHACState(acting, learning), metrics | measured

    return Learner(
        init=init,
        update=update,
        policy=lambda state: policy(state.acting.actor, state.learning.statistics),
        steps_per_update=config.num_worlds * config.unroll_length,
        parts=_PARTS,
    )


#: What another run may begin with.
_PARTS: dict[str, Callable[[SHACState], PyTree]] = {
    "actor": lambda state: state.acting.actor,
    "critic": lambda state: (state.learning.critic, state.learning.target_critic),
    "statistics": lambda state: state.learning.statistics,
}


def _begin(
    config: SHACConfig, key: Key, obs: Observation, nact: int
) -> tuple[Actor, PyTree, LearnerState]:
    """Networks, optimisers and statistics before any training."""
    actor_key, critic_key, key = jax.random.split(key, 3)
    nobs = select(obs, config.actor_obs)["state"].shape[-1]
    actor_sizes = (nobs, *config.actor_hidden, nact)
    actor = Actor(
        mean=MLP.initial(
            actor_key, actor_sizes, config.activation, last_gain=0.01, layer_norm=config.layer_norm
        ),
        log_std=jnp.full(nact, jnp.float32(config.initial_log_std)),
    )
    critic_sizes = (nobs, *config.critic_hidden, 1)
    critic = MLP.initial(
        critic_key, critic_sizes, config.activation, last_gain=1.0, layer_norm=config.layer_norm
    )
    updates = config.anneal_steps / (config.num_worlds * config.unroll_length)
    numbers = {
        field.name: jnp.float32(getattr(config, field.name, updates))
        for field in dataclasses.fields(Hyperparameters)
    }
    learning = LearnerState(
        critic=critic,
        target_critic=critic,
        optimizer=_ADAM.init(critic),
        statistics=RunningStatistics.zero((nobs,)),
        hyperparameters=Hyperparameters(**numbers),
        updates=jnp.int32(0),
        key=key,
    )
    return actor, _ADAM.init(actor), learning


#: With a short memory, as the paper's authors train: a segment's gradient soon grows old.
_ADAM = optax.scale_by_adam(b1=0.7, b2=0.95)


def segment_return(config: SHACConfig, learning: LearnerState, taken: Rollout) -> Array:
    """What each world earned in a segment, per step and discounted: the policy's objective.

    An episode that terminates is worth nothing from there; one that is cut short, or goes on after
    the segment, is worth the target critic's value of where it stands. A new episode is discounted
    from its own start.

    Args:
        config: which observations the critic reads.
        learning: the critic, and how rewards and values are weighed.
        taken: the segment, `(T, B, ...)`; its gradient reaches the policy through every leaf.

    Returns:
        `(B,)`
    """
    numbers = learning.hyperparameters
    final_obs = learning.statistics.normalize(select(taken.final_obs, config.actor_obs)["state"])
    value = numbers.value_weight * learning.target_critic(final_obs)[..., 0]
    cut = taken.truncated.at[-1].set(~taken.terminated[-1])
    worth = numbers.reward_scale * taken.reward
    worth += numbers.discount * jnp.where(cut & ~taken.terminated, value, 0.0)

    def forwards(weight: Array, ended: Array) -> tuple[Array, Array]:
        return jnp.where(ended, 1.0, numbers.discount * weight), weight

    ended = taken.terminated | taken.truncated
    _, weight = jax.lax.scan(forwards, jnp.ones_like(worth[0]), ended)
    return (weight * worth).mean(axis=0)


def _climb(
    acting: CollectorState, learning: LearnerState, gradient: Actor
) -> tuple[Actor, PyTree, Metrics]:
    """A step of the policy, its gradient's norm bounded; none where that is not finite.

    The norm before it was bounded is reported: where it grows by orders of magnitude, gradients
    explode, and shorter segments help.
    """
    bounded, norm = clipped(gradient, learning.hyperparameters.max_grad_norm)
    sound = jnp.isfinite(norm)
    direction, optimizer = _ADAM.update(bounded, acting.optimizer)
    rate = learning.hyperparameters.learning_rate * _annealed(learning)
    actor = descended(acting.actor, direction, rate)
    unmoved = (acting.actor, acting.optimizer)
    actor, optimizer = jax.tree.map(
        lambda new, old: jnp.where(sound, new, old), (actor, optimizer), unmoved
    )
    return (
        actor,
        optimizer,
        {
            "shac/grad_norm": jnp.where(sound, norm, 0.0),
            "shac/exploded": 1.0 - sound.astype(jnp.float32),
            "shac/action_std": jnp.exp(actor.log_std).mean(),
        },
    )


def _annealed(learning: LearnerState) -> Array:
    """What is left of the learning rates, `()` in [0.01, 1]."""
    updates, whole = learning.updates.astype(jnp.float32), learning.hyperparameters.anneal_updates
    gone = jnp.where(whole > 0, updates / jnp.maximum(whole, 1.0), 0.0)
    return 1.0 - 0.99 * jnp.clip(gone, 0.0, 1.0)


def learn(
    config: SHACConfig, learning: LearnerState, taken: Rollout
) -> tuple[LearnerState, Metrics]:
    """The critic's round of gradient steps on the returns of a segment. Pure.

    The returns are TD(lambda)'s, with the values of the target critic.
    """
    numbers, raw_obs = learning.hyperparameters, select(taken.obs, config.actor_obs)["state"]
    obs = learning.statistics.normalize(raw_obs)
    final_obs = learning.statistics.normalize(select(taken.final_obs, config.actor_obs)["state"])
    value, next_value = (learning.target_critic(x)[..., 0] for x in (obs, final_obs))
    advantage = generalized_advantage(
        numbers.reward_scale * taken.reward,
        value,
        next_value,
        taken.terminated,
        taken.truncated,
        numbers.discount,
        numbers.gae_lambda,
    )
    flat = Batch(obs.reshape(-1, obs.shape[-1]), (advantage + value).reshape(-1))
    key, shuffle_key = jax.random.split(learning.key)
    rate = numbers.critic_learning_rate * _annealed(learning)

    def loss(critic: MLP, batch: Batch) -> Array:
        return jnp.mean((critic(batch.obs)[..., 0] - batch.target) ** 2)

    def gradient_step(carry: PyTree, batch: Batch) -> tuple[PyTree, Array]:
        critic, optimizer = carry
        lost, gradient = jax.value_and_grad(loss)(critic, batch)
        direction, optimizer = _ADAM.update(gradient, optimizer)
        return (descended(critic, direction, rate), optimizer), lost

    def epoch(carry: PyTree, key: Key) -> tuple[PyTree, Array]:
        order = random_order(key, len(flat.target)).reshape(config.minibatches, -1)
        return jax.lax.scan(gradient_step, carry, jax.tree.map(lambda x: x[order], flat))

    epochs = jax.random.split(shuffle_key, config.critic_epochs)
    (critic, optimizer), lost = jax.lax.scan(epoch, (learning.critic, learning.optimizer), epochs)
    target_critic = averaged(learning.target_critic, critic, numbers.target_rate)
    statistics = learning.statistics
    if config.normalize_observations:
        statistics = statistics.update(raw_obs)
    learning = dataclasses.replace(
        learning,
        critic=critic,
        target_critic=target_critic,
        optimizer=optimizer,
        statistics=statistics,
        updates=learning.updates + 1,
        key=key,
    )
    return learning, {"loss/value": lost.mean(), "shac/value": value.mean()}
