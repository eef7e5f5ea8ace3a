"""The promises of the README on registered tasks, with the settings that users run.

Other tests spare XLA its optimisations, since they compile much and run little, and have JAX's
alarms on, which put checks into programs. But what fuses operations and splits loops into vectors
is what may break "the same bits": here programs are those of users.
"""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def quick_compilation() -> Iterator[None]:
    """In place of the one of all tests: every setting is JAX's default."""
    jax.config.update("jax_disable_most_optimizations", False)
    with (
        jax.numpy_dtype_promotion("standard"),
        jax.debug_key_reuse(False),
        jax.debug_nans(False),
    ):
        yield
