"""PPO in Brax's own environment: `ppo_in_brax.py JOB`, by Brax or, in its worlds, by Worldline.

Both learn by the same numbers, with networks of the same size, and are evaluated by the same
function. What stays different is theirs: Brax's policy has a spread that depends on the
observation, ours one for all.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from brax import envs
from brax.envs.wrappers.training import EpisodeWrapper, VmapWrapper
from steps_job import Job, Trial

BACKEND = "spring"
EPISODE = 1000
WORLDS, UNROLL, MINIBATCHES, EPOCHS = 128, 40, 8, 8
RATE, DISCOUNT, LAMBDA, CLIP, ENTROPY, NORM = 3e-4, 0.97, 0.95, 0.2, 1e-3, 1.0
HIDDEN = (64, 64)
EPISODES = 32


def returns_in(env: envs.Env) -> Callable[[Any, Any], jax.Array]:
    """A function of how to act and of its parameters that gives the mean return of episodes."""

    def mean_return(act: Callable[[Any, jax.Array], jax.Array], parameters: Any) -> jax.Array:
        state = jax.vmap(env.reset)(jax.random.split(jax.random.PRNGKey(99), EPISODES))

        def step(carry: Any, _: None) -> tuple[Any, None]:
            state, alive, earned = carry
            state = jax.vmap(env.step)(state, act(parameters, state.obs))
            earned += alive * state.reward
            return (state, alive * (1 - state.done), earned), None

        start = (state, jnp.ones(EPISODES), jnp.zeros(EPISODES))
        return jax.lax.scan(step, start, length=EPISODE)[0][2].mean()

    return jax.jit(mean_return, static_argnums=0)


def by_brax(job: Job, env: envs.Env) -> None:
    """Brax's own PPO."""
    import functools

    from brax.training.agents.ppo import networks, train

    # What Brax 0.14.2 still calls, and JAX 0.10 has dropped.
    jax.device_put_replicated = lambda tree, devices: jax.tree.map(
        lambda leaf: jnp.stack([leaf] * len(devices)), tree
    )
    evaluate, latest = returns_in(env), {}
    trial = Trial(job, lambda: float(evaluate(latest["act"], latest["parameters"])))

    def after(steps: int, make_policy: Any, parameters: Any) -> None:
        if "act" not in latest:  # one function, and so one compilation

            def act(parameters: Any, obs: jax.Array) -> jax.Array:
                return make_policy(parameters, deterministic=True)(obs, jax.random.PRNGKey(0))[0]

            latest["act"] = act
        latest["parameters"] = parameters
        trial.after_steps(steps)

    train.train(
        env,
        num_timesteps=job.steps,
        episode_length=EPISODE,
        num_envs=WORLDS,
        unroll_length=UNROLL,
        batch_size=WORLDS // MINIBATCHES,
        num_minibatches=MINIBATCHES,
        num_updates_per_batch=EPOCHS,
        learning_rate=RATE,
        discounting=DISCOUNT,
        gae_lambda=LAMBDA,
        clipping_epsilon=CLIP,
        entropy_cost=ENTROPY,
        max_grad_norm=NORM,
        normalize_observations=True,
        network_factory=functools.partial(
            networks.make_ppo_networks,
            policy_hidden_layer_sizes=HIDDEN,
            value_hidden_layer_sizes=HIDDEN,
        ),
        seed=job.seed,
        num_evals=job.steps // job.every + 1,
        run_evals=False,
        policy_params_fn=after,
    )


def by_worldline(job: Job, env: envs.Env) -> None:
    """Our PPO, in Brax's worlds; from the checkout, since Brax's environment has none of it."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
    from worldline.learn.ppo import PPOConfig, ppo
    from worldline.learn.run import run

    config = PPOConfig(
        num_worlds=WORLDS,
        unroll_length=UNROLL,
        epochs=EPOCHS,
        minibatches=MINIBATCHES,
        learning_rate=RATE,
        target_kl=0.0,
        discount=DISCOUNT,
        gae_lambda=LAMBDA,
        clip=CLIP,
        value_weight=0.5,
        entropy_weight=ENTROPY,
        max_grad_norm=NORM,
        normalize_rewards=False,
        actor_hidden=HIDDEN,
        critic_hidden=HIDDEN,
        activation="swish",
        initial_log_std=float(np.log(np.log(2.0))),  # Brax begins with softplus(0)
        squash="tanh",
    )
    learner = ppo(BraxWorlds(env, WORLDS), config)
    evaluate = returns_in(env)

    def act(policy: Any, obs: jax.Array) -> jax.Array:
        return policy(obs)

    trial = Trial(job, lambda: float(evaluate(act, learner.policy(state))))
    state = learner.init(jax.random.key(job.seed))
    for progress in run(learner, state, job.steps):
        state = progress.state
        trial.after_steps(progress.step)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BraxState:
    """Brax's worlds between two steps."""

    now: envs.State
    first: envs.State
    """What every episode of a world begins with, as in Brax's own training."""
    earned: jax.Array
    """In the current episode so far, `(B,)`."""
    ranges: dict[str, Any]
    """Empty: nothing is drawn here."""

    @property
    def obs(self) -> jax.Array:
        """What to act on next, `(B, nobs)`."""
        return self.now.obs


class BraxWorlds:
    """Brax's environment in the place of `worldline.Worlds`.

    `env` is also what a learner asks for bounds and spaces: actions in [-1, 1].
    """

    mesh = None

    def __init__(self, env: envs.Env, num_worlds: int) -> None:
        self.num_worlds, self.env = num_worlds, self
        self._brax = EpisodeWrapper(VmapWrapper(env), EPISODE, action_repeat=1)
        self.action_high = np.ones(env.action_size, np.float32)
        self.action_low = -self.action_high
        self.action_space = gymnasium.spaces.Box(self.action_low, self.action_high)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (env.observation_size,))

    def reset(self, key: jax.Array) -> BraxState:
        """All worlds at the start of an episode."""
        words = jax.random.key_data(jax.random.split(key, self.num_worlds))  # Brax's kind of keys
        first = jax.jit(self._brax.reset)(words)
        return BraxState(first, first, jnp.zeros(self.num_worlds), {})

    def stagger(self, state: BraxState) -> BraxState:
        """The state as it is: Brax's episodes all begin together."""
        return state

    def step(self, state: BraxState, action: jax.Array) -> tuple[BraxState, Any]:
        """All worlds a step on; where an episode ends, back at its start."""
        from worldline.env.worlds import Step

        after = self._brax.step(state.now, action)
        done = after.done > 0
        earned = state.earned + after.reward

        def begin_again(first: jax.Array, now: jax.Array) -> jax.Array:
            return jnp.where(done.reshape(-1, *[1] * (now.ndim - 1)), first, now)

        now = jax.tree.map(begin_again, state.first, after)
        truncated = after.info["truncation"] > 0
        metrics = {
            "episode_return": earned,
            "episode_length": after.info["steps"].astype(jnp.int32),
            "diverged": jnp.zeros(self.num_worlds, bool),
        }
        step = Step(now.obs, after.reward, done & ~truncated, truncated, after.obs, metrics)
        return BraxState(now, state.first, jnp.where(done, 0.0, earned), {}), step


def main() -> None:
    """Trains until the trial is over."""
    job = Job.of_command_line()
    env = envs.get_environment(job.task, backend=BACKEND)
    {"brax": by_brax, "worldline": by_worldline}[job.library](job, env)


if __name__ == "__main__":
    main()
