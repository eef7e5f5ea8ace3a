"""A world's own constants: bit for bit a model that was compiled or edited with them."""

import copy
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import plain_mujoco
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toys
from worldline.errors import VariationError
from worldline.model import Model
from worldline.mujoco_c import Batch
from worldline.physics.base import PhysicsState, Reads
from worldline.physics.native import NativePhysics

WORLDS, STEPS, SUBSTEPS = 3, 25, 4

#: Two balls of a body, of which neither is in its centre.
BARBELL = """
<mujoco>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body pos="0 0 0.1">
      <freejoint/>
      <geom type="sphere" size="0.08" pos="0.2 0 0"/>
      <geom type="sphere" size="0.05" pos="-0.2 0 0"/>
    </body>
  </worldbody>
</mujoco>
"""

#: For each kind of constant a model that it makes a difference to.
FIELDS = {
    "body_mass": toys.BOXES,
    "body_inertia": toys.BOXES,
    "body_ipos": toys.ARM,
    "body_pos": toys.MECHANISM,
    "body_gravcomp": toys.ARM,
    "geom_friction": toys.BOXES,
    "geom_size": toys.BOXES,
    "geom_pos": BARBELL,
    "geom_solref": toys.BOXES,
    "geom_solimp": toys.BOXES,
    "jnt_range": toys.ARM,
    "jnt_stiffness": toys.MECHANISM,
    "dof_damping": toys.ARM,
    "dof_armature": toys.ARM,
    "dof_frictionloss": toys.ARM,
    "qpos0": toys.ARM,
    "actuator_gear": toys.ARM,
    "actuator_gainprm": toys.ARM,
    "actuator_biasprm": toys.ARM,
    "actuator_dynprm": toys.ARM,
    "actuator_ctrlrange": toys.ARM,
    "tendon_stiffness": toys.MECHANISM,
    "tendon_damping": toys.MECHANISM,
    "tendon_lengthspring": toys.MECHANISM,
    "eq_solref": toys.MECHANISM,
    "eq_data": toys.MECHANISM,
    "site_pos": toys.MECHANISM,
    "opt.gravity": toys.BOXES,
    "opt.timestep": toys.ARM,
    "opt.impratio": toys.BOXES,
    "opt.viscosity": toys.BOXES,
}


@functools.cache
def physics_of(mjcf: str) -> NativePhysics:
    return NativePhysics(Model(mjcf), Reads(("xpos", "qfrc_constraint")))


def unroll(mjcf: str, variation: Any, *, one_world: bool = False) -> PhysicsState:
    """`STEPS` steps of `WORLDS` worlds from one start under one series of controls, stacked.

    Not compiled: that would take longer than to run it.
    """
    physics = physics_of(mjcf)
    at_rest = jnp.zeros(physics.model.nv)

    def start(variation):
        return physics.start(physics.model.qpos0, at_rest, variation, {})

    def step(state, ctrl):
        return physics.step(state, {"ctrl": ctrl}, SUBSTEPS)

    if not one_world:
        start, step = jax.vmap(start), jax.vmap(step, in_axes=(0, None))
    state, states = start(variation), []
    for ctrl in controls(physics.model):
        state = step(state, ctrl)
        states.append(jax.device_get(state))
    return jax.tree.map(lambda *x: np.stack(x, axis=0 if one_world else 1), *states)


def controls(model: Model) -> np.ndarray:
    return np.random.default_rng(1).uniform(-1, 1, (STEPS, model.nu)).astype(np.float32)


def values(model: Model, field: str, seed: int = 0, worlds: int = WORLDS) -> np.ndarray:
    """Values of a field for each world, some percent off the model's, float32."""
    stored = model.constant(field)
    random = np.random.default_rng(seed)
    factor = random.uniform(0.8, 1.2, (worlds, *stored.shape))
    offset = random.uniform(0, 0.01, (worlds, *stored.shape)) * (stored == 0)
    if field in ("opt.viscosity", "body_gravcomp"):
        offset = 10 * offset
    if field in ("body_inertia", "geom_size", "geom_solimp", "eq_data", "actuator_dynprm"):
        offset = 0 * offset  # zeros there mean something else
    if field == "body_inertia":  # any common factor keeps the triangle inequality
        factor = factor[..., :1]
    if field == "jnt_range":  # within reach from the start
        factor = 0.1 * factor
    return (stored * factor + offset).astype(np.float32)


def edited(model: Model, variation: dict[str, np.ndarray], set_const: bool = True):
    """An `MjModel` of its own with these values, and all that MuJoCo derives from them."""
    own = copy.copy(model.mj)
    for field, value in variation.items():
        owner, name = (own.opt, field[4:]) if field.startswith("opt.") else (own, field)
        if np.ndim(value):
            getattr(owner, name)[:] = value
        else:
            setattr(owner, name, float(value))
    if set_const:
        mujoco.mj_setConst(own, mujoco.MjData(own))
    return own


def expected(model: Model, own: mujoco.MjModel) -> np.ndarray:
    """The integration states of the plain loop with such a model, `(STEPS, nstate)`."""
    run = plain_mujoco.run(own, model.qpos0, np.zeros(model.nv), controls(model), SUBSTEPS)
    return run.state[1:]


def states(physics: NativePhysics, result) -> np.ndarray:
    return physics.integration_state(result)


def assert_bits(ours, theirs) -> None:
    np.testing.assert_array_equal(ours.view(np.uint64), theirs.view(np.uint64))


@pytest.mark.parametrize("field", FIELDS)
def test_each_world_has_its_own_constants(field):
    mjcf = FIELDS[field]
    physics = physics_of(mjcf)
    variation = values(physics.model, field)
    ours = states(physics, unroll(mjcf, {field: variation}))
    for world in range(WORLDS):
        own = edited(physics.model, {field: variation[world]})
        assert_bits(ours[world], expected(physics.model, own))
    # It does make a difference.
    assert (ours[0] != ours[1]).any()
    assert (ours[0] != expected(physics.model, physics.model.mj)).any()


def test_what_mujoco_derives_follows():
    # Contacts are as soft as `body_invweight0` says, which `mj_setConst` derives from the masses.
    physics = physics_of(toys.BOXES)
    mass = values(physics.model, "body_mass")
    ours = states(physics, unroll(toys.BOXES, {"body_mass": mass}))[0]
    right, wrong = (
        expected(physics.model, edited(physics.model, {"body_mass": mass[0]}, set_const))
        for set_const in (True, False)
    )
    assert_bits(ours, right)
    assert (right != wrong).any()


def test_many_fields_at_once_in_any_order():
    physics = physics_of(toys.MECHANISM)
    names = ["body_mass", "opt.gravity", "tendon_stiffness", "dof_damping", "eq_solref", "qpos0"]
    variation = {name: values(physics.model, name, seed) for seed, name in enumerate(names)}
    backwards = dict(reversed(variation.items()))
    ours = states(physics, unroll(toys.MECHANISM, variation))
    assert_bits(states(physics, unroll(toys.MECHANISM, backwards)), ours)
    for world in range(WORLDS):
        own = edited(physics.model, {name: value[world] for name, value in variation.items()})
        assert_bits(ours[world], expected(physics.model, own))


def test_a_variation_is_what_another_mjcf_compiles_to():
    template = """
    <mujoco>
      <option gravity="0 0 {gravity}"/>
      <worldbody>
        <geom type="plane" size="1 1 1" friction="{friction}"/>
        <body pos="0 0 0.125">
          <freejoint/>
          <inertial pos="0 0 0" mass="{mass}" diaginertia="{inertia} {inertia} {inertia}"/>
          <geom type="box" size="0.125 0.125 0.125" friction="{friction}"/>
        </body>
      </worldbody>
    </mujoco>
    """  # numbers that float32 holds exactly
    mjcf = template.format(gravity=-10, friction=0.5, mass=2, inertia=0.25)
    other = Model(template.format(gravity=-7.5, friction=0.75, mass=3.5, inertia=0.125))
    physics = physics_of(mjcf)
    names = ("opt.gravity", "geom_friction", "body_mass", "body_inertia")
    variation = {name: other.constant(name).astype(np.float32) for name in names}
    ours = states(physics, unroll(mjcf, variation, one_world=True))
    assert_bits(ours, expected(other, other.mj))
    assert (ours != expected(physics.model, physics.model.mj)).any()


@settings(max_examples=8)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=5))
def test_variations_never_pile_up(order):
    # The same rows of the same batch get one set of constants after another, and back.
    physics = physics_of(toys.BOXES)
    names = ("body_mass", "body_inertia", "opt.gravity")
    sets = [{name: values(physics.model, name, seed) for name in names} for seed in range(4)]
    for chosen in order:
        ours = states(physics, unroll(toys.BOXES, sets[chosen]))
        assert_bits(ours, _first_time(chosen))


@functools.cache
def _first_time(chosen: int) -> np.ndarray:
    physics = NativePhysics(Model(toys.BOXES))
    names = ("body_mass", "body_inertia", "opt.gravity")
    sets = {name: values(physics.model, name, chosen) for name in names}
    return np.stack(
        [
            expected(physics.model, edited(physics.model, {n: v[world] for n, v in sets.items()}))
            for world in range(WORLDS)
        ]
    )


def test_the_model_is_as_it_was():
    physics = physics_of(toys.BOXES)
    before = physics.model.mj.body_mass.copy()
    unroll(toys.BOXES, {"body_mass": 2 * values(physics.model, "body_mass")})
    np.testing.assert_array_equal(physics.model.mj.body_mass, before)
    without = states(physics, unroll(toys.BOXES, {}, one_world=True))
    assert_bits(without, expected(physics.model, physics.model.mj))


def test_a_variation_of_the_stored_values_changes_nothing_but_rounding():
    # 0.25 kg and the like are float32 numbers; then nothing changes at all.
    physics = physics_of(toys.PUCK)
    mass = physics.model.mj.body_mass.astype(np.float32)
    np.testing.assert_array_equal(mass, physics.model.mj.body_mass)
    ours = states(physics, unroll(toys.PUCK, {"body_mass": mass}, one_world=True))
    assert_bits(ours, expected(physics.model, physics.model.mj))


def test_the_variation_travels_in_the_state():
    physics = physics_of(toys.PUCK)
    mass = jnp.array([0.0, 4.0])
    state = physics.start(jnp.zeros(2), jnp.zeros(2), {"body_mass": mass}, {})
    stepped = physics.step(state, {"ctrl": jnp.array([1.0, 0.0])}, 1)
    np.testing.assert_array_equal(stepped.variation["body_mass"], mass)
    # A force of 1 N for 0.01 s on 4 kg.
    np.testing.assert_allclose(stepped.qvel, [0.01 / 4, 0], rtol=1e-6)


def test_a_masked_start_keeps_the_other_rows_constants():
    physics = physics_of(toys.PUCK)
    push = {"ctrl": jnp.array([1.0, 0.0])}

    def start(mass, mask):
        variation = {"body_mass": jnp.array([0.0, 1.0]) * mass}
        return physics.start(jnp.zeros(2), jnp.zeros(2), variation, {}, mask)

    step = jax.vmap(lambda state: physics.step(state, push, 1))
    first = jax.vmap(start)(jnp.array([1.0, 2.0, 4.0]), jnp.ones(3, bool))
    mask = jnp.array([False, True, False])
    second = jax.vmap(start)(jnp.array([7.0, 8.0, 9.0]), mask)
    mixed = jax.tree.map(
        lambda new, old: jnp.where(mask.reshape(3, *[1] * (new.ndim - 1)), new, old), second, first
    )
    np.testing.assert_allclose(step(mixed).qvel[:, 0], [0.01, 0.01 / 8, 0.01 / 4], rtol=1e-6)


def test_a_mass_that_is_none_is_a_world_that_diverged(nans_allowed):
    masses = np.array([[0, 1], [0, -1], [0, np.nan]], np.float32)
    result = unroll(toys.PUCK, {"body_mass": masses})
    np.testing.assert_array_equal(np.asarray(result.diverged).any(axis=1), [False, True, True])


def test_errors_name_the_field_and_the_mend():
    physics = physics_of(toys.PUCK)
    start = functools.partial(physics.start, jnp.zeros(2), jnp.zeros(2))
    with pytest.raises(VariationError, match=r"'body_mas' is not.*did you mean.*'body_mass'"):
        start({"body_mas": jnp.ones(2)}, {})
    with pytest.raises(
        VariationError, match=r"'body_mass' has shape \(3,\); the model's has \(2,\).*whole field"
    ):
        start({"body_mass": jnp.ones(3)}, {})
    with pytest.raises(VariationError, match=r"'opt.gravit' is not.*'opt.gravity'"):
        start({"opt.gravit": jnp.ones(3)}, {})
    for integer in ("body_parentid", "opt.iterations", "geom_type"):
        with pytest.raises(VariationError, match=rf"'{integer}' holds .*int.*; only real numbers"):
            start({integer: jnp.ones(2)}, {})


@pytest.fixture
def derivations(monkeypatch):
    """How many rows each call of `mj_setConst` ran on."""
    rows: list[int] = []
    set_const = Batch.set_const

    def counted(batch, ids):
        rows.append(len(ids))
        set_const(batch, ids)

    monkeypatch.setattr(Batch, "set_const", counted)
    return rows


def begin_and_step(physics, variation, worlds=WORLDS):
    at_rest = jnp.zeros(physics.model.nv)
    start = jax.vmap(lambda v: physics.start(physics.model.qpos0, at_rest, v, {}))
    state = start(variation)
    one_more = jax.tree.map(lambda x: jnp.concatenate([x, x[:1]]), state)  # another batch
    return jax.vmap(lambda s: physics.step(s, {}, SUBSTEPS))(one_more)


def test_what_follows_is_derived_where_worlds_start_and_copied_to_where_they_step(derivations):
    physics = NativePhysics(Model(toys.BOXES))
    first, mass = (values(physics.model, "body_mass", seed) for seed in range(2))
    begin_and_step(physics, {"body_mass": first})  # each batch learns what MuJoCo derives
    derivations.clear()
    state = begin_and_step(physics, {"body_mass": mass})
    assert derivations == [WORLDS]
    begin_and_step(physics, {"body_mass": np.roll(mass, 1, axis=0)})
    assert derivations == [WORLDS, WORLDS]
    # What was copied, to other rows than it was derived in, is what MuJoCo derives.
    fresh = NativePhysics(Model(toys.BOXES))
    ours, theirs = (
        jax.vmap(lambda s, p=p: p.step(s, {}, SUBSTEPS))(state) for p in (physics, fresh)
    )
    assert derivations == [WORLDS, WORLDS, WORLDS + 1]
    np.testing.assert_array_equal(ours.engine.words, theirs.engine.words)


def test_constants_that_are_partly_known_are_derived_where_they_are_not(derivations):
    physics = NativePhysics(Model(toys.BOXES))
    first, other = (values(physics.model, "body_mass", seed) for seed in range(2))
    begin_and_step(physics, {"body_mass": first})
    at_rest = jnp.zeros(physics.model.nv)
    start = jax.vmap(lambda v: physics.start(physics.model.qpos0, at_rest, v, {}))
    derivations.clear()
    state = start({"body_mass": other})
    masses = np.concatenate([other[:1], first[1:]])
    mixed = dataclasses.replace(state, variation={"body_mass": masses})
    stepped = jax.vmap(lambda s: physics.step(s, {}, SUBSTEPS))(mixed)
    assert sum(derivations) == WORLDS + WORLDS - 1
    fresh = NativePhysics(Model(toys.BOXES))
    right = jax.vmap(lambda s: fresh.step(s, {}, SUBSTEPS))(mixed)
    np.testing.assert_array_equal(stepped.engine.words, right.engine.words)


def test_nothing_is_derived_from_what_mujoco_does_not_read_then(derivations):
    physics = NativePhysics(Model(toys.BOXES))
    friction = values(physics.model, "geom_friction")
    begin_and_step(physics, {"geom_friction": friction})
    assert not derivations


def test_a_value_given_for_what_is_derived_stands():
    physics = physics_of(toys.BOXES)
    for seed in range(2):  # the second time over rows that hold others
        mass = values(physics.model, "body_mass", seed)
        weight = values(physics.model, "body_invweight0", seed + 5)
        ours = states(physics, unroll(toys.BOXES, {"body_mass": mass, "body_invweight0": weight}))
        model = edited(physics.model, {"body_mass": mass[0]}, True)
        model.body_invweight0[:] = weight[0]
        assert_bits(ours[0], expected(physics.model, model))
