"""What the fuzz found: small models on which MJX or MuJoCo Warp once was not as MuJoCo is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from worldline.errors import ModelError
from worldline.model import Model
from worldline.physics import make_physics
from worldline.physics.base import Reads

ENGINES = ["warp", pytest.param("mjx", marks=pytest.mark.exhaustive)]


def hinge(option: str = "", actuator: str = "") -> Model:
    return Model(
        f"<mujoco><option {option}/><worldbody><body><joint name='j' axis='0 1 0'/>"
        f"<geom size='.1' pos='.1 0 0'/></body></worldbody><actuator>{actuator}</actuator></mujoco>"
    )


def driven(engine: str, model: Model, ctrl: float = 0.0, **variation: float) -> np.ndarray:
    """`qvel` and `ctrl` after three steps of a fast hinge."""
    physics = make_physics(engine, model, Reads(("ctrl",)))
    inputs = {"ctrl": jnp.full(model.nu, ctrl)} if model.nu else {}
    own = {f"opt.{name}": jnp.float32(x) for name, x in variation.items()}

    @jax.jit
    def run() -> jax.Array:
        state = physics.start(jnp.zeros(1), jnp.full(1, 30.0), own, {})
        state = physics.step(state, inputs, 3)
        return jnp.concatenate([state.qvel, state.fields["ctrl"]])

    return np.asarray(run())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ctrl", [-0.3, 1.4])
def test_a_control_beyond_its_limits_brakes_as_one_at_them(engine: str, ctrl: float) -> None:
    """Their implicit integrators took how the force falls with the velocity from all of it."""
    damper = "<damper kv='2' ctrlrange='0 1' joint='j'/>"
    model = hinge("integrator='implicitfast'", damper)
    np.testing.assert_allclose(
        driven(engine, model, ctrl), driven("native", model, ctrl), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_a_viscosity_that_varies_brings_no_density(engine: str) -> None:
    expected = driven("native", hinge(), viscosity=0.01)
    np.testing.assert_allclose(driven(engine, hinge(), viscosity=0.01), expected, rtol=1e-6)
    assert driven("native", hinge(), viscosity=0.01, density=1.0) < expected - 1e-4


@pytest.mark.parametrize("flag", ["actuation", "damper"])
def test_switches_that_warp_takes_together_are_refused_alone(flag: str) -> None:
    off = f"integrator='implicitfast'><flag {flag}='disable'/></option><option "
    with pytest.raises(ModelError, match="'warp' lacks one of the flags actuation and damper"):
        make_physics("warp", hinge(off), Reads())


@pytest.mark.parametrize("engine", ["native", *ENGINES])
def test_axes_and_orientations_have_length_one(engine: str) -> None:
    model = Model(
        "<mujoco><worldbody><body><joint axis='1 0 0'/><geom type='box' size='.1 .2 .3' "
        "pos='.1 .2 0' quat='1 2 0 0'/></body></worldbody></mujoco>"
    )
    physics = make_physics(engine, model, Reads())

    @jax.jit
    def run(own: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
        start = physics.start(jnp.zeros(1), jnp.ones(1), own, {})
        return physics.step(start, {}, 5).qvel, start.variation

    names, ends = ("jnt_axis", "body_quat"), []
    for length in (1.0, 0.5, 3.0):
        end, own = run({name: jnp.float32(length * model.constant(name)) for name in names})
        ends.append(end)
        assert all(np.allclose(x, model.constant(name)) for name, x in own.items())
    np.testing.assert_allclose(ends[1:], ends[:1] * 2, rtol=1e-5)
