"""Native physics gives the same bits on any number of threads."""

import functools

import jax
import numpy as np
import pytest
from worlds_of_users import TASKS, actions, env_of

import worldline
from worldline.physics.native import NativePhysics

WORLDS, STEPS = 64, 10


@pytest.mark.parametrize("task", TASKS)
def test_the_number_of_threads_changes_no_bit(task):
    def after(threads):
        physics = functools.partial(NativePhysics, num_threads=threads)
        worlds = worldline.Worlds(worldline.Env(env_of(task).task, physics), WORLDS)
        state = worlds.reset(jax.random.key(3))
        for action in actions(env_of(task))[:STEPS, :WORLDS]:
            state, step = worlds.step(state, action)
        return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((state.env.physics, step))]

    assert after(1) == after(3)
