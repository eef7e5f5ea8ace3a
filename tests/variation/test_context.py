"""Contexts: what features drive, who sees them, and how an episode's is chosen."""

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy import stats

import toys
import worldline
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import VariationError
from worldline.variation import (
    Context,
    Custom,
    Domain,
    Draw,
    Feature,
    Random,
    RoundRobin,
    Uniform,
    features_of,
    scale,
)
from worldline.variation.effects import may_touch

#: The tasks that CARL's ten Brax environments stand for, and the bodies whose masses it varies.
TASKS = {
    "gym/ant": ["torso"],
    "gym/half-cheetah": ["torso", "bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot"],
    "gym/hopper": ["torso", "thigh", "leg", "foot"],
    "gym/humanoid": ["torso", "lwaist", "pelvis", "right_thigh", "right_shin", "left_thigh"],
    "gym/humanoid-standup": ["torso", "lwaist", "pelvis", "right_thigh"],
    "gym/inverted-pendulum": ["cart", "pole"],
    "gym/inverted-double-pendulum": ["cart", "pole", "pole2"],
    "gym/pusher": ["goal", "object"],
    "gym/reacher": ["body0", "body1"],
    "gym/walker2d": ["torso", "thigh", "leg", "foot"],
}


@pytest.mark.parametrize("task", TASKS)
def test_every_task_offers_what_carl_varies(task):
    model = worldline.make(task, physics="fake").model
    features = features_of(model)
    assert {"gravity", "viscosity"} <= features.keys()
    of_contacts = {"friction", "elasticity"} & features.keys()
    assert len(of_contacts) == (2 if may_touch(model).any() else 0)
    assert {f"mass_{body}" for body in TASKS[task]} <= features.keys()
    for feature in features.values():
        assert feature.low <= feature.default <= feature.high


#: A task on which a feature shows, and a value far from its default.
SHOWN = {
    "gravity": ("gym/half-cheetah", -3.7),
    "friction": ("gym/half-cheetah", 0.05),
    "elasticity": ("gym/half-cheetah", 0.9),
    "viscosity": ("gym/half-cheetah", 2.0),
    "density": ("gym/half-cheetah", 500.0),
    "joint_damping": ("gym/half-cheetah", 4.0),
    "joint_stiffness": ("gym/half-cheetah", 0.1),
    "actuator_strength": ("gym/half-cheetah", 0.3),
    "mass_torso": ("gym/half-cheetah", 20.0),
}


@pytest.mark.parametrize("feature", SHOWN)
def test_every_feature_changes_the_dynamics(feature):
    task, value = SHOWN[feature]
    env = Env(worldline.make(task, physics="fake").task, context=[feature])
    assert features_of(env.model)[feature].default != value

    def roll(context: Any) -> np.ndarray:
        state, qpos = env.reset(jax.random.key(0), context=context), []
        for action in np.random.default_rng(0).uniform(-1, 1, (30, 6)).astype(np.float32):
            state = env.step(state, action)
            qpos.append(np.asarray(state.physics.qpos))
        return np.array(qpos)

    nominal, changed = roll(None), roll({feature: value})
    assert np.abs(nominal - changed)[-1].max() > 0.01


@pytest.mark.parametrize("feature", SHOWN)
def test_at_its_default_a_feature_changes_nothing(feature):
    task, _ = SHOWN[feature]
    plain = worldline.make(task)
    env = Env(plain.task, context=Context([feature], visible=()))
    ours, theirs = env.reset(jax.random.key(0)), plain.reset(jax.random.key(0))
    for action in np.random.default_rng(0).uniform(-1, 1, (10, 6)).astype(np.float32):
        ours, theirs = env.step(ours, action), plain.step(theirs, action)
    np.testing.assert_allclose(ours.physics.qpos, theirs.physics.qpos, atol=2e-4)


def test_elasticity_is_the_coefficient_of_restitution():
    """A ball dropped on the floor leaves it with e times the speed at which it came."""
    mjcf = """
    <mujoco><option timestep="0.0002" integrator="implicitfast"/><worldbody>
      <geom name="floor" type="plane" size="1 1 1" solref="0.02 1"/>
      <body name="ball" pos="0 0 0.3"><freejoint/>
        <geom name="ball" type="sphere" size="0.1" solimp="0.99 0.99 0.01"/></body>
    </worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(mjcf)
    feature = features_of(worldline.Model(mjcf))["elasticity"]
    for e in (0.3, 0.6, 0.9):
        drawn = Context([feature]).variation(
            worldline.Model(mjcf), {"elasticity": jnp.float32(e)}, {}
        )
        model.geom_solref[:] = drawn["geom_solref"]
        data = mujoco.MjData(model)
        speeds = []
        for _ in range(4000):
            mujoco.mj_step(model, data)
            speeds.append(data.qvel[2])
        speeds = np.array(speeds)
        down = -speeds.min()
        up = speeds[speeds.argmin() :].max()
        assert up / down == pytest.approx(e, abs=0.05)


def test_a_mass_keeps_the_shape_of_its_body():
    env = Env(toys.Swing(), context=["mass_pole"])
    state = env.reset(jax.random.key(0), context={"mass_pole": 3.0})
    stored = env.model
    assert state.variation["body_mass"][1] == 3.0
    ratio = 3.0 / stored.constant("body_mass")[1]
    np.testing.assert_allclose(
        state.variation["body_inertia"][1], stored.constant("body_inertia")[1] * ratio, rtol=1e-5
    )


def test_visible_features_are_in_the_observation():
    env = Env(toys.Puck(), "fake", Context(["gravity", "viscosity"], visible=["viscosity"]))
    assert env.observation_space.keys() == {"state", "context"}
    assert env.observation_space["context"].shape == (1,)
    state = env.reset(jax.random.key(0), context={"viscosity": 0.5, "gravity": -1.0})
    np.testing.assert_array_equal(state.obs["context"], [0.5])
    after = env.step(state, np.zeros(2, np.float32))
    np.testing.assert_array_equal(after.obs["context"], [0.5])
    assert after.context == {"viscosity": 0.5, "gravity": -1.0}
    space = env.context_space
    values = {name: np.asarray(value) for name, value in state.context.items()}
    assert space.contains(values)
    assert set(space.spaces) == {"gravity", "viscosity"}
    assert space["viscosity"].low == 0


def test_without_features_nothing_is_added():
    env = Env(toys.Puck(), "fake")
    state = env.reset(jax.random.key(0))
    assert state.context == {}
    assert state.obs.shape == (4,)


def test_a_fresh_context_for_every_episode():
    env = Env(toys.Puck(episode_length=1), "fake", ["gravity"])
    worlds = Worlds(env, 500, context={"gravity": Uniform(-12.0, -8.0)})

    def step(state: Any, _: Any) -> Any:
        after, step = worlds.step(state, jnp.zeros((500, 2)))
        return after, (state.obs["context"][:, 0], step.final_obs["context"][:, 0])

    state, (drawn, final) = jax.lax.scan(step, worlds.reset(jax.random.key(0)), None, length=10)
    assert stats.kstest(np.asarray(drawn).ravel(), stats.uniform(-12, 4).cdf).pvalue > 0.001
    assert len(np.unique(drawn)) > 4_950
    np.testing.assert_array_equal(drawn, final)  # the last observation is of the old episode
    np.testing.assert_array_equal(state.variation["opt.gravity"][:, 2], state.context["gravity"])


def test_round_robin_deals_the_contexts_in_order():
    env = Env(toys.Puck(episode_length=1), "fake", ["gravity", "viscosity"])
    contexts = {"gravity": [-1.0, -2.0, -3.0], "viscosity": [0.1, 0.2, 0.3]}
    worlds = Worlds(env, 4, context=RoundRobin(contexts))
    state, dealt = worlds.reset(jax.random.key(0)), []
    for _ in range(3):
        dealt += zip(*(np.asarray(state.context[n]).tolist() for n in contexts), strict=True)
        state, _ = worlds.step(state, np.zeros((4, 2), np.float32))
    pairs = list(zip(*contexts.values(), strict=True))
    np.testing.assert_allclose(dealt, [pairs[i % 3] for i in range(12)], rtol=1e-6)


def test_random_contexts_come_whole():
    env = Env(toys.Puck(), "fake", ["gravity", "viscosity"])
    worlds = Worlds(env, 900, context=Random({"gravity": [-1, -2, -3], "viscosity": [1, 2, 3]}))
    state = worlds.reset(jax.random.key(0))
    gravity, viscosity = (np.asarray(state.context[n]) for n in ("gravity", "viscosity"))
    np.testing.assert_array_equal(gravity, -viscosity)
    counts = np.unique(gravity, return_counts=True)[1]
    assert stats.chisquare(counts).pvalue > 0.001


def test_a_selector_of_the_users_own():
    env = Env(toys.Puck(episode_length=1), "fake", ["gravity"])
    rising = Custom(
        lambda key, turn, ranges: {"gravity": -ranges["step"] * turn.astype(float)},
        {"step": jnp.float32(0.5)},
    )
    worlds = Worlds(env, 2, context=rising)
    state = worlds.reset(jax.random.key(0))
    state, _ = worlds.step(state, np.zeros((2, 2), np.float32))
    np.testing.assert_array_equal(state.context["gravity"], [-1.0, -1.5])


def test_a_fixed_context_and_one_from_the_caller():
    env = Env(toys.Puck(episode_length=1), "fake", ["gravity", "viscosity"])
    worlds = Worlds(env, 2, context={"gravity": -3.7})
    state = worlds.reset(jax.random.key(0), context={"viscosity": [1.0, 2.0]})
    for _ in range(2):
        np.testing.assert_array_equal(state.context["gravity"], np.float32([-3.7, -3.7]))
        np.testing.assert_array_equal(state.context["viscosity"], [1.0, 2.0])
        state, _ = worlds.step(state, np.zeros((2, 2), np.float32))


def test_factors_do_not_pile_up():
    env = Env(toys.Swing(), "native", ["joint_damping"])
    domain = Domain(scale("dof_damping", Uniform(2.0, 2.0)))
    worlds = Worlds(env, 2, 6, domain=domain, context={"joint_damping": 3.0}, resample_every=2)
    state = worlds.reset(jax.random.key(0))
    for _ in range(15):
        np.testing.assert_allclose(
            state.variation["dof_damping"], 0.02 * 6 * np.ones((2, 1)), rtol=1e-5
        )
        state, _ = worlds.step(state, np.zeros((2, 1), np.float32))


def test_what_is_seen_within_an_episode_is_one_context():
    env = Env(toys.Puck(), "fake", ["gravity"])
    drawn = {"gravity": Uniform(-12.0, -8.0)}
    worlds = Worlds(env, 3, 10, context=drawn, resample_every=2)
    state = worlds.reset(jax.random.key(0))
    for _ in range(9):
        before = state.context["gravity"]
        state, step = worlds.step(state, np.zeros((3, 2), np.float32))
        np.testing.assert_array_equal(step.final_obs["context"], step.obs["context"])
        np.testing.assert_array_equal(step.obs["context"][:, 0], state.context["gravity"])
    assert (before == state.context["gravity"]).all()  # it changed after every second step
    assert len(np.unique(state.context["gravity"])) == 3


def test_a_feature_of_the_users_own():
    def crosswind(model: Any, constants: Any, value: Any) -> Any:
        return {"opt.wind": constants["opt.wind"].at[1].set(value)}

    wind = Feature("crosswind", 0.0, -20.0, 20.0, "m/s", crosswind)
    state = Env(toys.Puck(), "fake", [wind]).reset(jax.random.key(0), context={"crosswind": 5.0})
    np.testing.assert_array_equal(state.variation["opt.wind"], [0, 5, 0])


@pytest.mark.parametrize(
    ("act", "complaint"),
    [
        (
            lambda: Env(toys.Puck(), "fake", ["gravty"]),
            "no context feature 'gravty'; did you mean 'gravity'",
        ),
        (lambda: Context(["gravity"], visible=["friction"]), "no visible feature 'friction'"),
        (
            lambda: Env(toys.Puck(), "fake", ["density"]).reset(
                jax.random.key(0), context={"density": -1.0}
            ),
            "the context 'density' is -1; give 0 to inf",
        ),
        (
            lambda: Env(toys.Puck(), "fake", ["density"]).reset(
                jax.random.key(0), context={"gravity": -1.0}
            ),
            "the environment has no context feature 'gravity'",
        ),
        (
            lambda: Worlds(
                Env(toys.Puck(), "fake", ["density"]), 2, context={"density": Uniform(-1, 1)}
            ),
            "the context 'density' is -1",
        ),
        (
            lambda: Worlds(Env(toys.Puck(), "fake"), 2, context={"density": Uniform(0, 1)}),
            r"no context feature 'density'; give it to Env\(context=",
        ),
        (lambda: Draw({"gravity": Uniform([0, 0], [1, 1])}), "a feature is one number"),
        (lambda: RoundRobin({"gravity": [1, 2], "friction": [1]}), "give as many values a feature"),
    ],
)
def test_contexts_that_make_no_sense_are_refused(act, complaint):
    with pytest.raises(VariationError, match=complaint):
        act()
