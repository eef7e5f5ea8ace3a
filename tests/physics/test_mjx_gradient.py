"""MJX's derivatives beside centred differences of plain MuJoCo, in float32 and in float64."""

import copy
import dataclasses

import derivatives
import jax
import jax.numpy as jnp
import mujoco
import pytest
from cases import CONSTANTS, READS, assert_close, case, jacobian
from jax.extend.core import subjaxprs
from native_worlds import in_mjx

from worldline.model import Model
from worldline.physics.mjx import MjxPhysics

#: MuJoCo's own default lets a body at rest keep a velocity that is wrong in the fifth digit.
CONVERGED = 1e-14
SUBSTEPS = 3
#: The others are a minute or more of compilation each.
SLOW = ("cartpole", "double pendulum", "half-cheetah", "ant", "ant in the air", "humanoid")
NAMES = ["pendulum", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in SLOW)]


BOX = """<mujoco>
  <option integrator="{integrator}"/>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 0.1"><freejoint/><geom type="box" size="0.1 0.1 0.1"/></body>
  </worldbody>
</mujoco>"""


def at_optimum(model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy that finds the constraints' forces as exactly as float64 has them: the humanoid's PGS
    ends after 50 rounds, wherever it is."""
    model = copy.copy(model)
    model.opt.solver, model.opt.tolerance = mujoco.mjtSolver.mjSOL_NEWTON, 1e-17
    return model


@pytest.mark.parametrize(
    ("double", "relative"), [(False, 1e-3), pytest.param(True, 1e-6, marks=pytest.mark.exhaustive)]
)
@pytest.mark.parametrize("name", NAMES)
def test_derivatives_are_those_of_plain_mujoco(name, double, relative):
    one = case(name, CONVERGED)
    with jax.enable_x64(double):
        physics = MjxPhysics(one.physics.model, READS)
        state = in_mjx(physics, one.physics, one.state)
        ours = jacobian(one._replace(physics=physics, state=state), SUBSTEPS)
    theirs = derivatives.jacobian(at_optimum(one.model), one.start, SUBSTEPS, CONSTANTS)
    for key, expected in theirs.items():
        assert_close(ours[key], expected, relative, key)


@pytest.mark.parametrize(
    "integrator",
    [
        "implicitfast",
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("Euler", "RK4")),
    ],
)
def test_backwards_nothing_is_solved_again(integrator):
    model = Model(BOX.format(integrator=integrator))
    physics = MjxPhysics(model)
    state = jax.eval_shape(physics.start, model.qpos0, jnp.zeros(model.nv), {}, {})

    def speed(qvel, state):
        return physics.step(dataclasses.replace(state, qvel=qvel), {}, 2).qvel[0]

    forward, backward = (jax.make_jaxpr(f)(state.qvel, state) for f in (speed, jax.grad(speed)))
    # The solver's iterations and its line search, which are all the loops of unknown length here.
    assert loops(forward.jaxpr) == loops(backward.jaxpr) == 2


def loops(jaxpr) -> int:
    """Loops of unknown length in a program."""
    inner = sum(map(loops, subjaxprs(jaxpr)))
    return inner + sum(equation.primitive.name == "while" for equation in jaxpr.eqns)
