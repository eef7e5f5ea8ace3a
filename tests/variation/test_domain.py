"""Domain: the terms by hand, the freshness of what is drawn, and what is refused."""

import copy
import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import toys
from worldline.env.env import Env
from worldline.env.task import Start
from worldline.env.worlds import Worlds
from worldline.errors import VariationError
from worldline.model import Model
from worldline.variation import (
    Choice,
    CustomDomain,
    Domain,
    LogUniform,
    Uniform,
    actuator,
    add,
    body,
    geom,
    joint,
    opt,
    scale,
    set_,
    tendon,
)
from worldline.variation.limits import find_problem


@functools.cache
def model(mjcf: str = toys.BOXES) -> Model:
    return Model(mjcf)


def draws(domain: Any, model: Model, count: int = 200, ranges: Any = None) -> dict[str, np.ndarray]:
    """Many draws: field to `(count, ...)`."""
    keys = jax.random.split(jax.random.key(3), count)
    ranges = domain.ranges if ranges is None else ranges
    return jax.device_get(jax.jit(jax.vmap(lambda key: domain(key, model, ranges)))(keys))


def test_scale_draws_one_factor_for_each_object():
    stored = model().constant("body_mass")
    drawn = draws(Domain(scale("body_mass", Uniform(0.5, 2.0))), model())
    assert drawn.keys() == {"body_mass"}
    factors = drawn["body_mass"][:, 1:] / stored[1:]
    assert ((factors >= 0.5) & (factors <= 2.0)).all()
    assert abs(np.corrcoef(factors.T)[0, 1]) < 0.2
    assert (drawn["body_mass"][:, 0] == 0).all()  # the world has none


def test_several_fields_share_their_factor():
    drawn = draws(Domain(scale(("body_mass", "body_inertia"), Uniform(0.5, 2.0))), model())
    mass = drawn["body_mass"] / np.where(
        model().constant("body_mass"), model().constant("body_mass"), 1
    )
    stored = model().constant("body_inertia")
    inertia = drawn["body_inertia"][:, 1:] / stored[1:]
    np.testing.assert_allclose(inertia, np.repeat(mass[:, 1:, None], 3, axis=2), rtol=1e-5)


def test_per_world_shares_one_draw_among_all_objects():
    drawn = draws(Domain(scale("dof_damping", LogUniform(0.5, 2.0), per="world")), model(toys.ARM))
    stored = model(toys.ARM).constant("dof_damping")
    some = stored > 0
    factors = drawn["dof_damping"][:, some] / stored[some]
    np.testing.assert_allclose(factors, np.repeat(factors[:, :1], some.sum(), axis=1), rtol=1e-6)
    assert np.ptp(factors) > 0.5


def test_a_vector_moves_each_element_by_itself():
    domain = Domain(add("opt.gravity", Uniform([-1.0, 0.0, -0.5], [1.0, 0.0, 0.5])))
    drawn = draws(domain, model())["opt.gravity"]
    np.testing.assert_array_equal(drawn[:, 1], 0)
    assert stats.kstest(drawn[:, 0], stats.uniform(-1, 2).cdf).pvalue > 0.001
    assert stats.kstest(drawn[:, 2] + 9.81, stats.uniform(-0.5, 1).cdf).pvalue > 0.001


def test_only_the_named_objects_change():
    domain = Domain(
        set_(geom("up*").friction, Uniform([0.1, 0.0, 0.0], [0.2, 0.0, 0.0])),
        scale(body("lower").mass, Choice([3.0])),
        set_(opt.viscosity, Choice([0.25])),
    )
    drawn = draws(domain, model(), 5)
    stored = model().constant("geom_friction")
    upper = model().id("geom", "upper")
    others = [i for i in range(len(stored)) if i != upper]
    np.testing.assert_allclose(
        drawn["geom_friction"][:, others], np.stack([stored[others]] * 5), rtol=1e-6
    )
    assert (
        (drawn["geom_friction"][:, upper, 0] >= 0.1) & (drawn["geom_friction"][:, upper, 0] <= 0.2)
    ).all()
    mass = model().constant("body_mass") * [1, 3, 1]
    np.testing.assert_allclose(drawn["body_mass"], np.stack([mass] * 5), rtol=1e-6)
    np.testing.assert_array_equal(drawn["opt.viscosity"], np.full(5, 0.25, np.float32))


def test_a_joint_has_the_fields_of_its_degrees_of_freedom():
    domain = Domain(
        set_(joint("ball").damping, Choice([0.5])),  # three of them
        set_(joint("left").stiffness, Choice([2.0])),
        scale(tendon("rope").stiffness, Choice([2.0])),
        scale(actuator("pull").gear, Choice([3.0])),
    )
    mechanism = model(toys.MECHANISM)
    drawn = draws(domain, mechanism, 1)
    expected = np.array(mechanism.constant("dof_damping"))
    start = int(mechanism.mj.jnt_dofadr[mechanism.id("joint", "ball")])
    expected[start : start + 3] = 0.5
    np.testing.assert_allclose(drawn["dof_damping"][0], expected, rtol=1e-6)
    assert drawn["jnt_stiffness"][0, mechanism.id("joint", "left")] == 2.0
    assert drawn["tendon_stiffness"][0, mechanism.id("tendon", "rope")] == 40.0
    np.testing.assert_allclose(drawn["actuator_gear"][0, 0, 0], 1.5)


def test_terms_compose_in_order():
    heavy = Domain(scale("body_mass", Choice([2.0])))
    both = Domain(heavy, add("body_mass", Choice([1.0]), name="more"))
    drawn = draws(both, model(), 1)["body_mass"][0, 1:]
    np.testing.assert_allclose(drawn, 2 * model().constant("body_mass")[1:] + 1, rtol=1e-6)
    assert list(both.ranges) == ["body_mass", "more"]


def test_ranges_change_and_nothing_is_traced_again():
    domain, traces = Domain(scale("body_mass", Uniform(0.9, 1.1))), []

    @jax.jit
    def draw(key: Any, ranges: Any) -> Any:
        traces.append(1)
        return domain(key, model(), ranges)["body_mass"]

    for width in (0.1, 0.5, 0.9):
        ranges = {"body_mass": Uniform(1 - width, 1 + width)}
        draw(jax.random.key(0), ranges)
    assert len(traces) == 1


@settings(max_examples=25, deadline=None)
@given(
    low=st.floats(0.05, 1.0),
    wider=st.floats(0.0, 4.0),
    field=st.sampled_from(["body_mass", "dof_damping", "geom_friction", "actuator_gear"]),
)
def test_a_draw_is_never_outside_its_range(low, wider, field):
    low, high = np.float32(low), np.float32(low + wider)
    stored = np.asarray(model(toys.ARM).constant(field), np.float32)
    drawn = draws(Domain(scale(field, Uniform(low, high))), model(toys.ARM), 20)[field]
    ends = np.sort(np.stack([stored * low, stored * high]), axis=0)
    slack = 1e-6 * np.abs(ends).max()
    assert (drawn >= ends[0] - slack).all()
    assert (drawn <= ends[1] + slack).all()


DOMAIN = Domain(
    scale(("body_mass", "body_inertia"), Uniform(0.7, 1.3)),
    scale("dof_damping", LogUniform(0.5, 2.0)),
    add(opt.gravity, Uniform([0.0, 0.0, -1.0], [0.0, 0.0, 1.0])),
)


def test_ten_thousand_episodes_draw_afresh():
    """The law of the draws, over worlds and over episodes, and that nothing piles up."""
    num_worlds, episodes = 500, 20
    worlds = Worlds(Env(toys.Swing(episode_length=1), "native"), num_worlds, domain=DOMAIN)

    @jax.jit
    def run(state: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            after, _ = worlds.step(state, jnp.zeros((num_worlds, 1)))
            return after, (state.variation, state.env.physics.qpos[:, 0])

        return jax.lax.scan(step, state, None, length=episodes)[1]

    variation, start = jax.device_get(run(worlds.reset(jax.random.key(4))))
    stored = worlds.env.model.constant("body_mass")[1]
    factors = variation["body_mass"][:, :, 1] / stored  # (episodes, worlds)
    gravity = variation["opt.gravity"][:, :, 2] + 9.81
    assert factors.size == 10_000
    for drawn, law in ((factors, stats.uniform(0.7, 0.6)), (gravity, stats.uniform(-1.0, 2.0))):
        assert len(np.unique(drawn)) > 0.99 * drawn.size
        assert stats.kstest(drawn.ravel(), law.cdf).pvalue > 0.001
        # The last episodes are drawn as the first ones were.
        assert stats.ks_2samp(drawn[:5].ravel(), drawn[-5:].ravel()).pvalue > 0.001
        _uncorrelated(drawn[:-1], drawn[1:])  # episode to episode
        _uncorrelated(drawn[:, :-1], drawn[:, 1:])  # world to world
        _uncorrelated(drawn, start)
    _uncorrelated(factors, gravity)


def _uncorrelated(a: np.ndarray, b: np.ndarray) -> None:
    assert stats.pearsonr(a.ravel(), b.ravel()).pvalue > 0.001


def test_a_drawn_world_is_a_model_with_those_constants_bit_for_bit():
    """Native physics against plain MuJoCo on a copy of the model with the drawn values."""
    env = Env(toys.Swing(), "native")
    worlds = Worlds(env, 4, domain=DOMAIN)
    state = worlds.reset(jax.random.key(5))
    ctrl = np.random.default_rng(0).uniform(-1, 1, (20, 4, 1)).astype(np.float32)
    start, variation = np.asarray(state.env.physics.qpos), jax.device_get(state.variation)
    states = []
    for action in ctrl:
        state, _ = worlds.step(state, action)
        states.append(np.asarray(state.env.physics.qpos))
    for world in range(4):
        mj = copy.copy(env.model.mj)
        for field, values in variation.items():
            owner, name = (mj.opt, field[4:]) if field.startswith("opt.") else (mj, field)
            getattr(owner, name)[:] = np.asarray(values[world], np.float64)
        data = mujoco.MjData(mj)
        mujoco.mj_setConst(mj, data)
        mujoco.mj_resetData(mj, data)
        data.qpos[:] = start[world]
        mujoco.mj_forward(mj, data)
        for step, action in enumerate(ctrl[:19]):  # the twentieth begins a new episode
            data.ctrl[:] = action[world]
            mujoco.mj_step(mj, data, env.substeps)
            assert states[step][world, 0] == np.float32(data.qpos[0])


def test_a_domain_of_the_users_own():
    def heavier(key: Any, model: Model, ranges: Any) -> Any:
        factor = jax.random.uniform(key, maxval=ranges["most"])
        return {"body_mass": model.constant("body_mass").astype(np.float32) * factor}

    domain = CustomDomain(heavier, {"most": 2.0})
    worlds = Worlds(Env(toys.Puck(), "fake"), 50, domain=domain)
    state = worlds.reset(jax.random.key(0))
    assert 1.0 < state.variation["body_mass"][:, 1].max() <= 2.0
    state = worlds.reset(jax.random.key(0), ranges={"most": jnp.float32(0.5)})
    assert state.variation["body_mass"][:, 1].max() <= 0.5
    Worlds(Env(toys.Puck(), "fake"), 2, domain=lambda key, model, ranges: {})
    wrong = CustomDomain(lambda key, model, ranges: {"body_mass": jnp.zeros(5)})
    with pytest.raises(VariationError, match=r"draws a body_mass of shape \(5,\); the model's is"):
        Worlds(Env(toys.Puck(), "fake"), 2, domain=wrong)
    negative = CustomDomain(lambda key, model, ranges: {"body_mass": -jnp.ones(2)})
    with pytest.raises(VariationError, match="of 'puck' is -1; it must be positive"):
        Worlds(Env(toys.Puck(), "fake"), 2, domain=negative)


REFUSED = [
    (toys.BOXES, lambda: scale("body_mas", Uniform(1, 2)), "did you mean 'body_mass'"),
    (toys.BOXES, lambda: scale("geom_type", Uniform(1, 2)), "only real numbers can vary"),
    (
        toys.BOXES,
        lambda: scale(body("uper").mass, Uniform(1, 2)),
        "no body 'uper'; did you mean 'upper'",
    ),
    (
        toys.BOXES,
        lambda: scale(body("upper").mas, Uniform(1, 2)),
        "no 'mas' that can vary; did you mean",
    ),
    (toys.BOXES, lambda: scale(opt.gravty, Uniform(1, 2)), "did you mean 'gravity'"),
    (toys.BOXES, lambda: scale("body_mass", 2.0), r"give Uniform\(low, high\)"),
    (toys.BOXES, lambda: scale("body_mass", Uniform(1, 2), per="body"), "per is 'body'"),
    (toys.BOXES, lambda: scale("body_mass", Uniform([1, 1], [2, 2])), "takes one number or"),
    (toys.BOXES, lambda: scale(("body_mass", "geom_friction"), Uniform(1, 2)), "per='world'"),
    (
        toys.BOXES,
        lambda: scale("body_mass", Uniform(-0.1, 2)),
        "must be positive; narrow 'body_mass'",
    ),
    (toys.BOXES, lambda: add("body_mass", Uniform(-100, 0)), "must be positive"),
    (toys.BOXES, lambda: set_("geom_friction", Uniform(-0.5, 1)), "must not be negative"),
    (
        toys.BOXES,
        lambda: scale("body_inertia", Uniform([0.5, 0.5, 1], [1, 1, 3])),
        "triangle inequality",
    ),
    (toys.ARM, lambda: add("jnt_range", Uniform([-2, -2], [3, 2])), "lower limit below its upper"),
    (toys.ARM, lambda: scale("dof_damping", Uniform(-1, 1)), "must not be negative"),
    (toys.ARM, lambda: scale("opt.timestep", Uniform(0, 1)), "draws opt.timestep is 0; it must be"),
]


@pytest.mark.parametrize(("mjcf", "term", "complaint"), REFUSED)
def test_a_domain_that_fits_no_model_is_refused_with_the_mend(mjcf, term, complaint):
    with pytest.raises(VariationError, match=complaint) as raised:
        Domain(term()).check(model(mjcf))
    assert "\n" not in str(raised.value)


ALLOWED = [
    (toys.BOXES, scale("body_inertia", Uniform(0.1, 5.0))),  # whole rows keep the inequality
    (toys.ARM, add("jnt_range", Uniform(-2.0, 2.0))),  # both limits move together
    (toys.BOXES, set_("geom_friction", Uniform([0.0] * 3, [1.0] * 3))),
    (toys.BOXES, add("opt.gravity", Uniform(-20.0, 20.0))),
]


@pytest.mark.parametrize(("mjcf", "term"), ALLOWED)
def test_a_domain_is_not_refused_for_what_it_cannot_draw(mjcf, term):
    Domain(term).check(model(mjcf))


def test_two_terms_of_one_name_are_refused():
    with pytest.raises(VariationError, match="two terms are called 'body_mass'; give one"):
        Domain(scale("body_mass", Uniform(1, 2)), add("body_mass", Uniform(0, 1)))


def test_constants_are_drawn_again_within_an_episode():
    worlds = Worlds(Env(toys.Swing(), "native"), 3, 10, domain=DOMAIN, resample_every=4)
    state, seen = worlds.reset(jax.random.key(6)), []
    for _ in range(10):
        seen.append(np.asarray(state.variation["opt.gravity"])[:, 2])
        state, _ = worlds.step(state, np.zeros((3, 1), np.float32))
    seen.append(np.asarray(state.variation["opt.gravity"])[:, 2])
    changed = [(a != b).all() for a, b in itertools.pairwise(seen)]
    stayed = [(a == b).all() for a, b in itertools.pairwise(seen)]
    assert [i + 1 for i, change in enumerate(changed) if change] == [4, 8, 10]
    assert sum(stayed) == 7
    assert (np.asarray(state.steps) == 0).all()


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Damped(toys.Puck):
    """The puck, with a damping of both slides that the task draws: 1 to 2 N s/m."""

    mjcf_text: str = toys.PUCK.replace('type="slide"', 'type="slide" damping="0.5"')

    def start(self, key: Any) -> Start:
        key, damping_key = jax.random.split(key)
        damping = jax.random.uniform(damping_key, (2,), minval=1.0, maxval=2.0)
        start = super().start(key)
        return dataclasses.replace(start, variation={"dof_damping": damping})


@pytest.mark.parametrize("context", [[], ["joint_damping"]])
def test_what_the_task_drew_holds_where_the_domain_draws_nothing(context):
    """A domain doubles the damping along x, the context triples both; later they draw again."""
    domain = Domain(scale(joint("x").damping, Uniform(2.0, 2.0)))
    factor = {"joint_damping": 3.0} if context else None
    env = Env(Damped(episode_length=7), "fake", context)
    worlds = Worlds(env, 3, domain=domain, context=factor, resample_every=2)
    state = worlds.reset(jax.random.key(1))
    episodes = []
    for _ in range(21):
        drawn = np.asarray(state.env.drawn["dof_damping"])
        assert ((drawn >= 1) & (drawn <= 2)).all()
        expected = drawn * [2, 1] * (3 if context else 1)
        np.testing.assert_allclose(state.variation["dof_damping"], expected, rtol=1e-6)
        episodes.append(drawn)
        state, _ = worlds.step(state, np.zeros((3, 2), np.float32))
    assert len(np.unique(episodes)) == 3 * 3 * 2  # three episodes of three worlds, and two slides


def test_a_context_in_the_middle_of_an_episode_knows_what_the_task_drew():
    env = Env(Damped(), "fake", ["joint_damping"])
    state = env.reset(jax.random.key(2))
    drawn = np.asarray(state.variation["dof_damping"])
    varied = env.vary(state, {}, {"joint_damping": 4.0})
    np.testing.assert_allclose(varied.variation["dof_damping"], 4 * drawn, rtol=1e-6)
    again = env.vary(varied, {"dof_damping": jnp.array([0.5, 1.0])})
    np.testing.assert_allclose(again.variation["dof_damping"], [2.0, 4.0])


def test_a_world_goes_on_under_its_new_constants():
    """Gravity off in the middle: from there on the pendulum keeps its momentum."""

    def weightless(key: Any, model: Model, ranges: Any) -> Any:
        del key, model
        return {"opt.gravity": jnp.array([0.0, 0.0, ranges["gravity"]])}

    env = Env(toys.Swing(), "native")
    worlds = Worlds(env, 2, domain=CustomDomain(weightless, {"gravity": -9.81}), resample_every=5)
    state = worlds.reset(jax.random.key(7))
    for step in range(1, 5):
        state, _ = worlds.step(state, np.zeros((2, 1), np.float32))
        if step == 2:
            state = dataclasses.replace(state, ranges={"gravity": jnp.float32(0.0)})
        assert (np.asarray(state.variation["opt.gravity"])[:, 2] == np.float32(-9.81)).all()
    state, _ = worlds.step(state, np.zeros((2, 1), np.float32))
    assert (np.asarray(state.variation["opt.gravity"]) == 0).all()
    data_model = copy.copy(env.model.mj)
    data_model.opt.gravity[:] = 0
    for world in range(2):
        data = mujoco.MjData(data_model)
        data.qpos[:], data.qvel[:] = (
            np.asarray(x)[world] for x in (state.env.physics.qpos, state.env.physics.qvel)
        )
        mujoco.mj_step(data_model, data, env.substeps)
        after, _ = worlds.step(state, np.zeros((2, 1), np.float32))
        np.testing.assert_allclose(after.env.physics.qpos[world], data.qpos, rtol=1e-6)


def test_a_thousand_resets_and_other_ranges_trace_nothing_again():
    traced = []

    def draw(key: Any, model: Model, ranges: Any) -> Any:
        traced.append(1)
        factor = ranges["mass"].sample(key)
        return {"body_mass": factor * jnp.asarray(model.constant("body_mass"), jnp.float32)}

    domain = CustomDomain(draw, {"mass": Uniform(1.0, 2.0)})
    worlds = Worlds(Env(toys.Puck(episode_length=1), "fake"), 10, domain=domain)
    state, still = worlds.reset(jax.random.key(0)), np.zeros((10, 2), np.float32)
    state, _ = worlds.step(state, still)
    before, heaviest = len(traced), []
    for factor in range(2, 102):  # each step begins ten episodes
        ranges = {"mass": Uniform(1.0, float(factor))}
        state, _ = worlds.step(dataclasses.replace(state, ranges=ranges), still)
        heaviest.append(float(np.asarray(state.variation["body_mass"]).max()))
    assert len(traced) == before
    assert max(heaviest) > 50


def chain(joints: int) -> Model:
    """A chain of bodies on hinges."""
    bodies = "</body>" * joints
    links = "".join(
        f'<body name="b{i}" pos="0 0 .1"><joint name="j{i}" axis="0 1 0" damping="1" '
        'range="-1 1" limited="true"/><geom size=".05"/>'
        for i in range(joints)
    )
    return Model(
        f'<mujoco><compiler angle="radian"/><worldbody>{links}{bodies}</worldbody></mujoco>'
    )


def test_a_term_for_each_joint_of_a_humanoid_is_checked_at_once():
    """The combinations of their ends would be 2 to the 40th."""
    robot = chain(40)
    terms = [scale(joint(f"j{i}").damping, Uniform(0.5, 2.0)) for i in range(40)]
    Domain(*terms).check(robot)
    wrong = scale(joint("j23").damping, Uniform(-0.5, 1.0), name="wrong")
    with pytest.raises(VariationError, match="dof_damping of row 23 is -1; it must") as raised:
        Domain(*terms, wrong).check(robot)
    assert str(raised.value).endswith(
        "narrow 'dof_damping/j23' (now 0.5 to 2), 'wrong' (now -0.5 to 1)"
    )


def test_many_terms_on_one_row_are_checked_at_once():
    robot = chain(1)
    inertia = [scale("body_inertia", Uniform(0.9, 1.1), name=f"{i}") for i in range(20)]
    Domain(*inertia).check(robot)
    each = [scale("body_inertia", Uniform([0.8] * 3, [1.2] * 3), name=f"e{i}") for i in range(4)]
    with pytest.raises(VariationError, match="triangle inequality"):
        Domain(*inertia, *each).check(robot)
    limits = [add("jnt_range", Uniform([-0.1] * 2, [0.1] * 2), name=f"{i}") for i in range(9)]
    Domain(*limits).check(robot)
    with pytest.raises(VariationError, match="lower limit below its upper"):
        Domain(*limits, add("jnt_range", Uniform([-0.1] * 2, [0.1] * 2))).check(robot)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_domain_is_refused_if_and_only_if_a_corner_of_its_draws_is_impossible(data):
    """Against every combination of the ends of three terms, one of which is a vector."""
    robot, number = chain(3), st.floats(-2.0, 2.0).map(lambda x: round(x, 2))
    field = data.draw(
        st.sampled_from(["jnt_range", "geom_friction", "dof_damping", "body_inertia"])
    )
    element = robot.constant(field).shape[1:]
    make, spans = {"scale": scale, "add": add, "set": set_}, []
    for shape in ((), element, ()):
        ends = np.sort([[data.draw(number) for _ in range(int(np.prod(shape)))] for _ in "ab"], 0)
        low, high = ends.reshape(2, *shape)
        spans.append((data.draw(st.sampled_from(sorted(make))), Uniform(low, high)))
    terms = [make[name](field, d, name=str(i)) for i, (name, d) in enumerate(spans)]
    impossible = False
    for corner in itertools.product(*(list(d.corners()) for _, d in spans)):
        value = np.array(robot.constant(field))
        first = 1 if field == "body_inertia" else 0  # the world has none
        for (name, _), drawn in zip(spans, corner, strict=True):
            old = value[first:]
            value[first:] = {"scale": old * drawn, "add": old + drawn, "set": 0 * old + drawn}[name]
        impossible |= find_problem(robot, field, value) is not None
    if impossible:
        with pytest.raises(VariationError):
            Domain(*terms).check(robot)
    else:
        Domain(*terms).check(robot)


def test_a_domain_says_which_fields_it_draws():
    assert DOMAIN.fields(model()) == {"body_mass", "body_inertia", "dof_damping", "opt.gravity"}
    own = CustomDomain(
        lambda key, model, ranges: {"body_mass": jnp.ones(2) * ranges["a"]}, {"a": 1}
    )
    assert own.fields(model()) == {"body_mass"}
