"""Your own training loop, as in a notebook. Each part is a cell."""

# %% A learner is three pure functions: init, update, policy.
import jax

import worldline
from worldline.export.policy_file import save_policy
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.rollout import evaluator

env = worldline.make("gym/inverted-pendulum")
config = PPOConfig(num_worlds=32, minibatches=8)
learner = ppo(worldline.Worlds(env, config.num_worlds), config)
evaluate = evaluator(env, num_episodes=8)
state = learner.init(jax.random.key(0))

# %% Run this cell as often as you like. After an interrupt, `state` is that of the last update.
for update in range(20):
    state, metrics = learner.update(state)
    print(f"{update}: return {metrics['train/return']:.0f}, kl {metrics['ppo/kl']:.3f}")
    if metrics["train/return"] > 900:
        break

# %% The policy is a callable, and a pytree.
policy = learner.policy(state)
print(evaluate(policy, jax.random.key(1)).episode_return)
save_policy(".", policy)
