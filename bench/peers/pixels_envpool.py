"""EnvPool's images at their defaults: `pixels_envpool.py ENV_ID SIZE NUM_ENVS NUM_THREADS`."""

from __future__ import annotations

import ctypes
import itertools
import os
import sys

import numpy as np
from protocol import serve_steps


def main() -> None:
    """Serves batched steps, each with its images."""
    name, size, num_envs, num_threads = sys.argv[1], *map(int, sys.argv[2:])
    os.environ.setdefault("MUJOCO_GL", "egl")
    for library in ("libEGL.so.1", "libGL.so.1", "libOpenGL.so.0"):  # it does not find them itself
        ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
    import envpool

    envs = envpool.make_gymnasium(
        name,
        num_envs=num_envs,
        num_threads=num_threads,
        from_pixels=True,
        render_width=size,
        render_height=size,
        render_camera_id=0,
    )
    space, rng = envs.action_space, np.random.default_rng(0)
    drawn = [rng.uniform(space.low, space.high, (num_envs, *space.shape)) for _ in range(64)]
    actions = itertools.cycle(drawn)
    envs.reset()
    serve_steps(lambda: envs.step(next(actions)))


if __name__ == "__main__":
    main()
