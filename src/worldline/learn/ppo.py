"""Proximal policy optimisation: Schulman et al. (2017), "Proximal Policy Optimization Algorithms".

With what makes it good in continuous control (Andrychowicz et al. 2021, "What matters in on-policy
reinforcement learning?"; Huang et al. 2022, "The 37 implementation details of PPO"): running
statistics of observations and of returns, generalised advantages that bootstrap where an episode
was cut, orthogonal initialisation, gradient clipping, and a learning rate that is fixed, annealed
or led by the KL divergence.

An update is two programs: one acts (a rollout, which calls the engine), one learns (pure
arithmetic, which JAX's compilation cache can keep between processes). Each is traced once.

Every piece can be another: `ppo` takes functions for the networks, the loss, the optimiser, the
advantage, the rollout and the curriculum.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from worldline.env.env import Env
from worldline.env.worlds import Worlds, WorldsState
from worldline.errors import ConfigError, did_you_mean
from worldline.learn.curriculum import Curriculum, moved
from worldline.learn.nets import ACTIVATIONS, MLP, Activation, Actor
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy, Squash, normalized, numbers_of, select
from worldline.learn.returns import discounted_return_so_far, generalized_advantage
from worldline.learn.rollout import Rollout, unroll
from worldline.learn.run import Learner
from worldline.learn.vision import Architecture, Eyes, SeeingActor, SeeingCritic, SharedEyes
from worldline.pixels.augment import Augmentation, Draws, augment, draw
from worldline.pixels.camera import image_names, is_image
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


class Networks(eqx.Module):
    """What gradients change."""

    actor: Any
    """From observations `(..., nobs)` to a distribution of raw actions, such as `Gaussian`."""
    critic: Any
    """From what it observes, `(..., ncritic)`, to a value, `(..., 1)`."""


class Acting(eqx.Module):
    """The part of the training state that acting reads and moves on."""

    worlds: WorldsState
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

    obs: Any
    """What the policy observes, as `select` gives it, normalised."""
    critic_obs: Any
    """What the critic observes, likewise."""
    action: Array
    log_prob: Array
    distribution: Any
    """What the action was drawn from."""
    value: Array
    advantage: Array
    target: Array


#: Makes the networks from a key and the sizes of what the policy observes, of what the critic
#: observes, and of an action.
MakeNetworks: TypeAlias = Callable[[Key, int, int, int], Networks | SharedEyes]

#: From networks, a batch and the numbers to what is minimised, `()`, and what to report of it.
Loss: TypeAlias = Callable[[Networks, Batch, Numbers], tuple[Array, Metrics]]


def ppo(
    worlds: Worlds,
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
        networks: makes policy and critic; by default `mlp_networks(config)`, or where they observe
            images `seeing_networks(config, ...)`.
        loss: by default `clipped_loss`.
        optimizer: turns a gradient into the direction of a step, whose length is the learning
            rate of the state; by default Adam's.
        advantage: as `generalized_advantage`.
        rollout: as `unroll`.
        curriculum: moves the ranges that episodes are drawn from, after every update. It is
            compiled; the ranges keep their names and shapes.

    Raises:
        ConfigError: the number of worlds is not the configuration's.
    """
    if worlds.num_worlds != config.num_worlds:
        raise ConfigError(f"{worlds.num_worlds} worlds, but num_worlds is {config.num_worlds}")
    env = worlds.env
    low, high = jnp.asarray(env.action_low), jnp.asarray(env.action_high)
    pieces = _Pieces(
        networks=networks or _default_networks(config, env),
        loss=loss or clipped_loss,
        optimizer=optimizer or optax.scale_by_adam(eps=1e-5),
        advantage=advantage,
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
    def act(acting: Acting, policy: Policy) -> tuple[Acting, Rollout, Metrics]:
        key, unroll_key = jax.random.split(acting.key)
        state, taken, summary = rollout(
            worlds, acting.worlds, policy, unroll_key, config.unroll_length
        )
        return Acting(state, key), taken, summary

    @jax.jit
    def begin_learning(key: Key, obs: Observation) -> Learning:
        return _begin_learning(config, pieces, key, obs, low.shape[0])

    @jax.jit
    def learn_from(
        learning: Learning, rollout: Rollout, summary: Metrics, ranges: Ranges
    ) -> tuple[Learning, Ranges, Metrics]:
        learning, measured = learn(config, pieces, learning, rollout)
        metrics = {f"train/{name}": value for name, value in summary.items()} | measured
        if curriculum is not None:
            ranges = moved(curriculum, metrics, ranges)
        return learning, ranges, metrics

    def init(key: Key) -> PPOState:
        worlds_key, act_key, learn_key = jax.random.split(key, 3)
        state = worlds.reset(worlds_key)
        return PPOState(Acting(state, act_key), begin_learning(learn_key, state.obs))

    def update(state: PPOState) -> tuple[PPOState, Metrics]:
        acting, taken, summary = act(state.acting, policy(state.learning))
        learning, ranges, metrics = learn_from(state.learning, taken, summary, acting.worlds.ranges)
        state_of_worlds = dataclasses.replace(acting.worlds, ranges=ranges)
        return PPOState(Acting(state_of_worlds, acting.key), learning), metrics

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


def mlp_networks(config: PPOConfig) -> MakeNetworks:
    """Dense layers for both; the policy's spread is a parameter for each action."""
    return functools.partial(_dense, config)


def _dense(config: PPOConfig, key: Key, nobs: int, ncritic: int, nact: int) -> Networks:
    actor_key, critic_key = jax.random.split(key)
    actor_sizes = (nobs, *config.actor_hidden, nact)
    critic_sizes = (ncritic, *config.critic_hidden, 1)
    return Networks(
        actor=Actor(
            mean=MLP.initial(actor_key, actor_sizes, config.activation, last_gain=0.01),
            log_std=jnp.full(nact, jnp.float32(config.initial_log_std)),
        ),
        critic=MLP.initial(critic_key, critic_sizes, config.activation, last_gain=1.0),
    )


def seeing_networks(config: PPOConfig, images: Mapping[str, Sequence[int]]) -> MakeNetworks:
    """An encoder for each image, and dense layers as in `mlp_networks` on what it gives.

    Args:
        config: how they are; which images each observes is in `actor_obs` and `critic_obs`.
        images: the shape of each image: height, width, channels.
    """
    critic_obs = config.actor_obs if config.critic_obs is None else config.critic_obs
    of_actor, of_critic = (
        {name: images[name] for name in image_names(keys)}
        for keys in (config.actor_obs, critic_obs)
    )

    def eyes(key: Key, images: Mapping[str, Sequence[int]]) -> Eyes:
        kind, features = config.encoder, config.image_features
        return Eyes.initial(
            key, images, kind, features, normalize_channels=config.normalize_channels
        )

    def make(key: Key, nobs: int, ncritic: int, nact: int) -> Networks | SharedEyes:
        head_key, actor_key, critic_key = jax.random.split(key, 3)
        sizes = (
            nobs + config.image_features * len(of_actor),
            ncritic + config.image_features * len(of_critic),
        )
        heads = _dense(config, head_key, *sizes, nact)
        if config.share_encoder and critic_obs == config.actor_obs and sizes[0] == sizes[1]:
            return SharedEyes(eyes(actor_key, of_actor), heads.actor, heads.critic)
        return Networks(
            actor=SeeingActor(eyes(actor_key, of_actor), heads.actor),
            critic=SeeingCritic(eyes(critic_key, of_critic), heads.critic),
        )

    return make


def _default_networks(config: PPOConfig, env: Env) -> MakeNetworks:
    """Networks for what policy and critic observe."""
    names = image_names({*config.actor_obs, *(config.critic_obs or ())})
    if not names:
        return mlp_networks(config)
    parts = env.observation_space
    known = dict(parts.spaces) if hasattr(parts, "spaces") else {"state": parts}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, filter(is_image, known))
            raise ConfigError(
                f"there is no {name!r} to observe{hint or '; give the environment cameras'}"
            )
    return seeing_networks(config, {name: known[name].shape or () for name in names})


class _Pieces(NamedTuple):
    """The functions that learning is made of."""

    networks: MakeNetworks
    loss: Loss
    optimizer: optax.GradientTransformation
    advantage: Callable[..., Array]


#: What another run may begin with.
_PARTS: dict[str, Callable[[PPOState], PyTree]] = {
    "actor": lambda state: _part(state.learning.networks, "actor"),
    "critic": lambda state: _part(state.learning.networks, "critic"),
    "statistics": lambda state: (
        state.learning.statistics,
        state.learning.critic_statistics,
        state.learning.return_statistics,
    ),
}


def _part(networks: Any, name: str) -> PyTree:
    """The actor or the critic as parts of the tree: with shared encoders, those go with either."""
    if isinstance(networks, SharedEyes):
        return networks.eyes, getattr(networks, f"{name}_head")
    return getattr(networks, name)


def _critic_obs(config: PPOConfig, obs: Observation) -> tuple[str, ...]:
    """The parts of an observation that the critic reads."""
    if config.critic_obs is not None:
        return config.critic_obs
    privileged = isinstance(obs, dict) and "privileged_state" in obs
    return (*config.actor_obs, "privileged_state") if privileged else config.actor_obs


def _begin_learning(
    config: PPOConfig, pieces: _Pieces, key: Key, obs: Observation, nact: int
) -> Learning:
    """Networks, optimiser and statistics before any training."""
    networks_key, key = jax.random.split(key)
    nobs = numbers_of(select(obs, config.actor_obs)).shape[-1]
    ncritic = numbers_of(select(obs, _critic_obs(config, obs))).shape[-1]
    networks = pieces.networks(networks_key, nobs, ncritic, nact)
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
        return_so_far=jnp.zeros(config.num_worlds),
        return_statistics=RunningStatistics.zero(()),
        numbers=Numbers(
            **numbers, anneal_updates=jnp.float32(config.anneal_steps / steps_per_update)
        ),
        updates=jnp.int32(0),
        key=key,
    )


def learn(
    config: PPOConfig, pieces: _Pieces, learning: Learning, rollout: Rollout
) -> tuple[Learning, Metrics]:
    """One round of learning from a rollout: targets, then passes of gradient steps. Pure."""
    samples, learning = _prepare(config, learning, rollout, pieces.advantage)
    key, shuffle_key = jax.random.split(learning.key)
    epoch_keys = jax.random.split(shuffle_key, config.epochs)
    numbers = learning.numbers
    carry = (learning.networks, learning.optimizer, _annealed(learning))
    # Images are much: they stay where they are, and each gradient step takes its own out.
    images, samples = eqx.partition(samples, _is_image_array)
    rows = jnp.arange(samples.value.shape[0])

    def gradient_step(
        changes: PyTree, carry: PyTree, taken: tuple[Batch, Array]
    ) -> tuple[PyTree, Metrics]:
        networks, optimizer, learning_rate = carry
        batch, rows = taken
        seen = jax.tree.map(lambda x: x[rows], images)
        batch = eqx.combine(batch, _augmented(config, changes, seen, rows))
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
            changes = _changes(config, augment_key, images)
        batches = _shuffled((samples, rows), key, config.minibatches)
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
    networks, batch = _encoded(networks, batch)
    distribution = networks.actor(batch.obs)
    log_ratio = distribution.log_prob(batch.action) - batch.log_prob
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - numbers.clip, 1 + numbers.clip)
    policy_loss = -jnp.minimum(ratio * batch.advantage, clipped * batch.advantage).mean()

    value = networks.critic(batch.critic_obs)[..., 0]
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


def _prepare(
    config: PPOConfig,
    learning: Learning,
    rollout: Rollout,
    advantage_of: Callable[..., Array] = generalized_advantage,
) -> tuple[Batch, Learning]:
    """Advantages and value targets of a rollout as flat samples; statistics moved on.

    Observations are normalised by the statistics the policy acted with, so that its ratio starts
    at 1; what this rollout adds to them counts from the next one on.
    """
    critic_keys = _critic_obs(config, rollout.obs)
    raw_obs, raw_critic_obs = (select(rollout.obs, k) for k in (config.actor_obs, critic_keys))
    critic_obs, critic_final_obs = (
        normalized(learning.critic_statistics, x)
        for x in (raw_critic_obs, select(rollout.final_obs, critic_keys))
    )
    value, next_value = (
        learning.networks.critic(x)[..., 0] for x in (critic_obs, critic_final_obs)
    )
    ended = rollout.terminated | rollout.truncated
    return_so_far, returns = discounted_return_so_far(
        learning.return_so_far, rollout.reward, ended, learning.numbers.discount
    )
    return_statistics = learning.return_statistics.update(returns)
    reward = rollout.reward
    if config.normalize_rewards:
        reward = jnp.clip(reward / jnp.sqrt(return_statistics.variance + 1e-8), -10, 10)
    advantage = advantage_of(
        reward,
        value,
        next_value,
        rollout.terminated,
        rollout.truncated,
        learning.numbers.discount,
        learning.numbers.gae_lambda,
    )
    samples = Batch(
        obs=normalized(learning.statistics, raw_obs),
        critic_obs=critic_obs,
        action=rollout.action,
        log_prob=rollout.log_prob,
        distribution=rollout.distribution,
        value=value,
        advantage=advantage,
        target=advantage + value,
    )
    flat = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), samples)
    statistics, critic_statistics = learning.statistics, learning.critic_statistics
    if config.normalize_observations:
        statistics = statistics.update(numbers_of(raw_obs))
        critic_statistics = critic_statistics.update(numbers_of(raw_critic_obs))
    return _same_images(flat), dataclasses.replace(
        learning,
        statistics=statistics,
        critic_statistics=critic_statistics,
        return_so_far=return_so_far,
        return_statistics=return_statistics,
    )


def _value_loss(value: Array, batch: Batch, value_clip: Array) -> Array:
    """Half the mean squared error, or with the value's move clipped the worse of the two."""
    reach = jnp.where(value_clip > 0, value_clip, jnp.inf)
    near = batch.value + jnp.clip(value - batch.value, -reach, reach)
    worse = jnp.maximum((value - batch.target) ** 2, (near - batch.target) ** 2)
    return 0.5 * worse.mean()


def _is_image_array(leaf: Any) -> bool:
    return leaf.dtype in (jnp.uint8, jnp.uint16)


def _same_images(samples: Batch) -> Batch:
    """The samples, with images that both observe held once."""
    if not isinstance(samples.obs, dict) or not isinstance(samples.critic_obs, dict):
        return samples
    both = image_names(samples.obs.keys() & samples.critic_obs.keys())
    shared = {name: samples.obs[name] for name in both}
    return samples._replace(critic_obs={**samples.critic_obs, **shared})


def _changes(config: PPOConfig, key: Key, images: Batch) -> dict[str, Draws]:
    """How each world's images are changed in an epoch, by name."""
    names = sorted({*image_names(images.obs or ()), *image_names(images.critic_obs or ())})
    keys = jax.random.split(key, len(names))
    return {
        name: draw(config.augmentation, keys[i], config.num_worlds) for i, name in enumerate(names)
    }


def _augmented(
    config: PPOConfig, changes: dict[str, Draws] | None, images: Batch, rows: Array
) -> Batch:
    """Images of a minibatch, each changed as those of its world are."""
    if changes is None:
        return images
    worlds = rows % config.num_worlds

    def change(obs: Any) -> Any:
        if not isinstance(obs, dict):
            return obs
        mine = {name: jax.tree.map(lambda x: x[worlds], changes[name]) for name in image_names(obs)}
        done = {name: augment(config.augmentation, mine[name], obs[name]) for name in mine}
        return {**obs, **done}

    return images._replace(obs=change(images.obs), critic_obs=change(images.critic_obs))


def _encoded(networks: Any, batch: Batch) -> tuple[Any, Batch]:
    """Heads and features, where networks share their encoders: images are encoded once."""
    if not isinstance(networks, SharedEyes):
        return networks, batch
    features = networks.eyes(batch.obs)
    heads = Networks(networks.actor_head, networks.critic_head)
    return heads, batch._replace(obs=features, critic_obs=features)


def _shuffled(samples: PyTree, key: Key, minibatches: int) -> PyTree:
    """The samples in random order, split: `(minibatches, samples / minibatches, ...)`."""
    number = jax.tree.leaves(samples)[0].shape[0]
    order = jax.random.permutation(key, number)
    size = number // minibatches
    return jax.tree.map(lambda x: x[order].reshape(minibatches, size, *x.shape[1:]), samples)


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
