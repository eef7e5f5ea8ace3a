"""A policy acts in worlds: rollouts for learning, evaluations over whole episodes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from worldline.env.env import Env
from worldline.env.worlds import ContextLike, DomainLike, Worlds
from worldline.errors import ConfigError
from worldline.learn.batched_env import StateT, Steppable
from worldline.learn.policy import Policy
from worldline.parallel.devices import put, unless_default
from worldline.types import Array, Key, Metrics, PyTree


class Rollout(NamedTuple):
    """T steps in B worlds; every leaf begins with `(T, B)`."""

    obs: Any
    """The observation that was acted on."""
    action: Array
    """The action drawn, before it was brought into the bounds, `(T, B, nact)`."""
    log_prob: Array
    """Its log density when it was drawn, `(T, B)`."""
    distribution: Any
    """The distribution that it was drawn from."""
    reward: Array
    terminated: Array
    truncated: Array
    final_obs: Any
    """The true successor; at the end of an episode, its last observation."""
    memory: PyTree = ()
    """The policy's memory after the step, reset where an episode ended; `()`: it has none."""


def unroll(
    worlds: Steppable[StateT],
    state: StateT,
    policy: Policy,
    key: Key,
    length: int,
    memory: PyTree | None = None,
    *,
    checkpoint: bool = False,
) -> tuple[StateT, Rollout, Metrics]:
    """Takes `length` steps in all worlds with actions drawn from the policy.

    Args:
        worlds: where to act.
        state: the worlds before the first step.
        policy: how to act.
        key: of the actions.
        length: T.
        memory: the policy's memory before the first step, `(B, ...)`; None: the initial memory.
        checkpoint: for a gradient through the worlds: compute each step again in the backward pass,
            instead of storing intermediate results.

    Returns:
        The worlds after the steps, the steps, and a summary of them. In the summary `return` and
        `episode_length` are means over the episodes that ended (NaN if none did), `episodes` is
        their number, and the task's own metrics are means over steps.
    """

    def step(carry: PyTree, noise: Array) -> tuple[PyTree, tuple[Rollout, Metrics]]:
        state, memory = carry
        distribution, memory = policy.distribution(state.obs, memory)
        raw = distribution.at(noise)
        after, step = worlds.step(state, policy.to_action(raw))
        memory = policy.restart(memory, step.terminated | step.truncated)
        taken = Rollout(
            obs=state.obs,
            action=raw,
            log_prob=distribution.log_prob(raw),
            distribution=distribution,
            reward=step.reward,
            terminated=step.terminated,
            truncated=step.truncated,
            final_obs=step.final_obs,
            memory=memory,
        )
        return (after, memory), (taken, step.metrics)

    # Drawn at once: a generator that runs in the loop would cost as much as small physics.
    noise = jax.random.normal(key, (length, worlds.num_worlds, *policy.low.shape), jnp.float32)
    step_of = jax.checkpoint(step) if checkpoint else step
    memory = policy.start(worlds.num_worlds) if memory is None else memory
    (state, _), (rollout, metrics) = jax.lax.scan(step_of, (state, memory), noise)
    return state, rollout, _summary(metrics, rollout.terminated | rollout.truncated)


def _summary(metrics: Metrics, ended: Array) -> Metrics:
    metrics = dict(metrics)
    episodes = ended.sum()
    returns, lengths = metrics.pop("episode_return"), metrics.pop("episode_length")
    diverged = metrics.pop("diverged")

    def mean_over_ended(values: Array) -> Array:
        total = jnp.where(ended, values, 0).sum().astype(jnp.float32)
        return _mean(total, episodes)

    return {
        "return": mean_over_ended(returns),
        "episode_length": mean_over_ended(lengths),
        "episodes": episodes,
        "diverged": diverged.sum(),
        **{name: _finite_mean(values) for name, values in metrics.items()},
    }


def _finite_mean(values: Array) -> Array:
    """The mean of the finite values, `()`: a task may give NaN in one world. NaN if all are."""
    finite = jnp.isfinite(values)
    return _mean(jnp.where(finite, values, 0).sum(), finite.sum())


def _mean(total: Array, count: Array) -> Array:
    """A mean; of nothing NaN, or minus infinity under JAX's alarm, for which NaN is a fault."""
    of_nothing = -jnp.inf if jax.config.jax_debug_nans else jnp.nan  # type: ignore[attr-defined]
    return jnp.where(count > 0, total / jnp.maximum(count, 1).astype(jnp.float32), of_nothing)


class Evaluation(NamedTuple):
    """Whole episodes of a policy, one in each world: `(B,)` each array."""

    episode_return: Array
    episode_length: Array
    metrics: Metrics
    """The means of the task's own metrics over the steps of an episode; steps that are not finite
    do not count, and of none the mean is NaN."""


#: Runs a policy for one episode in each world.
Evaluator: TypeAlias = Callable[..., Evaluation]


def evaluator(
    env: Env,
    num_episodes: int,
    *,
    episode_length: int | None = None,
    deterministic: bool = True,
    domain: DomainLike | None = None,
    context: ContextLike | None = None,
) -> Evaluator:
    """A compiled function that runs a policy for `num_episodes` episodes, in its own worlds.

    Args:
        env: the environment.
        num_episodes: B; each world runs one episode.
        episode_length: as in `Worlds`.
        deterministic: use the most likely actions, not drawn actions.
        domain: as in `Worlds`.
        context: as in `Worlds`.

    Returns:
        `(policy, key, context=None) -> Evaluation`; its context, `(B,)` a feature, is that of
        `Worlds.reset`.

    Raises:
        ConfigError: the episodes have no time limit.
    """
    worlds = Worlds(env, num_episodes, episode_length, domain, context, adaptive=False)
    if not worlds.episode_length:
        raise ConfigError("episodes without a time limit cannot be evaluated; give episode_length")

    def evaluate(
        policy: Policy, key: Key, context: Mapping[str, Array] | None = None
    ) -> Evaluation:
        start_key, action_key = jax.random.split(key)

        def step(carry: PyTree) -> PyTree:
            state, memory, running, sums, time = carry
            noise = None if deterministic else jax.random.fold_in(action_key, time)
            action, memory = policy.step(state.obs, memory, noise)
            state, step = worlds.step(state, action, running)
            sums = sums.add(step.metrics, running)
            running &= ~(step.terminated | step.truncated)
            return state, memory, running, sums, time + 1

        state = worlds.reset(start_key, context=context)
        running = jnp.ones(num_episodes, bool)
        sums = _Sums.of(state.env.metrics, num_episodes)
        carry = (state, policy.start(num_episodes), running, sums, jnp.int32(0))
        return jax.lax.while_loop(lambda carry: carry[2].any(), step, carry)[3].evaluation()

    compiled = jax.jit(evaluate)

    def evaluate_there(
        policy: Policy, key: Key, context: Mapping[str, Array] | None = None
    ) -> Evaluation:
        return compiled(*put((policy, key, context), unless_default(worlds.device)))

    return evaluate_there


class _Sums(NamedTuple):
    """What the steps of an evaluation have summed up to, `(B,)` each array."""

    episode_return: Array
    episode_length: Array
    total: Metrics
    """Of the task's metrics, over the steps at which they were finite."""
    finite: Metrics
    """The number of those steps."""

    @classmethod
    def of(cls, metrics: Metrics, worlds: int) -> _Sums:
        zero, none = jnp.zeros(worlds), jnp.zeros(worlds, jnp.int32)
        return cls(zero, none, dict.fromkeys(metrics, zero), dict.fromkeys(metrics, none))

    def add(self, now: Metrics, running: Array) -> _Sums:
        """The sums with a step of the worlds that run."""
        counts = {name: running & jnp.isfinite(now[name]) for name in self.total}
        return _Sums(
            jnp.where(running, now["episode_return"], self.episode_return),
            jnp.where(running, now["episode_length"], self.episode_length),
            {n: sum_ + jnp.where(counts[n], now[n], 0) for n, sum_ in self.total.items()},
            {n: before + counts[n].astype(jnp.int32) for n, before in self.finite.items()},
        )

    def evaluation(self) -> Evaluation:
        means = {name: _mean(total, self.finite[name]) for name, total in self.total.items()}
        return Evaluation(self.episode_return, self.episode_length, means)


class Trajectory(NamedTuple):
    """One episode of one world, for drawing."""

    qpos: Array
    """The configuration before each control step, `(T, nq)`."""
    inputs: dict[str, Array]
    """`mocap_pos` and `mocap_quat` if the task reads them, `(T, ...)`."""
    reward: Array
    """`(T,)`"""
    variation: dict[str, Array]
    """The constants that were drawn for the world."""


def record(
    env: Env, policy: Policy, key: Key, steps: int, *, deterministic: bool = True
) -> Trajectory:
    """Records one episode of a policy, until its end or for `steps` control steps."""
    play = jax.jit(functools.partial(_play, env, steps, deterministic))
    args = put((policy, *jax.random.split(key)), unless_default(env.device))
    return _until_its_end(*play(*args))


def record_many(
    env: Env, policy: Policy, key: Key, steps: int, number: int, *, deterministic: bool = True
) -> list[Trajectory]:
    """Records episodes of a policy, as `record` does, in several worlds at once."""
    play = functools.partial(_play, env, steps, deterministic)
    every = jax.jit(jax.vmap(play, in_axes=(None, 0, 0)))
    resets, actions = (jax.random.split(k, number) for k in jax.random.split(key))
    args = put((policy, resets, actions), unless_default(env.device))
    played = every(*args)
    rows = (jax.tree.map(lambda x: x[row], played) for row in range(number))  # noqa: B023
    return [_until_its_end(*one) for one in rows]


def _play(
    env: Env, steps: int, deterministic: bool, policy: Policy, reset_key: Key, action_key: Key
) -> tuple[Any, Any]:
    """A world's constants, and what `Trajectory` holds at each step, and whether it had ended."""

    def step(carry: Any, time: Array) -> tuple[Any, Any]:
        state, memory = carry
        noise = None if deterministic else jax.random.fold_in(action_key, time)
        action, memory = policy.step(state.obs, memory, noise)
        after = env.step(state, action)
        shown = {n: v for n, v in state.physics.fields.items() if n.startswith("mocap")}
        ended = after.terminated | after.diverged
        return (after, memory), (state.physics.qpos, shown, after.reward, ended)

    start = env.reset(reset_key)
    carry = start, policy.start()
    return start.variation, jax.lax.scan(step, carry, jnp.arange(steps))[1]


def _until_its_end(variation: Any, steps: Any) -> Trajectory:
    qpos, shown, reward, ended = steps
    length = int(jnp.argmax(ended)) + 1 if bool(ended.any()) else len(ended)
    shown = {name: value[:length] for name, value in shown.items()}
    return Trajectory(qpos[:length], shown, reward[:length], dict(variation))
