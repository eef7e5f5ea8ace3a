"""Steps Gymnasium's vector environments: `step_gymnasium.py sync|async ENV_ID NUM_ENVS`."""

from __future__ import annotations

import itertools
import sys

import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from protocol import serve_steps


def main() -> None:
    """Serves batched steps under actions drawn in advance."""
    kind, name, num_envs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    vector = {"sync": SyncVectorEnv, "async": AsyncVectorEnv}[kind]
    make = [lambda: gymnasium.make(name, disable_env_checker=True)] * num_envs
    envs = vector(make)
    envs.action_space.seed(0)
    envs.reset(seed=0)
    actions = itertools.cycle([envs.action_space.sample() for _ in range(64)])
    serve_steps(lambda: envs.step(next(actions)))
    envs.close()


if __name__ == "__main__":
    main()
