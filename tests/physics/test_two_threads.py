"""Plain MuJoCo on one thread beside Worldline on another: neither notices the other."""

import subprocess
import sys

import pytest

import toys

SECONDS = 30

SCRIPT = """
import faulthandler
import itertools
import sys
import threading
import time

faulthandler.enable()
faulthandler.dump_traceback_later({limit}, exit=True)

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.model import Model
from worldline.physics.base import Reads
from worldline.physics.native import NativePhysics

STEPS, WORLDS = 50, 16
heard = []
mujoco.set_mju_user_warning(heard.append)
if sys.argv[1] == "own":
    ticks = itertools.count()
    mujoco.set_mjcb_time(lambda: float(next(ticks)))
    clock = mujoco.get_mjcb_time()

plain = mujoco.MjModel.from_xml_string({plain!r})
physics = NativePhysics(Model({worlds!r}), Reads(("xpos", "cfrc_ext")), num_threads=2)


def by_mujoco():
    # One model's steps; then a bad state, of which MuJoCo warns.
    data = mujoco.MjData(plain)
    for _ in range(STEPS):
        mujoco.mj_step(plain, data)
    end, timer = data.qpos.tobytes(), data.timer[mujoco.mjtTimer.mjTIMER_STEP]
    assert timer.number == STEPS, timer.number
    assert timer.duration > 0, timer.duration
    data.qvel[0] = np.nan
    mujoco.mj_step(plain, data)
    return end


@jax.jit
@jax.vmap
def program(angle):
    # Worlds from an angle; whose control is no number at the end, so that each diverges.
    qpos = physics.model.qpos0 + angle * jnp.ones(physics.model.nq)
    start = physics.start(qpos, jnp.zeros(physics.model.nv), {{}}, {{}})
    step = lambda s, c: (physics.step(s, {{"ctrl": c * jnp.ones(physics.model.nu)}}, 1), None)
    controls = jnp.linspace(-1, 1, STEPS).at[-1].set(jnp.nan)
    state, _ = jax.lax.scan(step, start, controls)
    return state.qpos, state.fields, state.diverged


def by_worldline():
    qpos, fields, diverged = jax.device_get(program(jnp.linspace(0, 0.1, WORLDS)))
    assert diverged.all()
    return [x.tobytes() for x in jax.tree.leaves((qpos, fields))]


def again_and_again(function, rounds, errors):
    expected = function()
    rounds.append(1)
    try:
        while time.monotonic() < end:
            assert function() == expected
            rounds.append(1)
    except BaseException as error:
        errors.append(error)
        raise


alone = by_mujoco(), by_worldline()
heard.clear()
end = time.monotonic() + {seconds}
rounds, errors = ([], []), []
threads = [
    threading.Thread(target=again_and_again, args=(function, done, errors))
    for function, done in zip((by_mujoco, by_worldline), rounds)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not errors, errors
assert min(map(len, rounds)) > 3, rounds
assert len(heard) == len(rounds[0]), (len(heard), len(rounds[0]))  # the plain thread's own alone
assert all("QVEL" in text for text in heard), set(heard)
assert (by_mujoco(), by_worldline()) == alone
if sys.argv[1] == "own":
    assert mujoco.get_mjcb_time() is clock
print("finished", *map(len, rounds))
"""


@pytest.mark.slow
@pytest.mark.parametrize("clock", ["MuJoCo's", "own"])
def test_plain_steps_keep_their_timers_warnings_and_results(clock, tmp_path):
    script = SCRIPT.format(plain=toys.ARM, worlds=toys.ARM, seconds=SECONDS, limit=8 * SECONDS - 20)
    done = subprocess.run(
        [sys.executable, "-c", script, clock],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=8 * SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("finished")
    assert not (tmp_path / "MUJOCO_LOG.TXT").exists()
