"""Steps EnvPool in its synchronous mode: `step_envpool.py ENV_ID NUM_ENVS NUM_THREADS`."""

from __future__ import annotations

import itertools
import sys

import envpool
import numpy as np
from protocol import serve_steps


def main() -> None:
    """Serves batched steps under actions drawn in advance."""
    name, num_envs, num_threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    envs = envpool.make_gymnasium(name, num_envs=num_envs, num_threads=num_threads, seed=0)
    space = envs.action_space
    rng = np.random.default_rng(0)
    drawn = [rng.uniform(space.low, space.high, (num_envs, *space.shape)) for _ in range(64)]
    actions = itertools.cycle(drawn)
    envs.reset()
    serve_steps(lambda: envs.step(next(actions)))


if __name__ == "__main__":
    main()
