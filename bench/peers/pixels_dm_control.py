"""dm_control's pixel wrapper at its defaults: `pixels_dm_control.py DOMAIN TASK SIZE`."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("MUJOCO_GL", "egl")  # before MuJoCo is imported

import numpy as np
from dm_control import suite
from dm_control.suite.wrappers import pixels
from protocol import serve_steps


def main() -> None:
    """Serves steps of one environment, each with its image."""
    domain, task, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    seen = pixels.Wrapper(
        suite.load(domain, task), render_kwargs={"height": size, "width": size, "camera_id": 0}
    )
    spec, rng = seen.action_spec(), np.random.default_rng(0)
    seen.reset()

    def step() -> None:
        if seen.step(rng.uniform(spec.minimum, spec.maximum)).last():
            seen.reset()

    serve_steps(step)


if __name__ == "__main__":
    main()
