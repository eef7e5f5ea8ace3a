"""Shares of rows: a program of fewer worlds, run several times at the same time."""

import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("brax")

from brax_envs import slides

import worldline
from brax_steps import alarms_off
from worldline.bridges.packed_worlds import FLAGS, REALS, WORLD, PackedWorlds
from worldline.bridges.resets import seed_keys
from worldline.bridges.shares import Shares
from worldline.env.worlds import Worlds
from worldline.parallel.mesh import mesh_of

B, LENGTH, STEPS = 96, 8, 12
#: Those of a share.
ROWS = 32


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with alarms_off():
        yield


class TestNumber:
    @pytest.mark.parametrize(
        ("worlds", "shares"),
        [(1, 1), (63, 1), (64, 2), (96, 3), (101, 1), (128, 4), (512, 16), (4096, 16)],
    )
    def test_depends_on_the_worlds_alone(self, worlds: int, shares: int) -> None:
        made = Shares(slides(worlds, LENGTH))
        assert made.number == shares
        assert made.worlds.num_worlds * shares == worlds

    def test_one_where_a_library_has_threads_of_its_own(self) -> None:
        hopper = worldline.make("gym/hopper")
        assert Shares(Worlds(hopper, B)).number == 1
        assert Shares(Worlds(worldline.make("gym/hopper", "mjx"), B)).number == 3

    def test_one_where_devices_share_the_worlds_already(self) -> None:
        assert Shares(slides(B, LENGTH).but(mesh=mesh_of(jax.devices()[:1]))).number == 1


def of_share(x: Any, number: int) -> Any:
    return x[number * ROWS : (number + 1) * ROWS]


@pytest.fixture(scope="module")
def programs() -> tuple[Worlds, PackedWorlds]:
    worlds = slides(B, LENGTH)
    return worlds, PackedWorlds(worlds, ("state",), requires_grad=True)


@pytest.fixture(scope="module")
def few() -> PackedWorlds:
    """Of as many worlds as a share has."""
    return PackedWorlds(slides(B, LENGTH).share(3), ("state",), requires_grad=True)


class TestSteps:
    def test_are_those_of_fewer_worlds_bit_for_bit(
        self, programs: tuple[Worlds, PackedWorlds], few: PackedWorlds
    ) -> None:
        _, packed = programs
        random, ended = np.random.default_rng(0), 0
        world = packed.start(seed_keys(range(B)))[WORLD]
        parts = [of_share(world, i) for i in range(3)]
        for number in range(STEPS):
            action = random.uniform(-1, 1, (B, 1)).astype(np.float32)
            mask = None if number % 2 else random.random(B) < 0.7
            given, begun = packed.advance(world, None, action, mask)
            for i in range(3):
                rows = None if mask is None else of_share(mask, i)
                own, own_begun = few.advance(parts[i], None, of_share(action, i), rows)
                for name, value in own.items():
                    np.testing.assert_array_equal(of_share(given[name], i), value, err_msg=name)
                np.testing.assert_array_equal(of_share(begun["state"], i), own_begun["state"])
                parts[i] = own[WORLD]
            world = given[WORLD]
            ended += int(given["done"].sum())
        assert ended >= B
        some = np.arange(B) % 5 == 0
        began = packed.begin(world, some)[WORLD]
        for i in range(3):
            own = few.begin(parts[i], of_share(some, i))[WORLD]
            np.testing.assert_array_equal(of_share(began, i), own)
        assert (np.any(began != world, axis=1) == some).all()

    def test_gradients_are_those_of_fewer_worlds(
        self, programs: tuple[Worlds, PackedWorlds], few: PackedWorlds
    ) -> None:
        _, packed = programs
        shown = packed.start(seed_keys(range(B)))
        action = np.random.default_rng(1).uniform(-1, 1, (B, 1)).astype(np.float32)
        given, _ = packed.advance(shown[WORLD], shown[REALS], action, None)
        pulls = {name: np.ones_like(given[name]) for name in packed.differentiable}
        arguments = shown[WORLD], shown[REALS], action, None, pulls
        ours = packed.pull(*arguments)
        for i in range(3):
            own = few.pull(*jax.tree.map(lambda x, i=i: of_share(x, i), arguments))
            for mine, theirs in zip(ours, own, strict=True):
                np.testing.assert_array_equal(of_share(mine, i), theirs)
        assert np.any(ours[1])

    def test_flags_are_those_of_worlds(self, programs: tuple[Worlds, PackedWorlds]) -> None:
        worlds, packed = programs
        keys = seed_keys(range(B))
        state, world = worlds.reset(keys), packed.start(keys)[WORLD]
        random = np.random.default_rng(2)
        for _ in range(STEPS):
            action = random.uniform(-1, 1, (B, 1)).astype(np.float32)
            state, step = worlds.step(state, action)
            given, _ = packed.advance(world, None, action, None)
            world = given[WORLD]
            flags = step.terminated | step.truncated, step.terminated, step.truncated
            for name, flag in zip(FLAGS, flags, strict=True):
                np.testing.assert_array_equal(given[name][:, 0], flag)
            # Programs that XLA compiled otherwise may round otherwise.
            np.testing.assert_allclose(given["reward"][:, 0], step.reward, rtol=1e-5)
            np.testing.assert_allclose(given["state"], step.final_obs["state"], 1e-5, 1e-6)
        numbers = packed.unpack(world).episode_index
        np.testing.assert_array_equal(numbers, state.episode_index)
        assert (numbers >= B).all()


class TestThreads:
    def test_the_caller_compiles_and_others_run(self) -> None:
        traced, ran = [], set()

        def note(_: Any) -> None:
            ran.add(threading.current_thread().name)

        def double(x: Any) -> Any:
            traced.append(threading.current_thread())
            jax.debug.callback(note, x[0])
            return {"twice": 2 * x}

        run = Shares(slides(B, LENGTH)).jit(double)
        rows = np.arange(2 * B, dtype=np.float32).reshape(B, 2)
        for _ in range(3):
            np.testing.assert_array_equal(run(rows)["twice"], 2 * rows)
        jax.effects_barrier()
        assert traced == [threading.main_thread()]
        assert ran
        assert all(name.startswith("worldline share") for name in ran)
