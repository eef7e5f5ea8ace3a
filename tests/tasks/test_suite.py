"""What the suite's tasks do that comparison with dm_control's steps does not show."""

import importlib.util

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from worldline.env.worlds import Worlds
from worldline.errors import MissingExtraError, TaskError
from worldline.learn.ppo.config import PPOConfig
from worldline.tasks.registry import list_tasks, load_task, make, task_class
from worldline.tasks.suite.planar import CheetahRun
from worldline.tasks.suite.quadruped import _Ground


@pytest.fixture(scope="module", autouse=True)
def _compile_quickly():
    """Many programs, each run once: XLA is not to take its time over them."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def test_the_flat_observation_is_the_dict_in_its_order():
    flat, named = (make("suite/reacher-easy", flat_observation=flag) for flag in (True, False))
    obs, parts = (env.reset(jax.random.key(0)).obs for env in (flat, named))
    assert set(parts) == set(named.observation_space) == {"position", "to_target", "velocity"}
    joined = jnp.concatenate([parts[name] for name in ("position", "to_target", "velocity")])
    np.testing.assert_array_equal(obs, joined)


def test_every_episode_has_a_target_of_its_own():
    worlds = Worlds(make("suite/reacher-easy"), num_worlds=3, episode_length=2)
    target = worlds.env.model.id("geom", "target")
    state = worlds.reset(jax.random.key(0))
    seen = [state.env.variation["geom_pos"][:, target]]
    for _ in range(4):
        state, step = worlds.step(state, jnp.zeros((3, 2)))
        if step.truncated.all():
            seen.append(state.env.variation["geom_pos"][:, target])
    assert len(seen) == 3
    assert len(np.unique(np.concatenate(seen), axis=0)) == 9
    # And it is where the physics has it.
    np.testing.assert_array_equal(state.env.physics.fields["geom_xpos"][:, target], seen[-1])


def test_an_episode_ends_by_truncation_after_a_thousand_steps():
    for name in ("suite/cheetah-run", "suite/fish-swim", "suite/walker-run"):
        assert load_task(name).episode_length == 1000


def test_ppo_sees_equally_far_ahead_at_every_control_rate():
    tasks = [task_class(name) for name in list_tasks() if name.startswith("suite/")]
    rates = set()
    for task in tasks:
        ppo = PPOConfig(**task.defaults["ppo"])
        rates.add(task.control_timestep)
        assert task.control_timestep / (1 - ppo.discount) == pytest.approx(2.0)
        assert task.control_timestep / (1 - ppo.gae_lambda) == pytest.approx(0.5)
    assert len(rates) > 3


def test_a_task_of_ones_own_keeps_its_own_horizon():
    class Slow(CheetahRun):
        defaults = {"ppo": {"discount": 0.9}}
        control_timestep: float = 0.02

    assert Slow.defaults["ppo"] == {"discount": 0.9, "gae_lambda": pytest.approx(0.96)}
    assert CheetahRun.defaults["ppo"]["discount"] == pytest.approx(0.995)


@pytest.mark.parametrize("links", [3, 9])
def test_swimmers_have_as_many_links_as_asked_for(links):
    task = load_task("suite/swimmer-swimmer6", links=links)
    assert task.model.nu == links - 1
    assert task.model.mj.jnt_range[-1] == pytest.approx([-2 * np.pi / links, 2 * np.pi / links])


def test_options_that_cannot_be_are_refused():
    with pytest.raises(TaskError, match="links is 2"):
        _ = load_task("suite/swimmer-swimmer6", links=2).model
    with pytest.raises(TaskError, match="terrains is 0"):
        _ = load_task("suite/quadruped-escape", terrains=0).model


def test_without_dm_control_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[suite\]'"):
        _ = load_task("suite/walker-walk").model


def test_the_directions_of_the_motors_are_apart():
    task = load_task("suite/point_mass-hard")
    keys = jax.random.split(jax.random.key(0), 500)
    directions = jax.vmap(lambda key: task.start(key).variation["wrap_prm"])(keys)
    first, second = directions[:, :2], directions[:, 2:]
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(second, axis=1), 1, rtol=1e-5)
    cosine = np.abs(np.sum(first * second, axis=1))
    assert 0.85 < cosine.max() <= 0.9 + 1e-5


def test_terrains_differ_and_are_where_the_world_says():
    task = load_task("suite/quadruped-escape", terrains=3)
    assert len(np.unique(task.heights.reshape(3, -1), axis=0)) == 3
    again = load_task("suite/quadruped-escape", terrains=3)
    np.testing.assert_array_equal(task.heights, again.heights)
    mj, data = task.model.mj, mujoco.MjData(task.model.mj)
    places = np.random.default_rng(0).uniform(-20, 20, (50, 2)).astype(np.float32)
    starts = jax.vmap(task.start)(jax.random.split(jax.random.key(0), 20))
    up = starts.inputs["mocap_pos"][:, :, 2] == 0
    assert (up.sum(axis=1) == 1).all()
    assert up.any(axis=0).all()
    for terrain in range(3):
        data.mocap_pos[:] = np.where(np.arange(3)[:, None] == terrain, 0.0, [0.0, 0.0, -1000.0])
        mujoco.mj_kinematics(mj, data)
        heights = _Ground(mj, jnp.asarray(task.heights[terrain]))(jnp.asarray(places))
        for place, height in zip(places, heights, strict=True):
            above, down, geom = (
                np.append(place, 50.0),
                np.array([0.0, 0.0, -1.0]),
                np.zeros(1, np.int32),
            )
            torso = task.model.id("body", "torso")
            hit = 50 - mujoco.mj_ray(mj, data, above, down, None, 1, torso, geom)
            # MuJoCo's triangles and our bilinear patch differ within a cell of 0.3 m.
            assert height == pytest.approx(hit, abs=0.1)


@pytest.mark.parametrize("name", ["quadruped-escape", "quadruped-walk", "quadruped-fetch"])
def test_quadrupeds_start_just_above_the_ground(name):
    task = load_task(f"suite/{name}")
    starts = jax.device_get(jax.jit(jax.vmap(task.start))(jax.random.split(jax.random.key(5), 40)))
    mj = task.model.mj
    data = mujoco.MjData(mj)

    def deepest(number: int, lower: float) -> float:
        data.qpos[:] = starts.qpos[number]
        data.qpos[2] -= lower
        data.mocap_pos[:] = starts.inputs["mocap_pos"][number] if starts.inputs else 0.0
        mujoco.mj_fwdPosition(mj, data)
        return min((contact.dist for contact in data.contact), default=0.0)

    for number in range(40):
        assert deepest(number, lower=0.0) > -1e-6  # MuJoCo's contact, but for a rounding
        assert deepest(number, lower=0.0101) < 0
