"""Proximal policy optimisation: Schulman et al. (2017), "Proximal Policy Optimization Algorithms".

With what makes it good in continuous control (Andrychowicz et al. 2021, "What matters in on-policy
reinforcement learning?"; Huang et al. 2022, "The 37 implementation details of PPO"): running
statistics of observations and of returns, generalised advantages that bootstrap where an episode
was cut, orthogonal initialisation, gradient clipping, and a learning rate that is fixed, annealed
or led by the KL divergence.

An update is two programs: one acts (a rollout, which calls the engine), one learns (pure
arithmetic). Each is traced once. Every piece can be another: `ppo` takes functions for the
networks, the loss, the optimiser, the advantage, the rollout and the curriculum.
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

from worldline.env.worlds import WorldsState
from worldline.errors import ConfigError
from worldline.learn.batched_env import BatchedEnv
from worldline.learn.bootstrap import LeanWorlds
from worldline.learn.curriculum import Curriculum, moved
from worldline.learn.gradient import clipped, descended
from worldline.learn.images import changed, draw_changes, is_image_array
from worldline.learn.networks.actor_critic import ActorCritic
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy
from worldline.learn.ppo.config import PPOConfig
from worldline.learn.ppo.loss import (
    adapted_rate,
    annealed_rate,
    clipped_loss,
    explained_variance,
    standardized,
)
from worldline.learn.ppo.networks import MakeNetworks, networks_for
from worldline.learn.ppo.samples import Batch, last, observed, prepare, shuffled, value_of
from worldline.learn.ppo.state import CollectorState, Hyperparameters, LearnerState, PPOState
from worldline.learn.returns import generalized_advantage
from worldline.learn.rollout import Rollout, unroll
from worldline.learn.run import Learner
from worldline.parallel.mesh import BY_WORLD, EVERYWHERE, mean_over_shares, split
from worldline.rendering.camera import image_names
from worldline.types import Array, Key, Metrics, Observation, PyTree
from worldline.variation.domain import Ranges

#: From networks, a batch and the hyperparameters to what is minimised, `()`, and what to report of
#: it. All are means over the samples: each of several devices has its share of a minibatch.
Loss: TypeAlias = Callable[[ActorCritic, Batch, Hyperparameters], tuple[Array, Metrics]]


class Pieces(NamedTuple):
    """What an update is made of."""

    worlds: BatchedEnv[Any]
    config: PPOConfig
    networks: MakeNetworks
    loss: Loss
    optimizer: optax.GradientTransformation
    advantage: Callable[..., Array]
    rollout: Callable[..., tuple[WorldsState, Rollout, Metrics]]
    curriculum: Curriculum | None


def ppo(
    worlds: BatchedEnv[Any],
    config: PPOConfig,
    *,
    networks: MakeNetworks | None = None,
    loss: Loss = clipped_loss,
    optimizer: optax.GradientTransformation | None = None,
    advantage: Callable[..., Array] = generalized_advantage,
    rollout: Callable[..., tuple[WorldsState, Rollout, Metrics]] = unroll,
    curriculum: Curriculum | None = None,
) -> Learner[PPOState]:
    """PPO on worlds.

    Args:
        worlds: where to act; as many as `config.num_worlds`.
        config: how to train.
        networks: makes policy and critic; by default `actor_critic(config, ...)` with the images
            that are observed.
        loss: what is minimised.
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
    networks = networks or networks_for(config, worlds.env)
    optimizer = optimizer or optax.scale_by_adam(eps=1e-5)
    pieces = Pieces(worlds, config, networks, loss, optimizer, advantage, rollout, curriculum)
    begin, act, learn_from = (
        jax.jit(functools.partial(function, pieces)) for function in (_begin, _act, _learn_from)
    )

    def init(key: Key) -> PPOState:
        worlds_key, act_key, learn_key = jax.random.split(key, 3)
        state = worlds.stagger(worlds.reset(worlds_key))
        learning = begin(learn_key, state.obs)
        memory = learning.networks.actor.start(config.num_worlds)
        return PPOState(CollectorState(state, memory, act_key), learning)

    def update(state: PPOState) -> tuple[PPOState, Metrics]:
        acting, taken, summary = act(state.acting, state.learning)
        learning, ranges, metrics = learn_from(state.learning, taken, state.acting, acting, summary)
        moved_worlds = dataclasses.replace(acting.worlds, ranges=ranges)
        return PPOState(dataclasses.replace(acting, worlds=moved_worlds), learning), metrics

    return Learner(
        init=init,
        update=update,
        policy=lambda state: _policy(pieces, state.learning),
        steps_per_update=config.num_worlds * config.unroll_length,
        parts=_PARTS,
    )


#: What another run may begin with.
_PARTS: dict[str, Callable[[PPOState], PyTree]] = {
    "actor": lambda state: state.learning.networks.parts()["actor"],
    "critic": lambda state: state.learning.networks.parts()["critic"],
    "statistics": lambda state: (
        state.learning.statistics,
        state.learning.critic_statistics,
        state.learning.return_statistics,
    ),
}


def _begin(pieces: Pieces, key: Key, obs: Observation) -> LearnerState:
    """Networks, optimiser and statistics before any training."""
    config, (networks_key, key) = pieces.config, jax.random.split(key)
    seen = observed(config, obs)
    nobs, ncritic = (part["state"].shape[-1] for part in seen)
    nact = len(pieces.worlds.env.action_low)
    networks = pieces.networks(networks_key, nobs, ncritic, nact).centred(*seen)
    if networks.remembers:
        config.check_for_memory()
    updates = config.anneal_steps / (config.num_worlds * config.unroll_length)
    values = {
        field.name: jnp.float32(getattr(config, field.name, updates))
        for field in dataclasses.fields(Hyperparameters)
    }
    return LearnerState(
        networks=networks,
        optimizer=pieces.optimizer.init(networks),
        learning_rate=jnp.float32(config.learning_rate),
        statistics=RunningStatistics.zero((nobs,)),
        critic_statistics=RunningStatistics.zero((ncritic,)),
        critic_memory=networks.critic.start(config.num_worlds),
        return_so_far=jnp.zeros(config.num_worlds),
        return_statistics=RunningStatistics.zero(()),
        hyperparameters=Hyperparameters(**values),
        updates=jnp.int32(0),
        key=key,
    )


def _policy(pieces: Pieces, learning: LearnerState) -> Policy:
    return Policy(
        actor=learning.networks.actor,
        statistics=learning.statistics,
        low=jnp.asarray(pieces.worlds.env.action_low),
        high=jnp.asarray(pieces.worlds.env.action_high),
        squash=pieces.config.squash,
        obs_keys=pieces.config.actor_obs,
        encoder=learning.networks.encoder,
    )


def _act(
    pieces: Pieces, acting: CollectorState, learning: LearnerState
) -> tuple[CollectorState, Rollout, Metrics]:
    """A rollout, `(T, B)`. Of images it keeps those acted on, and only values of final ones."""
    key, unroll_key = jax.random.split(acting.key)
    obs: Any = acting.worlds.obs
    worlds: Any = pieces.worlds
    if isinstance(obs, dict) and image_names(obs) and not learning.networks.remembers:
        worlds = LeanWorlds(worlds, functools.partial(value_of, pieces.config, learning))
    state, taken, summary = pieces.rollout(
        worlds,
        acting.worlds,
        _policy(pieces, learning),
        unroll_key,
        pieces.config.unroll_length,
        acting.memory,
    )
    return CollectorState(state, last(taken.memory), key), taken, summary


def _learn_from(
    pieces: Pieces,
    learning: LearnerState,
    rollout: Rollout,
    before: CollectorState,
    after: CollectorState,
    summary: Metrics,
) -> tuple[LearnerState, Ranges, Metrics]:
    """Learning from a rollout, and the ranges that later episodes are drawn from. Pure."""
    samples, learning = prepare(
        pieces.config, learning, rollout, before.memory, after.worlds.obs, pieces.advantage
    )
    learning, measured = learn(pieces, learning, samples)
    metrics = {f"train/{name}": value for name, value in summary.items()} | measured
    ranges = after.worlds.ranges
    if pieces.curriculum is not None:
        ranges = moved(pieces.curriculum, metrics, ranges)
    return learning, ranges, metrics


def learn(pieces: Pieces, learning: LearnerState, samples: Batch) -> tuple[LearnerState, Metrics]:
    """A round of learning: passes of gradient steps over the samples. Pure."""
    config, numbers = pieces.config, learning.hyperparameters
    key, shuffle_key = jax.random.split(learning.key)
    rate = annealed_rate(learning.learning_rate, learning.updates, numbers)
    # Images are much: they stay where they are, and each gradient step takes its own out.
    images, samples = eqx.partition(samples, is_image_array)
    rows = jnp.arange(len(samples.value))

    def epoch(carry: PyTree, key: Key) -> tuple[PyTree, Metrics]:
        changes = None
        if config.augmentation and jax.tree.leaves(images):
            key, augment_key = jax.random.split(key)
            seen = images.segments.obs, images.segments.critic_obs
            changes = draw_changes(config.augmentation, augment_key, config.num_worlds, *seen)
        batches, places = shuffled((samples, rows), key, config.minibatches)
        if config.normalize_advantages:
            standardize = functools.partial(standardized, floor=numbers.advantage_floor)
            batches = batches._replace(advantage=jax.vmap(standardize)(batches.advantage))
        batches = split(pieces.worlds.mesh, (batches, places), axis=1)

        def step(carry: PyTree, taken: tuple[Batch, Array]) -> tuple[PyTree, Metrics]:
            batch = _with_images(config, learning.networks, *taken, images, changes)
            return _gradient_step(pieces, numbers, carry, batch)

        (networks, optimizer, rate), measured = jax.lax.scan(step, carry, batches)
        rate = adapted_rate(rate, measured["ppo/kl"][-1], numbers)
        return (networks, optimizer, rate), measured

    (networks, optimizer, rate), measured = jax.lax.scan(
        epoch,
        (learning.networks, learning.optimizer, rate),
        jax.random.split(shuffle_key, config.epochs),
    )
    metrics = {name: value.mean() for name, value in measured.items()}
    metrics["ppo/explained_variance"] = explained_variance(samples.value, samples.target)
    metrics["ppo/learning_rate"] = rate
    metrics["train/updates"] = learning.updates + 1
    return dataclasses.replace(
        learning,
        networks=networks,
        optimizer=optimizer,
        learning_rate=rate,
        key=key,
        updates=learning.updates + 1,
    ), metrics


def _with_images(
    config: PPOConfig,
    networks: ActorCritic,
    batch: Batch,
    rows: Array,
    images: Batch,
    changes: dict[str, Any] | None,
) -> Batch:
    """A batch with its images, changed as drawn.

    What the policy that acted would have drawn from at changed images then takes the place of what
    it drew from. Else the KL divergence to a new policy would measure how images were changed, and
    the learning rate that it leads would fall to nothing. The probability ratio stays that of the
    action at the image that it was drawn for: at a changed one it may be so unlikely that ratios
    have no bound.
    """
    seen = jax.tree.map(lambda x: x[rows], images)
    if changes is None:
        return eqx.combine(batch, seen)
    change = functools.partial(changed, config.augmentation, changes, rows % config.num_worlds)
    obs, critic_obs = change(seen.segments.obs), change(seen.segments.critic_obs)
    seen = seen._replace(segments=seen.segments._replace(obs=obs, critic_obs=critic_obs))
    batch = eqx.combine(batch, seen)
    return batch._replace(distribution=networks.evaluate(batch.segments)[0])


def _gradient_step(
    pieces: Pieces, numbers: Hyperparameters, carry: PyTree, batch: Batch
) -> tuple[PyTree, Metrics]:
    networks, optimizer, learning_rate = carry
    gradient_of = mean_over_shares(
        pieces.worlds.mesh,
        jax.value_and_grad(pieces.loss, has_aux=True),
        takes=(EVERYWHERE, BY_WORLD, EVERYWHERE),
        samples=len(batch.value),
    )
    (_, measured), gradient = gradient_of(networks, batch, numbers)
    bounded, norm = clipped(gradient, numbers.max_grad_norm)
    direction, optimizer = pieces.optimizer.update(bounded, optimizer, networks)
    networks = descended(networks, direction, learning_rate)
    return (networks, optimizer, learning_rate), measured | {"ppo/grad_norm": norm}
