"""Ranges of a task's own: starts are drawn from them, and they move with what happens in worlds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
import worldline
from worldline.env.disturb import ActionDelay
from worldline.errors import TaskError, VariationError
from worldline.variation import Domain, Uniform, scale


def steps(worlds, state, pushes):
    """The ranges after each step, in which the worlds of a row of ones end."""
    seen = []
    for push in pushes:
        state, _ = worlds.step(state, jnp.asarray(push, jnp.float32)[:, None])
        seen.append(np.asarray(state.ranges["falls"]).tolist())
    return state, seen


@pytest.mark.parametrize("disturbances", [(), (ActionDelay(steps=0),)])
def test_ranges_follow_what_happens_in_all_worlds(disturbances):
    worlds = worldline.Worlds(worldline.Env(toys.Doors(), disturbances=disturbances), 2)
    _, seen = steps(worlds, worlds.reset(jax.random.key(0)), [[0, 0], [1, 1], [1, 0], [0, 0]])
    # Two fall at their second step; then one at its first; then nobody.
    assert seen == [[0, 0, 0], [0, 0, 2], [0, 1, 1], [0, 0.5, 0.5]]


def test_starts_are_drawn_from_the_ranges_before_the_step():
    worlds = worldline.Worlds(worldline.Env(toys.Doors()), 2)
    state, _ = steps(worlds, worlds.reset(jax.random.key(0)), [[0, 0], [1, 0]])
    assert state.env.memory[0].tolist() == [0, 0]  # the fall counts from the next start on
    state, _ = steps(worlds, state, [[0, 1]])
    assert state.env.memory[0].tolist() == [0, 2]


def test_a_world_that_does_not_step_counts_nothing():
    worlds = worldline.Worlds(worldline.Env(toys.Doors()), 2)
    state = worlds.reset(jax.random.key(0))
    state, _ = worlds.step(state, jnp.ones((2, 1)), mask=[True, False])
    assert state.ranges["falls"].tolist() == [0, 1, 0]


def test_ranges_can_be_given():
    worlds = worldline.Worlds(worldline.Env(toys.Doors()), 2)
    given = {"falls": jnp.array([0.0, 3.0, 1.0])}
    assert worlds.reset(jax.random.key(0), ranges=given).env.memory[0].tolist() == [1, 1]


def test_ranges_of_another_shape_are_refused():
    class Wrong(toys.Doors):
        def adapt(self, ranges, total):
            return {"falls": total[:2]}

    with pytest.raises(TaskError, match=r"Wrong\.adapt changes the ranges .*\[3\].*\[2\]"):
        worldline.Env(Wrong())


def test_one_name_is_one_range():
    domain = Domain(scale("body_mass", Uniform(0.9, 1.1), name="falls"))
    with pytest.raises(VariationError, match="'falls'"):
        worldline.Worlds(worldline.Env(toys.Doors()), 2, domain=domain)
