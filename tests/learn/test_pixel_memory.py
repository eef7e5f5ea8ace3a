"""The peak memory of a process that trains from images, beside the arithmetic."""

import subprocess
import sys

import pytest

#: 256 worlds learn from a rollout of 64 x 64 x 9; prints the process's peak memory in bytes.
_TRAIN = """
import pathlib
import re
import resource
import sys

import jax
import worldline
from worldline.learn.ppo import PPOConfig, ppo
from worldline.rendering.camera import Camera

T = int(sys.argv[1])
env = worldline.make("suite/cartpole-balance")
worlds = worldline.Worlds(env, 256, cameras={"front": Camera("fixed", 64, 64, stack=3)})
config = PPOConfig(
    num_worlds=256, unroll_length=T, minibatches=T // 4, epochs=1, actor_obs=("pixels/front",)
)
learner = ppo(worlds, config)
state, _ = learner.update(learner.init(jax.random.key(0)))
jax.block_until_ready(state)
if sys.platform == "linux":  # whose `ru_maxrss` begins with the peak of the process that started it
    status = pathlib.Path("/proc/self/status").read_text()
    print(int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) * 1024)
else:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_bytes(unroll_length: int) -> int:
    command = [sys.executable, "-c", _TRAIN, str(unroll_length)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_longer_rollout_costs_its_images_once_as_bytes():
    """Held twice, or as they enter a network, they would cost two or four times as much."""
    images = (48 - 16) * 256 * 64 * 64 * 9
    assert 0.8 * images < peak_bytes(48) - peak_bytes(16) < 1.25 * images
