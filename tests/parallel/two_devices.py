"""What `test_devices.py` runs in processes of their own: all that uses worlds, on two CPU devices.

    python two_devices.py NUMBER USE...

JAX's default device is the one of this number; worlds on a CPU live on number 0. It prints, as
JSON, for each use a hash of its numbers, and on which devices they are.
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_disable_most_optimizations", True)  # compiles much and runs little
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_default_device", jax.devices()[int(sys.argv[1])])

import toys  # noqa: E402
import worldline  # noqa: E402
import worldline.bridges.gymnasium  # noqa: E402
from worldline.bridges.external import ExternalWorlds  # noqa: E402
from worldline.learn.population import population  # noqa: E402
from worldline.learn.ppo import PPOConfig, ppo  # noqa: E402
from worldline.learn.rollout import evaluator, record  # noqa: E402
from worldline.learn.sac import SACConfig, sac  # noqa: E402
from worldline.learn.shac import SHACConfig, shac  # noqa: E402
from worldline.train import TrainConfig, resume, train  # noqa: E402
from worldline.variation import Domain, Uniform, scale  # noqa: E402

B = 4
DOMAIN = Domain(scale("body_mass", Uniform(0.5, 1.5)))
PPO = PPOConfig(
    num_worlds=B, unroll_length=8, minibatches=2, epochs=2, actor_hidden=(8,), critic_hidden=(8,)
)
SAC = SACConfig(
    num_worlds=B, unroll_length=4, replay_capacity=64, batch_size=8, learning_starts=16,
    actor_hidden=(8,), critic_hidden=(8,),
)  # fmt: skip
SHAC = SHACConfig(num_worlds=B, unroll_length=4, actor_hidden=(8,), critic_hidden=(8,))


def main() -> None:
    env = worldline.Env(toys.Swing())
    json.dump({name: globals()[name](env) for name in sys.argv[2:]}, sys.stdout)


def steps(env: worldline.Env) -> Any:
    worlds = worldline.Worlds(env, B, domain=DOMAIN)
    state = worlds.reset(jax.random.key(0))
    for _ in range(3):
        action = jax.device_put(jnp.ones((B, 1)), jax.devices()[int(sys.argv[1])])
        state, step = worlds.step(state, action, np.array([True, True, False, True]))
    return told(state=worlds.reset_where(state, jnp.arange(B) < 2), step=step)


def learners(env: worldline.Env) -> Any:
    worlds, found = worldline.Worlds(env, B), {}
    for make, config in ((ppo, PPO), (sac, SAC), (shac, SHAC)):
        learner = make(worlds, config)
        state = learner.init(jax.random.key(1))
        for _ in range(3):
            state, metrics = learner.update(state)
        found |= told(**{f"{make.__name__} acting": state.acting}, metrics=metrics)
        found |= told(**{f"{make.__name__} learning": state.learning})
    return found


def seeds(env: worldline.Env) -> Any:
    learner = population(ppo(worldline.Worlds(env, B), PPO))
    state, _ = learner.update(learner.init(jax.random.split(jax.random.key(2), 2)))
    return told(state=learner.update(state)[0].learning)


def policies(env: worldline.Env) -> Any:
    learner = ppo(worldline.Worlds(env, B), PPO)
    policy = learner.policy(learner.init(jax.random.key(3)))
    evaluation = evaluator(env, B, episode_length=5)(policy, jax.random.key(4))
    return told(evaluation=evaluation, episode=record(env, policy, jax.random.key(5), 4))


def vectors(env: worldline.Env) -> Any:
    vector = gymnasium.make_vec("worldline/gym-inverted-pendulum-v0", num_envs=B)
    obs = [vector.reset(seed=0)[0], vector.step(np.ones((B, 1), np.float32))[0]]
    external = ExternalWorlds(vector)
    learner = ppo(external, PPO)
    state, _ = learner.update(learner.init(jax.random.key(6)))
    return told(obs=obs, acting=state.acting, learning=state.learning)


def checks(env: worldline.Env) -> Any:
    worldline.check_env(env)
    return told(effects=worldline.check_domain(env, DOMAIN, steps=5, num_worlds=2).effects)


def runs(env: worldline.Env) -> Any:
    """A run that learns where its worlds live, and its continuation."""
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(
            steps=64, out=Path(folder) / "run", evaluations=1, eval_episodes=2, video=False,
            quiet=True, learner_device="cpu",
        )  # fmt: skip
        train("swing", env, config, PPO)
        resume(config.out, 96, quiet=True, env=env)
        return told(policy=[x for _, x in sorted(np.load(config.out / "policy.npz").items())])


def told(**trees: Any) -> dict[str, tuple[str, list[int]]]:
    """For each tree a hash of its numbers, and the numbers of the devices where they are."""
    return {name: _told(tree) for name, tree in trees.items()}


def _told(tree: Any) -> tuple[str, list[int]]:
    leaves = jax.tree.leaves(tree)
    devices = {d.id for x in leaves if isinstance(x, jax.Array) for d in x.devices()}
    data = b"".join(np.asarray(_words(x)).tobytes() for x in leaves)
    return hashlib.sha256(data).hexdigest(), sorted(devices)


def _words(x: Any) -> Any:
    is_key = isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(x) if is_key else x


if __name__ == "__main__":
    main()
