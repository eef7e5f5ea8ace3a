"""Curricula of ranges: where they move to, and that nothing is traced again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError
from worldline.learn.curriculum import automatic, schedule
from worldline.learn.ppo import PPOConfig, ppo
from worldline.variation import CustomDomain, Domain, LogUniform, Uniform, scale

START = {"body_mass": Uniform(1.0, 1.0), "opt.gravity": Uniform(-10.0, -9.0)}
END = {"body_mass": Uniform(0.5, 2.0), "opt.gravity": Uniform(-20.0, -1.0)}


def ends(ranges):
    """The ends of the ranges of mass, then of gravity."""
    return np.array([ranges[name].support() for name in START]).ravel().tolist()


def test_a_schedule_goes_its_way():
    move = schedule(START, END, updates=4)
    other = {"dof_damping": Uniform(1.0, 2.0)}
    for update, share in ((0, 0.0), (1, 0.25), (2, 0.5), (4, 1.0), (9, 1.0)):
        ranges = move({"train/updates": jnp.int32(update)}, {**START, **other})
        expected = [1 - 0.5 * share, 1 + share, -10 - 10 * share, -9 + 8 * share]
        assert ends(ranges) == pytest.approx(expected)
        assert ranges["dof_damping"] is other["dof_damping"]


def test_automatic_ranges_follow_the_return():
    move = automatic(START, END, widen_at=100.0, narrow_at=50.0, updates=4)
    ranges, widths = dict(START), []
    for level, episodes in [(120, 3), (100, 3), (75, 3), (120, 0), (10, 3), (200, 1)] + [
        (200, 1)
    ] * 5:
        metrics = {"train/return": jnp.float32(level), "train/episodes": jnp.int32(episodes)}
        ranges = move(metrics, ranges)
        low, high = ends(ranges)[:2]
        assert (1 - low) / 0.5 == pytest.approx(high - 1, abs=1e-6)  # both ends move alike
        widths.append(round(float(high - 1) * 4))
    assert widths == [1, 2, 2, 2, 1, 2, 3, 4, 4, 4, 4]
    assert ends(ranges) == pytest.approx(ends(END))
    for _ in range(6):
        metrics = {"train/return": jnp.float32(0), "train/episodes": jnp.int32(1)}
        ranges = move(metrics, ranges)
    assert ends(ranges) == pytest.approx(ends(START))


def test_a_curriculum_is_part_of_the_compiled_update():
    domain = Domain(scale("body_mass", Uniform(1.0, 1.0)))
    wide = {"body_mass": Uniform(0.5, 3.0)}
    traces = []
    inner = schedule(domain.ranges, wide, updates=3)

    def counted(metrics, ranges):
        traces.append(1)
        return inner(metrics, ranges)

    worlds = Worlds(Env(toys.Puck(episode_length=2), "fake"), 4, domain=domain)
    config = PPOConfig(num_worlds=4, unroll_length=4, epochs=1, minibatches=1)
    learner = ppo(worlds, config, curriculum=counted)
    state, highest = learner.init(jax.random.key(0)), []
    for _ in range(6):
        state, _ = learner.update(state)
        highest.append(float(state.acting.worlds.ranges["body_mass"].high))
    assert highest == pytest.approx([1 + 2 / 3, 1 + 4 / 3, 3, 3, 3, 3])
    assert len(traces) == 1
    mass = np.asarray(state.acting.worlds.variation["body_mass"])[:, 1]
    assert ((mass >= 0.5) & (mass <= 3)).all()
    assert np.ptp(mass) > 0


def test_a_whole_run_of_automatic_ranges_traces_nothing_again():
    domain, traces = Domain(scale("body_mass", Uniform(1.0, 1.0))), []
    wide = {"body_mass": Uniform(0.5, 3.0)}
    inner = automatic(domain.ranges, wide, widen_at=-1e6, narrow_at=-1e6, updates=20)

    def counted_curriculum(metrics, ranges):
        traces.append("curriculum")
        return inner(metrics, ranges)

    def counted_draw(key, model, ranges):
        traces.append("draw")
        return domain(key, model, ranges)

    drawn = CustomDomain(counted_draw, domain.ranges)
    worlds = Worlds(Env(toys.Puck(episode_length=2), "native"), 4, domain=drawn)
    config = PPOConfig(num_worlds=4, unroll_length=4, epochs=1, minibatches=1)
    learner = ppo(worlds, config, curriculum=counted_curriculum)
    state, _ = learner.update(learner.init(jax.random.key(0)))
    first, highest = list(traces), []
    for _ in range(24):
        state, _ = learner.update(state)
        highest.append(float(state.acting.worlds.ranges["body_mass"].high))
    assert traces == first
    assert highest[0] == pytest.approx(1.2)
    assert highest[-1] == 3.0
    assert {"curriculum", "draw"} == set(first)


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: schedule(START, END, updates=0), "updates is 0"),
        (lambda: automatic(START, END, widen_at=1, narrow_at=2), "narrow_at is 2, above widen_at"),
        (lambda: schedule(START, {"body_mass": END["body_mass"]}, updates=1), "same names"),
        (
            lambda: schedule({"a": Uniform(0, 1)}, {"a": LogUniform(1, 2)}, updates=1),
            "same names and distributions",
        ),
        (
            lambda: schedule({"mass": Uniform(0, 1)}, {"mass": Uniform(1, 2)}, updates=1)(
                {"train/updates": jnp.int32(1)}, START
            ),
            "no range 'mass'; did you mean 'body_mass'",
        ),
    ],
)
def test_curricula_that_lead_nowhere_are_refused(build, complaint):
    with pytest.raises(ConfigError, match=complaint):
        build()
