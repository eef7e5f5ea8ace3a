"""How tests of the engines are compiled: in place of the fixture of all tests."""

import jax
import pytest

#: MJX's programs take minutes to optimise, and their last bits are compared with nothing.
QUICK = {
    "test_as_mujoco",
    "test_fuzz",
    "test_mjx",
    "test_mjx_gradient",
    "test_mjx_step",
    "test_singular",
    "test_through_tasks",
}


@pytest.fixture(autouse=True, scope="module")
def quick_compilation(request: pytest.FixtureRequest) -> None:
    """As users have them, where last bits are compared."""
    jax.config.update("jax_disable_most_optimizations", request.path.stem in QUICK)
