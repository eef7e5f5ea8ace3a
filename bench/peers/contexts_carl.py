"""What the contexts of CARL's Brax ant change: `contexts_carl.py` prints JSON.

For each feature: the largest difference in any joint's position after steps from the same start
under the same actions, between the default context and one far from it; the time that a step takes.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time

import numpy as np
from carl.envs import CARLBraxAnt

STEPS = 20
#: A value far from the default of each feature.
FAR = {
    "gravity": -3.7,
    "friction": 0.05,
    "elasticity": 0.9,
    "ang_damping": -2.0,
    "mass_torso": 30.0,
    "viscosity": 2.0,
}


def roll(changed: dict[str, float]) -> tuple[np.ndarray, float]:
    """Positions after each step, `(STEPS, nq)`, and the seconds of the last step."""
    context = {**CARLBraxAnt.get_default_context(), **changed}
    env = CARLBraxAnt(contexts={0: context})
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    positions, seconds = [], 0.0
    for _ in range(STEPS):
        began = time.perf_counter()
        env.step(rng.uniform(-1, 1, 8).astype(np.float32))
        seconds = time.perf_counter() - began
        positions.append(np.asarray(env.env.unwrapped._state.pipeline_state.q))
    return np.array(positions), seconds


def main() -> None:
    """Measures and prints."""
    with contextlib.redirect_stdout(sys.stderr):
        plain, seconds = roll({})
        again, _ = roll({})
        found = {
            "repeated": float(np.abs(again - plain).max()),
            "seconds": seconds,
            "changes": {
                name: float(np.abs(roll({name: value})[0] - plain).max())
                for name, value in FAR.items()
            },
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
