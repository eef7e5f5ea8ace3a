"""Tests against dm_control's own environments, which MuJoCo 4 cannot load, and against MuJoCo
Playground's: `make parity` runs them in an environment with MuJoCo 3.17."""

import jax
import mujoco

# Many programs, each run once: XLA is not to take its time over them.
jax.config.update("jax_disable_most_optimizations", mujoco.mj_version() < 4_000_000)

collect_ignore_glob = ["test_*.py"] if mujoco.mj_version() >= 4_000_000 else []
