"""The memory of what nobody uses any more is freed."""

import dataclasses
import gc
import multiprocessing
import os
import weakref
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
import worldline
import worldline.bridges.gymnasium  # registers the tasks
from worldline.bridges.external import ExternalWorlds
from worldline.learn.ppo import PPOConfig, ppo
from worldline.mujoco_c import Batch
from worldline.rendering.camera import Camera
from worldline.variation import Domain, Uniform, scale

B = 4
ACTION = np.zeros((B, 1), np.float32)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Pole(toys.Swing):
    """A pole of any length, and a camera beside it."""

    length: float = 0.5

    def mjcf(self) -> str:
        camera = "<worldbody> <camera name='side' pos='0 -2 0' xyaxes='1 0 0 0 0 1'/>"
        pole = toys.PENDULUM.replace("-0.5", f"{-self.length}")
        return pole.replace("<worldbody>", camera)


def env_of(engine: Any = "native") -> worldline.Env:
    return worldline.Env(Pole(), engine)


def step(worlds: worldline.Worlds) -> None:
    state = worlds.reset(jax.random.key(0))
    worlds.reset_where(worlds.step(state, ACTION)[0], np.arange(B) == 1)


def use_env(env: worldline.Env) -> None:
    env.step(env.reset(jax.random.key(0)), ACTION[0])


def use_compiled_env(env: worldline.Env) -> None:
    jax.jit(env.step)(jax.jit(env.reset)(jax.random.key(0)), ACTION[0])


def use_worlds(env: worldline.Env) -> None:
    step(worldline.Worlds(env, B))


def use_loop(env: worldline.Env) -> None:
    worlds = worldline.Worlds(env, B)
    rollout = jax.jit(lambda s, a: jax.lax.scan(worlds.step, s, a))
    rollout(worlds.reset(jax.random.key(0)), np.zeros((3, B, 1), np.float32))


def use_domain(env: worldline.Env) -> None:
    domain = Domain(scale("body_mass", Uniform(0.8, 1.2)))
    step(worldline.Worlds(env, B, domain=domain, resample_every=2))


def use_gradient(env: worldline.Env) -> None:
    worlds = worldline.Worlds(env, B)
    state = worlds.reset(jax.random.key(0))
    jax.grad(lambda action: worlds.step(state, action)[1].reward.sum())(jnp.asarray(ACTION))


def use_camera(env: worldline.Env) -> None:
    step(worldline.Worlds(env, B, cameras={"pixels": Camera("side", width=16, height=16)}))


def use_ppo(env: worldline.Env) -> None:
    config = PPOConfig(num_worlds=B, unroll_length=4, minibatches=2, actor_hidden=(8,))
    learner = ppo(worldline.Worlds(env, B), config)
    with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to an integer count
        learner.update(learner.init(jax.random.key(0)))


USES = {
    use.__name__: use
    for use in (
        *(use_env, use_compiled_env, use_worlds, use_loop),
        *(use_domain, use_gradient, use_camera, use_ppo),
    )
}


def assert_freed(env: worldline.Env, use: Callable[[worldline.Env], None]) -> None:
    kept = {"task": env.task, "physics": env.physics, "model": env.model}
    alive = {name: weakref.ref(it) for name, it in kept.items()}
    use(env)
    del env, kept
    gc.collect()
    assert [name for name, it in alive.items() if it() is not None] == []


@pytest.mark.parametrize("use", USES)
def test_an_environment_goes_with_its_programs(use: str) -> None:
    assert_freed(env_of(), USES[use])


@pytest.mark.parametrize("engine", ["mjx", "warp"])
def test_it_does_with_every_engine(engine: str) -> None:
    assert_freed(env_of(engine), use_worlds)


def test_a_program_keeps_what_it_needs() -> None:
    """An environment that is made where it is used, and is gone before the program runs."""

    def swing(action: Any) -> Any:
        env = env_of()
        return env.step(env.reset(jax.random.key(0)), action).reward

    value, pull = jax.vjp(swing, jnp.ones(1))
    gc.collect()
    assert value == jax.jit(swing)(jnp.ones(1))
    np.testing.assert_array_equal(pull(jnp.ones(())), [jax.grad(swing)(jnp.ones(1))])


def memory() -> int:
    """The memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def vector_env() -> None:
    env = gymnasium.make_vec("worldline/gym-hopper-v0", num_envs=512)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    env.close()


def external_worlds() -> None:
    worlds = ExternalWorlds(gymnasium.make_vec("worldline/gym-hopper-v0", num_envs=8))
    worlds.step(worlds.reset(jax.random.key(0)), np.zeros((8, 3), np.float32))


@pytest.mark.slow
@pytest.mark.parametrize(
    "use", [vector_env, pytest.param(external_worlds, marks=pytest.mark.exhaustive)]
)
def test_closed_environments_leave_nothing(use: Callable[[], None], times: int = 50) -> None:
    """In a process of its own: in one that other tests have filled, memory grows by chance."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
        before = fresh.submit(use_times, use, times // 2).result()
        after = fresh.submit(use_times, use, times // 2).result()
    assert after.batches == before.batches == 0
    assert after.memory - before.memory < times // 2 * 2e6  # a batch of 512 hoppers has 18 MB


class Left(NamedTuple):
    """What this process holds: bytes, and batches of worlds."""

    memory: int
    batches: int


def use_times(use: Callable[[], None], times: int) -> Left:
    for _ in range(times):
        use()
    gc.collect()
    return Left(memory(), sum(type(it) is Batch for it in gc.get_objects()))


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("use", ["use_env", "use_worlds"])
def test_two_hundred_models_leave_nothing(use: str) -> None:
    for number in range(200 if use == "use_env" else 20):
        assert_freed(worldline.Env(Pole(length=0.5 + number / 100)), USES[use])
