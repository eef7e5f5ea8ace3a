"""Proximal policy optimisation: Schulman et al. (2017), "Proximal Policy Optimization Algorithms".

It has these additions for continuous control (Andrychowicz et al. 2021, "What matters in on-policy
reinforcement learning?"; Huang et al. 2022, "The 37 implementation details of PPO"): running
statistics of observations and of returns, generalised advantages that bootstrap where an episode
was cut, orthogonal initialisation, gradient clipping, and a learning rate that is fixed, annealed
or adapted by the KL divergence.

An update is two programs: one acts (a rollout, which calls the engine), one learns (pure
arithmetic). Each is traced once. With a lag of one update, neither waits for the other: one learns
from the last rollout while the other makes the next one. You can replace every piece: `ppo` takes
functions for the networks, the loss, the optimiser, the advantage, the rollout and the curriculum.
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

from worldline.keys import as_key
from worldline.learn.augmentation import changed, draw_changes
from worldline.learn.batched_env import BatchedEnv
from worldline.learn.bootstrap import BOOTSTRAP_VALUE, TruncationBootstrap, next_values
from worldline.learn.collector import (
    CollectorState,
    Experience,
    Unroll,
    collect,
    last_step,
    update_metrics,
)
from worldline.learn.curriculum import Curriculum, moved
from worldline.learn.gradient import annealed, clipped, descend
from worldline.learn.hyperparameters import hyperparameters
from worldline.learn.networks.actor_critic import ActorCritic, Segments
from worldline.learn.normalizer import ObservationStatistics
from worldline.learn.policy import Policy
from worldline.learn.ppo.config import PPOConfig
from worldline.learn.ppo.loss import Batch, Hyperparameters, clipped_loss, squashed_actions
from worldline.learn.ppo.networks import MakeNetworks, Mirrors, actor_critic, mirrors_of
from worldline.learn.returns import (
    RewardScale,
    explained_variance,
    generalized_advantage,
    standardized,
)
from worldline.learn.rollout import Rollout, unroll
from worldline.learn.run import Halves, Learner
from worldline.learn.shuffle import shuffled, taken
from worldline.parallel.devices import apart, put
from worldline.parallel.mesh import BY_WORLD, EVERYWHERE, mean_over_shares
from worldline.rendering.camera import image_names
from worldline.types import Array, Key, Metrics, Observation, PyTree

#: From networks, a batch and the hyperparameters to the loss, `()`, and its metrics. All are means
#: over the samples: each of several devices has its share of a minibatch.
Loss: TypeAlias = Callable[[ActorCritic, Batch, Hyperparameters], tuple[Array, Metrics]]


class LearnerState(eqx.Module):
    """The part of the training state that learning reads and changes."""

    networks: ActorCritic
    optimizer: PyTree
    learning_rate: Array
    statistics: ObservationStatistics
    critic_memory: PyTree
    """The critic's memory of each world's episode, `(B, ...)`; `()` without a memory."""
    reward_scale: RewardScale
    hyperparameters: Hyperparameters
    updates: Array
    """Updates so far, `()` int32."""
    key: Key

    def that_acts(self) -> LearnerState:
        """The state without the parts that acting does not read, so that they are not copied
        between devices.
        """
        return dataclasses.replace(self, optimizer=(), critic_memory=())


class PPOState(eqx.Module):
    """The whole training state, a pytree."""

    acting: CollectorState
    learning: LearnerState
    pending: Experience | None = None
    """With a lag of one update, the rollout that the next one learns from; None before the first
    update, and without a lag."""


class Pieces(NamedTuple):
    """The pieces of an update."""

    worlds: BatchedEnv[Any]
    config: PPOConfig
    networks: MakeNetworks
    loss: Loss
    optimizer: optax.GradientTransformation
    advantage: Callable[..., Array]
    rollout: Unroll
    curriculum: Curriculum | None
    mirrors: Mirrors | None


def ppo(
    worlds: BatchedEnv[Any],
    config: PPOConfig,
    *,
    networks: MakeNetworks | None = None,
    loss: Loss | None = None,
    optimizer: optax.GradientTransformation | None = None,
    advantage: Callable[..., Array] = generalized_advantage,
    rollout: Unroll = unroll,
    curriculum: Curriculum | None = None,
) -> Learner[PPOState]:
    """PPO on worlds. It acts on their device, and learns on the current default device of JAX.

    Args:
        worlds: the worlds to act in, `config.num_worlds` of them.
        config: how to train.
        networks: makes policy and critic; by default `actor_critic(config, ...)` with the images
            that are observed.
        loss: the function to minimise; by default `clipped_loss`.
        optimizer: converts a gradient to the direction of a step; the learning rate in the state is
            its length. By default Adam.
        advantage: as `generalized_advantage`.
        rollout: as `unroll`.
        curriculum: changes the ranges from which episodes are drawn, after every update. It is
            compiled; the ranges keep their names and shapes.

    Raises:
        ConfigError: the number of worlds differs from the configuration's; or the networks cannot
            be made.
    """
    config.check_worlds(worlds)
    mirrors = mirrors_of(config, worlds.env) if config.symmetry else None
    networks = networks or actor_critic(config, config.image_shapes(worlds.env), mirrors)
    loss = loss or functools.partial(clipped_loss, squashed=squashed_actions(config, worlds.env))
    optimizer = optimizer or optax.scale_by_adam(eps=1e-5)
    chosen = networks, loss, optimizer, advantage, rollout, curriculum
    pieces = Pieces(worlds, config, *chosen, mirrors)
    begin, act_there, learn_there = (
        jax.jit(functools.partial(function, pieces)) for function in (_begin, _act, _learn_from)
    )
    move_there = jax.jit(functools.partial(moved, curriculum))

    here, there = apart(worlds.device)

    def init(key: Key) -> PPOState:
        worlds_key, act_key, learn_key = jax.random.split(as_key(key), 3)
        state = worlds.stagger(worlds.reset(worlds_key))
        learning = begin(learn_key, put(state.obs, there))
        memory = learning.networks.actor.start(config.num_worlds)
        return PPOState(put(CollectorState(state, memory, act_key), here), learning)

    def act(acting: CollectorState, learning: LearnerState) -> tuple[CollectorState, Experience]:
        return act_there(put(acting, here), put(learning.that_acts(), here))

    def learn(learning: LearnerState, taken: Experience) -> tuple[LearnerState, Metrics]:
        return learn_there(put(learning, there), put(taken, there))

    def move(acting: CollectorState, metrics: Metrics) -> CollectorState:
        if curriculum is None:
            return acting
        return acting.with_ranges(move_there(put(metrics, here), acting.worlds.ranges))

    def policy(learning: LearnerState) -> Policy:
        return put(_policy(pieces, learning), here)

    halves = Halves(act, learn, move, policy)
    return Learner(
        init=init,
        update=functools.partial(_update_with_lag if config.lag else _update, halves),
        policy=lambda state: policy(state.learning),
        steps_per_update=config.steps_per_update,
        parts=_PARTS,
        halves=halves,
    )


def _update(halves: Halves, state: PPOState) -> tuple[PPOState, Metrics]:
    acting, taken = halves.act(state.acting, state.learning)
    learning, metrics = halves.learn(state.learning, taken)
    return PPOState(halves.move(acting, metrics), learning), metrics


def _update_with_lag(halves: Halves, state: PPOState) -> tuple[PPOState, Metrics]:
    acting, taken = state.acting, state.pending
    if taken is None:
        acting, taken = halves.act(acting, state.learning)
    # An accelerator learns while the CPU acts: neither reads what the other makes.
    learning, metrics = halves.learn(state.learning, taken)
    acting, taken = halves.act(acting, state.learning)
    return PPOState(halves.move(acting, metrics), learning, taken), metrics


#: The parts of a state that another run can begin with.
_PARTS: dict[str, Callable[[PPOState], PyTree]] = {
    "actor": lambda state: state.learning.networks.parts()["actor"],
    "critic": lambda state: state.learning.networks.parts()["critic"],
    "statistics": lambda state: (
        state.learning.statistics,
        state.learning.reward_scale.statistics,
    ),
}


def _begin(pieces: Pieces, key: Key, obs: Observation) -> LearnerState:
    """Networks, optimiser and statistics before any training."""
    config, (networks_key, key) = pieces.config, jax.random.split(key)
    seen = config.select(obs)
    nobs, ncritic = (part["state"].shape[-1] for part in seen)
    nact, both = len(pieces.worlds.env.action_low), pieces.mirrors
    mirrors = None if both is None else (both.actor_obs, both.critic_obs)
    networks = pieces.networks(networks_key, nobs, ncritic, nact).centred(*seen)
    if networks.remembers:
        config.check_for_memory()
    mesh = pieces.worlds.mesh
    config.check_devices(1 if mesh is None else mesh.size, networks.remembers)
    return LearnerState(
        networks=networks,
        optimizer=pieces.optimizer.init(networks),
        learning_rate=jnp.float32(config.learning_rate),
        statistics=ObservationStatistics.zero(*seen, mirrors),
        critic_memory=networks.critic.start(config.num_worlds),
        reward_scale=RewardScale.zero(config.num_worlds),
        hyperparameters=hyperparameters(Hyperparameters, config),
        updates=jnp.int32(0),
        key=key,
    )


def _policy(pieces: Pieces, learning: LearnerState) -> Policy:
    return Policy(
        actor=learning.networks.actor.dense(),
        statistics=learning.statistics.actor,
        low=jnp.asarray(pieces.worlds.env.action_low),
        high=jnp.asarray(pieces.worlds.env.action_high),
        squash=pieces.config.squash,
        obs_keys=pieces.config.actor_obs,
        encoder=learning.networks.encoder,
    )


def _act(
    pieces: Pieces, acting: CollectorState, learning: LearnerState
) -> tuple[CollectorState, Experience]:
    """A rollout, `(T, B)`. It keeps no final images, but their values where they count."""
    obs = acting.worlds.obs
    worlds: Any = pieces.worlds
    if isinstance(obs, dict) and image_names(obs) and not learning.networks.remembers:
        worlds = TruncationBootstrap(worlds, functools.partial(value_of, pieces.config, learning))
    policy = _policy(pieces, learning)
    length = pieces.config.unroll_length
    after, rollout, summary = collect(worlds, acting, policy, length, pieces.rollout)
    return after, Experience(rollout, acting.memory, after.worlds.obs, summary)


def _learn_from(
    pieces: Pieces, learning: LearnerState, taken: Experience
) -> tuple[LearnerState, Metrics]:
    """Learning from a rollout. Pure."""
    samples, learning = prepare(
        pieces.config, learning, taken.rollout, taken.memory, taken.next_obs, pieces.advantage
    )
    learning, measured = learn(pieces, learning, samples)
    return learning, update_metrics(taken.summary, measured)


def prepare(
    config: PPOConfig,
    learning: LearnerState,
    rollout: Rollout,
    memory: PyTree = (),
    next_obs: Observation | None = None,
    advantage_of: Callable[..., Array] = generalized_advantage,
) -> tuple[Batch, LearnerState]:
    """The samples of a rollout, with advantages and value targets. Pure.

    Observations are normalised by the present statistics. Without a lag, the policy acted with
    them, so that the probability ratio starts at 1. With a lag, it starts at the ratio of the
    present policy to the policy that acted. The statistics include this rollout's observations
    from the next rollout on.

    Args:
        config: how to train.
        learning: the networks and statistics that acted.
        rollout: `(T, B)`.
        memory: the policy's memory before the first step, `(B, ...)`; `()` without one.
        next_obs: the observation to act on after the last step, `(B, ...)`; it is used if the
            rollout has bootstrap values in place of final images.
        advantage_of: as `generalized_advantage`.

    Returns:
        Single steps, `(T, B)`, or of networks with a memory whole worlds, `(B, T)`; and
        `learning` with its statistics and the critic's memory after the rollout.
    """
    numbers, networks = learning.hyperparameters, learning.networks
    raw_obs = config.select(rollout.obs)
    obs, critic_obs = learning.statistics.normalize(*raw_obs)
    ended = rollout.terminated | rollout.truncated
    # No step 0 is among them: a memory is made fresh where an episode ends, also at the last step.
    first = jnp.concatenate([jnp.zeros_like(ended[:1]), ended[:-1]])
    memories, value = networks.values(learning.critic_memory, critic_obs, first)
    if isinstance(rollout.final_obs, dict) and BOOTSTRAP_VALUE in rollout.final_obs:
        assert next_obs is not None
        last_value = value_of(config, learning, next_obs)
        next_value = next_values(value, last_value, rollout.final_obs[BOOTSTRAP_VALUE], ended)
    else:  # `memories` are still of the old episode
        next_value = value_of(config, learning, rollout.final_obs, memories)
    reward_scale = learning.reward_scale.update(rollout.reward, ended, numbers.discount)
    reward = reward_scale.scaled(rollout.reward) if config.normalize_rewards else rollout.reward
    ends = rollout.terminated, rollout.truncated
    weights = numbers.discount, numbers.gae_lambda
    advantage = advantage_of(reward, value, next_value, *ends, *weights)
    drawn = rollout.action, rollout.log_prob, rollout.distribution

    samples = obs, critic_obs, first, *drawn, value, advantage, advantage + value
    if networks.remembers:
        samples = jax.tree.map(lambda x: x.swapaxes(0, 1), samples)
    obs, critic_obs, first, *others = samples
    # Images that both observe are held once.
    critic_obs |= {name: obs[name] for name in image_names(critic_obs.keys() & obs.keys())}
    segments = Segments(obs, critic_obs, first, memory, learning.critic_memory)
    statistics = learning.statistics
    return Batch(segments, *others), dataclasses.replace(
        learning,
        statistics=statistics.update(*raw_obs) if config.normalize_observations else statistics,
        critic_memory=networks.critic.restart(last_step(memories), ended[-1]),
        reward_scale=reward_scale,
    )


def value_of(
    config: PPOConfig, learning: LearnerState, obs: Observation, memory: PyTree = ()
) -> Array:
    """The critic's values of observations `(..., n)` with these memories, `(...)`."""
    _, critic_obs = learning.statistics.normalize(*config.select(obs))
    return learning.networks.value(memory, critic_obs)[1]


def learn(pieces: Pieces, learning: LearnerState, samples: Batch) -> tuple[LearnerState, Metrics]:
    """A round of learning: epochs of gradient steps over the samples. Pure."""
    config, numbers = pieces.config, learning.hyperparameters
    key, shuffle_key = jax.random.split(learning.key)
    left = annealed(learning.updates, numbers.anneal_updates, lowest=0.1)
    rate = jnp.where(
        numbers.anneal_updates > 0, numbers.learning_rate * left, learning.learning_rate
    )
    remembers, mesh = learning.networks.remembers, pieces.worlds.mesh
    if remembers:
        samples = jax.tree.map(lambda x: x[None], samples)  # B worlds, each of them one sample
    # Images are large: they stay where they are, and each gradient step takes its own out.
    images, samples = eqx.partition(samples, lambda x: x.dtype in (jnp.uint8, jnp.uint16))
    worlds = jnp.broadcast_to(jnp.arange(config.num_worlds), samples.value.shape[:2])
    sharing = config.groups(remembers), mesh

    def epoch(carry: PyTree, key: Key) -> tuple[PyTree, Metrics]:
        changes = None
        if config.augmentation and jax.tree.leaves(images):
            key, augment_key = jax.random.split(key)
            seen = images.segments.obs, images.segments.critic_obs
            changes = draw_changes(config.augmentation, augment_key, config.num_worlds, *seen)
        (batches, of), rows = shuffled((samples, worlds), key, config.minibatches, *sharing)
        if config.normalize_advantages:
            standardize = functools.partial(standardized, floor=numbers.advantage_floor)
            batches = batches._replace(advantage=jax.vmap(standardize)(batches.advantage))

        def step(carry: PyTree, drawn: tuple[Batch, Array, Array]) -> tuple[PyTree, Metrics]:
            batch, worlds, rows = drawn
            batch = eqx.combine(batch, taken(images, rows, mesh))
            if changes is not None:
                batch = _with_changes(config, learning.networks, batch, worlds, changes)
            return _gradient_step(pieces, numbers, carry, batch)

        (networks, optimizer, rate), measured = jax.lax.scan(step, carry, (batches, of, rows))
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


def _with_changes(
    config: PPOConfig, networks: ActorCritic, batch: Batch, worlds: Array, changes: dict[str, Any]
) -> Batch:
    """A batch whose images are changed as drawn for the world of each.

    At changed images the policy that acted, `networks`, has another distribution, which then takes
    the place of the one that the action was drawn from. Else the KL divergence to a new policy
    would measure how images were changed, and the learning rate that it leads would fall to
    nothing. The probability ratio stays that of the action at the image that it was drawn for: at
    a changed one the action may be so unlikely that ratios have no bound.
    """
    change = functools.partial(changed, config.augmentation, changes, worlds)
    obs, critic_obs = change(batch.segments.obs), change(batch.segments.critic_obs)
    segments = batch.segments._replace(obs=obs, critic_obs=critic_obs)
    return batch._replace(segments=segments, distribution=networks.evaluate(segments)[0])


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
    gradient, norm = clipped(gradient, numbers.max_grad_norm)
    networks, optimizer = descend(pieces.optimizer, networks, gradient, optimizer, learning_rate)
    return (networks, optimizer, learning_rate), measured | {"ppo/grad_norm": norm}


def adapted_rate(learning_rate: Array, kl: Array, numbers: Hyperparameters) -> Array:
    """The learning rate, adapted by the KL divergence: Schulman et al. (2017), section 4, for Adam.

    A policy with little noise hardly changes, so the rate would grow until the value function
    diverges. So it never exceeds twice the configured learning rate.
    """
    target, most = numbers.target_kl, 2.0 * numbers.learning_rate
    factor = jnp.where(kl > 2.0 * target, 1 / 1.5, jnp.where(kl < 0.5 * target, 1.5, 1.0))
    adapted = jnp.clip(learning_rate * factor, 1e-5, most)
    return jnp.where(target > 0, adapted, learning_rate)
