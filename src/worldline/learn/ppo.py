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
`rollout` and `curriculum`; how a rollout becomes minibatches is in `ppo_samples`.
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

from worldline.devices import split
from worldline.env.worlds import WorldsState
from worldline.errors import ConfigError, did_you_mean
from worldline.learn.curriculum import Curriculum, moved
from worldline.learn.images import changed, draw_changes, is_image_array
from worldline.learn.nets import ACTIVATIONS, Activation
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.places import Place
from worldline.learn.policy import Policy, Squash, critic_keys, numbers_of, select
from worldline.learn.ppo_networks import MakeNetworks as MakeNetworks
from worldline.learn.ppo_networks import Networks as Networks
from worldline.learn.ppo_networks import gru_networks as gru_networks
from worldline.learn.ppo_networks import heads_and_features, networks_for, part_of
from worldline.learn.ppo_networks import mlp_networks as mlp_networks
from worldline.learn.ppo_networks import seeing_networks as seeing_networks
from worldline.learn.ppo_samples import Batch as Batch
from worldline.learn.ppo_samples import (
    have_memory,
    last,
    prepare,
    shuffled,
    valuer_for,
)
from worldline.learn.recurrent import as_recurrent
from worldline.learn.returns import generalized_advantage
from worldline.learn.rollout import Rollout, unroll
from worldline.learn.run import Learner
from worldline.learn.successors import LeanWorlds, Valuer
from worldline.learn.vision import Architecture, SharedEyes
from worldline.pixels.augment import Augmentation
from worldline.types import Array, Key, Metrics, Observation, PyTree
from worldline.variation.domain import Ranges


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
    actor_obs: tuple[str, ...] = ("state",)
    """Parts of a dict of observations that the policy reads."""
    critic_obs: tuple[str, ...] | None = None
    """Parts that the critic reads; None: the policy's, and `privileged_state` where there is one.
    """
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
    recurrent_size: int = 0
    """Units of the memory that policy and critic each have of an episode; 0: neither has one."""
    encoder: Architecture = "patches"
    """How images are looked at, where any are observed."""
    image_features: int = 128
    """Numbers that an encoder makes of each image."""
    share_encoder: bool = True
    """Whether actor and critic look through the same encoders, where they observe the same."""
    normalize_channels: bool = False
    """Whether each channel of an image is brought to mean 0 and variance 1."""
    random_shift: int = 0
    """Images are shifted by up to so many pixels, alike over a rollout and anew in each epoch."""
    brightness: float = 0.0
    """Up to this share of the full range is added to colours, or taken from them; likewise."""
    contrast: float = 0.0
    """Colours move by up to this share from their mean, or towards it; likewise."""
    cutout: int = 0
    """The side of a grey square somewhere in each image, in pixels; likewise."""

    @property
    def augmentation(self) -> Augmentation:
        """How images are changed to learn from."""
        return Augmentation(
            shift=self.random_shift,
            brightness=self.brightness,
            contrast=self.contrast,
            cutout=self.cutout,
        )

    def __post_init__(self) -> None:
        counts = ("num_worlds", "unroll_length", "epochs", "minibatches")
        positive = (*counts, "learning_rate", "max_grad_norm", "clip")
        for name in positive:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be positive")
        for name in ("discount", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be in [0, 1]")
        if self.recurrent_size < 0:
            raise ConfigError(f"recurrent_size is {self.recurrent_size}; give 0 or more")
        _ = self.augmentation
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
        if self.recurrent_size:
            _check_for_memory(self)


def _check_for_memory(config: PPOConfig) -> None:
    """Refuses what networks with a memory cannot learn by: their samples are whole worlds."""
    if config.augmentation:
        raise ConfigError(
            "images are not changed for networks with a memory; set random_shift, brightness, "
            "contrast and cutout to 0"
        )
    if config.num_worlds % config.minibatches:
        raise ConfigError(
            f"{config.num_worlds} worlds do not divide into {config.minibatches} minibatches, and "
            "with a memory each is of whole worlds; change one of the two"
        )


class Numbers(eqx.Module):
    """The configuration's numbers as arrays: `with_numbers` changes one and recompiles nothing."""

    learning_rate: Array
    """Where it starts."""
    anneal_updates: Array
    """Updates over which it falls to a tenth; 0: it stays."""
    target_kl: Array
    discount: Array
    gae_lambda: Array
    clip: Array
    value_clip: Array
    value_weight: Array
    entropy_weight: Array
    max_grad_norm: Array


class Acting(eqx.Module):
    """The part of the training state that acting reads and moves on."""

    worlds: WorldsState
    memory: PyTree
    """What the policy remembers of each world's episode, `(B, ...)`; `()` without a memory."""
    key: Key


class Learning(eqx.Module):
    """The part of the training state that learning reads and moves on."""

    networks: Networks | SharedEyes
    optimizer: PyTree
    learning_rate: Array
    statistics: RunningStatistics
    """Of what the policy observes."""
    critic_statistics: RunningStatistics
    """Of what the critic observes."""
    critic_memory: PyTree
    """What the critic remembers of each world's episode, `(B, ...)`; `()` without a memory."""
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


#: From networks, a batch and the numbers to what is minimised, `()`, and what to report of it.
Loss: TypeAlias = Callable[[Networks, Batch, Numbers], tuple[Array, Metrics]]


def ppo(
    worlds: Place[Any],
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
            `seeing_networks(config, ...)`.
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

    def policy(learning: Learning) -> Policy:
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
        acting: Acting, policy: Policy, valuer: Valuer | None
    ) -> tuple[Acting, Rollout, Metrics]:
        key, unroll_key = jax.random.split(acting.key)
        place = worlds if valuer is None else LeanWorlds(worlds, valuer)
        state, taken, summary = rollout(
            place, acting.worlds, policy, unroll_key, config.unroll_length, acting.memory
        )
        return Acting(state, last(taken.memory), key), taken, summary

    @jax.jit
    def begin_learning(key: Key, obs: Observation) -> Learning:
        return _begin_learning(config, pieces, key, obs, low.shape[0])

    @jax.jit
    def learn_from(
        learning: Learning, rollout: Rollout, before: Acting, after: Acting, summary: Metrics
    ) -> tuple[Learning, Ranges, Metrics]:
        next_obs, ranges = after.worlds.obs, after.worlds.ranges
        learning, measured = learn(config, pieces, learning, rollout, before.memory, next_obs)
        metrics = {f"train/{name}": value for name, value in summary.items()} | measured
        if curriculum is not None:
            ranges = moved(curriculum, metrics, ranges)
        return learning, ranges, metrics

    def init(key: Key) -> PPOState:
        worlds_key, act_key, learn_key = jax.random.split(key, 3)
        state = worlds.reset(worlds_key)
        learning = begin_learning(learn_key, state.obs)
        memory = policy(learning).start(config.num_worlds)
        return PPOState(Acting(state, memory, act_key), learning)

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
) -> Learning:
    """Networks, optimiser and statistics before any training."""
    networks_key, key = jax.random.split(key)
    nobs = numbers_of(select(obs, config.actor_obs)).shape[-1]
    ncritic = numbers_of(select(obs, critic_keys(config.actor_obs, config.critic_obs, obs))).shape[
        -1
    ]
    networks = pieces.networks(networks_key, nobs, ncritic, nact)
    if have_memory(networks):
        _check_for_memory(config)
    steps_per_update = config.num_worlds * config.unroll_length
    numbers = {
        field.name: jnp.float32(getattr(config, field.name))
        for field in dataclasses.fields(Numbers)
        if field.name != "anneal_updates"
    }
    return Learning(
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
    learning: Learning,
    rollout: Rollout,
    memory: PyTree = (),
    next_obs: Observation | None = None,
) -> tuple[Learning, Metrics]:
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
        if config.normalize_advantages:
            batch = batch._replace(advantage=_standardized(batch.advantage))
        gradient_of = jax.value_and_grad(pieces.loss, has_aux=True)
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
        batches = split(pieces.mesh, shuffled((samples, rows), key, config.minibatches), axis=1)
        step = functools.partial(gradient_step, changes)
        (networks, optimizer, learning_rate), measured = jax.lax.scan(step, carry, batches)
        adapted = _adapted(learning_rate, measured["ppo/kl"][-1], numbers.target_kl)
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
    total = policy_loss + numbers.value_weight * value_loss - numbers.entropy_weight * entropy
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


def _standardized(values: Array) -> Array:
    """With mean 0 and standard deviation 1."""
    return (values - values.mean()) / (values.std() + 1e-8)


def _annealed(learning: Learning) -> Array:
    """The learning rate of this update."""
    numbers = learning.numbers
    updates = learning.updates.astype(jnp.float32)
    progress = jnp.clip(updates / jnp.maximum(numbers.anneal_updates, 1.0), 0.0, 1.0)
    annealed = numbers.learning_rate * (1.0 - 0.9 * progress)
    return jnp.where(numbers.anneal_updates > 0, annealed, learning.learning_rate)


def _adapted(learning_rate: Array, kl: Array, target: Array) -> Array:
    """The learning rate led by the KL divergence: Schulman et al. (2017), section 4, for Adam."""
    factor = jnp.where(kl > 2.0 * target, 1 / 1.5, jnp.where(kl < 0.5 * target, 1.5, 1.0))
    adapted = jnp.clip(learning_rate * factor, 1e-5, 1e-2)
    return jnp.where(target > 0, adapted, learning_rate)


def _explained_variance(value: Array, target: Array) -> Array:
    """The share of the targets' variance that the value function explains, `()`; 1 is all."""
    return 1.0 - (target - value).var() / (target.var() + 1e-8)
