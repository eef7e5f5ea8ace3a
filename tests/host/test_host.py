"""Calls of the host from compiled programs: what arrives, what goes wrong, what is kept."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax.interpreters import mlir

from worldline.host import calls as host
from worldline.host import ffi as xla_ffi
from worldline.host.calls import HostCall
from worldline.host.primitive import host_primitive

NUMBERS = itertools.count()

DTYPES = st.sampled_from(list(xla_ffi.DTYPES.values()))
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(
        np.uint8 if dtype.kind == "V" or dtype.name == "bfloat16" else dtype,
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ).map(lambda x: x.astype(dtype))
)


@dataclasses.dataclass(frozen=True)
class Called(HostCall):
    """A function of one world's arrays, or of all worlds' where axes are in front."""

    name: str = ""
    function: Callable[..., Any] | None = None
    results: Any = ()
    shareable: int = 0

    def run(self, *operands):
        return self.function(*operands)


def of_one(function):
    """A function of arrays without an axis of worlds."""
    return lambda *operands: [x[None] for x in function(*(x[0] for x in operands))]


def program(function, shapes, has_side_effect=False, name=None):
    """A program that calls a function of the host on one world."""
    called = Called(name or f"test {next(NUMBERS)}", of_one(function), tuple(shapes))
    made = host_primitive(f"test_{called.name}", has_side_effect=has_side_effect)
    return made, lambda *x: made.bind(*x, call=called, lead=0)


def call(function, shapes, *operands):
    return jax.jit(program(function, shapes)[1])(*operands)


@settings(max_examples=60, deadline=None)
@given(st.lists(ARRAYS, min_size=1, max_size=3))
def test_arrays_go_there_and_back_as_they_are(arrays):
    arrays = [*arrays, np.ones(1, np.uint8)]  # XLA leaves out calls with nothing in their results
    seen = []

    def turned(*operands):
        seen.extend(x.copy() for x in operands)
        return operands[::-1]

    with jax.enable_x64(True), jax.debug_nans(False):
        shapes = [(x.shape, x.dtype) for x in arrays[::-1]]
        back = jax.block_until_ready(call(turned, shapes, *map(jnp.asarray, arrays)))
        for sent, arrived, returned in zip(arrays, seen, back[::-1], strict=True):
            for other in (arrived, np.asarray(returned)):
                assert (other.dtype, other.shape) == (sent.dtype, sent.shape)
                assert other.tobytes() == sent.tobytes()


def test_results_are_written_where_the_program_reads_them():
    class Fill(Called):
        def bind(self, operands, results):
            return lambda: np.sum(operands[0], axis=2, out=results[0])

    made, called = host_primitive("fill"), Fill("fill", None, (((2,), np.float32),))
    (out,) = jax.jit(lambda x: made.bind(x, call=called, lead=0))(jnp.arange(4.0).reshape(2, 2))
    np.testing.assert_array_equal(out, [1, 5])


def lengths(*operands):
    """How many rows each operand has, for each world."""
    return [np.full((len(operands[0]), len(operands)), [len(x) for x in operands], np.int32)]


@pytest.mark.parametrize("compiled", [True, False])
def test_what_all_worlds_share_is_passed_once(compiled):
    shares, repeats = (
        Called(f"lengths {number}", lengths, (((3,), np.int32),), number) for number in (2, 0)
    )
    made = host_primitive("lengths")

    def rows(call):
        def one(x, y, z):
            return made.bind(x, y, z, call=call, lead=0)[0]

        twice = jax.vmap(jax.vmap(one, (0, None, None)), (0, None, 0))
        twice = jax.jit(twice) if compiled else twice
        seen = twice(jnp.zeros((4, 5)), jnp.zeros(7), jnp.zeros((4, 2, 2)))
        assert seen.shape == (4, 5, 3)
        return seen[0, 0].tolist()

    assert rows(shares) == [20, 1, 20]
    assert rows(repeats) == [20, 20, 20]


@pytest.mark.parametrize("compiled", [True, False])
def test_worlds_keep_their_numbers_where_some_are_shared(compiled):
    def add(x, y, z):
        return [x + y + z]

    made, called = host_primitive("add"), Called("add", add, (((), np.float32),), 3)
    x, y, z = jnp.arange(3.0), jnp.float32([10, 20]), jnp.float32(100)
    both = jax.vmap(
        jax.vmap(lambda *a: made.bind(*a, call=called, lead=0)[0], (0, None, None)), (None, 0, None)
    )
    sums = (jax.jit(both) if compiled else both)(x, y, z)
    np.testing.assert_array_equal(sums, x + y[:, None] + z)


def test_an_error_of_the_host_comes_with_its_traceback():
    def fails(x):
        raise ValueError(f"no such number: {x[0]}")

    with pytest.raises(jax.errors.JaxRuntimeError, match=r"(?s)in fails.*no such number: 7"):
        call(fails, [((1,), np.int32)], jnp.array([7], np.int32))


def test_a_wrong_number_of_results_is_an_error():
    with pytest.raises(jax.errors.JaxRuntimeError, match="ValueError: zip"):
        call(lambda x: (x, x), [((), np.float32)], jnp.float32(1))


@pytest.mark.parametrize(("has_side_effect", "calls"), [(True, 2), (False, 1)])
def test_a_call_with_an_effect_is_not_merged_with_another(has_side_effect, calls):
    seen = []
    function = lambda x: (seen.append(1), [x])[1]  # noqa: E731
    _, called = program(function, [((), np.float32)], has_side_effect)
    jax.jit(lambda x: called(x)[0] + called(x)[0])(jnp.float32(1)).block_until_ready()
    assert len(seen) == calls


def test_functions_go_with_the_programs_that_call_them():
    def held() -> list[str]:
        return [it.call.name for it in host._sites.values() if it.call.name == "fleeting"]

    made, called = program(lambda x: [x], [((), np.float32)], name="fleeting")
    compiled = jax.jit(called).lower(1.0).compile()
    assert compiled(1.0) == [1]
    assert "fleeting" in host._calls
    assert len(held()) == 1
    mlir._lowerings.pop(made, None)
    del made, called, compiled
    jax.clear_caches()
    gc.collect()
    assert "fleeting" not in host._calls
    assert not held()


def test_a_program_that_nobody_refers_to_comes_to_its_end():
    def slow(x):
        time.sleep(0.2)
        return [x + 1]

    def begin(x):
        _, called = program(slow, [((1000,), np.float32)])
        return jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda _, x: called(x)[0], x))(x)

    x = begin(jnp.zeros(1000))
    jax.clear_caches()
    gc.collect()
    assert x[0] == 5


def run(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


STEPS = """
    import sys
    import jax
    from worldline import Worlds, make

    jax.config.update("jax_compilation_cache_dir", sys.argv[1])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    found = {"hits": 0, "misses": 0}

    def count(event, **_):
        for name in found:
            found[name] += event == f"/jax/compilation_cache/cache_{name}"

    jax.monitoring.register_event_listener(count)
    worlds = Worlds(make("gym/hopper"), 4)

    @jax.jit
    def far(state):
        act = lambda state, _: (worlds.step(state, jax.numpy.ones((4, 3)))[0], None)
        return jax.lax.scan(act, state, length=20)[0]

    state = far(jax.jit(worlds.reset)(jax.random.key(0)))
    print(state.obs.sum(), found["hits"], found["misses"])
"""


def test_the_next_process_compiles_no_program_with_physics_in_it(tmp_path):
    first, again = (run(STEPS, str(tmp_path)).split() for _ in range(2))
    assert first[0] == again[0]
    assert int(first[2]) > 0
    assert int(again[2]) == 0
    assert int(again[1]) == int(first[2])


ENDLESS = """
    import time
    import jax
    import numpy as np
    from worldline import Worlds, make

    worlds = Worlds(make("gym/hopper"), 4)

    @jax.jit
    def forever(state):
        step = lambda state: worlds.step(state, jax.numpy.ones((4, 3)))[0]
        return jax.lax.while_loop(lambda state: state.obs.sum() < np.inf, step, state)

    forever(jax.jit(worlds.reset)(jax.random.key(0)))
    time.sleep(2)
    print("the process ends")
"""


def test_a_process_ends_though_a_program_is_under_way():
    began = time.monotonic()
    assert "the process ends" in run(ENDLESS)
    assert time.monotonic() - began < 120
