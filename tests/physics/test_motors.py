"""Motors, controllers and delays of MuJoCo 4: their memories, and the closed forms."""

import itertools

import jax
import jax.numpy as jnp
import motors
import numpy as np
import plain_mujoco
import pytest
from mujoco.batch import MODEL_FIELDS

from worldline.errors import ModelError
from worldline.model import Model
from worldline.physics.base import Reads
from worldline.physics.mjx import MjxPhysics
from worldline.physics.native import NativePhysics
from worldline.physics.warp import WarpPhysics
from worldline.variation import Choice, Domain, Uniform, actuator, set_

WORLDS, STEPS, SUBSTEPS = 3, 24, 3
FIELDS = ("actuator_force", "sensordata")


def controls(nu, steps=STEPS, size=2.0):
    wild = np.random.default_rng(7).uniform(-size, size, (steps, WORLDS, nu))
    return wild.astype(np.float32)


def starts():
    return np.float32([[0.5], [-1.0], [2.0]]), np.float32([[0.0], [3.0], [-2.0]])


def truth(mj, world, ctrl, substeps=SUBSTEPS):
    qpos, qvel = (x[world] for x in starts())
    return plain_mujoco.run(mj, qpos, qvel, ctrl, substeps, fields=FIELDS)


@pytest.mark.parametrize("name", motors.ACTUATORS)
def test_memories_are_exact_where_worlds_step_and_reset_alone(name):
    """Worlds step at other times, two begin anew, and another engine object goes on."""
    model = Model(motors.mjcf(motors.ACTUATORS[name]))
    ctrl = controls(model.nu)
    masks = np.random.default_rng(1).random((STEPS, WORLDS)) < 0.6
    anew = {9: 1, 15: 2}  # at this step this world begins again

    def programs():
        physics = NativePhysics(model, Reads(FIELDS))
        start = jax.jit(jax.vmap(lambda q, v, m: physics.start(q, v, {}, {}, m)))
        step = jax.jit(jax.vmap(lambda s, u, m: physics.step(s, {"ctrl": u}, SUBSTEPS, m)))
        return physics, start, step

    def chosen(mask, first, second):
        def leaf(x, y):
            return np.where(mask.reshape(-1, *[1] * (np.ndim(x) - 1)), x, y)

        return jax.tree.map(leaf, first, second)

    physics, start, step = programs()
    state = start(*starts(), np.ones(WORLDS, bool))
    given = [[] for _ in range(WORLDS)]
    for time in range(STEPS):
        if time in anew:
            fresh = np.arange(WORLDS) == anew[time]
            state = chosen(fresh, start(*starts(), fresh), state)
            given[anew[time]].clear()
        if time == 12:  # as a resumed run: all that a world is, is data
            physics, start, step = programs()
            state = jax.tree.map(jnp.asarray, jax.device_get(state))
        state = chosen(masks[time], step(state, ctrl[time], masks[time]), state)
        for world in np.flatnonzero(masks[time]):
            given[world].append(ctrl[time, world])
    ours = physics.integration_state(state)
    for world in range(WORLDS):
        run = truth(model.mj, world, np.array(given[world]))
        np.testing.assert_array_equal(ours[world], run.state[-1])
        for field in FIELDS:
            seen = np.asarray(state.fields[field])[world]
            np.testing.assert_array_equal(seen, np.float32(run.fields[field][-1]))


#: The model, and what is replaced in its MJCF.
CHANGES = {
    "gain and resistance": ("dcmotor", {'"0.125"': '"0.25"', 'resistance="2"': 'resistance="4"'}),
    "torque-speed curve": ("dcmotor by its curve", {'"12 0.75 96"': '"12 1.5 48"'}),
    "voltage": ("dcmotor", {'"-12 12"': '"-1 0.5"'}),
    "voltage of a controller": ("dcmotor with a controller", {"1 24": "0.5 0.25"}),
    "winding and friction": (
        "dcmotor with states",
        {"0.015625 0": "0.03125 0", "16 .125 .0625": "8 .25 .125", '"1 0 0"': '".5 0 0"'},
    ),
    "pid": ("pid", {'kp="4"': 'kp="8"', 'ki="1"': 'ki="2"', 'slewmax="8"': 'slewmax="2"'}),
    "delay": ("delay", {"0.01171875": "0.02734375"}),
    "delay of a filter": ("delay of a filter", {"0.0048828125": "0.01171875"}),
    "delay of a sensor": ("dcmotor", {'delay="0.0078125"': 'delay="0.015625"'}),
    "interval of a sensor": ("dcmotor", {"0.015625 0": "0.03125 0"}),
    "time step": ("delay", {'timestep="0.001953125"': 'timestep="0.00390625"'}),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_constants_vary_bit_for_bit_as_another_model(name):
    kind, replaced = CHANGES[name]
    before = motors.mjcf(motors.ACTUATORS[kind])
    after = before
    for old, new in replaced.items():
        assert old in after
        after = after.replace(old, new)
    model, other = Model(before), Model(after)
    variation = {}
    for field in MODEL_FIELDS:
        owner, part = ("opt", field[4:]) if field.startswith("opt.") else ("", field)
        one, two = ((getattr(m.mj, owner) if owner else m.mj) for m in (model, other))
        values = np.asarray(getattr(two, part))
        if values.dtype.kind == "f" and not np.array_equal(getattr(one, part), values):
            assert np.array_equal(np.float32(values), values), f"{field} is no float32"
            variation[field] = np.float32(values)
    assert variation
    physics, ctrl = NativePhysics(model, Reads(FIELDS)), controls(model.nu)

    def run(qpos, qvel, u, own):
        def step(state, row):
            state = physics.step(state, {"ctrl": row}, SUBSTEPS)
            return state, state.fields

        state = physics.start(qpos, qvel, own, {})
        return jax.lax.scan(step, state, u)

    # The worlds with other constants stand beside one that has the model's.
    own = {
        field: np.stack([values, np.float32(model.constant(field)), values])
        for field, values in variation.items()
    }
    state, fields = jax.jit(jax.vmap(run, in_axes=(0, 0, 1, 0)))(*starts(), ctrl, own)
    ours = physics.integration_state(state)
    apart = []
    for world in range(WORLDS):
        mj = model.mj if world == 1 else other.mj
        expected = truth(mj, world, ctrl[:, world])
        np.testing.assert_array_equal(ours[world], expected.state[-1])
        for field in FIELDS:
            np.testing.assert_array_equal(
                np.asarray(fields[field])[world], np.float32(expected.fields[field][1:])
            )
        unchanged = truth(model.mj, world, ctrl[:, world])
        apart += [not np.array_equal(expected.fields[f], unchanged.fields[f]) for f in FIELDS]
    assert any(apart)  # the constant is felt


def test_the_torque_is_that_of_the_torque_speed_curve():
    """Stall torque and no-load speed of a data sheet: a line between them, moved by the voltage."""
    volts, stall, fastest = 12.0, 0.75, 96.0
    model = Model(motors.mjcf(motors.ACTUATORS["dcmotor by its curve"], sensors=""))
    physics = NativePhysics(model, Reads(("actuator_force",)))
    speed, voltage = (x.ravel() for x in np.meshgrid([-50.0, 0.0, 30.0, 96.0], [-6.0, 0.0, 12.0]))
    start = jax.vmap(lambda v, u: physics.start(jnp.zeros(1), v, {}, {"ctrl": u}))
    state = start(jnp.float32(speed[:, None]), jnp.float32(voltage[:, None]))
    expected = stall * (voltage / volts - speed / fastest)
    np.testing.assert_allclose(state.fields["actuator_force"][:, 0], expected, atol=1e-6)


def test_the_current_of_a_winding_rises_as_an_exponential():
    """A motor that is held: i(t) = V/R (1 - exp(-R t / L)), torque K i."""
    motor = '<dcmotor joint="j" motorconst="0.125" resistance="2" inductance="0.0625 0"/>'
    held = motors.mjcf(motor, sensors="").replace('damping="0.015625"', 'armature="1e9"')
    physics = NativePhysics(Model(held), Reads(("actuator_force",)))
    state = physics.start(jnp.zeros(1), jnp.zeros(1), {}, {"ctrl": jnp.full(1, 8.0)})

    def step(state, _):
        state = physics.step(state, {}, 1)
        return state, state.act[0]

    _, current = jax.lax.scan(step, state, None, length=40)
    time = motors.TIMESTEP * np.arange(1, 41)
    np.testing.assert_allclose(current, 8.0 / 2 * (1 - np.exp(-2 * time / 0.0625)), rtol=1e-5)


@pytest.mark.parametrize(
    ("interp", "late"), [("zoh", 6.0), ("linear", 6.0), ("linear", 2.5), ("zoh", 2.5)]
)
def test_a_delay_gives_the_control_of_that_many_steps_ago(interp, late):
    late_s = late * motors.TIMESTEP
    motor = f'<motor joint="j" delay="{late_s}" nsample="16" interp="{interp}"/>'
    sensor = f'<jointpos joint="j" delay="{late_s}" nsample="16" interp="{interp}"/>'
    physics = NativePhysics(
        Model(motors.mjcf(motor, sensor + '<jointpos joint="j"/>')), Reads(FIELDS)
    )
    ctrl = controls(1)[:, 0]

    def step(state, u):
        state = physics.step(state, {"ctrl": u}, 1)
        return state, state.fields

    start = physics.start(jnp.float32([0.5]), jnp.zeros(1), {}, {})
    _, fields = jax.lax.scan(step, start, ctrl)
    force, (seen, now) = fields["actuator_force"][:, 0], fields["sensordata"].T

    def delayed(values):
        """What `values[k - late]` is; nothing was there before the first."""
        whole = int(np.ceil(late))
        past = np.concatenate([np.zeros(whole), np.asarray(values, np.float64)])
        older, newer = past[: len(values)], past[1 : len(values) + 1]
        part = (whole - late) if interp == "linear" else 0.0
        return (1 - part) * older + part * newer

    np.testing.assert_allclose(force, delayed(ctrl[:, 0]), atol=1e-6)
    np.testing.assert_allclose(seen, delayed(now), atol=1e-6)


def test_a_domain_draws_delays_and_limits_of_each_control():
    model = Model(motors.mjcf(motors.ACTUATORS["delay"]))
    domain = Domain(set_(actuator("m").delay, Choice([0.0, 2 / 512, 4 / 512])))
    domain.check(model)
    drawn = jax.vmap(lambda key: domain(key, model, domain.ranges))(
        jax.random.split(jax.random.key(0), 64)
    )
    assert {*np.unique(drawn["actuator_delay"]).tolist()} == {0.0, 2 / 512, 4 / 512}
    several = Model(motors.mjcf(motors.ACTUATORS["pid"]))
    limits = Domain(set_(actuator("n").ctrlrange, Uniform([-2.0, 1.0], [-1.0, 2.0])))
    limits.check(several)
    rows = limits(jax.random.key(0), several, limits.ranges)["actuator_ctrlrange"]
    assert not np.any(rows[:2]) and -2 <= rows[2, 0] <= -1 and 1 <= rows[2, 1] <= 2


def test_controls_have_names():
    model = Model(motors.mjcf(motors.ACTUATORS["pid"]))
    assert model.names("actuator") == ["m", "n"] and model.nu == 3
    assert model.control_names == ["m.0", "m.1", "n"]
    none = motors.ACTUATORS["dcmotor"].replace('ctrlrange="-12 12"', 'input="none"')
    passive = Model(motors.mjcf(none))
    assert passive.names("actuator") == ["m"] and passive.control_names == []


#: What an engine lacks of these models. In the others it must agree with native.
LACKS = {
    "mjx": {
        **dict.fromkeys(motors.ACTUATORS, "the actuator <dcmotor>"),
        **dict.fromkeys(("pid", "pid without states"), "the actuator <pid>"),
        **dict.fromkeys(("delay", "delay of a filter"), "actuator_delay"),
    },
    "warp": {
        **dict.fromkeys(("pid", "pid without states"), "the actuator <pid>"),
        **dict.fromkeys(("delay", "delay of a filter"), "the memory of delays"),
    },
}


@pytest.mark.parametrize("name", motors.ACTUATORS)
@pytest.mark.parametrize(("engine", "make"), [("mjx", MjxPhysics), ("warp", WarpPhysics)])
def test_another_engine_refuses_by_name_what_it_lacks(engine, make, name):
    model = Model(motors.mjcf(motors.ACTUATORS[name], sensors=""))
    if name in LACKS[engine]:
        with pytest.raises(ModelError, match=f"'{engine}' lacks {LACKS[engine][name]}.*native"):
            make(model)
    else:
        make(model)


AGREES = [name for name in motors.ACTUATORS if name not in LACKS["warp"]]
OFTEN = [("dcmotor with states", "Euler")]


@pytest.mark.parametrize(
    ("name", "integrator"),
    [
        pytest.param(*case, marks=[] if case in OFTEN else pytest.mark.exhaustive)
        for case in itertools.product(AGREES, ("Euler", "implicitfast"))
    ],
)
def test_warp_agrees_also_with_constants_of_its_own(name, integrator):
    option = f'integrator="{integrator}"'
    model = Model(motors.mjcf(motors.ACTUATORS[name], sensors="", option=option))
    reads, ends = Reads(("actuator_force",)), []
    own = {
        field: jnp.float32(1.25 * model.constant(field))
        for field in ("actuator_gainprm", "actuator_biasprm", "actuator_dynprm")
    }
    for physics in (WarpPhysics(model, reads), NativePhysics(model, reads)):
        state = physics.start(jnp.float32([0.5]), jnp.zeros(1), own, {})
        step = jax.jit(lambda state, u, physics=physics: physics.step(state, {"ctrl": u}, SUBSTEPS))
        for row in controls(model.nu)[:, 0]:
            state = step(state, row)
        ends.append((state.qpos, state.qvel, state.act, state.fields["actuator_force"]))
    for ours, theirs in zip(*ends, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=2e-4)
