"""Any device: programs for a card, worlds and learners apart, and several that share the worlds.

Devices are virtual ones of the CPU, in processes of their own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters.mlir import ModuleContext

import toys
import worldline
import worldline.bridges.gymnasium
from worldline.bridges.external import ExternalWorlds
from worldline.errors import ConfigError
from worldline.host import calls
from worldline.learn.placement import on_devices
from worldline.learn.ppo import PPOConfig, ppo
from worldline.parallel.mesh import world_mesh
from worldline.train.learner_device import choose


def test_one_device_shares_with_nobody():
    mesh = world_mesh(jax.devices()[:1])
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
    assert " passed" in done.stdout


def lowered_for_a_card(function: Any, *arguments: Any) -> str:
    """The program of a function as JAX would hand it to XLA on an NVIDIA card.

    To lower a callback JAX asks for the card's client, and uses it on a TPU alone.
    """
    traced = jax.jit(function).trace(*arguments)
    with pytest.MonkeyPatch.context() as patch:
        client = jax.devices()[0].client
        patch.setattr(ModuleContext, "get_backend", lambda *_, **__: client)
        text: str = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "worldline_host" not in text  # which is for the CPU alone
    return text


@pytest.mark.parametrize("engine", ["native", "mjx", "fake"])
def test_worlds_can_be_compiled_for_a_card(engine):
    worlds = worldline.Worlds(worldline.Env(toys.Swing(), engine), 4)
    called = "xla_ffi_python_gpu_callback"
    reset = lowered_for_a_card(worlds.reset, jax.random.key(0))
    state = jax.eval_shape(worlds.reset, jax.random.key(0))
    step = lowered_for_a_card(worlds.step, state, jax.ShapeDtypeStruct((4, 1), jnp.float32))
    assert (called in reset, called in step) == (engine == "native", engine == "native")


def test_warp_steps_on_the_card_itself():
    pytest.importorskip("mujoco_warp")
    worlds = worldline.Worlds(worldline.Env(toys.Swing(), "warp"), 4)
    state = jax.eval_shape(worlds.reset, jax.random.key(0))
    text = lowered_for_a_card(worlds.step, state, jax.ShapeDtypeStruct((4, 1), jnp.float32))
    assert "python" not in text


def test_gradients_cameras_and_other_environments_can_be_compiled_for_a_card():
    env = worldline.Env(toys.Swing())
    worlds = worldline.Worlds(env, 4)

    def earned(actions: Any) -> Any:
        return worlds.step(worlds.reset(jax.random.key(0)), actions)[1].reward.sum()

    assert "gpu_callback" in lowered_for_a_card(jax.grad(earned), jnp.ones((4, 1)))
    task = worldline.make("suite/cartpole-balance").task
    seen = worldline.Env(task, cameras={"front": worldline.Camera("fixed", 8, 8)})
    assert "gpu_callback" in lowered_for_a_card(seen.reset, jax.random.key(0))
    vector = worldline.bridges.gymnasium.VectorEnv(worlds)
    external = ExternalWorlds(vector)
    state = external.reset(jax.random.key(0))
    assert "gpu_callback" in lowered_for_a_card(external.step, state, jnp.ones((4, 1)))


def test_a_callback_gives_the_numbers_of_a_direct_call(monkeypatch):
    """The call of a program on another platform, here one on the CPU that is taken for one."""

    def steps() -> Any:
        worlds = worldline.Worlds(worldline.Env(toys.Swing()), 4)
        state = worlds.reset(jax.random.key(0))
        return jax.device_get(jax.lax.fori_loop(0, 5, lambda _, s: turn(worlds, s), state).obs)

    def turn(worlds: Any, state: Any) -> Any:
        return worlds.step(state, jnp.ones((4, 1)))[0]

    direct = steps()
    monkeypatch.setattr(calls, "_DIRECT", ())
    np.testing.assert_array_equal(direct, steps())


def in_two_processes(*uses: str) -> tuple[Any, Any]:
    """What `two_devices.py` prints where the worlds' device is JAX's default, and where not."""
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here.parent), os.environ.get("PYTHONPATH", "")])
    both = [
        subprocess.Popen(
            [sys.executable, "two_devices.py", str(number), *uses],
            cwd=here,
            env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in (0, 1)
    ]
    told = []
    for process in both:
        out, error = process.communicate(timeout=500)
        assert process.returncode == 0, error[-5000:]
        told.append(json.loads(out.splitlines()[-1]))
    return told[0], told[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "uses",
    [
        ("steps", "policies", "vectors", "runs"),
        pytest.param(("learners", "seeds", "checks"), marks=pytest.mark.exhaustive),
    ],
)
def test_worlds_live_on_their_device_and_learners_on_the_default_one(uses):
    same, apart = in_two_processes(*uses)
    for use, results in apart.items():
        for name, (numbers, devices) in results.items():
            assert numbers == same[use][name][0], f"{use}: {name}"
            learns_apart = "learning" in name and "shac" not in name
            assert set(devices) <= ({1} if learns_apart else {0}), f"{use}: {name}"


def test_a_learner_device_that_is_not_there():
    env = worldline.Env(toys.Swing())
    with pytest.raises(ConfigError, match=r"no accelerator here; give cpu or auto"):
        choose("gpu", env, PPOConfig())
