"""Programs in flight side by side on two cores never wait for each other for good."""

import os
import subprocess
import sys

import pytest

import toys

# `jax.pure_callback` fails this test: it reads its arguments on a thread of the very pool that both
# programs already fill.
STRESS = """
import os
import threading

cores = sorted(os.sched_getaffinity(0))[:2] if hasattr(os, "sched_getaffinity") else None
if cores:
    os.sched_setaffinity(0, cores)

import jax
import jax.numpy as jnp

from worldline.model import Model
from worldline.physics.native import NativePhysics

WORLDS, STEPS, CALLS = 4096, 10, 6
physics = NativePhysics(Model({mjcf!r}))


def one_world(angle):
    start = physics.start(angle[None], jnp.zeros(1), {{}}, {{}})
    step = lambda s, c: (physics.step(s, {{"ctrl": c[None]}}, 1), None)
    return jax.lax.scan(step, start, jnp.linspace(-1, 1, STEPS))[0].qpos


@jax.jit
def program(angles):
    # Arithmetic around the engine keeps the threads of the pool busy.
    mix = jnp.sin(angles[:, None] * angles[:1024]).sum(axis=1)
    return jax.vmap(one_world)(angles + 1e-9 * mix)


def in_flight(results, offset):
    for call in range(CALLS):  # dispatched one after another; nobody waits in between
        results.append(program(jnp.linspace(-1, 1, WORLDS) + offset + call))


first, second = [], []
threads = [threading.Thread(target=in_flight, args=(r, i)) for i, r in enumerate((first, second))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
jax.block_until_ready((first, second))
assert all(bool(jnp.isfinite(x).all()) for x in first + second)
print("finished", len(first) + len(second))
"""


@pytest.mark.parametrize("async_dispatch", ["true", "false"])
def test_two_programs_in_flight_finish(async_dispatch):
    finished = subprocess.run(
        [sys.executable, "-c", STRESS.format(mjcf=toys.PENDULUM)],
        env=os.environ | {"JAX_CPU_ENABLE_ASYNC_DISPATCH": async_dispatch},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.split() == ["finished", "12"]
