"""Two curricula: ranges of physics that widen with success, and tasks of increasing difficulty."""

import equinox as eqx
import jax
import jax.numpy as jnp

import worldline
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.run import run
from worldline.variation import Domain, Uniform, scale

config = PPOConfig(num_worlds=32, discount=0.95)
masses = Domain(scale(("body_mass", "body_inertia"), Uniform(0.9, 1.1), name="load"))


def widen(metrics, ranges):
    """Compiled into the update: if most episodes succeed, the largest load grows."""
    more = jnp.where(metrics["train/reached"] > 0.5, 0.02, 0.0)
    return eqx.tree_at(lambda r: r["load"].high, ranges, replace_fn=lambda high: high + more)


learning = None
for tolerance in (0.1, 0.05, 0.02):
    env = worldline.make("robot/reach", tolerance=tolerance)
    learner = ppo(worldline.Worlds(env, 32, domain=masses), config, curriculum=widen)
    state = learner.init(jax.random.key(0))
    state = eqx.tree_at(lambda s: s.learning, state, learning or state.learning)
    for progress in run(learner, state, steps=50_000):
        learning = progress.state.learning  # networks, statistics and optimiser for the next task
    print(tolerance, progress.metrics["train/reached"])
