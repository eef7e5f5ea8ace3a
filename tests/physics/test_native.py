"""The native engine is bit for bit a loop over `mj_step`, however it is called."""

import functools
import itertools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import plain_mujoco
import pytest

import toys
from worldline.errors import ModelError
from worldline.model import Model
from worldline.physics.base import INPUTS, PhysicsState, Reads
from worldline.physics.fake import FakePhysics
from worldline.physics.native import NativePhysics
from worldline.physics.native.batches import Operation
from worldline.tasks.gym.base import assets

STEPS, SUBSTEPS = 12, 3
FIELDS = ("xpos", "cvel", "qacc", "sensordata", "qfrc_constraint", "nefc")

#: Height of the root at a start, low enough that the models touch the ground in few steps.
GYM_MODELS = {"half_cheetah": None, "ant": 0.45, "humanoid": 1.2}
TOYS = {
    "pendulum": toys.PENDULUM,
    "boxes": toys.BOXES,
    "arm": toys.ARM,
    "mechanism": toys.MECHANISM,
}
EVERY_MODEL = [*TOYS, *GYM_MODELS]


@functools.cache
def load(name: str) -> Model:
    return Model(TOYS[name] if name in TOYS else assets() / f"{name}.xml")


def starts(name: str, worlds: int) -> tuple[np.ndarray, np.ndarray]:
    """Random `qpos (worlds, nq)` and `qvel (worlds, nv)`, float32."""
    model, random = load(name), np.random.default_rng(3)
    spread = 1.6 if name == "arm" else 0.02
    qpos = model.qpos0 + spread * random.uniform(-1, 1, (worlds, model.nq))
    height = GYM_MODELS.get(name)
    if height is not None:
        qpos[:, 2] = height
    qvel = random.normal(0, 0.5, (worlds, model.nv))
    return qpos.astype(np.float32), qvel.astype(np.float32)


def controls(name: str, worlds: int, steps: int = STEPS) -> np.ndarray:
    """Random controls, `(steps, worlds, nu)` float32; some beyond their range."""
    random = np.random.default_rng(5)
    return random.uniform(-1.2, 1.2, (steps, worlds, load(name).nu)).astype(np.float32)


def unroll(physics: NativePhysics, qpos, qvel, ctrl, variation=None) -> PhysicsState:
    """Start and `STEPS` steps of one world, stacked; pure JAX, to be mapped and compiled."""
    start = physics.start(qpos, qvel, variation or {}, {})

    def step(state, ctrl):
        state = physics.step(state, {"ctrl": ctrl}, SUBSTEPS)
        return state, state

    _, after = jax.lax.scan(step, start, ctrl)
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, after)


@functools.cache
def reference(name: str, worlds: int) -> list[plain_mujoco.Run]:
    qpos, qvel = starts(name, worlds)
    ctrl = controls(name, worlds)
    return [
        plain_mujoco.run(load(name).mj, qpos[i], qvel[i], ctrl[:, i], SUBSTEPS, fields=FIELDS)
        for i in range(worlds)
    ]


def assert_bits(ours, theirs) -> None:
    """Equal bit for bit: not even the sign of a zero differs."""
    ours, theirs = np.ascontiguousarray(ours), np.ascontiguousarray(theirs)
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    assert ours.tobytes() == theirs.tobytes()


def assert_is(physics: NativePhysics, states: PhysicsState, expected: plain_mujoco.Run) -> None:
    """One world's stacked states, `(T + 1, ...)`, against the plain loop."""
    model = physics.model
    assert_bits(physics.integration_state(states), expected.state)
    time, qpos, qvel, act = np.split(
        expected.state, np.cumsum([1, model.nq, model.nv, model.na]), axis=1
    )[:4]
    for ours, theirs in ((states.qpos, qpos), (states.qvel, qvel), (states.act, act)):
        assert_bits(ours, theirs.astype(np.float32))
    assert_bits(states.time, time[:, 0].astype(np.float32))
    for field, value in states.fields.items():
        theirs = expected.fields[field]
        kind = np.float32 if theirs.dtype.kind == "f" else np.int32
        assert_bits(value, theirs.astype(kind))
    assert not np.asarray(states.diverged).any()


def worlds_of(states: PhysicsState, index) -> PhysicsState:
    return jax.tree.map(lambda x: x[index], jax.device_get(states))


@pytest.mark.parametrize("name", EVERY_MODEL)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_batch_is_a_loop_over_mj_step(name, threads):
    worlds = 4
    physics = NativePhysics(load(name), Reads(FIELDS), threads)
    qpos, qvel = starts(name, worlds)
    program = jax.jit(jax.vmap(functools.partial(unroll, physics), in_axes=(0, 0, 1)))
    states = program(qpos, qvel, controls(name, worlds))
    for world in range(worlds):
        assert_is(physics, worlds_of(states, world), reference(name, worlds)[world])


@pytest.mark.parametrize("solver", ["PGS", "CG", "NEWTON"])
@pytest.mark.parametrize("cone", ["PYRAMIDAL", "ELLIPTIC"])
@pytest.mark.parametrize("noslip", [0, 3])
def test_a_robot_alone_is_solved_as_mujocos_one_island(solver, cone, noslip):
    model = Model(assets() / "ant.xml")
    model.mj.opt.solver = getattr(mujoco.mjtSolver, f"mjSOL_{solver}")
    model.mj.opt.cone = getattr(mujoco.mjtCone, f"mjCONE_{cone}")
    model.mj.opt.noslip_iterations = noslip
    model.mj.opt.tolerance = 1e-4  # when a solver stops is to matter
    physics = NativePhysics(model)
    qpos, qvel = starts("ant", 1)
    ctrl = controls("ant", 1, steps=60)[:, 0]
    states = jax.jit(functools.partial(unroll, physics))(qpos[0], qvel[0], ctrl)
    expected = plain_mujoco.run(model.mj, qpos[0], qvel[0], ctrl, SUBSTEPS, fields=("nisland",))
    assert expected.fields["nisland"].max() == 1
    assert_is(physics, states, expected)


def test_many_worlds_are_run_in_portions():
    worlds, alone = 300, [0, 99, 100, 199, 200, 299]  # three portions of a thread
    model, fields = Model(assets() / "ant.xml"), ("cfrc_ext", "nefc")
    physics = NativePhysics(model, Reads(fields), num_threads=1)
    operation = Operation("step", SUBSTEPS, (), ())
    assert len(physics._pool().portions(worlds, operation)) == 3
    (qpos, qvel), ctrl = starts("ant", worlds), controls("ant", worlds)[:3]
    masks = np.random.default_rng(0).random((3, worlds)) < [[1.0], [0.5], [0.5]]
    masks[2, :150] = False  # a portion and a half

    def run(qpos, qvel, ctrl, masks):
        state = physics.start(qpos, qvel, {}, {})
        for row in range(3):
            state = physics.step(state, {"ctrl": ctrl[row]}, SUBSTEPS, masks[row])
        return state

    many = jax.jit(jax.vmap(run, in_axes=(0, 0, 1, 1)))(qpos, qvel, ctrl, masks)
    for world in alone:
        one = jax.jit(run)(qpos[world], qvel[world], ctrl[:, world], masks[:, world])
        jax.tree.map(assert_bits, worlds_of(many, world), worlds_of(one, ...))
    assert np.asarray(many.fields["nefc"])[alone].any()


def test_the_number_of_islands_is_mujocos():
    model, (qpos,), (qvel,) = load("ant"), *starts("ant", 1)
    fields, ctrl = ("nisland", "nidof"), controls("ant", 1)[:, 0]
    physics = NativePhysics(model, Reads(fields))
    states = jax.jit(functools.partial(unroll, physics))(qpos, qvel, ctrl)
    expected = plain_mujoco.run(model.mj, qpos, qvel, ctrl, SUBSTEPS, fields=fields)
    assert expected.fields["nisland"].max() == 1
    assert_is(physics, states, expected)


def test_the_models_meet_contacts_and_limits():
    # Otherwise equality above would say little.
    for name in EVERY_MODEL:
        constraints = np.stack([run.fields["nefc"] for run in reference(name, 4)])
        assert name == "pendulum" or constraints.max() > 0, name
        assert name in ("pendulum", "mechanism") or len(np.unique(constraints)) > 2, name


@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3), (2, 1, 2, 2)])
def test_any_nesting_of_vmap_is_the_same_worlds(shape):
    name, worlds = "arm", 8
    physics = NativePhysics(load(name), Reads(FIELDS))
    many = int(np.prod(shape))
    qpos, qvel = (x[:many].reshape(*shape, -1) for x in starts(name, worlds))
    ctrl = np.moveaxis(controls(name, worlds), 0, 1)[:many].reshape(*shape, STEPS, -1)
    program = functools.partial(unroll, physics)
    for _ in shape:
        program = jax.vmap(program)
    states = jax.jit(program)(qpos, qvel, ctrl)
    for number, index in enumerate(np.ndindex(shape)):
        assert_is(physics, worlds_of(states, index), reference(name, worlds)[number])


def test_vmap_over_any_axis_in_and_out():
    name, worlds = "arm", 4
    physics = NativePhysics(load(name), Reads(FIELDS))
    qpos, qvel = starts(name, worlds)
    program = jax.vmap(functools.partial(unroll, physics), in_axes=(1, 0, 2), out_axes=1)
    states = jax.jit(program)(qpos.T, qvel, np.moveaxis(controls(name, worlds), 1, 2))
    for world in range(worlds):
        assert_is(physics, worlds_of(states, np.s_[:, world]), reference(name, worlds)[world])


def test_what_vmap_does_not_map_is_shared():
    # One start and one variation for all worlds; only the controls differ.
    model = load("arm")
    physics = NativePhysics(model)
    qpos, qvel = (x[0] for x in starts("arm", 1))
    ctrl = np.moveaxis(controls("arm", 3), 0, 1)
    variation = {"body_mass": 2 * model.mj.body_mass.astype(np.float32)}
    program = functools.partial(unroll, physics)
    shared = jax.vmap(program, in_axes=(None, None, 0, None))(qpos, qvel, ctrl, variation)
    for world in range(3):
        alone = program(qpos, qvel, ctrl[world], variation)
        assert_bits(shared.engine.words[world], alone.engine.words)
    # And one world's controls under many variations.
    many = jax.tree.map(lambda x: jnp.stack([x, x, 3 * x]), variation)
    varied = jax.vmap(program, in_axes=(None, None, None, 0))(qpos, qvel, ctrl[0], many)
    assert_bits(varied.engine.words[0], shared.engine.words[0])
    assert_bits(varied.engine.words[1], shared.engine.words[0])
    assert (np.asarray(varied.engine.words[2]) != shared.engine.words[0]).any()


def test_control_flow_of_jax_and_none_at_all_agree():
    name, worlds = "mechanism", 4
    physics = NativePhysics(load(name))
    (qpos, qvel), ctrl = starts(name, worlds), jnp.asarray(controls(name, worlds))
    start = jax.vmap(lambda q, v: physics.start(q, v, {}, {}))

    def step(state, ctrl):
        return jax.vmap(lambda s, c: physics.step(s, {"ctrl": c}, SUBSTEPS))(state, ctrl)

    def while_loop(qpos, qvel):
        def body(carry):
            time, state = carry
            return time + 1, step(state, ctrl[time])

        return jax.lax.while_loop(lambda c: c[0] < STEPS, body, (0, start(qpos, qvel)))[1]

    def cond(qpos, qvel):
        state = start(qpos, qvel)
        for time in range(STEPS):
            state = jax.lax.cond(time % 2 == 0, step, step, state, ctrl[time])
        return state

    def scan(qpos, qvel):
        return jax.lax.scan(lambda s, c: (step(s, c), None), start(qpos, qvel), ctrl)[0]

    expected = np.stack([run.state[-1] for run in reference(name, worlds)])
    for program in (jax.jit(while_loop), jax.jit(cond), jax.jit(scan), cond):
        assert_bits(physics.integration_state(program(qpos, qvel)), expected)
    with jax.disable_jit():
        assert_bits(physics.integration_state(scan(qpos, qvel)), expected)


@pytest.mark.parametrize("nested", [False, True])
def test_a_masked_step_touches_the_masked_rows_alone(nested):
    name, worlds = "arm", 6
    physics = NativePhysics(load(name), Reads(FIELDS, ("qpos",)))
    qpos, qvel = starts(name, worlds)
    ctrl = controls(name, worlds)[0]
    mask = np.array([True, False, False, True, True, False])
    state = jax.vmap(lambda q, v: physics.start(q, v, {}, {}))(qpos, qvel)

    def step(state, ctrl, mask):
        return physics.step(state, {"ctrl": ctrl}, SUBSTEPS, mask)

    program = jax.jit(jax.vmap(jax.vmap(step)) if nested else jax.vmap(step))
    fold = (lambda x: x.reshape(2, 3, *x.shape[1:])) if nested else (lambda x: x)
    flat = (lambda x: x.reshape(6, *x.shape[2:])) if nested else (lambda x: x)
    run = lambda mask: jax.tree.map(  # noqa: E731
        flat, program(jax.tree.map(fold, state), fold(ctrl), fold(mask))
    )
    some, everyone, nobody = run(mask), run(np.ones(6, bool)), run(np.zeros(6, bool))
    leaves = zip(*map(jax.tree.leaves, (state, some, everyone, nobody)), strict=True)
    for before, chosen, all_stepped, none_stepped in leaves:
        assert_bits(chosen[mask], np.asarray(all_stepped)[mask])
        assert_bits(chosen[~mask], np.asarray(before)[~mask])
        assert_bits(none_stepped, before)
    assert (np.asarray(everyone.engine.words) != state.engine.words).any(axis=1).all()


def test_a_masked_start_is_the_start():
    name, worlds = "humanoid", 4
    physics = NativePhysics(load(name), Reads(FIELDS))
    qpos, qvel = starts(name, worlds)
    start = jax.vmap(lambda q, v, m: physics.start(q, v, {}, {}, m))
    everyone = start(qpos, qvel, np.ones(worlds, bool))
    for mask in itertools.product([False, True], repeat=worlds):
        some = start(qpos, qvel, np.array(mask))
        for a, b in zip(jax.tree.leaves(some), jax.tree.leaves(everyone), strict=True):
            assert_bits(np.asarray(a)[list(mask)], np.asarray(b)[list(mask)])


def test_inputs_are_mujocos_own():
    name, model = "mechanism", load("mechanism")
    physics = NativePhysics(model, Reads(("mocap_pos", "userdata", "xfrc_applied")))
    (qpos,), (qvel,) = starts(name, 1)
    random = np.random.default_rng(0)
    start = {
        "mocap_pos": random.normal(0, 0.1, (1, 3)).astype(np.float32),
        "mocap_quat": np.array([[0.6, 0.8, 0, 0]], np.float32),
        "userdata": np.array([1, 2], np.float32),
    }
    inputs = {
        "ctrl": random.uniform(-1, 1, (STEPS, model.nu)).astype(np.float32),
        "xfrc_applied": random.normal(0, 1, (STEPS, model.mj.nbody, 6)).astype(np.float32),
        "qfrc_applied": random.normal(0, 0.1, (STEPS, model.nv)).astype(np.float32),
        "mocap_pos": random.normal(0, 0.1, (STEPS, 1, 3)).astype(np.float32),
        "qvel": random.normal(0, 0.5, (STEPS, model.nv)).astype(np.float32),
    }
    state = physics.start(qpos, qvel, {}, start)
    states = jax.lax.scan(lambda s, i: (physics.step(s, i, 2),) * 2, state, inputs)[1]
    others = {name: value for name, value in inputs.items() if name != "ctrl"}
    expected = plain_mujoco.run(
        model.mj,
        qpos,
        qvel,
        inputs["ctrl"],
        2,
        start=start,
        inputs=others,
        fields=physics.reads.fields,
    )
    assert_bits(physics.integration_state(states), expected.state[1:])
    for field, value in states.fields.items():
        assert_bits(value, expected.fields[field][1:].astype(np.float32))


def test_inputs_that_are_not_given_stay_as_they_were():
    model = load("arm")
    physics = NativePhysics(model, Reads(("ctrl",)))
    (qpos,), (qvel,) = starts("arm", 1)
    act = jnp.array([0.2, -0.3])
    state = physics.start(qpos, qvel, {}, {"act": act})
    np.testing.assert_array_equal(state.act, act)
    np.testing.assert_array_equal(state.fields["ctrl"], np.zeros(3))
    ctrl = jnp.array([0.1, 0.2, 0.3])
    first = physics.step(state, {"ctrl": ctrl}, 1)
    held, given = physics.step(first, {}, 1), physics.step(first, {"ctrl": ctrl}, 1)
    assert_bits(held.engine.words, given.engine.words)
    np.testing.assert_array_equal(held.fields["ctrl"], ctrl)
    # A new start forgets them.
    np.testing.assert_array_equal(physics.start(qpos, qvel, {}, {}).fields["ctrl"], np.zeros(3))


@pytest.mark.parametrize(
    "inputs", [(), ("ctrl",), ("ctrl", "mocap_pos"), ("userdata", "xfrc_applied"), INPUTS]
)
def test_a_state_holds_no_inputs_that_are_never_given(inputs):
    name, model = "mechanism", load("mechanism")
    whole = NativePhysics(model, Reads(("xpos",), ("qpos",)))
    few = NativePhysics(model, Reads(("xpos",), ("qpos",), inputs=inputs))
    qpos, qvel = starts(name, 3)
    random = np.random.default_rng(0)
    given = {
        name: random.uniform(-0.5, 0.5, (3, *model.data_field(name)[0])).astype(np.float32)
        for name in inputs
        if name != "act"
    }

    def run(physics):
        state = jax.vmap(lambda q, v: physics.start(q, v, {}, {}))(qpos, qvel)
        state = jax.vmap(lambda s, i: physics.step(s, i, 3))(state, given)
        return jax.vmap(lambda s: physics.step(s, {}, 2))(state)  # what was given is held

    ours, theirs = run(few), run(whole)
    assert_bits(few.integration_state(ours), whole.integration_state(theirs))
    assert_bits(ours.fields["xpos"], theirs.fields["xpos"])
    assert_bits(ours.changes["qpos"], theirs.changes["qpos"])
    zero = {"ctrl", "qfrc_applied", "xfrc_applied", "userdata"}.difference(inputs)
    left = 2 * sum(int(np.prod(model.data_field(name)[0])) for name in zero)
    assert ours.engine.words.shape[1] == theirs.engine.words.shape[1] - left


@pytest.mark.parametrize("engine", [NativePhysics, FakePhysics])
def test_an_input_that_was_to_be_never_given_is_refused(engine):
    physics = engine(load("pendulum"), Reads(inputs=("ctrl",)))
    with pytest.raises(ModelError, match=r"the input 'qfrc_applied', only for ctrl; make it with"):
        physics.start(jnp.zeros(1), jnp.zeros(1), {}, {"qfrc_applied": jnp.zeros(1)})
    with pytest.raises(ModelError, match="a start sets its velocity by `qvel`"):
        physics.start(jnp.zeros(1), jnp.zeros(1), {}, {"qvel": jnp.zeros(1)})


#: Fields that `mj_step` leaves out, with one that it does not.
AFTER_STEP = ("cacc", "cfrc_int", "cfrc_ext", "subtree_linvel", "subtree_angmom", "xpos")


@pytest.mark.parametrize("refresh", [False, True])
@pytest.mark.parametrize("name", ["boxes", "humanoid"])
def test_fields_that_mj_step_leaves_out(name, refresh):
    model, worlds, steps = load(name), 3, 60
    physics = NativePhysics(model, Reads(AFTER_STEP, (), refresh))
    (qpos, qvel), ctrl = starts(name, worlds), controls(name, worlds, steps)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, 0, 1))
    def program(qpos, qvel, ctrl):
        start = physics.start(qpos, qvel, {}, {})
        step = lambda s, c: (physics.step(s, {"ctrl": c}, SUBSTEPS),) * 2  # noqa: E731
        return start, jax.lax.scan(step, start, ctrl)[1]

    # The batch is used again, so what the first run left in it must not show in the second.
    program(qpos[::-1], qvel, ctrl[::-1])
    start, states = program(qpos, qvel, ctrl)
    for world in range(worlds):
        expected = plain_mujoco.run(
            model.mj,
            qpos[world],
            qvel[world],
            ctrl[:, world],
            SUBSTEPS,
            fields=AFTER_STEP,
            after_step=("mj_rnePostConstraint", "mj_subtreeVel"),
            refresh=refresh,
        )
        for field in AFTER_STEP:
            theirs = expected.fields[field].astype(np.float32)
            assert_bits(start.fields[field][world], theirs[0])
            assert_bits(states.fields[field][world], theirs[1:])
        assert_bits(physics.integration_state(states)[world], expected.state[1:])
        assert np.abs(expected.fields["cfrc_ext"]).max() > 0


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_refreshed_fields_are_those_of_the_new_state(name):
    model = load(name)
    physics = NativePhysics(model, Reads(FIELDS, (), refresh=True))
    (qpos,), (qvel,) = starts(name, 1)
    ctrl = controls(name, 1)[:, 0]
    states = jax.jit(functools.partial(unroll, physics))(qpos, qvel, ctrl)
    expected = plain_mujoco.run(model.mj, qpos, qvel, ctrl, SUBSTEPS, fields=FIELDS, refresh=True)
    assert_is(physics, states, expected)
    lagging = reference(name, 4)[0].fields["cvel"][1:]
    assert (expected.fields["cvel"][1:] != lagging).any()


def test_changes_are_exact_far_from_the_origin():
    model = Model(toys.PUCK)
    physics = NativePhysics(model, Reads((), ("qpos", "xpos", "xipos")), num_threads=1)
    far = np.array([1e6, -1e6], np.float32)
    state = physics.start(far, jnp.array([0.5, 0.25]), {}, {})
    for name, change in state.changes.items():
        assert_bits(change, np.zeros(model.data_field(name)[0], np.float32))
    expected = plain_mujoco.run(
        model.mj, far, [0.5, 0.25], np.full((STEPS, 2), 0.1), 2, fields=("qpos", "xpos", "xipos")
    )
    for step in range(STEPS):
        state = physics.step(state, {"ctrl": jnp.full(2, 0.1)}, 2)
        for name in ("qpos", "xpos", "xipos"):
            before, after = expected.fields[name][step : step + 2]
            assert_bits(state.changes[name], (after - before).astype(np.float32))
    # What float32 positions would give: nothing at all.
    assert np.spacing(far[0]) > 2 * np.abs(state.changes["qpos"]).max()


def test_changes_begin_anew_at_a_start():
    # The memory that results are written to is not zero: a start in used memory shows it.
    physics = NativePhysics(load("pendulum"), Reads((), ("qpos",)))
    start = jax.vmap(lambda q: physics.start(q, jnp.ones(1), {}, {}))
    for _ in range(20):
        state = start(jnp.linspace(0.1, 1, 1000)[:, None])
        np.testing.assert_array_equal(state.changes["qpos"], np.zeros((1000, 1)))
        jax.vmap(lambda s: physics.step(s, {}, 1))(state)


def test_worlds_of_other_sizes_do_not_disturb_each_other():
    # Batches are kept by their number of rows, and the least used are let go.
    physics = NativePhysics(load("arm"))
    start = jax.vmap(lambda q, v: physics.start(q, v, {}, {}))
    most = 20
    qpos, qvel = starts("arm", most)
    expected = np.stack([run.state[0] for run in reference("arm", most)])
    for worlds in [*range(1, most + 1), 1, 5]:
        states = start(qpos[:worlds], qvel[:worlds])
        assert_bits(physics.integration_state(states), expected[:worlds])


def test_time_runs_from_zero():
    physics = NativePhysics(load("pendulum"))
    state = physics.start(jnp.zeros(1), jnp.zeros(1), {}, {})
    assert state.time == 0
    state = physics.step(state, {}, 5)
    np.testing.assert_allclose(state.time, 0.05, rtol=1e-6)


def test_errors_name_the_value_and_the_mend():
    model = load("pendulum")
    with pytest.raises(ModelError, match=r"num_threads is -1; give 0 for all cores"):
        NativePhysics(model, num_threads=-1)
    with pytest.raises(ModelError, match=r"'xpo' is not an MjData field.*did you mean.*'xpos'"):
        NativePhysics(model, Reads(("xpo",)))
    with pytest.raises(ModelError, match="'qpoz' is not an MjData field"):
        NativePhysics(model, Reads((), ("qpoz",)))
    physics = NativePhysics(model)
    with pytest.raises(ModelError, match=r"has no input 'ctl'.*did you mean.*'ctrl'"):
        physics.input_shape("ctl")
    start = physics.start(model.qpos0, jnp.zeros(model.nv), {}, {})
    with pytest.raises(ModelError, match=r"substeps is 0; give 1 or more"):
        physics.step(start, {}, 0)
    sleepy = toys.BOXES.replace("<worldbody>", '<option><flag sleep="enable"/></option><worldbody>')
    for fields in ((), ("cfrc_ext",)):
        with pytest.raises(ModelError, match=r"'sleep'.*remove sleep from the model"):
            NativePhysics(Model(sleepy), Reads(fields))


def test_the_integration_state_is_mujocos():
    physics = NativePhysics(load("mechanism"))
    state = physics.start(load("mechanism").qpos0, jnp.zeros(6), {}, {})
    size = mujoco.mj_stateSize(load("mechanism").mj, plain_mujoco.INTEGRATION)
    assert physics.integration_state(state).shape == (size,)
    assert state.engine.words.dtype == np.uint32
