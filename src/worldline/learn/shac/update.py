"""Short-horizon actor-critic: Xu et al. (2022), "Accelerated Policy Learning with Parallel
Differentiable Simulation".

The policy follows the gradient, through the simulator, of the rewards of a short segment and of the
critic's value of its last observation. A segment is short because gradients through a long segment
explode; the critic replaces the rewards after it. Without the critic (`value_weight=0`) this is the
analytic policy gradient (Freeman et al. 2021, "Brax").

A few worlds in which a robot falls or slips would dominate a segment's gradient. So each world's
part of the gradient is bounded by the median over the worlds (`max_world_gradient`). The gradient
goes through the critic too, which must be smooth: both networks are layer-normalised.

The first state of a segment, resets, the critic's target, and the statistics of observations are
not differentiated.

An update is two programs: one acts and improves the policy (it calls the engine), one learns the
values (pure arithmetic). Each is traced once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from worldline.env.worlds import Worlds
from worldline.errors import ConfigError
from worldline.keys import as_key
from worldline.learn.collector import CollectorState, collect, update_metrics
from worldline.learn.gradient import annealed, clipped, descend
from worldline.learn.hyperparameters import hyperparameters
from worldline.learn.networks.mlp import MLP, Actor
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy, select
from worldline.learn.returns import generalized_advantage
from worldline.learn.rollout import Rollout, unroll
from worldline.learn.run import Learner
from worldline.learn.shac.adjoints import BoundedAdjoints
from worldline.learn.shac.config import SHACConfig
from worldline.learn.shuffle import shuffled
from worldline.parallel.devices import apart, put
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


class LearnerState(eqx.Module):
    """The part of the training state that learning reads and changes."""

    actor: Actor
    actor_optimizer: PyTree
    critic: MLP
    target_critic: MLP
    critic_optimizer: PyTree
    statistics: RunningStatistics
    """Statistics of the observations."""
    hyperparameters: Hyperparameters
    updates: Array
    """Updates so far, `()` int32."""
    key: Key


class SHACState(eqx.Module):
    """The whole training state, a pytree."""

    acting: CollectorState
    learning: LearnerState


def shac(worlds: Worlds, config: SHACConfig) -> Learner[SHACState]:
    """SHAC on worlds. It acts and learns on their device, because its gradient goes through them.

    Args:
        worlds: the worlds to act in, `config.num_worlds` of them.
        config: how to train.

    Raises:
        ConfigError: the number of worlds differs from the configuration's, or the engine has no
            derivatives.
    """
    config.check_worlds(worlds)
    env = worlds.env
    if not env.physics.differentiable:
        raise ConfigError(
            f"the engine {env.physics.name!r} has no derivatives, which SHAC needs; "
            "use physics='native' or physics='mjx'"
        )
    low, high = jnp.asarray(env.action_low), jnp.asarray(env.action_high)

    def policy(learning: LearnerState) -> Policy:
        statistics = learning.statistics
        return Policy(learning.actor, statistics, low, high, config.squash, config.actor_obs)

    @jax.jit
    def improve(
        acting: CollectorState, learning: LearnerState
    ) -> tuple[CollectorState, tuple[Actor, PyTree], Rollout, Metrics]:
        """Acts for a segment, and moves the policy along the gradient of what it earned."""
        bounded = BoundedAdjoints(worlds, learning.hyperparameters.max_world_gradient)
        start = dataclasses.replace(acting, worlds=jax.lax.stop_gradient(acting.worlds))
        take = functools.partial(unroll, checkpoint=config.checkpoint)

        def loss(actor: Actor) -> tuple[Array, tuple[CollectorState, Rollout, Metrics]]:
            acts = policy(dataclasses.replace(learning, actor=actor))
            after, segment, summary = collect(bounded, start, acts, config.unroll_length, take)
            return -segment_return(config, learning, segment).mean(), (after, segment, summary)

        gradient_of = jax.value_and_grad(loss, has_aux=True)
        (lost, (after, segment, summary)), gradient = gradient_of(learning.actor)
        actor, optimizer, measured = _climb(learning, gradient)
        metrics = update_metrics(summary, measured | {"loss/policy": lost})
        return after, (actor, optimizer), segment, metrics

    begin = jax.jit(functools.partial(_begin, config, nact=low.shape[0]))
    learn_from = jax.jit(functools.partial(learn, config))

    here, _ = apart(worlds.device)

    def init(key: Key) -> SHACState:
        worlds_key, act_key, begin_key = jax.random.split(as_key(key), 3)
        state = worlds.stagger(worlds.reset(worlds_key))
        learning = begin(begin_key, state.obs)
        return put(SHACState(CollectorState(state, (), act_key), learning), here)

    def update(state: SHACState) -> tuple[SHACState, Metrics]:
        state = put(state, here)
        acting, (actor, optimizer), segment, metrics = improve(state.acting, state.learning)
        learning, measured = learn_from(state.learning, segment)
        learning = dataclasses.replace(learning, actor=actor, actor_optimizer=optimizer)
        return SHACState(acting, learning), metrics | measured

    return Learner(
        init=init,
        update=update,
        policy=lambda state: policy(state.learning),
        steps_per_update=config.steps_per_update,
        parts=_PARTS,
    )


#: The parts of a state that another run can begin with.
_PARTS: dict[str, Callable[[SHACState], PyTree]] = {
    "actor": lambda state: state.learning.actor,
    "critic": lambda state: (state.learning.critic, state.learning.target_critic),
    "statistics": lambda state: state.learning.statistics,
}


def _begin(config: SHACConfig, key: Key, obs: Observation, nact: int) -> LearnerState:
    """Networks, optimisers and statistics before any training."""
    actor_key, critic_key, key = jax.random.split(key, 3)
    nobs = select(obs, config.actor_obs)["state"].shape[-1]
    kind: dict[str, Any] = {"activation": config.activation, "layer_norm": config.layer_norm}
    actor_sizes = (nobs, *config.actor_hidden, nact)
    actor = Actor.initial(actor_key, actor_sizes, log_std=config.initial_log_std, **kind)
    critic = MLP.initial(critic_key, (nobs, *config.critic_hidden, 1), last_gain=1.0, **kind)
    return LearnerState(
        actor=actor,
        actor_optimizer=_ADAM.init(actor),
        critic=critic,
        target_critic=critic,
        critic_optimizer=_ADAM.init(critic),
        statistics=RunningStatistics.zero((nobs,)),
        hyperparameters=hyperparameters(Hyperparameters, config),
        updates=jnp.int32(0),
        key=key,
    )


#: With little momentum, as the paper's authors train: a segment's gradient soon grows old.
_ADAM = optax.scale_by_adam(b1=0.7, b2=0.95)


def segment_return(config: SHACConfig, learning: LearnerState, segment: Rollout) -> Array:
    """The discounted return per step of each world in a segment: the policy's objective.

    After a termination no reward follows. If an episode is truncated, or continues after the
    segment, the target critic's value of its last observation is added. The discount starts again
    with each episode.

    Args:
        config: determines the observations of the critic.
        learning: the critic, and the weights of rewards and values.
        segment: `(T, B, ...)`; its gradient reaches the policy through every leaf.

    Returns:
        `(B,)`
    """
    numbers = learning.hyperparameters
    value = numbers.value_weight * _target_values(config, learning, segment.final_obs)
    cut = segment.truncated.at[-1].set(~segment.terminated[-1])
    worth = numbers.reward_scale * segment.reward
    worth += numbers.discount * jnp.where(cut & ~segment.terminated, value, 0.0)

    def forwards(weight: Array, ended: Array) -> tuple[Array, Array]:
        return jnp.where(ended, 1.0, numbers.discount * weight), weight

    ended = segment.terminated | segment.truncated
    _, weight = jax.lax.scan(forwards, jnp.ones_like(worth[0]), ended)
    return (weight * worth).mean(axis=0)


def _target_values(config: SHACConfig, learning: LearnerState, obs: Observation) -> Array:
    """The target critic's values of observations `(..., n)`, `(...)`."""
    seen = learning.statistics.normalize(select(obs, config.actor_obs)["state"])
    return learning.target_critic(seen)[..., 0]


def _climb(learning: LearnerState, gradient: Actor) -> tuple[Actor, PyTree, Metrics]:
    """A step of the policy, its gradient's norm bounded; no step where the norm is not finite.

    The norm before it was bounded is reported: where it grows by orders of magnitude, gradients
    explode, and shorter segments help.
    """
    numbers, before = learning.hyperparameters, (learning.actor, learning.actor_optimizer)
    bounded, norm = clipped(gradient, numbers.max_grad_norm)
    sound = jnp.isfinite(norm)
    rate = numbers.learning_rate * _rate_left(learning)
    after = descend(_ADAM, learning.actor, bounded, learning.actor_optimizer, rate)
    actor, optimizer = jax.tree.map(lambda new, old: jnp.where(sound, new, old), after, before)
    measured = {
        "shac/grad_norm": jnp.where(sound, norm, 0.0),
        "shac/exploded": 1.0 - sound.astype(jnp.float32),
        "shac/action_std": jnp.exp(actor.log_std).mean(),
    }
    return actor, optimizer, measured


def _rate_left(learning: LearnerState) -> Array:
    """The share of the learning rates that is left, `()` in [0.01, 1]."""
    return annealed(learning.updates, learning.hyperparameters.anneal_updates, lowest=0.01)


def learn(
    config: SHACConfig, learning: LearnerState, segment: Rollout
) -> tuple[LearnerState, Metrics]:
    """The critic's round of gradient steps on the returns of a segment. Pure.

    The returns are those of TD(lambda), with the values of the target critic.
    """
    numbers, raw_obs = learning.hyperparameters, select(segment.obs, config.actor_obs)["state"]
    obs = learning.statistics.normalize(raw_obs)
    value, next_value = (
        _target_values(config, learning, each) for each in (segment.obs, segment.final_obs)
    )
    advantage = generalized_advantage(
        numbers.reward_scale * segment.reward,
        value,
        next_value,
        segment.terminated,
        segment.truncated,
        numbers.discount,
        numbers.gae_lambda,
    )
    samples = obs, advantage + value
    key, shuffle_key = jax.random.split(learning.key)
    rate = numbers.critic_learning_rate * _rate_left(learning)

    def loss(critic: MLP, obs: Array, target: Array) -> Array:
        return jnp.mean((critic(obs)[..., 0] - target) ** 2)

    def gradient_step(carry: PyTree, batch: tuple[Array, Array]) -> tuple[PyTree, Array]:
        critic, optimizer = carry
        lost, gradient = jax.value_and_grad(loss)(critic, *batch)
        return descend(_ADAM, critic, gradient, optimizer, rate), lost

    def epoch(carry: PyTree, key: Key) -> tuple[PyTree, Array]:
        return jax.lax.scan(gradient_step, carry, shuffled(samples, key, config.minibatches)[0])

    (critic, optimizer), lost = jax.lax.scan(
        epoch,
        (learning.critic, learning.critic_optimizer),
        jax.random.split(shuffle_key, config.critic_epochs),
    )
    statistics = learning.statistics
    learning = dataclasses.replace(
        learning,
        critic=critic,
        target_critic=optax.incremental_update(critic, learning.target_critic, numbers.target_rate),
        critic_optimizer=optimizer,
        statistics=statistics.update(raw_obs) if config.normalize_observations else statistics,
        updates=learning.updates + 1,
        key=key,
    )
    return learning, {"loss/value": lost.mean(), "shac/value": value.mean()}
