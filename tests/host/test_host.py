"""Calls of the host from compiled programs: what arrives, what goes wrong, what is kept."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax.extend.core import Primitive
from jax.interpreters import mlir

from worldline.host import calls as host
from worldline.host import ffi as xla_ffi

NUMBERS = itertools.count()

DTYPES = st.sampled_from(list(xla_ffi.DTYPES.values()))
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(
        np.uint8 if dtype.kind == "V" or dtype.name == "bfloat16" else dtype,
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ).map(lambda x: x.astype(dtype))
)


def primitive(called: host.Host, shapes, has_side_effect=False):
    """A primitive whose program calls a function of the host."""
    made = Primitive(f"test_{called.name}")
    made.multiple_results = True
    made.def_abstract_eval(lambda *_: [jax.core.ShapedArray(*shape) for shape in shapes])
    mlir.register_lowering(
        made,
        lambda ctx, *operands: host.call_host(ctx, called, operands, has_side_effect),
    )
    return made


def call(function, shapes, *operands):
    made = primitive(host.Named(f"test {next(NUMBERS)}", function), shapes)
    return jax.jit(lambda *x: made.bind(*x))(*operands)


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
    class Fill:
        name = "fill"

        def views(self, operands, results):  # two numbers a row
            return [view._replace(shape=(2, 2)) for view in operands], results

        def bind(self, operands, results):
            return lambda: np.sum(operands[0], axis=1, out=results[0])

    made = primitive(Fill(), [((2,), np.float32)])
    (out,) = jax.jit(lambda x: made.bind(x))(jnp.arange(4.0))
    np.testing.assert_array_equal(out, [1, 5])


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
    called = host.Named(f"seen {calls}", lambda x: (seen.append(1), [x])[1])
    made = primitive(called, [((), np.float32)], has_side_effect)
    jax.jit(lambda x: made.bind(x)[0] + made.bind(x)[0])(jnp.float32(1)).block_until_ready()
    assert len(seen) == calls


def test_functions_go_with_the_programs_that_call_them():
    def held() -> list[str]:
        return [calls.host.name for calls in host._held.values() if calls.host.name == "fleeting"]

    made = primitive(host.Named("fleeting", lambda x: [x]), [((), np.float32)])
    program = jax.jit(made.bind).lower(1.0).compile()
    assert program(1.0) == [1]
    assert "fleeting" in host._hosts
    assert len(held()) == 1
    mlir._lowerings.pop(made, None)
    del made, program
    jax.clear_caches()
    gc.collect()
    assert "fleeting" not in host._hosts
    assert not held()


def test_a_program_that_nobody_refers_to_comes_to_its_end():
    def slow(x):
        time.sleep(0.2)
        return [x + 1]

    def begin(x):
        made = primitive(host.Named("slow", slow), [((1000,), np.float32)])
        program = jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda _, x: made.bind(x)[0], x))
        return program(x)

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
