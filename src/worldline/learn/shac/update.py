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
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from worldline.env.worlds import Worlds, WorldsState
from worldline.errors import ConfigError
from worldline.learn.networks.mlp import ACTIVATIONS, MLP, Activation, Actor
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy, Squash, select
from worldline.learn.returns import generalized_advantage
from worldline.learn.rollout import Rollout, unroll
from worldline.learn.run import Learner
from worldline.learn.shac.adjoints import BoundedAdjoints
from worldline.learn.shuffle import random_order
from worldline.types import Array, Key, Metrics, Observation, PyTree


@dataclasses.dataclass(frozen=True, kw_only=True)
class SHACConfig:
    """How SHAC trains."""

    num_worlds: int = 64
    """Worlds that act side by side (B)."""
    unroll_length: int = 16
    """Control steps of a segment (T): long enough to see what an action does, short enough that
    gradients do not explode."""
    checkpoint: bool = False
    """True: the backward pass computes each step anew instead of keeping it; a step's memory
    instead of a segment's, for about a third more time."""
    learning_rate: float = 2e-3
    """Of Adam, for the policy; where it starts, if it is annealed."""
    critic_learning_rate: float = 2e-3
    """Of Adam, for the critic."""
    anneal_steps: int = 0
    """Environment steps over which both fall linearly to a hundredth; 0: they stay."""
    critic_epochs: int = 8
    """Passes of the critic over a segment."""
    minibatches: int = 4
    """Gradient steps in a pass; divides num_worlds * unroll_length."""
    target_rate: float = 0.5
    """How far the target critic goes to the critic in an update, in (0, 1]."""
    discount: float = 0.99
    """Per control step."""
    gae_lambda: float = 0.95
    """Of the returns that the critic learns; 0 gives one step's, 1 the whole segment's."""
    value_weight: float = 1.0
    """Of the value of where a segment, or an episode cut short, ends; 0: analytic policy
    gradients."""
    max_grad_norm: float = 1.0
    """The policy's gradient is scaled down to this norm."""
    max_world_gradient: float = 3.0
    """On its way back through a step, the gradient of one world is scaled down to this many times
    the median world's."""
    reward_scale: float = 1.0
    """Rewards are multiplied by this."""
    actor_obs: tuple[str, ...] = ("state",)
    """Parts of a dict of observations that policy and critic read."""
    normalize_observations: bool = True
    """By the running mean and variance of all observations."""
    actor_hidden: tuple[int, ...] = (64, 64)
    """Hidden layers of the policy."""
    critic_hidden: tuple[int, ...] = (64, 64)
    """Hidden layers of the value function."""
    activation: Activation = "elu"
    """Between layers; a smooth one has smooth gradients."""
    layer_norm: bool = True
    """Normalise each hidden layer of policy and critic."""
    initial_log_std: float = -1.0
    """Spread of the first policy, in units of half the action range."""
    squash: Squash = "tanh"
    """How the policy's unbounded choice comes into the action bounds; `clip` has no gradient
    beyond them."""

    def __post_init__(self) -> None:
        counts = ("num_worlds", "unroll_length", "critic_epochs", "minibatches")
        rates = ("learning_rate", "critic_learning_rate", "max_grad_norm", "target_rate")
        bounds = ("max_world_gradient", "reward_scale")
        for name in (*counts, *rates, *bounds):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be positive")
        for name in ("discount", "gae_lambda", "target_rate", "value_weight"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be in [0, 1]")
        if self.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ConfigError(f"activation is {self.activation!r}; there are {known}")
        steps = self.num_worlds * self.unroll_length
        if steps % self.minibatches:
            raise ConfigError(
                f"{self.num_worlds} worlds x {self.unroll_length} steps = {steps} do not divide "
                f"into {self.minibatches} minibatches; change one of the three"
            )


class Numbers(eqx.Module):
    """The configuration's numbers as arrays: changing one recompiles nothing."""

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
    numbers: Numbers
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
        return Policy(
            actor=actor,
            statistics=statistics,
            low=low,
            high=high,
            squash=config.squash,
            obs_keys=config.actor_obs,
        )

    @jax.jit
    def begin(key: Key, obs: Observation) -> tuple[Actor, PyTree, LearnerState]:
        return _begin(config, key, obs, low.shape[0])

    @jax.jit
    def improve(
        acting: CollectorState, learning: LearnerState
    ) -> tuple[CollectorState, Rollout, Metrics]:
        """Acts for a segment, and moves the policy along the gradient of what it earned."""
        key, unroll_key = jax.random.split(acting.key)

        def loss(actor: Actor) -> tuple[Array, tuple[WorldsState, Rollout, Metrics]]:
            numbers = learning.numbers
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

    @jax.jit
    def learn_from(learning: LearnerState, taken: Rollout) -> tuple[LearnerState, Metrics]:
        return learn(config, learning, taken)

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
    nobs = select(obs, config.actor_obs).shape[-1]
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
        for field in dataclasses.fields(Numbers)
    }
    learning = LearnerState(
        critic=critic,
        target_critic=critic,
        optimizer=_ADAM.init(critic),
        statistics=RunningStatistics.zero((nobs,)),
        numbers=Numbers(**numbers),
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
    numbers = learning.numbers
    final_obs = learning.statistics.normalize(select(taken.final_obs, config.actor_obs))
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
    norm = optax.tree.norm(gradient)
    sound = jnp.isfinite(norm)
    scale = jnp.minimum(1.0, learning.numbers.max_grad_norm / (norm + 1e-6))
    gradient = jax.tree.map(lambda x: jnp.where(sound, scale * x, 0.0), gradient)
    direction, optimizer = _ADAM.update(gradient, acting.optimizer)
    rate = learning.numbers.learning_rate * _annealed(learning)
    actor = jax.tree.map(lambda p, d: p - rate * d, acting.actor, direction)
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
    updates, whole = learning.updates.astype(jnp.float32), learning.numbers.anneal_updates
    gone = jnp.where(whole > 0, updates / jnp.maximum(whole, 1.0), 0.0)
    return 1.0 - 0.99 * jnp.clip(gone, 0.0, 1.0)


def learn(
    config: SHACConfig, learning: LearnerState, taken: Rollout
) -> tuple[LearnerState, Metrics]:
    """The critic's round of gradient steps on the returns of a segment. Pure.

    The returns are TD(lambda)'s, with the values of the target critic.
    """
    numbers, raw_obs = learning.numbers, select(taken.obs, config.actor_obs)
    obs = learning.statistics.normalize(raw_obs)
    final_obs = learning.statistics.normalize(select(taken.final_obs, config.actor_obs))
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
        return (jax.tree.map(lambda p, d: p - rate * d, critic, direction), optimizer), lost

    def epoch(carry: PyTree, key: Key) -> tuple[PyTree, Array]:
        order = random_order(key, len(flat.target)).reshape(config.minibatches, -1)
        return jax.lax.scan(gradient_step, carry, jax.tree.map(lambda x: x[order], flat))

    epochs = jax.random.split(shuffle_key, config.critic_epochs)
    (critic, optimizer), lost = jax.lax.scan(epoch, (learning.critic, learning.optimizer), epochs)
    target_critic = jax.tree.map(
        lambda old, new: old + numbers.target_rate * (new - old), learning.target_critic, critic
    )
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
