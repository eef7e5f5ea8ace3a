"""Rollouts of TorchRL environments of ants: `step_torchrl.py KIND BATCH STEPS`.

KIND is `worldline`, `brax` (TorchRL's BraxEnv without its cache clearing), `brax-default` (as it
comes), `brax-worlds` (the same environment of Brax through Worldline), or `raw` (Worldline's
compiled step in a Python loop, without torch).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from protocol import serve_steps


def torchrl_rollout(kind: str, batch: int, steps: int) -> Callable[[], Any]:
    """Random actions, and every episode that ends followed by the next."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    if kind == "worldline":
        from worldline.bridges.torchrl import WorldlineEnv
        from worldline.tuning import tune_process

        tune_process()

        env: Any = WorldlineEnv("gym/ant", batch_size=[batch], seed=0)
    elif kind == "brax-worlds":
        from brax.envs import get_environment

        from worldline.bridges.brax import BraxWorlds
        from worldline.bridges.torchrl import WorldlineWrapper

        worlds = BraxWorlds(get_environment("ant"), batch)
        env = WorldlineWrapper(worlds, batch_size=[batch], seed=0)
    else:
        from torchrl.envs import BraxEnv

        clearing = {} if kind == "brax-default" else {"cache_clear_frequency": False}
        env = BraxEnv("ant", batch_size=[batch], device="cpu", **clearing)
        env.set_seed(0)
    return lambda: env.rollout(steps, break_when_any_done=False)


def raw_loop(batch: int, steps: int) -> Callable[[], Any]:
    """The same steps of ours with nothing between them but Python."""
    import jax

    import worldline
    from worldline.tuning import tune_process

    tune_process()
    env = worldline.make("gym/ant")
    worlds = worldline.Worlds(env, batch)
    shape = (batch, *env.action_low.shape)

    @jax.jit
    def step(state: Any, key: Any) -> Any:
        key, action_key = jax.random.split(key)
        action = jax.random.uniform(action_key, shape, minval=-1.0, maxval=1.0)
        return (*worlds.step(state, action), key)

    def loop() -> None:
        state, key, kept = worlds.reset(jax.random.key(0)), jax.random.key(1), []
        for _ in range(steps):
            state, given, key = step(state, key)
            kept.append(given)
        jax.block_until_ready(kept)

    return loop


def main() -> None:
    """Serves whole rollouts."""
    kind, batch, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with contextlib.redirect_stdout(sys.stderr):  # Brax says there what it has not found
        rollout = raw_loop(batch, steps) if kind == "raw" else torchrl_rollout(kind, batch, steps)
    serve_steps(rollout)


if __name__ == "__main__":
    main()
