"""Soft actor-critic: Haarnoja et al. (2018), "Soft Actor-Critic Algorithms and Applications".

It has these additions: critics with layer normalisation (Hiraoka et al. 2022, "Dropout Q-functions
for doubly efficient reinforcement learning"; Ball et al. 2023, "Efficient online reinforcement
learning with offline data"), a policy that learns less often than the critics (Fujimoto et al.
2018, "Addressing function approximation error in actor-critic methods"), and many parallel worlds.
From images with random shifts it is DrQ: Kostrikov, Yarats and Fergus (2020), "Image augmentation
is all you need".

An update is two programs: one acts (a rollout, which calls the engine), one stores and learns (pure
arithmetic). Each is traced once. `update` does not change its arguments, so you can continue from
an older state; this costs a copy of the replay buffer for each update. `update_in_place`, which
`run` calls, writes into the replay buffer of its argument, with the same result.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from worldline.keys import as_key
from worldline.learn.batched_env import BatchedEnv
from worldline.learn.collector import CollectorState, collect, update_metrics
from worldline.learn.curriculum import Curriculum, moved
from worldline.learn.gradient import descend
from worldline.learn.hyperparameters import hyperparameters
from worldline.learn.networks.mlp import MLP
from worldline.learn.normalizer import ObservationStatistics
from worldline.learn.policy import Policy
from worldline.learn.replay import Replay, Transitions
from worldline.learn.rollout import Rollout
from worldline.learn.run import Learner
from worldline.learn.sac.config import SACConfig
from worldline.learn.sac.loss import (
    Batch,
    actor_loss,
    batch_of,
    critic_loss,
    image_changes,
    soft_target,
)
from worldline.learn.sac.memory import check_memory, empty_replay, kept
from worldline.learn.sac.networks import Networks, initial_networks, squashed
from worldline.parallel.devices import apart, put
from worldline.parallel.mesh import (
    BY_WORLD,
    EVERYWHERE,
    STEPS_BY_WORLD,
    mean_over_shares,
    shared,
)
from worldline.types import Array, Key, Metrics, Observation, PyTree
from worldline.variation.domain import Ranges


class Hyperparameters(eqx.Module):
    """Numbers of the configuration as arrays: another value recompiles nothing."""

    learning_starts: Array
    learning_rate: Array
    critic_learning_rate: Array
    target_rate: Array
    discount: Array
    target_entropy: Array


class LearnerState(eqx.Module):
    """The part of the training state that learning reads and changes, without the replay buffer."""

    networks: Networks
    target_critics: MLP
    critic_optimizer: PyTree
    """Adam's moments of the critics and their encoder."""
    actor_optimizer: PyTree
    """Adam's moments of the policy and its own encoder."""
    temperature_optimizer: PyTree
    statistics: ObservationStatistics
    hyperparameters: Hyperparameters
    updates: Array
    """Updates so far, `()` int32."""


class SACState(eqx.Module):
    """The whole training state, a pytree."""

    acting: CollectorState
    learning: LearnerState
    replay: Replay
    key: Key
    """The random key of learning."""


def sac(
    worlds: BatchedEnv[Any], config: SACConfig, *, curriculum: Curriculum | None = None
) -> Learner[SACState]:
    """SAC on worlds. It acts on their device, and learns on the current default device of JAX.

    Args:
        worlds: the worlds to act in, `config.num_worlds` of them.
        config: how to train.
        curriculum: changes the ranges from which episodes are drawn, after every update. It is
            compiled; the ranges keep their names and shapes.

    Raises:
        ConfigError: the number of worlds differs from the configuration's; there is no such image
            to observe; or the replay buffer does not fit into memory.
    """
    config.check_worlds(worlds)
    mesh = worlds.mesh
    config.check_devices(1 if mesh is None else mesh.size)
    low, high = jnp.asarray(worlds.env.action_low), jnp.asarray(worlds.env.action_high)
    bounded = jnp.isfinite(low) & jnp.isfinite(high)
    shapes = config.image_shapes(worlds.env)

    def policy(learning: LearnerState) -> Policy:
        networks, statistics = learning.networks, learning.statistics.actor
        encoder = networks.encoder.only(config.actor_obs).beside(networks.actor_encoder)
        return Policy(networks.actor, statistics, low, high, "tanh", config.actor_obs, encoder)

    @jax.jit
    def act(acting: CollectorState, policy: Policy) -> tuple[CollectorState, Rollout, Metrics]:
        return collect(worlds, acting, policy, config.unroll_length)

    begin = jax.jit(functools.partial(_begin, config, low.shape[0], shapes, mesh))

    def learn_from(
        learning: LearnerState,
        replay: Replay,
        ranges: Ranges,
        key: Key,
        rollout: Rollout,
        summary: Metrics,
    ) -> tuple[LearnerState, Replay, Ranges, Key, Metrics]:
        key, learn_key = jax.random.split(key)
        learning, replay = remember(config, learning, replay, rollout, bounded, mesh)
        learning, measured = learn(config, learning, replay, learn_key, bounded, mesh)
        metrics = update_metrics(summary, measured)
        return learning, replay, moved(curriculum, metrics, ranges), key, metrics

    here, there = apart(worlds.device)

    def init(key: Key) -> SACState:
        worlds_key, act_key, begin_key, learn_key = jax.random.split(as_key(key), 4)
        state = worlds.reset(worlds_key)
        check_memory(config, state.obs, low.shape[0], mesh)
        learning, replay = begin(begin_key, put(state.obs, there))
        acting = put(CollectorState(state, (), act_key), here)
        return SACState(acting, learning, replay, learn_key)

    def updating(learn_from: Callable[..., Any]) -> Callable[[SACState], tuple[SACState, Metrics]]:
        def update(state: SACState) -> tuple[SACState, Metrics]:
            acts = put(policy(state.learning), here)
            acting, rollout, summary = act(put(state.acting, here), acts)
            given = put((acting.worlds.ranges, state.key, rollout, summary), there)
            kept = put((state.learning, state.replay), there)
            learning, replay, ranges, key, metrics = learn_from(*kept, *given)
            return SACState(acting.with_ranges(put(ranges, here)), learning, replay, key), metrics

        return update

    return Learner(
        init=init,
        update=updating(jax.jit(learn_from)),
        policy=lambda state: put(policy(state.learning), here),
        steps_per_update=config.steps_per_update,
        parts=_PARTS,
        update_in_place=updating(jax.jit(learn_from, donate_argnames="replay")),
    )


#: The parts of a state that another run can begin with. The critics' encoder goes with both.
_PARTS: dict[str, Callable[[SACState], PyTree]] = {
    "actor": lambda state: (
        state.learning.networks.encoder,
        state.learning.networks.actor_encoder,
        state.learning.networks.actor,
    ),
    "critic": lambda state: (
        state.learning.networks.encoder,
        state.learning.networks.critics,
        state.learning.target_critics,
    ),
    "statistics": lambda state: state.learning.statistics,
}


def _begin(
    config: SACConfig,
    nact: int,
    shapes: Mapping[str, Sequence[int]],
    mesh: Mesh | None,
    key: Key,
    obs: Observation,
) -> tuple[LearnerState, Replay]:
    """Networks, optimisers, statistics and an empty replay buffer before any training."""
    seen = config.select(obs)
    networks = initial_networks(config, key, *seen, nact, shapes)
    learning = LearnerState(
        networks=networks,
        target_critics=networks.critics,
        critic_optimizer=_ADAM.init((networks.encoder, networks.critics)),
        actor_optimizer=_ADAM.init((networks.actor_encoder, networks.actor)),
        temperature_optimizer=_ADAM.init(networks.log_temperature),
        statistics=ObservationStatistics.zero(*seen),
        hyperparameters=hyperparameters(Hyperparameters, config),
        updates=jnp.int32(0),
    )
    return learning, empty_replay(config, obs, nact, mesh)


_ADAM = optax.scale_by_adam()


def remember(
    config: SACConfig,
    learning: LearnerState,
    replay: Replay,
    rollout: Rollout,
    bounded: Array,
    mesh: Mesh | None = None,
) -> tuple[LearnerState, Replay]:
    """A rollout put into the replay buffer and the statistics. Pure.

    Each device of the mesh stores the steps of its own worlds.
    """
    steps = Transitions(
        obs=kept(config, rollout.obs),
        action=squashed(rollout.action, bounded),
        reward=rollout.reward,
        terminated=rollout.terminated,
        next_obs=kept(config, rollout.final_obs),
    )
    if config.normalize_observations:
        statistics = learning.statistics.update(*config.select(rollout.obs))
        learning = dataclasses.replace(learning, statistics=statistics)
    push = shared(mesh, Replay.push, (BY_WORLD, STEPS_BY_WORLD, STEPS_BY_WORLD), BY_WORLD)
    return learning, push(replay, steps, rollout.terminated | rollout.truncated)


def learn(
    config: SACConfig,
    learning: LearnerState,
    replay: Replay,
    key: Key,
    bounded: Array,
    mesh: Mesh | None = None,
) -> tuple[LearnerState, Metrics]:
    """A round of gradient steps, or none while there are too few transitions. Pure.

    Each device of the mesh draws from its own groups of worlds, as many transitions of each.
    """
    nact = bounded.shape[0]
    draws = _draws(config, replay, key, nact, mesh)
    sharing = config, replay, bounded, mesh
    critic_gradient = _over_shares(_critic_gradient, *sharing)
    actor_gradient = _over_shares(_actor_gradient, *sharing)

    def critic_step(learning: LearnerState, draw: PyTree) -> tuple[LearnerState, Metrics]:
        return _critic_step(learning, critic_gradient(learning, draw))

    def gradient_round(learning: LearnerState, draws: PyTree) -> tuple[LearnerState, Metrics]:
        """`actor_delay` steps of the critics, then one of policy and temperature."""
        for_critics, for_actor = [x[:-1] for x in draws], tuple(x[-1] for x in draws)
        learning, of_critics = jax.lax.scan(critic_step, learning, for_critics)
        learning, of_actor = _actor_step(learning, actor_gradient(learning, for_actor), nact)
        return learning, of_critics | of_actor

    def gradient_steps(learning: LearnerState) -> tuple[LearnerState, Metrics]:
        learning, measured = jax.lax.scan(gradient_round, learning, draws)
        return learning, {name: measured[name].mean() for name in _MEASURED}

    def nothing(learning: LearnerState) -> tuple[LearnerState, Metrics]:
        return learning, dict.fromkeys(_MEASURED, jnp.zeros((), jnp.float32))

    stored = replay.pushed.sum(dtype=jnp.int32).astype(jnp.float32)
    enough = stored >= learning.hyperparameters.learning_starts
    learning, metrics = jax.lax.cond(enough, gradient_steps, nothing, learning)
    metrics["sac/temperature"] = jnp.exp(learning.networks.log_temperature)
    metrics["sac/replay_size"] = replay.size.sum(dtype=jnp.int32)
    metrics["train/updates"] = learning.updates + 1
    return dataclasses.replace(learning, updates=learning.updates + 1), metrics


#: The metrics of the gradient steps.
_MEASURED = ("loss/critic", "loss/actor", "sac/value", "sac/entropy")


def _draws(
    config: SACConfig, replay: Replay, key: Key, nact: int, mesh: Mesh | None
) -> tuple[Array, Array, Array]:
    """Draws what the gradient steps of an update need, which are n in each round of several.

    Returns:
        Transitions, `(rounds, n, batch_size)`; noise, `(rounds, n, batch_size, nact)`; keys of the
        changes of images, as words, `(rounds, n, ...)`.
    """
    slots_key, critic_key, actor_key, images_key = jax.random.split(key, 4)
    rounds, size = config.critic_steps // config.actor_delay, config.batch_size
    each, groups = (rounds, config.actor_delay + 1), config.groups()
    keys = slots_key[None] if groups == 1 else jax.random.split(slots_key, groups)

    def draw(replay: Replay, keys: Key) -> Array:
        return replay.draw(keys, (math.prod(each), size // groups))

    slots = shared(mesh, draw, (BY_WORLD, BY_WORLD), STEPS_BY_WORLD)(replay, keys)
    # All drawn at once: a generator run in the loop would cost more.
    noise = [
        jax.random.normal(critic_key, (rounds, config.actor_delay, size, nact), jnp.float32),
        jax.random.normal(actor_key, (rounds, 1, size, nact), jnp.float32),
    ]
    # As words: under `vmap`, JAX's check takes a `cond` for a second use of keys.
    words = jax.random.key_data(jax.random.split(images_key, each))
    return slots.reshape(*each, size), jnp.concatenate(noise, axis=1), words


def _over_shares(
    gradient_of: Callable[[LearnerState, Batch, Array], Any],
    config: SACConfig,
    replay: Replay,
    bounded: Array,
    mesh: Mesh | None,
) -> Callable[[LearnerState, PyTree], Any]:
    """A gradient by a minibatch of `_draws`, as the mean of those of the devices' shares."""

    def of_share(learning: LearnerState, replay: Replay, draw: PyTree) -> Any:
        slots, *drawn = draw
        batch = batch_of(config, learning.statistics, replay.at(slots), *drawn)
        return gradient_of(learning, batch, bounded)

    takes = EVERYWHERE, BY_WORLD, BY_WORLD
    mean = mean_over_shares(mesh, of_share, takes, config.batch_size)

    def of_draw(learning: LearnerState, draw: PyTree) -> Any:
        slots, noise, words = draw
        key = jax.random.wrap_key_data(words)
        changes = image_changes(config, key, config.batch_size, replay.observations)
        return mean(learning, replay, (slots, noise, changes))

    return of_draw


def _critic_gradient(learning: LearnerState, batch: Batch, bounded: Array) -> Any:
    """The loss of the critics and their mean value, and the gradient by critics and encoder."""
    networks, discount = learning.networks, learning.hyperparameters.discount
    target = soft_target(networks, learning.target_critics, batch, discount, bounded)
    loss = jax.value_and_grad(critic_loss, has_aux=True)
    return loss((networks.encoder, networks.critics), batch, target)


def _critic_step(learning: LearnerState, measured: Any) -> tuple[LearnerState, Metrics]:
    """A gradient step of critics and encoders, and a small one of the targets towards them.

    Args:
        learning: the state before it.
        measured: what `_critic_gradient` gives, as the mean of the devices' shares.
    """
    networks, numbers = learning.networks, learning.hyperparameters
    (loss, value), gradient = measured
    learned, rate = (networks.encoder, networks.critics), numbers.critic_learning_rate
    learned, moments = descend(_ADAM, learned, gradient, learning.critic_optimizer, rate)
    encoder, critics = learned
    return dataclasses.replace(
        learning,
        networks=dataclasses.replace(networks, encoder=encoder, critics=critics),
        target_critics=optax.incremental_update(
            critics, learning.target_critics, numbers.target_rate
        ),
        critic_optimizer=moments,
    ), {"loss/critic": loss, "sac/value": value}


def _actor_gradient(learning: LearnerState, batch: Batch, bounded: Array) -> Any:
    """The loss and the entropy of the policy, and the gradient by policy and its own encoder."""
    networks = learning.networks
    loss = jax.value_and_grad(actor_loss, has_aux=True)
    return loss((networks.actor_encoder, networks.actor), networks, batch, bounded)


def _actor_step(learning: LearnerState, measured: Any, nact: int) -> tuple[LearnerState, Metrics]:
    """A gradient step of the policy, and one of the temperature.

    Args:
        learning: the state before it.
        measured: what `_actor_gradient` gives, as the mean of the devices' shares.
        nact: the size of an action.
    """
    networks, numbers = learning.networks, learning.hyperparameters
    (loss, entropy), gradient = measured
    learned, rate = (networks.actor_encoder, networks.actor), numbers.learning_rate
    learned, moments = descend(_ADAM, learned, gradient, learning.actor_optimizer, rate)
    actor_encoder, actor = learned
    wanted = numbers.target_entropy * nact
    log_temperature, temperature_moments = descend(
        _ADAM,
        networks.log_temperature,
        # Haarnoja et al. (2018), equation 18, by the temperature's logarithm.
        jnp.exp(networks.log_temperature) * (entropy - wanted),
        learning.temperature_optimizer,
        rate,
    )
    return dataclasses.replace(
        learning,
        networks=dataclasses.replace(
            networks, actor_encoder=actor_encoder, actor=actor, log_temperature=log_temperature
        ),
        actor_optimizer=moments,
        temperature_optimizer=temperature_moments,
    ), {"loss/actor": loss, "sac/entropy": entropy}
