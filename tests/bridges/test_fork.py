"""A process that was forked from one which uses JAX is refused in words; it does not hang."""

import subprocess
import sys

import pytest

GYMNASIUM = """
import gymnasium, worldline
import worldline.bridges.gymnasium
envs = gymnasium.make_vec("worldline/gym-reacher-v0", 2, "async")
envs.reset(seed=0)
"""

SPAWNED = """
import gymnasium, numpy as np, worldline
import worldline.bridges.gymnasium
if __name__ == "__main__":
    make = lambda: gymnasium.make("worldline.bridges.gymnasium:worldline/gym-reacher-v0")
    envs = gymnasium.vector.AsyncVectorEnv([make, make], context="spawn")
    envs.reset(seed=0)
    _, reward, *_ = envs.step(envs.action_space.sample())
    assert np.isfinite(reward).all()
    envs.close()
"""

SB3 = """
import gymnasium, worldline.bridges.gymnasium
from stable_baselines3.common.vec_env import SubprocVecEnv
make = lambda: gymnasium.make("worldline/gym-reacher-v0")
make().reset()
SubprocVecEnv([make, make], start_method="fork").reset()
"""

TORCHRL = """
from torchrl.envs import ParallelEnv
from worldline.bridges.torchrl import WorldlineEnv
ParallelEnv(2, lambda: WorldlineEnv("gym/reacher"), mp_start_method="fork").rollout(2)
"""

WORLDS = """
import os, sys, jax, worldline
worlds = worldline.Worlds(worldline.make("gym/reacher"), 2)
state = worlds.reset(jax.random.key(0))
if not os.fork():
    try:
        worlds.step(state, [[0.0, 0.0]] * 2)
    except worldline.WorldlineError as error:
        sys.stderr.write(str(error))
    os._exit(0)
os.wait()
"""


def run(code: str, folder) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(code)
    command = [sys.executable, "-W", "ignore", "program.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)


def case(library: str | None, code: str, *marks: pytest.MarkDecorator):
    return pytest.param(library, code, id=library or "worlds", marks=marks)


@pytest.mark.parametrize(
    ("library", "code"),
    [
        case(None, WORLDS),
        case("gymnasium", GYMNASIUM),
        case("stable_baselines3", SB3, pytest.mark.exhaustive),
        case("torchrl", TORCHRL, pytest.mark.exhaustive),
    ],
)
def test_a_forked_process_is_refused(library, code, tmp_path):
    if library:
        pytest.importorskip(library)
    error = run(code, tmp_path).stderr
    assert 'has none of its threads; start processes by "spawn" or "forkserver"' in error


def test_a_spawned_process_works(tmp_path):
    done = run(SPAWNED, tmp_path)
    assert done.returncode == 0, done.stderr
