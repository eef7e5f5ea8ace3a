"""Presets: domains that suit any model, and how the command line finds them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import worldline
from worldline.env.disturb import ActionNoise, Disturbed
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError
from worldline.physics.native import NativePhysics
from worldline.tasks.registry import list_tasks, load_task
from worldline.train.config import find_domain
from worldline.variation import presets
from worldline.variation.presets import WIDTHS

HINGE = """
<mujoco><worldbody><body name="arm"><joint name="hinge" damping="{damping}" axis="0 1 0"/>
  <geom type="capsule" size="0.05" fromto="0 0 0 0 0 1"/></body></worldbody>
  <actuator>{actuator}</actuator></mujoco>"""


@pytest.mark.parametrize("task", [t for t in list_tasks() if t.split("/")[0] in ("gym", "robot")])
def test_no_preset_can_draw_an_impossible_world(task):
    model = load_task(task).model
    for domain in presets(model).values():
        domain.check(model)


def test_factors_are_log_uniform_and_masses_keep_their_shape():
    task = load_task("gym/half-cheetah")
    keys = jax.random.split(jax.random.key(0), (len(WIDTHS), 2000))
    for row, (name, width) in enumerate(WIDTHS.items()):
        domain = presets(task.model)[name]
        draw = jax.vmap(lambda key, domain=domain: domain(key, task.model, domain.ranges))
        drawn = draw(keys[row])
        mj = task.model.mj
        torso = np.log(np.asarray(drawn["body_mass"])[:, 1] / mj.body_mass[1])
        ends = -np.log(width.mass), 2 * np.log(width.mass)
        assert stats.kstest(torso, "uniform", ends).pvalue > 1e-3
        inertia = np.asarray(drawn["body_inertia"])[:, 1] / mj.body_inertia[1]
        np.testing.assert_allclose(inertia, np.exp(torso)[:, None].repeat(3, 1), rtol=1e-5)
        friction = np.asarray(drawn["geom_friction"]) / mj.geom_friction
        shared = np.broadcast_to(friction[:, :1, :1], friction.shape)
        np.testing.assert_allclose(friction, shared, rtol=1e-5)


@pytest.mark.parametrize(
    ("damping", "actuator", "fields"),
    [
        (0, '<motor joint="hinge"/>', {"actuator_gainprm"}),
        (1, "", {"dof_damping"}),
        (0, '<position joint="hinge" kp="5"/>', {"actuator_gainprm", "actuator_biasprm"}),
        (0, '<muscle joint="hinge" lengthrange="0 1"/>', set()),
    ],
)
def test_what_a_model_lacks_is_not_carried_along(damping, actuator, fields):
    model = worldline.Model(HINGE.format(damping=damping, actuator=actuator))
    domain = presets(model)["hard"]
    drawn = domain(jax.random.key(0), model, domain.ranges)
    assert drawn.keys() == {"body_mass", "body_inertia", *fields}


def test_a_servo_of_another_strength_stands_where_it_stood():
    """Without gravity it settles at its target, whatever its strength; the gear would move it."""
    mjcf = HINGE.format(damping=1, actuator='<position joint="hinge" kp="5"/>').replace(
        "<worldbody>", '<option gravity="0 0 0"/><worldbody>'
    )
    model = worldline.Model(mjcf)
    domain = presets(model)["hard"]
    physics = NativePhysics(model)
    stronger = domain(jax.random.key(1), model, domain.ranges)
    start = physics.start(jnp.zeros(1), jnp.zeros(1), stronger, {})
    state = physics.step(start, {"ctrl": jnp.full(1, 0.3)}, substeps=40_000)
    np.testing.assert_allclose(state.qpos, 0.3, atol=1e-3)


def test_a_domain_is_found_by_name_or_refused_with_those_there_are():
    task = load_task("robot/reach")
    assert find_domain(task, "") is None
    assert find_domain(task, "medium") is not None
    with pytest.raises(ConfigError, match="no domain 'mediun'; did you mean 'medium'"):
        find_domain(task, "mediun")
    with pytest.raises(ConfigError, match="no domain 'x'; there are hard, light, medium"):
        find_domain(task, "x")
    disturbed = Disturbed(task=task, disturbances=(ActionNoise(std=0.1),))
    assert disturbed.domains.keys() == task.domains.keys()


def test_worlds_of_a_preset_differ_and_each_episode_is_drawn_anew():
    env = worldline.make("robot/reach")
    worlds = Worlds(env, 3, episode_length=2, domain=find_domain(env.task, "hard"))
    state = worlds.reset(jax.random.key(0))
    first = np.asarray(state.variation["body_mass"])
    for _ in range(2):
        state, _ = worlds.step(state, np.zeros((3, *env.action_low.shape), np.float32))
    second = np.asarray(state.variation["body_mass"])
    moving = first[0] > 0
    assert len(np.unique(np.concatenate([first, second])[:, moving], axis=0)) == 6
