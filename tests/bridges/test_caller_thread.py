"""Programs on the thread of their caller: what waits for them loses no time, and no exception."""

import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

import worldline
from worldline.bridges.caller_thread import caller_device, jit_on_caller_thread
from worldline.bridges.gymnasium import VectorEnv
from worldline.mujoco_c import Batch

B = 64


class Alarm(BaseException):
    """What a signal's handler raises, as that of Ctrl-C raises `KeyboardInterrupt`."""


@pytest.fixture
def ring() -> Iterator[Callable[[float], object]]:
    """Sets an alarm, s from now."""

    def alarm(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, alarm)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def humanoids(worlds: int = B) -> VectorEnv:
    env = gymnasium.make_vec("worldline/gym-humanoid-v0", num_envs=worlds)
    env.reset(seed=0)
    assert isinstance(env.unwrapped, VectorEnv)
    return env.unwrapped


ACTION = np.full((B, 17), 0.1, np.float32)


def test_physics_runs_on_the_thread_that_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    env, threads, step = humanoids(worlds=1), set[int](), Batch.step

    def spy(self: Batch, *args: Any) -> int:
        threads.add(threading.get_ident())
        return step(self, *args)

    monkeypatch.setattr(Batch, "step", spy)
    for _ in range(5):
        env.step(ACTION[:1])
    assert threads == {threading.get_ident()}


def test_results_lie_on_a_device_of_their_own() -> None:
    worlds = worldline.Worlds(worldline.make("gym/hopper"), 2)
    double = jit_on_caller_thread(worlds, lambda x: 2 * x)
    result = double(jax.numpy.arange(3))
    assert result.devices() == {caller_device()}
    assert caller_device() not in jax.devices()
    np.testing.assert_array_equal(result, [0, 2, 4])


def test_an_interrupted_step_leaves_the_worlds_where_they_were(
    ring: Callable[[float], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    env, twin, step = humanoids(), humanoids(), Batch.step

    def slow(self: Batch, *args: Any) -> int:
        time.sleep(0.5)
        return step(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Batch, "step", slow)
        ring(0.2)
        with pytest.raises(Alarm):
            env.step(ACTION)
    for _ in range(3):
        for mine, other in zip(env.step(ACTION)[:4], twin.step(ACTION)[:4], strict=True):
            np.testing.assert_array_equal(mine, other)


def test_alarms_are_neither_lost_nor_changed(ring: Callable[[float], object]) -> None:
    """Python may run a signal's handler before the first line of the function that XLA calls."""
    env, heard, rng = humanoids(worlds=1), 0, np.random.default_rng(0)
    gc.disable()  # JAX loses what is raised in its callback of Python's collector
    try:
        for _ in range(100):
            try:
                env.step(ACTION[:1])
            except RecursionError:  # JAX's cache, if the alarm before rang in it, works no more
                env = humanoids(worlds=1)
                env.step(ACTION[:1])
            try:  # on a busy machine it may ring at once
                ring(rng.uniform(0.001, 0.005))
                for _ in range(1000):
                    env.step(ACTION[:1])
            except Alarm:
                heard += 1
            except ValueError as error:  # it rang while JAX compared keys of its cache of programs
                assert all(word in str(error) for word in ("global cache key", "Alarm"))
                heard += 1
    finally:
        gc.enable()
    assert heard == 100


def test_an_error_of_the_physics_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    env = humanoids()

    def fail(*_: Any) -> int:
        raise OSError("no more threads")

    with monkeypatch.context() as patch:
        patch.setattr(Batch, "step", fail)
        for _ in range(20):  # XLA calls from its own threads as well
            with pytest.raises(OSError, match="no more threads"):
                env.step(ACTION)
    env.step(ACTION)
