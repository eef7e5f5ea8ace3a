"""A world depends on its key, its variation and its actions, not on how many there are.

Physics, constants, random numbers, observations and ends are the same bit for bit. A reward is a
sum that XLA may add up in another order for another number of worlds: it is the same but for the
rounding of its largest term, and so are the task's metrics. `jax.random.normal` may have another
last bit for another number of worlds (seen with JAX 0.12 on one processor): a start that draws one
is the same but for that.
"""

import jax
import numpy as np
import pytest
from worlds_of_users import MOST, TASKS, env_of, rows, run

#: Tasks whose starts are drawn from a normal distribution, and how far a start's last bit leads.
NORMAL, LED = ("suite/quadruped-walk",), 1e-4

#: The tasks; those whose programs compile longest take turns.
LONG = ("gym/humanoid", "suite/quadruped-walk")
EACH = [pytest.param(t, marks=pytest.mark.exhaustive if t in LONG else ()) for t in TASKS]

#: How far rewards and metrics may be, in parts of 1 or of themselves: a few roundings of float32.
ROUNDING = 2e-6


def assert_bits(ours, theirs):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert a.shape == b.shape
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def assert_same(task, ours, theirs):
    if task not in NORMAL:
        assert_bits(ours, theirs)
        return
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=LED, atol=LED)


@pytest.mark.parametrize("number", [1, 7, 64])
@pytest.mark.parametrize("task", EACH)
def test_a_world_is_the_same_alone_and_among_others(task, number):
    few, steps = run(task, number)
    many, all_steps = run(task, MOST)
    integration_state = env_of(task).physics.integration_state
    for part in (
        lambda state: integration_state(state.env.physics),
        lambda state: state.variation,
        lambda state: jax.random.key_data(state.key),
        lambda state: state.obs,
    ):
        assert_same(task, part(few), rows(part(many), number, 0))
    first = rows(all_steps, number, 1)
    for name in ("obs", "final_obs", "terminated", "truncated"):
        assert_same(task, getattr(steps, name), getattr(first, name))
    assert (steps.terminated | steps.truncated).any()  # worlds began anew on the way
    rounding = LED if task in NORMAL else ROUNDING
    close = {"rtol": rounding, "atol": rounding}
    np.testing.assert_allclose(steps.reward, first.reward, **close)
    for name, value in steps.metrics.items():
        most = 20 if name == "episode_return" else 1  # a sum of so many rewards
        np.testing.assert_allclose(
            value, first.metrics[name], rtol=most * rounding, atol=most * rounding, err_msg=name
        )


def test_a_world_is_another_with_another_key():
    _, steps = run("gym/ant", 7)
    assert len(np.unique(steps.reward[-1])) == 7
