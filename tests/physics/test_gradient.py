"""Derivatives of the native engine: as MuJoCo's, as independent differences, as by formula."""

import dataclasses

import derivatives
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import plain_mujoco
import pytest
from cases import CASES, CONSTANTS, assert_close, case, jacobian

import toys
from worldline.env.env import Env
from worldline.env.worlds import Worlds
from worldline.errors import ConfigError, WorldlineError
from worldline.model import Model
from worldline.physics.base import Reads
from worldline.physics.finite_differences import FiniteDifferences
from worldline.physics.native import NativePhysics
from worldline.physics.native.batches import BatchPool

SUBSTEPS = 3


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_plain_mujoco(name):
    one = case(name)
    ours = jacobian(one, SUBSTEPS)
    theirs = derivatives.jacobian(one.model, one.start, SUBSTEPS, CONSTANTS)
    for (output, name_of_input), expected in theirs.items():
        block = ours[output, name_of_input]
        assert_close(block, expected, 1e-5, (output, name_of_input))


def test_the_cases_meet_contacts():
    # Otherwise equality above would say little.
    touching = {name for name in CASES if case(name).contacts}
    assert {"half-cheetah", "ant", "humanoid", "boxes"} <= touching
    assert "ant in the air" not in touching
    for name in ("half-cheetah", "ant", "humanoid"):
        block = jacobian(case(name), SUBSTEPS)["qvel", "geom_friction"]
        assert np.abs(block).max() > 1e-4, name


@pytest.mark.parametrize("name", ["pendulum", "half-cheetah", "ant by Euler", "boxes"])
def test_derivatives_are_those_of_mjd_transition_fd(name):
    one = case(name)
    model, data = one.model, mujoco.MjData(one.model)
    for field, value in one.start.items():
        getattr(data, field)[:] = value
    nv = model.nv
    A, B = np.zeros((2 * nv, 2 * nv)), np.zeros((2 * nv, model.nu))
    C, D = np.zeros((model.nsensordata, 2 * nv)), np.zeros((model.nsensordata, model.nu))
    mujoco.mjd_transitionFD(model, data, 1e-6, True, A, B, C, D)
    ours = jacobian(one, 1)
    # Theirs has the new orientation in its tangent space: take ours there.
    mujoco.mj_step(model, data)
    into_tangent = np.linalg.pinv(derivatives.spread(model, data.qpos))
    expected = {"qpos": (A[:nv], B[:nv]), "qvel": (A[nv:], B[nv:]), "sensordata": (C, D)}
    for output, (by_state, by_control) in expected.items():
        for field, theirs in (
            ("qpos", by_state[:, :nv]),
            ("qvel", by_state[:, nv:]),
            ("ctrl", by_control),
        ):
            block = ours[output, field]
            block = into_tangent @ block if output == "qpos" else block
            assert_close(block, theirs, 1e-5, (output, field))


def test_a_pendulum_by_formula():
    # Semi-implicit Euler with implicit damping: qvel' = qvel + h (torque - d qvel) / (I + h d).
    model = Model(toys.PENDULUM)
    mass, length = model.mj.body_mass[1], -model.mj.body_ipos[1, 2]
    inertia = model.mj.dof_M0[0]
    h, d, g, gear = model.timestep, 0.02, 9.81, 2.0
    physics, q, v, u = NativePhysics(model), 0.7, -0.4, 0.3

    def step(q, v, u, damping):
        state = physics.start(q[None], v[None], {"dof_damping": damping[None]}, {})
        after = physics.step(state, {"ctrl": u[None]}, 1)
        return jnp.stack([after.qpos[0], after.qvel[0]])

    columns = jax.jacrev(step, argnums=(0, 1, 2, 3))(*jnp.float32([q, v, u, d]))
    torque = gear * u - mass * g * length * np.sin(q)
    effective = inertia + h * d
    dv = [
        -h * mass * g * length * np.cos(q) / effective,
        1 - h * d / effective,
        h * gear / effective,
        -h * v / effective - h**2 * (torque - d * v) / effective**2,
    ]
    dq = [1 + h * dv[0], h * dv[1], h * dv[2], h * dv[3]]
    np.testing.assert_allclose(np.stack(columns, -1), [dq, dv], rtol=2e-6)


@pytest.mark.parametrize("value", [0.0, 0.3])
def test_a_constant_that_is_zero_only_grows(value):
    # Dry friction slows by h * frictionloss / I; of a negative one MuJoCo takes no notice.
    model = Model(toys.PENDULUM)
    physics = NativePhysics(model)

    def speed(friction):
        variation = {"dof_damping": jnp.zeros(1), "dof_frictionloss": friction[None]}
        state = physics.start(jnp.zeros(1), jnp.float32([5.0]), variation, {})
        return physics.step(state, {}, 1).qvel[0]

    slope = jax.grad(speed)(jnp.float32(value))
    np.testing.assert_allclose(slope, -model.timestep / model.mj.dof_M0[0], rtol=1e-3)


@pytest.mark.parametrize("name", ["mechanism", "ant"])
def test_forwards_and_backwards_agree(name):
    one, keys = case(name), iter(jax.random.split(jax.random.key(0), 100))

    def function(state, ctrl):
        after = one.physics.step(state, {"ctrl": ctrl}, SUBSTEPS)
        return after.qpos, after.qvel, after.fields, after.changes

    def noise(tree):
        # Scaled as the engine scales its steps, so that none drowns the others.
        return jax.tree.map(lambda x: jax.random.normal(next(keys), x.shape) * jnp.abs(x), tree)

    def state(qpos, qvel, variation):
        return dataclasses.replace(one.state, qpos=qpos, qvel=qvel, variation=variation)

    free = (one.state.qpos, one.state.qvel, one.state.variation)
    value, pull = jax.vjp(lambda parts, ctrl: function(state(*parts), ctrl), free, one.ctrl)
    tangent = noise((free, one.ctrl))
    _, pushed = jax.jvp(
        lambda parts, ctrl: function(state(*parts), ctrl), (free, one.ctrl), tangent
    )
    cotangent = noise(value)

    def dot(a, b):
        pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        return sum(np.vdot(np.asarray(x, float), np.asarray(y, float)) for x, y in pairs)

    np.testing.assert_allclose(dot(cotangent, pushed), dot(pull(cotangent), tangent), rtol=1e-4)


def test_through_a_start_and_many_steps():
    # A whole segment, started anew and with checkpoints, against differences of whole segments.
    model = Model(toys.MECHANISM)
    physics = NativePhysics(model, Reads(("xpos",), ("xpos",), refresh=True))
    ctrl = jnp.linspace(-0.5, 0.5, 6)[:, None]

    def total(qpos, ctrl, remember):
        def step(state, ctrl):
            state = physics.step(state, {"ctrl": ctrl}, 2)
            return state, jnp.sum(state.fields["xpos"][1:] ** 2) + state.changes["xpos"][1, 0]

        step = step if remember else jax.checkpoint(step)
        start = physics.start(qpos, jnp.zeros(model.nv), {}, {})
        return jax.lax.scan(step, start, ctrl)[1].sum()

    def plain(qpos, ctrl):
        run = plain_mujoco.run(
            model.mj, qpos, np.zeros(model.nv), ctrl, 2, fields=("xpos",), refresh=True
        ).fields["xpos"]
        return np.sum(run[1:, 1:] ** 2) + run[-1, 1, 0] - run[0, 1, 0]

    qpos = jnp.asarray(model.qpos0)
    gradient = jax.jit(jax.grad(total, argnums=(0, 1)), static_argnums=2)
    ours = gradient(qpos, ctrl, True)
    for kept, computed_again in zip(ours, gradient(qpos, ctrl, False), strict=True):
        np.testing.assert_array_equal(kept, computed_again)
    spread = derivatives.spread(model.mj, qpos)
    theirs = np.zeros(model.nv)
    for index in range(model.nv):
        ends = [np.array(qpos, float) for _ in range(2)]
        for moved, by in zip(ends, (1e-6, -1e-6), strict=True):
            mujoco.mj_integratePos(model.mj, moved, np.eye(model.nv)[index], by)
        theirs[index] = (plain(ends[0], np.asarray(ctrl)) - plain(ends[1], np.asarray(ctrl))) / 2e-6
    np.testing.assert_allclose(np.asarray(ours[0], float) @ spread, theirs, rtol=1e-4, atol=1e-6)
    for index in range(len(ctrl)):
        up, down = (np.array(ctrl, float) for _ in range(2))
        up[index] += 1e-6
        down[index] -= 1e-6
        slope = (plain(qpos, up) - plain(qpos, down)) / 2e-6
        np.testing.assert_allclose(ours[1][index, 0], slope, rtol=1e-4, atol=1e-7)


def test_it_costs_nothing_where_it_is_not_asked():
    one = case("ant")

    def step(state, ctrl):
        return one.physics.step(state, {"ctrl": ctrl}, 1)

    primitives = [e.primitive.name for e in jax.make_jaxpr(step)(one.state, one.ctrl).eqns]
    assert primitives.count("worldline_native") == 1
    assert not {"worldline_tangent", "worldline_cotangent"} & set(primitives)
    # The host is handed the words, the control, the constants and the mask; not the float state.
    text = jax.jit(step).lower(one.state, one.ctrl).as_text()
    (line,) = [line for line in text.splitlines() if "stablehlo.custom_call" in line]
    assert line.split(")")[0].count("%") - 1 == 3 + len(CONSTANTS)


def test_worlds_have_their_own_derivatives_in_any_nesting():
    one = case("arm")
    ctrl = jnp.linspace(-0.5, 0.5, 6 * 3).reshape(6, 3)

    def speed(ctrl, mask=True):
        return jnp.sum(one.physics.step(one.state, {"ctrl": ctrl}, 2, mask).qvel)

    alone = jnp.stack([jax.grad(speed)(x) for x in ctrl])
    np.testing.assert_array_equal(jax.vmap(jax.grad(speed))(ctrl), alone)
    nested = jax.vmap(jax.vmap(jax.grad(speed)))(ctrl.reshape(2, 3, 3))
    np.testing.assert_array_equal(nested.reshape(6, 3), alone)
    of_sum = jax.grad(lambda c: jax.vmap(speed)(c).sum())(ctrl)
    np.testing.assert_array_equal(of_sum, alone)
    mask = jnp.arange(6) % 2 == 0
    masked = jax.vmap(jax.grad(speed))(ctrl, mask)
    np.testing.assert_array_equal(masked, jnp.where(mask[:, None], alone, 0))


def test_moved_worlds_are_solved_to_convergence():
    # At MuJoCo's usual tolerance the turning of a light ball is wrong by 1e-6, as much as a world
    # is moved. It rolls off: exact is the derivative over a step that is a thousand times as wide.
    model = Model(
        '<mujoco><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 0.099"><freejoint/>'
        '<geom size="0.1" mass="1"/></body></worldbody></mujoco>'
    )
    physics = NativePhysics(model)

    def turning(speed):
        qvel = jnp.zeros(6).at[0].set(speed)
        state = physics.start(model.qpos0, qvel, {}, {})
        return physics.step(state, {}, 2).qvel[4]

    exact = (turning(1e-3) - turning(-1e-3)) / 2e-3
    np.testing.assert_allclose(jax.grad(turning)(0.0), exact, rtol=1e-4)


def test_many_cotangents_share_one_run_of_the_moved_worlds(monkeypatch):
    one, runs = case("ant"), []
    batch = BatchPool.batch

    def counted(self, *arguments):
        runs.append(arguments)
        return batch(self, *arguments)

    monkeypatch.setattr(BatchPool, "batch", counted)
    jacobian = jax.jacrev(lambda c: one.physics.step(one.state, {"ctrl": c}, 1).qvel)(one.ctrl)
    assert jacobian.shape == (14, 8)
    assert len(runs) == 2  # the step itself, and one batch of 16 moved worlds


@pytest.mark.parametrize("spoilt", [False, True])
def test_rest_limits_and_first_contact_have_finite_derivatives(spoilt, nans_allowed):
    model = Model(toys.ARM)
    physics = NativePhysics(model, Reads(("sensordata",)))
    limit = np.deg2rad([120, 90])
    poses = [np.zeros(2), limit, -limit, limit + 1e-3, [np.pi / 2, 0.0]]
    box = Model(toys.BOXES)
    boxes = NativePhysics(box, Reads(("sensordata",)))

    def of_arm(qpos, qvel, ctrl):
        after = physics.step(physics.start(qpos, qvel, {}, {}), {"ctrl": ctrl}, 2)
        return jnp.sum(after.qpos) + jnp.sum(after.qvel) + jnp.sum(after.fields["sensordata"])

    def of_boxes(height):
        qpos = jnp.asarray(box.qpos0).at[2].set(height).at[3:7].set(jnp.float32([1, 0, 0, 0]))
        after = boxes.step(boxes.start(qpos, jnp.zeros(12), {}, {}), {}, 2)
        return jnp.sum(after.qvel)

    ctrl = jnp.full(3, jnp.nan) if spoilt else jnp.zeros(3)
    for pose in poses:
        gradient = jax.grad(of_arm, argnums=(0, 1, 2))(jnp.float32(pose), jnp.zeros(2), ctrl)
        assert all(np.isfinite(x).all() for x in gradient)
        # A world that fails has the derivative zero, not NaN.
        assert spoilt == all(not np.asarray(x).any() for x in gradient)
    for height in (0.1, 0.1 - 1e-7, 0.1 + 1e-7, 0.3):
        assert np.isfinite(jax.grad(of_boxes)(jnp.float32(height)))


def test_a_control_on_its_limit_moves_inwards_and_one_beyond_not_at_all():
    physics, state = case("ant in the air")[:2]
    limit = np.asarray(physics.model.ctrlrange[0])

    def speed(ctrl):
        return physics.step(state, {"ctrl": ctrl}, 1).qvel

    inside = jax.jacrev(speed)(jnp.full(8, limit[1] - 1e-3))
    for value, share in ((limit[0], 1.0), (limit[1], 1.0), (limit[1] + 0.1, 0.0)):
        at = jax.jacrev(speed)(jnp.full(8, value))
        np.testing.assert_allclose(at, share * inside, atol=0.02 * np.abs(inside).max())


def test_step_size_and_sides_are_settings():
    model = Model(toys.PENDULUM)

    def slope(settings):
        physics = NativePhysics(model, gradient=settings)
        state = physics.start(jnp.float32([0.7]), jnp.float32([5.0]), {}, {})

        def angle(ctrl):
            return physics.step(state, {"ctrl": ctrl}, 40).qpos[0]

        return float(jax.grad(angle)(jnp.float32([0.3]))[0])

    exact = slope(FiniteDifferences())
    one_sided = slope(FiniteDifferences(centred=False))
    assert 0 < abs(one_sided / exact - 1) < 1e-4
    assert 1e-5 < abs(slope(FiniteDifferences(step=0.3)) / exact - 1) < 0.1
    coarse = abs(slope(FiniteDifferences(step=0.3, centred=False)) / exact - 1)
    assert coarse > abs(slope(FiniteDifferences(step=0.3)) / exact - 1)
    with pytest.raises(ConfigError, match=r"step is 0; give more than 0"):
        FiniteDifferences(step=0)


def test_there_is_no_second_derivative():
    one = case("pendulum")

    def angle(ctrl):
        return one.physics.step(one.state, {"ctrl": ctrl}, 1).qpos[0]

    with pytest.raises(WorldlineError, match="first derivatives only"):
        jax.hessian(angle)(one.ctrl)


def test_through_worlds_and_the_ends_of_episodes():
    # The puck is a unit mass without gravity, so the fake engine has the exact answer; episodes of
    # four steps end twice within the segment, and no gradient crosses from one into the next.
    task, worlds = toys.Puck(episode_length=4), 3

    def gradient(engine):
        many = Worlds(Env(task, engine), worlds)

        def total(action, state):
            def step(state, action):
                state, step = many.step(state, action)
                return state, step.reward

            return jax.lax.scan(step, state, action)[1].sum()

        action = jnp.linspace(-0.5, 0.5, 10 * worlds * 2).reshape(10, worlds, 2)
        return jax.jit(jax.grad(total))(action, many.reset(jax.random.key(0)))

    ours, exact = gradient("native"), gradient("fake")
    np.testing.assert_allclose(ours, exact, rtol=1e-4, atol=1e-9)
    # A push counts while the episode lasts: least in its last step, anew after it.
    size = np.asarray(exact)[:, 0, 0]
    assert size[0] > size[3] > 0
    assert size[4] > size[3]
