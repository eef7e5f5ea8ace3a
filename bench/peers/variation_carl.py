"""Steps CARL's vector environment of Brax's ant: `variation_carl.py HOW NUM_WORLDS STEPS`.

HOW is `plain`, its default context, or `contexts`: another one of 64 at each reset of the batch,
which all its worlds share. A measurement is a reset and steps under random actions.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import jax
import numpy as np
from carl.envs import CARLBraxAnt
from protocol import serve_steps


def contexts(how: str) -> dict[int, dict[str, Any]] | None:
    """What the environment chooses from."""
    if how == "plain":
        return None
    rng = np.random.default_rng(0)
    default = CARLBraxAnt.get_default_context()
    varied = ("mass_torso", "friction", "ang_damping")
    return {
        i: {**default, **{name: default[name] * rng.uniform(0.9, 1.1) for name in varied}}
        for i in range(64)
    }


#: CARL calls it by a name that JAX has dropped.
jax.tree_map = jax.tree.map


def main() -> None:
    """Serves resets and steps under random actions."""
    how, num_worlds, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with contextlib.redirect_stdout(sys.stderr):
        env = CARLBraxAnt(batch_size=num_worlds, contexts=contexts(how))
    actions = np.random.default_rng(1).uniform(-1, 1, (steps, num_worlds, 8)).astype(np.float32)

    def run() -> None:
        with contextlib.redirect_stdout(sys.stderr):
            env.reset(seed=0)
            for action in actions:
                _, reward, *_ = env.step(action)
            np.asarray(reward)  # waits for it

    serve_steps(run)


if __name__ == "__main__":
    main()
