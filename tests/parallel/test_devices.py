"""Devices that share worlds give the numbers of one: four virtual ones, in a process apart."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import worldline
from worldline.learn.placement import on_devices
from worldline.learn.ppo import PPOConfig, ppo
from worldline.parallel.mesh import world_mesh


def test_one_device_shares_with_nobody():
    mesh = world_mesh()
    env = worldline.make("robot/reach", physics="fake")
    learner = ppo(worldline.Worlds(env, 2), PPOConfig(num_worlds=2, unroll_length=8))
    assert mesh is None
    assert on_devices(learner, mesh) is learner


@pytest.mark.slow
def test_four_devices():
    flags = "--xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "four_devices.py"],
        cwd=Path(__file__).parent,
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert "7 passed" in done.stdout
