"""A search of your own in a jitted loop: find a linear policy for a hopper by random trials.

Every world tries another policy for an episode of its own, and every world has another mass: what
wins must work on all of them. No learner of Worldline is involved.
"""

import jax
import jax.numpy as jnp

import worldline

WORLDS, STEPS, ROUNDS = 64, 100, 5

env = worldline.make("gym/hopper")
worlds = worldline.Worlds(env, WORLDS)
nobs, nact = env.observation_space.shape[0], env.action_space.shape[0]

mass, inertia = env.model.constant("body_mass"), env.model.constant("body_inertia")
load = jnp.linspace(0.8, 1.2, WORLDS)
variation = {"body_mass": load[:, None] * mass, "body_inertia": load[:, None, None] * inertia}


@jax.jit
def returns(key, weights):
    """The return of the first episode of linear policies `(WORLDS, nobs, nact)`, `(WORLDS,)`."""

    def step(carry, _):
        state, running = carry
        action = jnp.tanh(jnp.einsum("bo,boa->ba", state.obs, weights))
        state, step = worlds.step(state, action)
        reward = jnp.where(running, step.reward, 0.0)
        return (state, running & ~(step.terminated | step.truncated)), reward

    start = worlds.reset(key, variation), jnp.ones(WORLDS, bool)
    return jax.lax.scan(step, start, length=STEPS)[1].sum(axis=0)


best = jnp.zeros((nobs, nact))
for number, key in enumerate(jax.random.split(jax.random.key(0), ROUNDS)):
    noise_key, start_key = jax.random.split(key)
    trials = best + 0.3 * jax.random.normal(noise_key, (WORLDS, nobs, nact))
    result = returns(start_key, trials.at[0].set(best))
    best = trials[jnp.argsort(result)[-8:]].mean(axis=0)  # the mean of the best eight
    print(f"round {number}: mean return {result.mean():6.1f}, best {result.max():6.1f}")
