"""Proximal policy optimisation: Schulman et al. (2017), "Proximal Policy Optimization Algorithms".

With what makes it good in continuous control (Andrychowicz et al. 2021, "What matters in on-policy
reinforcement learning?"; Huang et al. 2022, "The 37 implementation details of PPO"): running
statistics of observations and of returns, generalised advantages that bootstrap where an episode
was cut, orthogonal initialisation, gradient clipping, and a learning rate that is fixed, annealed
or led by the KL divergence.

An update is two programs: one acts (a rollout, which calls the engine), one learns (pure
arithmetic). Each is traced once.

Every piece can be another: `ppo` takes functions for the networks, the loss, the optimiser, the
advantage, the rollout and the curriculum. Those at hand are in `ppo_networks`, here, in `returns`,
`rollout` and `curriculum`; the configuration is in `ppo_config`, the training state in `ppo_state`,
and how a rollout becomes minibatches in `ppo_samples`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from worldline.env.worlds import WorldsState
from worldline.errors import ConfigError, did_you_mean
from worldline.learn.batched_env import BatchedEnv
from worldline.learn.bootstrap import LeanWorlds, ValueFunction
from worldline.learn.curriculum import Curriculum, moved
from worldline.learn.images import changed, draw_changes, is_image_array
from worldline.learn.networks.recurrent import as_recurrent
from worldline.learn.networks.vision import SharedImageEncoder, centred
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy, critic_keys, numbers_of, select
from worldline.learn.ppo.config import PPOConfig as PPOConfig
from worldline.learn.ppo.config import check_for_memory
from worldline.learn.ppo.networks import MakeNetworks as MakeNetworks
from worldline.learn.ppo.networks import Networks as Networks
from worldline.learn.ppo.networks import gru_networks as gru_networks
from worldline.learn.ppo.networks import heads_and_features, networks_for, part_of
from worldline.learn.ppo.networks import mlp_networks as mlp_networks
from worldline.learn.ppo.networks import pixel_gru_networks as pixel_gru_networks
from worldline.learn.ppo.networks import pixel_networks as pixel_networks
from worldline.learn.ppo.samples import Batch as Batch
from worldline.learn.ppo.samples import (
    have_memory,
    last,
    prepare,
    shuffled,
    valuer_for,
)
from worldline.learn.ppo.state import CollectorState, LearnerState, Numbers
from worldline.learn.ppo.state import PPOState as PPOState
from worldline.learn.returns import generalized_advantage
from worldline.learn.rollout import Rollout, unroll
from worldline.learn.run import Learner
from worldline.parallel.mesh import BY_WORLD, EVERYWHERE, mean_over_shares, split
from worldline.types import Array, Key, Metrics, Observation, PyTree
from worldline.variation.domain import Ranges

#: From networks, a batch and the numbers to what is minimised, `()`, and what to report of it. All
#: are means over the samples: each of several devices has its share of a minibatch.
Loss: TypeAlias = Callable[[Networks, Batch, Numbers], tuple[Array, Metrics]]


def ppo(
    worlds: BatchedEnv[Any],
    config: PPOConfig,
    *,
    networks: MakeNetworks | None = None,
    loss: Loss | None = None,
    optimizer: optax.GradientTransformation | None = None,
    advantage: Callable[..., Array] = generalized_advantage,
    rollout: Callable[..., tuple[WorldsState, Rollout, Metrics]] = unroll,
    curriculum: Curriculum | None = None,
) -> Learner[PPOState]:
    """PPO on worlds.

    Args:
        worlds: where to act; as many as `config.num_worlds`.
        config: how to train.
        networks: makes policy and critic; by default `mlp_networks(config)`, with a
            `recurrent_size` `gru_networks(config)`, or where they observe images
            `pixel_networks(config, ...)` or `pixel_gru_networks(config, ...)`.
        loss: by default `clipped_loss`.
        optimizer: turns a gradient into the direction of a step, whose length is the learning
            rate of the state; by default Adam's.
        advantage: as `generalized_advantage`.
        rollout: as `unroll`.
        curriculum: moves the ranges that episodes are drawn from, after every update. It is
            compiled; the ranges keep their names and shapes.

    Raises:
        ConfigError: the number of worlds is not the configuration's; the networks cannot be made.
    """
    if worlds.num_worlds != config.num_worlds:
        raise ConfigError(f"{worlds.num_worlds} worlds, but num_worlds is {config.num_worlds}")
    env = worlds.env
    low, high = jnp.asarray(env.action_low), jnp.asarray(env.action_high)
    pieces = _Pieces(
        networks=networks or networks_for(config, env),
        loss=loss or clipped_loss,
        optimizer=optimizer or optax.scale_by_adam(eps=1e-5),
        advantage=advantage,
        mesh=worlds.mesh,
    )

    def policy(learning: LearnerState) -> Policy:
        return Policy(
            actor=learning.networks.actor,
            statistics=learning.statistics,
            low=low,
            high=high,
            squash=config.squash,
            obs_keys=config.actor_obs,
        )

    @jax.jit
    def act(
        acting: CollectorState, policy: Policy, valuer: ValueFunction | None
    ) -> tuple[CollectorState, Rollout, Metrics]:
        key, unroll_key = jax.random.split(acting.key)
        place = worlds if valuer is None else LeanWorlds(worlds, valuer)
        state, taken, summary = rollout(
            place, acting.worlds, policy, unroll_key, config.unroll_length, acting.memory
        )
        return CollectorState(state, last(taken.memory), key), taken, summary

    @jax.jit
    def begin_learning(key: Key, obs: Observation) -> LearnerState:
        return _begin_learning(config, pieces, key, obs, low.shape[0])

    @jax.jit
    def learn_from(
        learning: LearnerState,
        rollout: Rollout,
        before: CollectorState,
        after: CollectorState,
        summary: Metrics,
    ) -> tuple[LearnerState, Ranges, Metrics]:
        next_obs, ranges = after.worlds.obs, after.worlds.ranges
        learning, measured = learn(config, pieces, learning, rollout, before.memory, next_obs)
        metrics = {f"train/{name}": value for name, value in summary.items()} | measured
        if curriculum is not None:
            ranges = moved(curriculum, metrics, ranges)
        return learning, ranges, metrics

    def init(key: Key) -> PPOState:
        worlds_key, act_key, learn_key = jax.random.split(key, 3)
        state = worlds.stagger(worlds.reset(worlds_key))
        learning = begin_learning(learn_key, state.obs)
        memory = policy(learning).start(config.num_worlds)
        return PPOState(CollectorState(state, memory, act_key), learning)

    def update(state: PPOState) -> tuple[PPOState, Metrics]:
        valuer = valuer_for(config, state.learning, state.acting.worlds.obs)
        acting, taken, summary = act(state.acting, policy(state.learning), valuer)
        learning, ranges, metrics = learn_from(state.learning, taken, state.acting, acting, summary)
        state_of_worlds = dataclasses.replace(acting.worlds, ranges=ranges)
        return PPOState(dataclasses.replace(acting, worlds=state_of_worlds), learning), metrics

    return Learner(
        init=init,
        update=update,
        policy=lambda state: policy(state.learning),
        steps_per_update=config.num_worlds * config.unroll_length,
        parts=_PARTS,
    )


def with_numbers(state: PPOState, **numbers: float | Array) -> PPOState:
    """The state with other numbers, of those in `Numbers`; the next update goes by them.

    Nothing recompiles; under `jax.vmap` each member of a population has its own.

    Raises:
        ConfigError: there is no such number.
    """
    learning = state.learning
    known = [field.name for field in dataclasses.fields(learning.numbers)]
    for name in numbers:
        if name not in known:
            raise ConfigError(f"there is no number {name!r}{did_you_mean(name, known)}")
    arrays = {name: jnp.asarray(value, jnp.float32) for name, value in numbers.items()}
    learning = dataclasses.replace(
        learning,
        numbers=dataclasses.replace(learning.numbers, **arrays),
        learning_rate=arrays.get("learning_rate", learning.learning_rate),
    )
    return PPOState(state.acting, learning)


class _Pieces(NamedTuple):
    """The functions that learning is made of."""

    networks: MakeNetworks
    loss: Loss
    optimizer: optax.GradientTransformation
    advantage: Callable[..., Array]
    mesh: Mesh | None
    """The devices that share the worlds, and every minibatch."""


#: What another run may begin with.
_PARTS: dict[str, Callable[[PPOState], PyTree]] = {
    "actor": lambda state: part_of(state.learning.networks, "actor"),
    "critic": lambda state: part_of(state.learning.networks, "critic"),
    "statistics": lambda state: (
        state.learning.statistics,
        state.learning.critic_statistics,
        state.learning.return_statistics,
    ),
}


def _begin_learning(
    config: PPOConfig, pieces: _Pieces, key: Key, obs: Observation, nact: int
) -> LearnerState:
    """Networks, optimiser and statistics before any training."""
    networks_key, key = jax.random.split(key)
    of_critic = critic_keys(config.actor_obs, config.critic_obs, obs)
    nobs, ncritic = (
        numbers_of(select(obs, keys)).shape[-1] for keys in (config.actor_obs, of_critic)
    )
    networks = pieces.networks(networks_key, nobs, ncritic, nact)
    networks = centred(networks, obs)
    if have_memory(networks):
        check_for_memory(config)
    steps_per_update = config.num_worlds * config.unroll_length
    numbers = {
        field.name: jnp.float32(getattr(config, field.name))
        for field in dataclasses.fields(Numbers)
        if field.name != "anneal_updates"
    }
    return LearnerState(
        networks=networks,
        optimizer=pieces.optimizer.init(networks),
        learning_rate=jnp.float32(config.learning_rate),
        statistics=RunningStatistics.zero((nobs,)),
        critic_statistics=RunningStatistics.zero((ncritic,)),
        critic_memory=as_recurrent(networks.critic).start(config.num_worlds),
        return_so_far=jnp.zeros(config.num_worlds),
        return_statistics=RunningStatistics.zero(()),
        numbers=Numbers(
            **numbers, anneal_updates=jnp.float32(config.anneal_steps / steps_per_update)
        ),
        updates=jnp.int32(0),
        key=key,
    )


def learn(
    config: PPOConfig,
    pieces: _Pieces,
    learning: LearnerState,
    rollout: Rollout,
    memory: PyTree = (),
    next_obs: Observation | None = None,
) -> tuple[LearnerState, Metrics]:
    """One round of learning from a rollout: targets, then passes of gradient steps. Pure.

    `memory` is what the policy remembered before the rollout's first step, `next_obs` what is to be
    acted on after its last one.
    """
    samples, learning = prepare(config, learning, rollout, memory, next_obs, pieces.advantage)
    key, shuffle_key = jax.random.split(learning.key)
    epoch_keys = jax.random.split(shuffle_key, config.epochs)
    numbers = learning.numbers
    carry = (learning.networks, learning.optimizer, _annealed(learning))
    # Images are much: they stay where they are, and each gradient step takes its own out.
    images, samples = eqx.partition(samples, is_image_array)
    rows = jnp.arange(samples.value.shape[0])

    def gradient_step(
        changes: PyTree, carry: PyTree, taken: tuple[Batch, Array]
    ) -> tuple[PyTree, Metrics]:
        networks, optimizer, learning_rate = carry
        batch, rows = taken
        seen = jax.tree.map(lambda x: x[rows], images)
        if changes is not None:
            worlds = rows % config.num_worlds
            change = functools.partial(changed, config.augmentation, changes, worlds)
            seen = seen._replace(obs=change(seen.obs), critic_obs=change(seen.critic_obs))
        batch = eqx.combine(batch, seen)
        if changes is not None:
            batch = as_if_seen(learning.networks, batch)
        gradient_of = mean_over_shares(
            pieces.mesh,
            jax.value_and_grad(pieces.loss, has_aux=True),
            takes=(EVERYWHERE, BY_WORLD, EVERYWHERE),
            samples=len(rows),
        )
        (_, measured), gradient = gradient_of(networks, batch, numbers)
        gradient, norm = _clip_norm(gradient, numbers.max_grad_norm)
        direction, optimizer = pieces.optimizer.update(gradient, optimizer, networks)
        networks = jax.tree.map(lambda p, d: p - learning_rate * d, networks, direction)
        return (networks, optimizer, learning_rate), measured | {"ppo/grad_norm": norm}

    def epoch(carry: PyTree, key: Key) -> tuple[PyTree, Metrics]:
        changes = None
        if config.augmentation and jax.tree.leaves(images):
            key, augment_key = jax.random.split(key)
            changes = draw_changes(
                config.augmentation, augment_key, config.num_worlds, images.obs, images.critic_obs
            )
        batches, places = shuffled((samples, rows), key, config.minibatches)
        if config.normalize_advantages:
            standardized = functools.partial(_standardized, floor=numbers.advantage_floor)
            batches = batches._replace(advantage=jax.vmap(standardized)(batches.advantage))
        batches = split(pieces.mesh, (batches, places), axis=1)
        step = functools.partial(gradient_step, changes)
        (networks, optimizer, learning_rate), measured = jax.lax.scan(step, carry, batches)
        adapted = _adapted(learning_rate, measured["ppo/kl"][-1], numbers)
        return (networks, optimizer, adapted), measured

    (networks, optimizer, learning_rate), measured = jax.lax.scan(epoch, carry, epoch_keys)
    metrics = {name: value.mean() for name, value in measured.items()}
    metrics["ppo/explained_variance"] = _explained_variance(samples.value, samples.target)
    metrics["ppo/learning_rate"] = learning_rate
    metrics["train/updates"] = learning.updates + 1
    return dataclasses.replace(
        learning,
        networks=networks,
        optimizer=optimizer,
        learning_rate=learning_rate,
        key=key,
        updates=learning.updates + 1,
    ), metrics


def as_if_seen(networks: Networks | SharedImageEncoder, batch: Batch) -> Batch:
    """A batch of changed images, with what the policy that acted would have drawn from at them.

    Else its KL divergence to a new policy would measure how images were changed, and the learning
    rate that it leads would fall to nothing. The probability ratio stays that of the action at the
    image that it was drawn for: at a changed one it may be so unlikely that ratios have no bound.
    """
    heads, obs, _ = heads_and_features(networks, batch.obs, batch.critic_obs)
    return batch._replace(distribution=heads.actor(obs))


def clipped_loss(networks: Networks, batch: Batch, numbers: Numbers) -> tuple[Array, Metrics]:
    """PPO's objective: Schulman et al. (2017), equation 9, with the policy term of equation 7.

    Returns:
        The loss `()`, and what to report of it; `ppo/kl` is what leads the learning rate.
    """
    networks, obs, critic_obs = heads_and_features(networks, batch.obs, batch.critic_obs)
    distribution = networks.actor(obs)
    log_ratio = distribution.log_prob(batch.action) - batch.log_prob
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - numbers.clip, 1 + numbers.clip)
    policy_loss = -jnp.minimum(ratio * batch.advantage, clipped * batch.advantage).mean()

    value = networks.critic(critic_obs)[..., 0]
    value_loss = _value_loss(value, batch, numbers.value_clip)
    entropy = distribution.entropy().mean()
    # A spread of more than half the actions' range is only clipped: it earns nothing.
    bonus = entropy - jnp.maximum(distribution.log_std, 0.0).sum(-1).mean()
    total = policy_loss + numbers.value_weight * value_loss - numbers.entropy_weight * bonus
    return total, {
        "loss/policy": policy_loss,
        "loss/value": value_loss,
        "loss/entropy": entropy,
        "ppo/kl": distribution.kl_from(batch.distribution).mean(),
        "ppo/clip_fraction": (jnp.abs(ratio - 1) > numbers.clip).mean(),
        "ppo/action_std": jnp.exp(distribution.log_std).mean(),
    }


def _value_loss(value: Array, batch: Batch, value_clip: Array) -> Array:
    """Half the mean squared error, or with the value's move clipped the worse of the two."""
    reach = jnp.where(value_clip > 0, value_clip, jnp.inf)
    near = batch.value + jnp.clip(value - batch.value, -reach, reach)
    worse = jnp.maximum((value - batch.target) ** 2, (near - batch.target) ** 2)
    return 0.5 * worse.mean()


def _clip_norm(gradient: PyTree, largest: Array) -> tuple[PyTree, Array]:
    """The gradient scaled down to a norm of at most `largest`, and its norm before."""
    norm = optax.tree.norm(gradient)
    scale = jnp.minimum(1.0, largest / (norm + 1e-6))
    return jax.tree.map(lambda g: g * scale, gradient), norm


def _standardized(values: Array, floor: Array) -> Array:
    """With mean 0 and standard deviation 1; less where it was below the floor."""
    return (values - values.mean()) / (jnp.maximum(values.std(), floor) + 1e-8)


def _annealed(learning: LearnerState) -> Array:
    """The learning rate of this update."""
    numbers = learning.numbers
    updates = learning.updates.astype(jnp.float32)
    progress = jnp.clip(updates / jnp.maximum(numbers.anneal_updates, 1.0), 0.0, 1.0)
    annealed = numbers.learning_rate * (1.0 - 0.9 * progress)
    return jnp.where(numbers.anneal_updates > 0, annealed, learning.learning_rate)


def _adapted(learning_rate: Array, kl: Array, numbers: Numbers) -> Array:
    """The learning rate led by the KL divergence: Schulman et al. (2017), section 4, for Adam.

    A policy that is sure of itself hardly moves, and would let the rate grow until the value
    function breaks: twice what was configured is the most.
    """
    target, most = numbers.target_kl, 2.0 * numbers.learning_rate
    factor = jnp.where(kl > 2.0 * target, 1 / 1.5, jnp.where(kl < 0.5 * target, 1.5, 1.0))
    adapted = jnp.clip(learning_rate * factor, 1e-5, most)
    return jnp.where(target > 0, adapted, learning_rate)


def _explained_variance(value: Array, target: Array) -> Array:
    """The share of the targets' variance that the value function explains, `()`; 1 is all."""
    return 1.0 - (target - value).var() / (target.var() + 1e-8)
