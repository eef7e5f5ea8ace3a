"""Brax's own PPO on a task of ours, through `as_brax_env`: `learn_brax.py JOB`.

It is evaluated in Brax's interface too: whole episodes by its deterministic policy.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from brax.training.agents.ppo import networks
from brax.training.agents.ppo.train import train
from protocol import EPISODES, Job, Trial

import worldline
from worldline.bridges.brax import as_brax_env
from worldline.tuning import tune_process

WORLDS, UNROLL, MINIBATCHES = 256, 32, 16
STEPS_PER_UPDATE = WORLDS * UNROLL
#: More than any budget of time allows.
UPDATES = 10**6
EPISODE = 1000


class OverError(Exception):
    """The trial is over: Brax's own training ends with its steps alone."""


def evaluator(env: Any, make_policy: Callable[..., Any]) -> Callable[[Any], jax.Array]:
    """A compiled function: parameters to the mean return of `EPISODES` whole episodes."""

    @jax.jit
    def evaluate(params: Any) -> jax.Array:
        key = jax.random.PRNGKey(10_000)
        policy = make_policy(params, deterministic=True)

        def step(carry: Any, _: None) -> Any:
            state, running, total = carry
            state = jax.vmap(env.step)(state, policy(state.obs, key)[0])
            total += jnp.where(running, state.reward, 0.0)
            return (state, running & (state.done == 0), total), None

        start = jax.vmap(env.reset)(jax.random.split(key, EPISODES))
        carry = (start, jnp.ones(EPISODES, bool), jnp.zeros(EPISODES))
        return jax.lax.scan(step, carry, length=EPISODE)[0][2].mean()

    return evaluate


def main() -> None:
    """Trains until the trial is over."""
    job = Job.of_command_line()
    # What Brax 0.14 calls and JAX 0.10 no longer has: see docs/guides/brax.md.
    jax.device_put_replicated = lambda tree, devices: jax.tree.map(  # type: ignore[attr-defined]
        lambda x: jnp.stack([x] * len(devices)), tree
    )
    env = as_brax_env(worldline.make(job.task))
    trial = Trial(job, lambda: float(evaluate(now)))
    evaluate = now = None

    def after_update(steps: int, make_policy: Callable[..., Any], params: Any) -> None:
        nonlocal evaluate, now
        evaluate, now = evaluate or evaluator(env, make_policy), params
        if not trial.after_update(steps):
            raise OverError

    factory = functools.partial(
        networks.make_ppo_networks,
        policy_hidden_layer_sizes=(64, 64),
        value_hidden_layer_sizes=(64, 64),
    )
    with contextlib.suppress(OverError):
        train(
            environment=env,
            num_timesteps=STEPS_PER_UPDATE * UPDATES,
            num_evals=UPDATES + 1,  # it calls back that often
            run_evals=False,
            episode_length=EPISODE,
            num_envs=WORLDS,
            unroll_length=UNROLL,
            batch_size=WORLDS // MINIBATCHES,
            num_minibatches=MINIBATCHES,
            num_updates_per_batch=4,
            learning_rate=6e-4,
            discounting=0.97,
            entropy_cost=1e-3,
            reward_scaling=1.0,
            clipping_epsilon=0.2,
            max_grad_norm=0.5,
            normalize_observations=True,
            network_factory=factory,
            seed=job.seed,
            policy_params_fn=after_update,
        )


if __name__ == "__main__":
    tune_process()
    main()
