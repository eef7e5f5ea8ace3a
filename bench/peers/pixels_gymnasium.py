"""Gymnasium's rendered observations at their defaults: `pixels_gymnasium.py ENV_ID SIZE`."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("MUJOCO_GL", "egl")  # before MuJoCo is imported

import gymnasium
from gymnasium.wrappers import AddRenderObservation
from protocol import serve_steps


def main() -> None:
    """Serves steps of one environment, each with its image."""
    name, size = sys.argv[1], int(sys.argv[2])
    made = gymnasium.make(name, render_mode="rgb_array", width=size, height=size, camera_id=0)
    seen = AddRenderObservation(made)
    seen.reset(seed=0)

    def step() -> None:
        _, _, terminated, truncated, _ = seen.step(seen.action_space.sample())
        if terminated or truncated:
            seen.reset()

    serve_steps(step)


if __name__ == "__main__":
    main()
