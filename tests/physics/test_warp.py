"""MuJoCo Warp: the same worlds as native's. Here on a CPU; on a card the same kernels run."""

import copy
import dataclasses
import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from native_worlds import in_warp

import toys
import worldline
from worldline.env.env import Env
from worldline.errors import ConfigError, MissingExtraError, ModelError, VariationError
from worldline.model import Model
from worldline.physics.base import PhysicsState, Reads
from worldline.physics.native import NativePhysics
from worldline.physics.warp import batches
from worldline.physics.warp.batches import WarpBatch
from worldline.physics.warp.engine import WarpPhysics, refusal
from worldline.variation import Domain, Uniform, scale

WORLDS, SUBSTEPS = 3, 2
CONSTANTS = ("body_mass", "body_inertia", "geom_friction", "dof_damping", "opt.gravity")
FIELDS = (
    *("sensordata", "xpos", "xmat", "cvel", "cfrc_ext", "subtree_linvel", "qfrc_actuator"),
    *("actuator_length", "ten_length", "qacc"),
)


def variations(model: Model, names: tuple[str, ...] = CONSTANTS) -> dict[str, Any]:
    """Constants of each world's own, `(B, ...)`."""
    share = np.random.default_rng(1).uniform(0.8, 1.2, (WORLDS, 1))
    values = {name: np.asarray(model.constant(name)) for name in names}
    return {k: jnp.float32(v * share.reshape(-1, *[1] * v.ndim)) for k, v in values.items()}


def controls(model: Model, steps: int) -> Any:
    low, high = np.clip(model.ctrlrange, -1, 1).T
    return np.float32(np.random.default_rng(2).uniform(low, high, (steps, WORLDS, model.nu)))


def begun(physics: Any, variation: Any, inputs: Any = None) -> PhysicsState:
    """Worlds at rest near the default configuration."""
    model = physics.model
    qpos = jnp.tile(jnp.float32(model.qpos0), (WORLDS, 1))
    qvel = jnp.float32(np.random.default_rng(3).normal(0, 0.1, (WORLDS, model.nv)))
    start = jax.vmap(lambda q, v, own: physics.start(q, v, own, inputs or {}))
    return start(qpos, qvel, variation)


def stepper(physics: Any) -> Any:
    return jax.jit(jax.vmap(lambda state, ctrl: physics.step(state, {"ctrl": ctrl}, SUBSTEPS)))


def seen(state: PhysicsState) -> dict[str, Any]:
    """Everything that an engine says of worlds, by name."""
    changes = {f"change of {name}": value for name, value in state.changes.items()}
    moving = {"qpos": state.qpos, "qvel": state.qvel, "act": state.act, "time": state.time}
    return {**moving, **state.fields, **changes}


def assert_agree(ours: PhysicsState, theirs: PhysicsState, within: float) -> None:
    ours, theirs = seen(ours), seen(theirs)
    for name, value in theirs.items():
        size = 1 + np.abs(value).max(initial=0)
        np.testing.assert_allclose(ours[name], value, atol=within * size, err_msg=name)


#: With RK4 Warp takes no `<connect>` and no `<weld>`.
EULER = {"MECHANISM": toys.MECHANISM.replace('integrator="RK4"', "")}


@pytest.mark.parametrize("refresh", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("source", ["ARM", "BOXES", "MECHANISM"])
def test_worlds_are_those_of_native(source: str, refresh: bool) -> None:
    model = Model(EULER.get(source) or getattr(toys, source))
    # Of a world that is put there, nobody knows where the last physics step began.
    reads = Reads(FIELDS, ("qpos", "xpos") if refresh else ("qpos",), refresh)
    ours, theirs = WarpPhysics(model, reads), NativePhysics(model, reads)
    variation = variations(model)
    expected = begun(theirs, variation)
    assert_agree(begun(ours, variation), expected, 1e-3)
    step, native_step = stepper(ours), stepper(theirs)
    for number, ctrl in enumerate(controls(model, 50)):
        before, expected = expected, native_step(expected, ctrl)
        if number >= 40:  # what was apart has come together, and things lie on the floor
            # Step by step, since what touches the floor a step later leaves its twin.
            assert_agree(step(in_warp(ours, theirs, before), ctrl), expected, 1e-3)
    assert step._cache_size() == 1


VARIED = ("body_mass", "body_inertia", "body_ipos", "dof_armature", "actuator_gear", "qpos0")


def test_constants_follow_as_mj_set_const_has_them() -> None:
    model = Model(EULER["MECHANISM"])
    physics, random = WarpPhysics(model), np.random.default_rng(0)

    def drawn() -> dict[str, Any]:
        values = {name: np.asarray(model.constant(name)) for name in VARIED}
        scales = {name: random.uniform(0.7, 1.4, (WORLDS, *x.shape)) for name, x in values.items()}
        scales["body_inertia"] = scales["body_inertia"][..., :1]  # three alike, as of a real body
        return {name: jnp.float32(scales[name] * x) for name, x in values.items()}

    state = begun(physics, drawn())
    other = drawn()
    for own, now in ((state.variation, state), (other, jax.vmap(physics.vary)(state, other))):
        for world in range(WORLDS):
            plain = copy.copy(model.mj)
            for name, value in own.items():
                getattr(plain, name)[:] = value[world]
            mujoco.mj_setConst(plain, mujoco.MjData(plain))
            for name, value in now.engine.derived.items():
                expected = getattr(plain, name)
                size = np.abs(expected).max(initial=1e-6)
                np.testing.assert_allclose(
                    value[world], expected, rtol=1e-3, atol=1e-4 * size, err_msg=name
                )
    assert {"body_invweight0", "eq_data", "tendon_length0"} <= state.engine.derived.keys()


def test_a_world_is_its_own_arguments() -> None:
    # The same alone, in other company, in another order, and under any nesting of vmap.
    physics = WarpPhysics(Model(toys.BOXES), Reads(("xpos", "cfrc_ext")))
    state = begun(physics, variations(physics.model))
    step = jax.jit(jax.vmap(lambda one: physics.step(one, {}, 30)))
    together = step(state)
    assert np.abs(together.fields["cfrc_ext"]).max() > 1  # something touches something
    backwards = step(jax.tree.map(lambda x: x[::-1], state))
    alone = jax.jit(lambda one: physics.step(one, {}, 30))(jax.tree.map(lambda x: x[1], state))
    nested = jax.jit(jax.vmap(step))(jax.tree.map(lambda x: x[None], state))
    for one, *others in zip(
        *map(jax.tree.leaves, (together, backwards, alone, nested)), strict=True
    ):
        np.testing.assert_array_equal(others[0][::-1], one)
        np.testing.assert_array_equal(others[1], one[1])
        np.testing.assert_array_equal(others[2][0], one)


def test_a_world_that_fails_stays_alone(nans_allowed: None) -> None:
    physics = WarpPhysics(Model(toys.ARM), Reads(("xpos",)))
    step = jax.jit(
        jax.vmap(lambda state, ctrl, mask: physics.step(state, {"ctrl": ctrl}, SUBSTEPS, mask))
    )
    before = step(begun(physics, {}), np.zeros((WORLDS, 3), np.float32), np.ones(WORLDS, bool))
    ctrl = np.float32([[0.1] * 3, [np.nan] * 3, [0.1] * 3])
    after = step(before, ctrl, np.array([True, True, False]))
    np.testing.assert_array_equal(after.diverged, [False, True, False])
    for new, old in zip(jax.tree.leaves(after.qpos), jax.tree.leaves(before.qpos), strict=True):
        np.testing.assert_array_equal(new[1:], old[1:])
        assert (np.asarray(new[0]) != old[0]).any()
    again = step(after, np.zeros((WORLDS, 3), np.float32), np.ones(WORLDS, bool))
    assert not again.diverged.any()
    assert step._cache_size() == 1


def test_memory_for_other_numbers_of_worlds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "KEPT_BATCHES", 2)
    physics = WarpPhysics(Model(toys.PENDULUM), Reads(("xpos",)))

    def fallen(worlds: int) -> np.ndarray:
        angles = jnp.linspace(0.1, 0.5, worlds)[:, None]
        start = jax.vmap(lambda qpos: physics.start(qpos, jnp.zeros(1), {}, {}))
        return np.asarray(start(angles).fields["xpos"])

    alive = weakref.WeakSet()
    made = WarpBatch.__init__
    monkeypatch.setattr(WarpBatch, "__init__", lambda b, *args: (alive.add(b), made(b, *args))[1])
    first = fallen(1)
    for worlds in (2, 3, 4, 5):
        fallen(worlds)
    gc.collect()
    assert len(alive) == 2
    np.testing.assert_array_equal(fallen(1), first)


def test_what_all_worlds_share_is_passed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    physics, seen = WarpPhysics(Model(toys.ARM)), {}
    run = WarpBatch.run

    def recorded(batch: Any, operation: Any, operands: Any, results: Any) -> None:
        seen.update({name: len(x) for name, x in operands.items()})
        run(batch, operation, operands, results)

    monkeypatch.setattr(WarpBatch, "run", recorded)
    state = begun(physics, {})
    ctrl, damping = jnp.float32([0.1, 0.2, 0.3]), jnp.float32(physics.model.constant("dof_damping"))

    def moved(state: PhysicsState, ctrl: Any, damping: Any) -> Any:
        own = dataclasses.replace(state, variation={"dof_damping": damping})
        return physics.step(own, {"ctrl": ctrl}, 3).qvel

    shared = jax.vmap(moved, (0, None, None))(state, ctrl, damping)
    assert (seen["qpos"], seen["ctrl"], seen["dof_damping"]) == (WORLDS, 1, 1)
    each = jax.vmap(moved)(state, *(jnp.tile(x, (WORLDS, 1)) for x in (ctrl, damping)))
    assert seen["ctrl"] == WORLDS
    np.testing.assert_array_equal(shared, each)


def test_what_there_is_no_memory_for_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    physics = WarpPhysics(Model(toys.BOXES), njmax=4)
    state = jax.jit(jax.vmap(lambda one: physics.step(one, {}, 80)))(begun(physics, {}))
    assert state.diverged.all()
    assert "njmax" in capfd.readouterr().out


def test_episodes_under_a_domain_are_those_of_native() -> None:
    domain = Domain(scale("body_mass", Uniform(0.5, 2.0)), scale("dof_damping", Uniform(0.5, 2.0)))
    states = {}
    for engine in ("warp", "native"):
        worlds = worldline.Worlds(Env(toys.Swing(), engine), WORLDS, 6, domain)
        state, seen = worlds.reset(jax.random.key(0)), []
        step = jax.jit(worlds.step)
        for action in np.random.default_rng(0).uniform(-1, 1, (15, WORLDS, 1)).astype(np.float32):
            state, given = step(state, action)
            seen.append((given.obs, given.final_obs, given.reward, given.truncated))
        states[engine] = seen
        assert step._cache_size() == 1
    for ours, theirs in zip(states["warp"], states["native"], strict=True):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-4), ours, theirs)


def test_what_it_lacks_is_named_with_the_engine_that_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def model(motor: str = "", option: str = "") -> Model:
        return Model(
            f'<mujoco><option {option}/><worldbody><body><joint name="j"/><geom size="1"/></body>'
            f'</worldbody><actuator><general joint="j" {motor}/></actuator></mujoco>'
        )

    assert refusal(model()) == ""
    assert refusal(model(option='solver="PGS"')) == ""  # Newton's method in its place
    native = "use physics='native'"
    with pytest.raises(ModelError, match=f"'warp' lacks groups of actuators.*{native}"):
        WarpPhysics(model(option='actuatorgroupdisable="0"'))
    with pytest.raises(ModelError, match=f"'warp' lacks the memory of delays.*{native}"):
        WarpPhysics(model('delay="0.01" nsample="10"'))
    with pytest.raises(ModelError, match=f"'warp' lacks the MjData field 'qLD'.*{native}"):
        WarpPhysics(model(), Reads(("qLD",)))
    physics = WarpPhysics(model())
    with pytest.raises(VariationError, match=f"'warp' cannot vary 'geom_fluid'; {native}"):
        physics.start(jnp.zeros(1), jnp.zeros(1), {"geom_fluid": jnp.zeros((1, 12))}, {})
    state = physics.start(jnp.zeros(1), jnp.zeros(1), {}, {})
    with pytest.raises(ModelError, match="substeps is 0; give 1 or more"):
        physics.step(state, {}, 0)
    with pytest.raises(ConfigError, match="'warp' has no derivatives; use physics='native'"):
        jax.grad(lambda u: physics.step(state, {"ctrl": u}, 1).qpos.sum())(jnp.zeros(1))
    monkeypatch.setattr("worldline.physics.warp.engine.installed", lambda: False)
    with pytest.raises(MissingExtraError, match=r"'warp' needs.*pip install .*\[warp\]'"):
        WarpPhysics(model())


def test_bodies_held_together_under_rk4_are_refused() -> None:
    with pytest.raises(ModelError, match="the engine 'warp' lacks <connect> and <weld> under RK4"):
        WarpPhysics(Model(toys.MECHANISM))
