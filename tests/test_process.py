"""Importing and using Worldline changes nothing for other programs of the same process."""

import json
import subprocess
import sys

PROGRAM = """
import atexit, ctypes, json, logging, os, sys, threading, warnings
from pathlib import Path

import gymnasium, jax, mujoco, numpy as np
import jax.numpy as jnp
from jax._src.interpreters import mlir
from jax.extend.random import threefry2x32_p

library = ctypes.CDLL(str(next(Path(mujoco.__file__).parent.glob("libmujoco*.so*"))))
jnp.zeros(3).block_until_ready()  # JAX's own threads
jax.random.uniform(jax.random.key(0))


def snapshot():
    fd = os.fstat(2)
    return {
        "lowering of random numbers": str(
            [mlir._lowerings.get(threefry2x32_p)]
            + [rules.get(threefry2x32_p) for rules in mlir._platform_specific_lowerings.values()]
        ),
        "import hooks": [str(finder) for finder in sys.meta_path],
        "MuJoCo's clock": ctypes.c_void_p.in_dll(library, "mjcb_time").value,
        "standard error": [fd.st_dev, fd.st_ino],
        "threads of Python": [thread.name for thread in threading.enumerate()],
        "loggers": {
            name: [str(handler) for handler in logging.getLogger(name).handlers]
            for name in ("", "jax", "absl", "gymnasium")
        },
        "warnings": [str(rule) for rule in warnings.filters],
        "environment": dict(os.environ),
        "configuration of JAX": {n: str(v) for n, v in jax.config.values.items()},
        "devices": [str(device) for device in jax.devices()],
        "signals": str(__import__("signal").getsignal(2)),
    }


before = snapshot()
import worldline

env = worldline.make("gym/ant")
worlds = worldline.Worlds(env, 4, domain=env.task.domains["light"])
state = worlds.reset(jax.random.key(0))
state, step = worlds.step(state, np.zeros((4, 8), np.float32))
step.reward.block_until_ready()
if "bridge" in sys.argv:
    envs = gymnasium.make_vec("worldline/gym-ant-v0", num_envs=4)
    envs.reset(seed=0)
    envs.step(envs.action_space.sample())
after = snapshot()
print(json.dumps([before, after]))
"""


def test_no_import_and_no_step_changes_the_process():
    for argument in ("", "bridge"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, argument], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        before, after = json.loads(done.stdout.splitlines()[-1])
        for name, value in before.items():
            assert after[name] == value, f"{name} changed"
        assert done.stderr == ""


def test_the_end_of_a_process_takes_no_time_of_ours():
    program = f"""{PROGRAM}
import time
time.sleep(0.3)  # no program is under way
slept = [0]
time.sleep = slept.append
atexit._run_exitfuncs()
print(sum(slept))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.splitlines()[-1]) == 0
