"""Steps of worlds as rows of words."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

import toys
import worldline
from worldline.bridges.packed_worlds import WORLD, PackedWorlds
from worldline.env.task import Outcome

B, STEPS = 4, 12


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Remembering(toys.Puck):
    """A puck paid for where it was, by a field of the state before."""

    fields: tuple[str, ...] = ("xpos", "xmat")

    def outcome(self, before: Any, action: Any, after: Any, memory: Any) -> Outcome:
        outcome = super().outcome(before, action, after, memory)
        return dataclasses.replace(outcome, reward=before.fields["xpos"][1, 0])


def packed(task: toys.Puck) -> tuple[worldline.Worlds, PackedWorlds]:
    worlds = worldline.Worlds(worldline.Env(task), B, episode_length=5)
    return worlds, PackedWorlds(worlds, ("observation",), requires_grad=False)


@pytest.mark.parametrize("task", [toys.Puck(wall=0.9), Remembering(wall=0.9)])
def test_steps_of_rows_are_those_of_worlds(task: toys.Puck) -> None:
    worlds, programs = packed(task)
    keys = [jax.random.split(jax.random.key(3), B) for _ in range(2)]
    state, world = worlds.reset(keys[0]), programs.start(keys[1])[WORLD]
    random = np.random.default_rng(0)
    ends = 0
    for number in range(STEPS):
        action = random.uniform(-1, 1, (B, 2)).astype(np.float32)
        mask = None if number % 2 else random.random(B) < 0.7
        state, step = worlds.step(state, action, mask)
        given, begun = programs.advance(world, None, action, mask)
        world = given[WORLD]
        np.testing.assert_array_equal(given["observation"], step.final_obs)
        np.testing.assert_array_equal(begun["observation"], step.obs)
        for name in ("reward", "terminated", "truncated"):
            np.testing.assert_array_equal(given[name][:, 0], getattr(step, name), err_msg=name)
        if number == STEPS // 2:
            state = worlds.reset_where(state, np.arange(B) < 2)
            world = programs.begin(world, np.arange(B) < 2)[WORLD]
            np.testing.assert_array_equal(programs.unpack(world).obs, state.obs)
        ends += int(np.sum(step.terminated | step.truncated))
    assert ends >= B
