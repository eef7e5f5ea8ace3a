"""For the tests of learners on several devices."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def optax_may_promote() -> Iterator[None]:
    """Optax raises a Python float to an integer count: JAX's alarm for that is off here."""
    with jax.numpy_dtype_promotion("standard"):
        yield
