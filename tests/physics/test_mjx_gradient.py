"""MJX's derivatives beside centred differences of plain MuJoCo, in float32 and in float64."""

import copy

import derivatives
import jax
import mujoco
import pytest
from cases import CONSTANTS, READS, assert_close, case, jacobian
from mjx_worlds import in_mjx

from worldline.physics.mjx import MjxPhysics

#: MuJoCo's own default lets a body at rest keep a velocity that is wrong in the fifth digit.
CONVERGED = 1e-14
SUBSTEPS = 3
#: The others are a minute or more of compilation each.
SLOW = ("cartpole", "double pendulum", "half-cheetah", "ant", "ant in the air", "humanoid")
NAMES = ["pendulum", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in SLOW)]


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
