"""One policy for numbers: with `JAX_ENABLE_X64` too, worlds and learners compute in 32 bits.

Only the engine `mjx` then simulates in 64 (its state says so); what a task observes has 32 again.
"""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np, worldline
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.run import run
from worldline.learn.sac import SACConfig, sac
from worldline.learn.shac import SHACConfig, shac

assert jnp.zeros(1).dtype == (jnp.float64 if jax.config.jax_enable_x64 else jnp.float32)

def wide(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [jax.tree_util.keystr(path) for path, x in leaves if "64" in str(x.dtype)]

def loop(worlds, steps=3):
    nact = len(worlds.env.action_low)
    def step(state, key):
        action = jax.random.uniform(key, (4, nact), minval=-1.0, maxval=1.0)
        return worlds.step(state, action)
    keys = jax.random.split(jax.random.key(1), steps)
    return jax.jit(lambda state: jax.lax.scan(step, state, keys))(worlds.reset(jax.random.key(0)))

for task in ("gym/ant", "robot/reach", "suite/cartpole-swingup", "robot/quadruped-joystick"):
    env = worldline.make(task)
    state, steps = loop(worldline.Worlds(env, 4, domain=env.task.domains["hard"]))
    assert not wide((state, steps)), (task, wide((state, steps)))
    print(task, np.asarray(steps.reward[-1]).round(2).tolist())
state, steps = loop(worldline.Worlds(worldline.make("gym/inverted-pendulum", physics="mjx"), 4))
assert not wide(steps)
worldline.check_env(worldline.make("robot/reach"))
small = {"num_worlds": 4, "unroll_length": 8}
LEARNERS = {
    "ppo": (ppo, PPOConfig(**small, minibatches=2)),
    "gru": (ppo, PPOConfig(**small, minibatches=2, recurrent_size=8)),
    "sac": (sac, SACConfig(**small, critic_steps=8, learning_starts=16, replay_capacity=200)),
    "shac": (shac, SHACConfig(**small, minibatches=2)),
}
for name, (make, config) in LEARNERS.items():
    learner = make(worldline.Worlds(worldline.make("gym/inverted-pendulum"), 4), config)
    for progress in run(learner, learner.init(jax.random.key(0)), steps=100):
        assert not wide(progress.state), (name, wide(progress.state))
    print(name, sorted(progress.metrics)[:3])
"""


@pytest.mark.slow
def test_all_is_as_without_but_for_the_option() -> None:
    printed = []
    for option in ("0", "1"):
        program = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(
            program,
            env={**os.environ, "JAX_ENABLE_X64": option},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        printed.append(done.stdout.splitlines())
    plain, wide = printed
    assert len(plain) == len(wide) == 8
    assert plain[4:] == wide[4:]


EVERY_TASK = """
import warnings
import jax, jax.numpy as jnp, worldline

warnings.simplefilter("error")  # JAX's, of numbers of 64 bits put among those of 32
for task in worldline.list_tasks():
    env = worldline.make(task)
    worlds = worldline.Worlds(env, 2)
    state = jax.eval_shape(worlds.reset, jax.random.key(0))
    action = jax.ShapeDtypeStruct((2, len(env.action_low)), jnp.float32)
    stepped = jax.eval_shape(worlds.step, state, action)
    wide = [x for x in jax.tree.leaves((state, stepped)) if "64" in str(x.dtype)]
    assert not wide, (task, wide)
"""


@pytest.mark.exhaustive
def test_every_task_can_be_traced_with_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EVERY_TASK],
        env={**os.environ, "JAX_ENABLE_X64": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_the_command_line_trains_with_it(tmp_path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "worldline.cli", "train", "robot/reach", "--out", str(folder)]
    done = subprocess.run(
        [*command, "--steps", "20000", "--no-video", "--quiet"],
        env={**os.environ, "JAX_ENABLE_X64": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (folder / "policy.npz").exists()
