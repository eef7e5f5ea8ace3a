"""JAX's random numbers written out: the cipher's published numbers, and JAX's own."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldline.threefry import threefry2x32, write_out

#: Of Random123, the library of the cipher's authors (`tests/kat_vectors`, "threefry2x32 20"):
#: counter, key, result.
PUBLISHED = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]

DRAWS = """
import sys
import jax
import jax.numpy as jnp

if sys.argv[1] == "ours":
    import worldline.threefry
    worldline.threefry.write_out()
key = jax.random.wrap_key_data(jnp.uint32([{0}, {1}]))
keys = jax.random.split(key, 5)
print(jax.random.bits(key, (33,)).tolist())
print(jax.vmap(lambda key: jax.random.normal(key, (7,)))(keys).tolist())
print(jax.random.permutation(key, 50).tolist())
print(jax.random.key_data(jax.random.fold_in(key, 7)).tolist())
print(jax.jit(lambda key: jax.random.uniform(key, (3, 5))).lower(key).as_text().count("while"))
"""


@pytest.mark.parametrize(("counter", "key", "result"), PUBLISHED)
def test_the_cipher_gives_what_its_authors_published(counter, key, result):
    out = threefry2x32(*map(jnp.uint32, (*key, *counter)))
    assert tuple(map(int, out)) == result


def draws(whose: str, words: tuple[int, int]) -> list[str]:
    """What a process of its own draws, and how many loops its program has."""
    command = [sys.executable, "-c", DRAWS.format(*words), whose]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@settings(max_examples=3, deadline=None)
@given(st.tuples(*[st.integers(0, 2**32 - 1)] * 2))
def test_all_draws_are_jaxs_own_bit_for_bit_without_a_loop(words):
    *ours, our_loops = draws("ours", words)
    *theirs, their_loops = draws("theirs", words)
    assert ours == theirs
    # Where JAX's own has no loop any more, ours is not needed any more.
    assert int(our_loops) == 0 < int(their_loops)


@pytest.mark.exhaustive  # every program is compiled again
def test_it_may_be_asked_for_twice():
    before = jax.random.bits(jax.random.key(3), (100,))
    write_out()
    jax.clear_caches()
    np.testing.assert_array_equal(jax.random.bits(jax.random.key(3), (100,)), before)
