"""Watched worlds without a browser: knobs, forces, commands, policies, saved states."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError, RunError, VariationError
from worldline.export.policy_file import save_policy
from worldline.learn.networks.mlp import MLP, Actor
from worldline.learn.normalizer import RunningStatistics
from worldline.learn.policy import Policy
from worldline.watch.bare import BareModel
from worldline.watch.knobs import Knobs
from worldline.watch.policies import PolicyFollower
from worldline.watch.saved import load_state, save_state
from worldline.watch.session import Session, commands_of
from worldline.watch.source import Source, open_source, watchable

#: A box that slides off to the right, and an arm with a motor.
MJCF = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1" friction="0.5"/>
    <body name="box" pos="0 0 0.1">
      <freejoint/>
      <geom name="box" type="box" size="0.1 0.1 0.1" mass="1" friction="0.3"/>
    </body>
    <body name="arm" pos="0 2 1">
      <joint name="hinge" axis="0 1 0" damping="0.1"/>
      <geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.03" contype="0" conaffinity="0"/>
    </body>
  </worldbody>
  <actuator><motor name="turn" joint="hinge" gear="2" ctrlrange="-1 1"/></actuator>
  <keyframe><key name="slide" qpos="0 0 0.1 1 0 0 0 0" qvel="2 0 0 0 0 0 0"/></keyframe>
</mujoco>
"""


@pytest.fixture(scope="module")
def mjcf(tmp_path_factory):
    file = tmp_path_factory.mktemp("model") / "box.xml"
    file.write_text(MJCF)
    return file


@pytest.fixture(scope="module")
def shared(mjcf):
    return Session(open_source(str(mjcf)), 3)


@pytest.fixture
def session(shared):
    """The session as it was made, without compiling it again."""
    shared.knobs.reset()
    shared.acting = "rest"
    shared.held.clear()
    shared.policy = None
    shared.reset(0)
    return shared


def way_of(session, steps=25):
    """How far each box slides, `(B,)`."""
    before = session.seen.qpos[:, 0]
    for _ in range(steps):
        seen = session.step()
    return seen.qpos[:, 0] - before


def policy_of(session, action):
    """A policy that does the same at every observation."""
    nobs, nact = session.env.observation_space.shape[0], len(session.env.action_low)
    net = MLP.initial(jax.random.key(0), (nobs, 4, nact), "tanh", last_gain=0.0)
    biases = [*net.biases[:-1], jnp.full(nact, action, jnp.float32)]
    mean = type(net)(net.weights, biases, net.activation)
    statistics = RunningStatistics.zero((nobs,))
    low, high = jnp.asarray(session.env.action_low), jnp.asarray(session.env.action_high)
    return Policy(Actor(mean, jnp.zeros(nact)), statistics, low, high, "clip")


def test_worlds_that_nobody_touched_are_the_models(session, mjcf):
    plain = Worlds(Env(BareModel(file=str(mjcf))), 3)
    state = plain.reset(jax.random.key(0))
    for _ in range(10):
        session.step()
        state, _ = plain.step(state, np.zeros((3, 1), np.float32))
    # Constants that vary are of 32 bits; the model's are of 64.
    np.testing.assert_allclose(session.seen.qpos, state.env.physics.qpos, atol=1e-5)


def test_a_knob_changes_the_variation_and_the_way_of_its_world_alone(session):
    session.turn("context/friction", 0.01, [1])
    friction = np.asarray(session.state.variation["geom_friction"])
    np.testing.assert_allclose(friction[:, 1, 0], [0.3, 0.01, 0.3], rtol=1e-6)
    way = way_of(session)
    assert way[1] > 1.2 * way[0]
    assert way[0] == way[2]


def test_what_mujoco_derives_follows_a_knob(session):
    session.turn("context/mass_box", 5.0, [0])
    session.forces[:, 1, 0] = 10.0
    way = way_of(session)
    session.forces[:] = 0
    assert way[0] != way[1]
    inertia = np.asarray(session.state.variation["body_inertia"])[:, 1]
    np.testing.assert_allclose(inertia[0], 5 * inertia[1], rtol=1e-6)


def test_nominal_is_exact(session):
    untouched = way_of(session)
    session.reset(0)
    for name in ("context/friction", "context/gravity", "domain/mass"):
        session.turn(name, 0.9 * session.knobs.knobs[name].high)
    session.knobs.reset()
    session.vary()
    np.testing.assert_array_equal(way_of(session), untouched)


def test_knobs_stay_over_a_reset(session):
    session.turn("context/gravity", -2.0)
    session.reset(1)
    np.testing.assert_allclose(np.asarray(session.state.variation["opt.gravity"])[:, 2], -2.0)
    session.begin_again(0)
    np.testing.assert_allclose(np.asarray(session.state.variation["opt.gravity"])[:, 2], -2.0)


def test_spread_and_draw(session):
    session.knobs.spread("context/gravity")
    knob = session.knobs.knobs["context/gravity"]
    gravity = session.knobs.variation["opt.gravity"][:, 2]
    np.testing.assert_allclose(gravity, np.linspace(knob.low, knob.high, 3), rtol=1e-6)
    session.knobs.draw(0)
    masses = session.knobs.values["domain/mass"]
    assert len(set(masses)) == 3
    assert (masses >= session.knobs.knobs["domain/mass"].low).all()


def test_nothing_compiles_again(session):
    session.step()
    programs = session._advance._cache_size(), session._vary._cache_size()
    session.turn("context/friction", 0.2)
    session.turn("domain/mass", 1.3, [2])
    session.forces[0, 1] = 3.0
    session.step()
    session.reset(5)
    session.acting = "random"
    session.step()
    assert (session._advance._cache_size(), session._vary._cache_size()) == programs


def test_an_impossible_value_changes_nothing(session):
    before = session.knobs.values["context/mass_box"].copy()
    with pytest.raises(VariationError, match="mass"):
        session.turn("context/mass_box", -1.0)
    np.testing.assert_array_equal(session.knobs.values["context/mass_box"], before)
    with pytest.raises(VariationError, match="finite"):
        session.turn("context/friction", float("nan"))
    with pytest.raises(VariationError, match="no knob"):
        session.turn("context/colour", 1.0)


def test_any_field_gets_a_knob(mjcf):
    session = Session(open_source(str(mjcf)), 2)
    before = session.step().qvel[:, 6]
    knob = session.add_field("dof_armature", 6, 0)
    session.acting = "sliders"
    session.sliders[:] = 0.5
    session.turn(knob.name, 1000.0, [1])
    for _ in range(10):
        seen = session.step()
    faster = abs(seen.qvel[:, 6] - before)
    assert faster[1] < 2e-2 < faster[0]  # an arm that is hard to turn keeps its speed
    for field, row, element, match in (
        ("dof_frictionless", 0, 0, "did you mean"),
        ("dof_frictionloss", 99, 0, "7 rows"),
    ):
        with pytest.raises(VariationError, match=match):
            session.add_field(field, row, element)


def test_a_force_moves_a_body_and_lasts_until_it_is_taken_away(session):
    session.turn("context/friction", 0.0)
    session.forces[0, 1, 1] = 20.0
    session.step()
    pushed = session.seen.qvel[:, 1]
    assert pushed[0] == pytest.approx(20.0 * session.env.control_timestep, rel=0.05)
    assert pushed[1] == pytest.approx(0.0, abs=1e-6)
    session.forces[:] = 0
    session.step()
    assert session.seen.qvel[0, 1] == pytest.approx(pushed[0], rel=0.02)


def test_a_policy_acts_as_soon_as_it_is_there(session):
    session.step()
    assert session.seen.action[0, 0] == 0
    session.use(policy_of(session, 0.25))
    session.step()
    np.testing.assert_allclose(session.seen.action, 0.25)
    programs = session._advance._cache_size()
    session.use(policy_of(session, -0.5))
    session.step()
    np.testing.assert_allclose(session.seen.action, -0.5)
    assert session._advance._cache_size() == programs


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Told(BareModel):
    """A model that is told to go somewhere."""

    def start(self, key):
        place = jax.random.uniform(key, (2,), minval=-1.0, maxval=3.0)
        return dataclasses.replace(super().start(key), memory={"place": place})

    def outcome(self, before, action, after, memory):
        return dataclasses.replace(super().outcome(before, action, after, memory), memory=memory)


def test_commands_are_what_starts_draw(mjcf):
    session = Session(Source("told", watchable(Env(Told(file=str(mjcf))))), 2)
    (command,) = commands_of(session)
    assert command.label == "place"
    assert (command.low > -1.01).all()
    assert (command.low < -0.8).all()
    assert (command.high < 3.01).all()
    assert (command.high > 2.8).all()
    session.held[command.path] = np.array([[0.5, 0.1], [np.nan] * 2], np.float32)
    drawn = session.state.env.memory[0]["place"][1]
    session.step()
    held = session.state.env.memory[0]["place"]
    np.testing.assert_allclose(held[0], [0.5, 0.1])
    np.testing.assert_array_equal(held[1], drawn)


@pytest.mark.exhaustive
def test_a_quadruped_is_told_its_velocity():
    session = Session(open_source("robot/quadruped-joystick"), 2)
    (command,) = commands_of(session)
    assert command.label == "command"
    assert (command.high > 0).all()
    session.held[command.path] = np.array([[0.5, 0.0, 0.1], [np.nan] * 3], np.float32)
    drawn = session.state.env.memory[0].command[1]
    session.step()
    held = session.state.env.memory[0].command
    np.testing.assert_allclose(held[0], [0.5, 0.0, 0.1])
    np.testing.assert_array_equal(held[1], drawn)


def test_a_saved_state_goes_on_bit_for_bit(session, mjcf, tmp_path):
    session.turn("context/friction", 0.1, [0])
    session.step()
    save_state(tmp_path / "state.npz", str(mjcf), session.state)
    worlds, state = load_state(tmp_path / "state.npz")
    np.testing.assert_array_equal(state.env.physics.qpos, session.seen.qpos)
    for _ in range(5):
        seen = session.step()
        state, _ = worlds.step(state, np.zeros((3, 1), np.float32))
    np.testing.assert_array_equal(state.env.physics.qpos, seen.qpos)
    np.testing.assert_array_equal(
        state.variation["geom_friction"], session.state.variation["geom_friction"]
    )


def test_what_is_no_state_is_an_error(tmp_path):
    file = tmp_path / "state.npz"
    file.write_bytes(b"PK nothing")
    with pytest.raises(RunError, match="is not a state that worldline watch saved"):
        load_state(file)


def test_a_run_without_a_policy_waits_and_takes_each_new_one(session, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    follower = PolicyFollower(tmp_path)
    assert follower.poll() is None
    assert "waiting" in follower.note
    save_policy(tmp_path, policy_of(session, 0.1), step=1000, **{"return": 12.34})
    first = follower.poll()
    assert first is not None
    assert follower.note == "newest, after 1,000 steps, evaluated at 12.3"
    assert follower.poll() is None
    save_policy(tmp_path, policy_of(session, 0.2), step=2000, **{"return": 20.0})
    second = follower.poll()
    assert float(second.actor.mean.biases[-1][0]) == pytest.approx(0.2)
    save_policy(tmp_path / "policies", policy_of(session, 0.3), name="step-1000.npz", step=1000)
    assert follower.choices() == ["newest", "1000"]
    follower.choice = "1000"
    assert float(follower.poll().actor.mean.biases[-1][0]) == pytest.approx(0.3)
    (tmp_path / "policies" / "step-1000.npz").write_bytes(b"half a file")
    assert follower.poll() is None
    assert "damaged" in follower.note
    other = tmp_path / "other"
    save_policy(other, policy_of(session, 0.4), step=3000)
    follower.follow(other)
    assert float(follower.poll().actor.mean.biases[-1][0]) == pytest.approx(0.4)
    assert follower.note == "newest, after 3,000 steps"


def test_what_cannot_be_watched_is_one_line(tmp_path):
    for name, error, match in (
        ("robot/quadruped-joystik", ConfigError, "did you mean 'robot/quadruped-joystick'"),
        (str(tmp_path), RunError, "no config.json"),
    ):
        with pytest.raises(error, match=match):
            open_source(name)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Drawing(BareModel):
    """A model whose starts have a friction of their own."""

    def start(self, key):
        friction = jnp.full_like(self.model.constant("geom_friction"), 0.7)
        return dataclasses.replace(super().start(key), variation={"geom_friction": friction})


def test_a_field_that_the_task_draws_is_no_knob(mjcf):
    env = watchable(Env(Drawing(file=str(mjcf))))
    knobs = Knobs(env, 1, tuple(env.task.domains.values()))
    assert "opt.gravity" in knobs.fields
    assert "geom_friction" not in knobs.fields
    assert "context/friction" not in knobs.knobs
    with pytest.raises(VariationError, match="draws 'geom_friction' itself"):
        knobs.add_field("geom_friction", 0, 0)
