"""An answer of the native engine depends on its arguments alone; a bad world stays alone."""

import contextlib
import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import mujoco.batch
import numpy as np
import plain_mujoco
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toys
from worldline.errors import ModelError
from worldline.model import Model
from worldline.physics.base import Reads
from worldline.physics.native import NativePhysics

READS = {
    "mj_step": Reads(("xpos", "qfrc_constraint"), ("qpos",)),
    "refreshed": Reads(("xpos", "sensordata"), ("xpos",), refresh=True),
    "after step": Reads(("cfrc_ext", "subtree_linvel", "xpos"), ("xipos",)),
    "all": Reads(("cfrc_ext", "cacc", "subtree_angmom", "xpos"), ("qpos",), refresh=True),
}

ROWS = 4


@functools.cache
def model() -> Model:
    return Model(toys.BOXES)


def assert_same(ours: Any, theirs: Any) -> None:
    """Bit for bit, NaN included."""
    ours, theirs = jax.device_get((ours, theirs))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert a.tobytes() == b.tobytes()


def scattered(seed: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Boxes at random heights, some in the floor, thrown about: `(rows, nq)`, `(rows, nv)`."""
    random = np.random.default_rng(seed)
    qpos = model().qpos0 + random.uniform(-0.1, 0.1, (rows, model().nq))
    qvel = random.normal(0, 1, (rows, model().nv))
    return qpos.astype(np.float32), qvel.astype(np.float32)


class Engine:
    """An engine and its compiled programs."""

    def __init__(self, reads: Reads) -> None:
        self.physics = physics = NativePhysics(model(), reads)
        self.start = jax.jit(jax.vmap(lambda q, v, c, m: physics.start(q, v, c, {}, m)))
        self.step = jax.jit(jax.vmap(lambda s, m: physics.step(s, {}, 2, m)))


def calls(engine: Engine) -> list[Callable[[Engine], tuple[Any, np.ndarray]]]:
    """Calls with fixed arguments; each gives its answer and the rows in which it is specified."""
    everyone = np.ones(ROWS, bool)
    masks = [everyone, np.array([False, True, True, False]), np.array([True, False, False, False])]
    masses = np.random.default_rng(0).uniform(0.5, 2, (3, ROWS, 1)).astype(np.float32)
    variations: list[dict[str, np.ndarray]] = [{}]
    variations += [
        {"body_mass": m * model().constant("body_mass").astype(np.float32)} for m in masses
    ]
    made: list[Callable[[Engine], tuple[Any, np.ndarray]]] = []

    def start(seed, variation, mask):
        return lambda engine: (engine.start(*scattered(seed, ROWS), variation, mask), mask)

    def step(state, mask):
        return lambda engine: (engine.step(state, mask), everyone)

    for seed, variation in enumerate(variations):
        for mask in masks:
            made.append(start(seed, variation, mask))
        state = engine.start(*scattered(10 + seed, ROWS), variation, everyone)
        for steps in range(3):
            made.append(step(state, masks[steps]))
            state = engine.step(state, everyone)
        made.append(step(state, everyone))
    return made


@functools.cache
def known(name: str) -> tuple[Engine, list[Any]]:
    """An engine that lives through all examples, and what each call answers in new memory."""
    engine, answers = Engine(READS[name]), []
    for call in calls(engine):
        engine.physics._pools.clear()
        answers.append((call, jax.device_get(call(engine))))
    return engine, answers


@pytest.mark.parametrize("name", READS)
@settings(max_examples=40)
@given(data=st.data())
def test_what_was_called_in_between_does_not_matter(name, data):
    engine, answers = known(name)
    for index in data.draw(st.lists(st.integers(0, len(answers) - 1), min_size=2, max_size=25)):
        call, (expected, specified) = answers[index]
        ours, _ = call(engine)
        pick = lambda tree: jax.tree.map(lambda x: np.asarray(x)[specified], tree)  # noqa: B023, E731
        assert_same(pick(ours), pick(expected))


def readable(model: Model) -> list[str]:
    """Every MjData field that the engine gives."""
    fields = []
    for field in sorted(mujoco.batch.DATA_FIELDS):
        with contextlib.suppress(ModelError):
            NativePhysics(model, Reads((field,)))
            fields.append(field)
    return fields


#: Contacts, actuators with a state, everything else; the pendulum has less than any of them.
OFTEN = ["BOXES", "ARM", "MECHANISM"]


@pytest.mark.parametrize(
    ("name", "refresh", "persistent"),
    [
        pytest.param(
            *case, marks=() if case[0] in OFTEN and case[1] == case[2] else pytest.mark.exhaustive
        )
        for case in itertools.product(["PENDULUM", *OFTEN], [False, True], [False, True])
    ],
)
def test_no_field_shows_what_other_worlds_left(name, refresh, persistent):
    model = Model(getattr(toys, name))
    late = ("cacc", "cfrc_ext", "cfrc_int", "subtree_angmom", "subtree_linvel")
    fields = tuple(f for f in readable(model) if persistent or f not in late)
    assert {"xpos", "qacc", "energy", "ncon", "sensordata"} < set(fields)
    physics = NativePhysics(model, Reads(fields, (), refresh), num_threads=1)
    random = np.random.default_rng(0)
    qpos = model.qpos0 + random.uniform(-0.1, 0.1, (3, model.nq)).astype(np.float32)
    qvel = random.normal(0, 1, (3, model.nv)).astype(np.float32)
    ctrl = random.uniform(-1, 1, (3, model.nu)).astype(np.float32)
    start = jax.vmap(lambda q, v: physics.start(q, v, {}, {}))
    step = jax.vmap(lambda s, c: physics.step(s, {"ctrl": c}, 2))

    def others() -> None:
        state = start(0.9 * qpos[::-1], 3 * qvel[::-1])
        for _ in range(15):
            state = step(state, -ctrl)

    first = start(qpos, qvel)
    second = step(first, ctrl)
    for call, arguments in ((start, (qpos, qvel)), (step, (first, ctrl)), (step, (second, ctrl))):
        physics._pools.clear()
        expected = call(*arguments)
        others()
        ours = call(*arguments)
        for field in fields:
            assert_same(ours.fields[field], expected.fields[field])


def test_memory_of_the_solvers_is_no_field():
    with pytest.raises(ModelError, match=r"'qH' is internal memory of MuJoCo's solvers; remove it"):
        NativePhysics(model(), Reads(("xpos", "qH")))


OTHERS = np.arange(ROWS) != 1
EVERYONE = np.ones(ROWS, bool)


def with_row_1(values: np.ndarray, bad: float) -> np.ndarray:
    return np.where(OTHERS[:, None], values, np.float32(bad))


def assert_others_same(ours: Any, theirs: Any) -> None:
    pick = lambda tree: jax.tree.map(lambda x: np.asarray(x)[OTHERS], tree)  # noqa: E731
    assert_same(pick(ours), pick(theirs))


@pytest.mark.parametrize("name", READS)
def test_a_bad_start_is_flagged_and_alone(name, nans_allowed):
    engine = Engine(READS[name])
    qpos, qvel = scattered(0, ROWS)
    good = engine.start(qpos, qvel, {}, EVERYONE)
    assert not np.asarray(good.diverged).any()
    for bad in (np.nan, np.inf, 1e12):
        for start in ((with_row_1(qpos, bad), qvel), (qpos, with_row_1(qvel, bad))):
            state = engine.start(*start, {}, EVERYONE)
            np.testing.assert_array_equal(state.diverged, ~OTHERS)
            assert_others_same(state, good)
            assert_others_same(engine.step(state, EVERYONE), engine.step(good, EVERYONE))
    assert_same(engine.start(qpos, qvel, {}, EVERYONE), good)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", READS)
def test_a_diverged_world_is_flagged_and_alone(name, threads, nans_allowed):
    physics = NativePhysics(model(), READS[name], threads)
    good = Engine(READS[name]).start(*scattered(0, ROWS), {}, EVERYONE)
    step = jax.jit(jax.vmap(lambda s, f: physics.step(s, {"qfrc_applied": f}, 3)))
    nothing = np.zeros((ROWS, model().nv), np.float32)
    healthy = step(good, nothing)
    for bad in (np.nan, np.inf, 1e30):
        after = step(good, with_row_1(nothing, bad))
        np.testing.assert_array_equal(after.diverged, ~OTHERS, err_msg=str(bad))
        assert_others_same(after, healthy)
        # The flag is of that step alone, and the row is good for another world.
        assert_same(step(good, nothing), healthy)


def test_a_diverged_world_is_flagged_in_the_step_it_happens(nans_allowed):
    physics = NativePhysics(Model(toys.PENDULUM))
    state = physics.start(jnp.zeros(1), jnp.zeros(1), {}, {})
    step = jax.jit(lambda s, c: physics.step(s, {"ctrl": c}, 2))
    flags = []
    for ctrl in (0.5, np.nan, 0.5, 0.5):
        state = step(state, jnp.array([ctrl], jnp.float32))
        flags.append(bool(state.diverged))
    assert flags == [False, True, False, False]
    assert np.isfinite(state.qpos).all()


#: Boxes in a model that is given little memory.
CRAMPED = """
<mujoco>
  <size memory="{memory}K"/>
  <worldbody>
    <geom type="plane" size="9 9 0.1"/>
    BOXES
  </worldbody>
</mujoco>
""".replace("BOXES", 5 * '<body><freejoint/><geom type="box" size=".1 .1 .1"/></body>')


def raises(model: mujoco.MjModel, qpos: np.ndarray) -> bool:
    try:
        plain_mujoco.run(model, qpos, np.zeros(model.nv), np.zeros((1, 0)), 1)
    except mujoco.FatalError:
        return True
    return False


@functools.cache
def cramped() -> tuple[Model, np.ndarray, np.ndarray]:
    """A model in which MuJoCo runs out of memory, and raises, where the boxes touch."""
    pose = np.tile([0, 0, 0, 1, 0, 0, 0], (5, 1)).astype(np.float32)
    apart, stacked = pose.copy(), pose.copy()
    apart[:, 0], apart[:, 2] = np.arange(5), 5
    stacked[:, 2] = 0.09 + 0.19 * np.arange(5)
    for memory in range(20, 200, 4):
        model = Model(CRAMPED.format(memory=memory))
        if raises(model.mj, stacked.ravel()) and not raises(model.mj, apart.ravel()):
            return model, apart.ravel(), stacked.ravel()
    raise AssertionError("MuJoCo has grown frugal: find another way to make it raise")


@pytest.mark.parametrize("fields", [(), ("cfrc_ext",), ("subtree_linvel",)])
def test_an_error_of_mujoco_is_a_diverged_world(fields):
    model, apart, stacked = cramped()
    physics = NativePhysics(model, Reads(fields))
    start = jax.vmap(lambda q: physics.start(q, jnp.zeros(model.nv), {}, {}))
    step = jax.jit(jax.vmap(lambda s: physics.step(s, {}, 1)))
    state = start(np.stack([apart, stacked, apart]))
    for _ in range(3):
        np.testing.assert_array_equal(state.diverged, [False, True, False])
        state = step(state)
    expected = plain_mujoco.run(model.mj, apart, np.zeros(model.nv), np.zeros((3, 0)), 1)
    for world in (0, 2):
        np.testing.assert_array_equal(physics.integration_state(state)[world], expected.state[-1])
    # The row forgets its failure when another world moves in.
    state = start(np.stack([stacked, apart, apart]))
    np.testing.assert_array_equal(step(state).diverged, [True, False, False])


def test_a_subclass_runs_its_own_code(pendulum):
    class Watched(NativePhysics):
        used = False

        def _pool(self, *arguments: Any, **others: Any) -> Any:
            self.used = True
            return super()._pool(*arguments, **others)

    def start(physics):
        begin = lambda qpos: physics.start(qpos, jnp.zeros(1), {}, {})  # noqa: E731
        return jax.jit(begin)(jnp.zeros(1)).qpos.block_until_ready()

    base, watched = NativePhysics(pendulum), Watched(pendulum)
    start(base)
    watched.used = False
    start(watched)
    assert watched.used
