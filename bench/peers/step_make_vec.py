"""Steps Worldline by `gymnasium.make_vec`: `step_make_vec.py MODE ENV_ID NUM_ENVS`."""

from __future__ import annotations

import itertools
import sys

import gymnasium
from gymnasium.vector import AutoresetMode
from protocol import serve_steps

import worldline.bridges.gymnasium  # noqa: F401 # registers its tasks with Gymnasium
from worldline.tuning import tune_process


def main() -> None:
    """Serves batched steps under actions drawn in advance."""
    mode, name, num_envs = AutoresetMode[sys.argv[1]], sys.argv[2], int(sys.argv[3])
    envs = gymnasium.make_vec(name, num_envs=num_envs, autoreset_mode=mode)
    envs.action_space.seed(0)
    envs.reset(seed=0)
    actions = itertools.cycle([envs.action_space.sample() for _ in range(64)])

    def step() -> None:
        *_, terminated, truncated, _ = envs.step(next(actions))
        ended = terminated | truncated
        if mode is AutoresetMode.DISABLED and ended.any():
            envs.reset(options={"reset_mask": ended})

    serve_steps(step)
    envs.close()


if __name__ == "__main__":
    tune_process()
    main()
