"""JAX's own alarms, on for every test; Hypothesis's settings; models that tests share."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import jax
import pytest

import toys
from worldline.model import Model

# Most of the time goes into compiling, often the same programs: in other workers, in processes of
# their own, and in the next run.
_CACHES = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
_COMPILED = {
    "JAX_COMPILATION_CACHE_DIR": str(_CACHES / "worldline" / "tests"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
}
for name, value in _COMPILED.items():
    os.environ.setdefault(name, value)
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)

# In CI's core tests JAX's default device is not the one where worlds are simulated on a CPU.
if "WORLDLINE_ELSEWHERE" in os.environ:
    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_default_device", jax.devices("cpu")[1])

jax.config.update("jax_debug_key_reuse", True)
jax.config.update("jax_debug_nans", True)
# Under JAX_ENABLE_X64 arrays that a test makes are of 64 bits, and meet ours of 32.
wide = jax.config.jax_enable_x64  # type: ignore[attr-defined]
jax.config.update("jax_numpy_dtype_promotion", "standard" if wide else "strict")

# Few examples, since one is often a simulation; in CI the same ones each time.
hypothesis.settings.register_profile(
    "worldline", deadline=None, max_examples=15, derandomize="CI" in os.environ
)
hypothesis.settings.load_profile("worldline")


#: Bytes that programs may fill, and those that were in use when they were last dropped.
_MUCH, _held = 1.5e9, [0.0]


@pytest.fixture(autouse=True, scope="module")
def quick_compilation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Spares XLA its optimisations in tests that compile much and run little.

    Programs are dropped once they fill much: thousands of them slow down all that follows. That
    takes a second or more, so not after each file.
    """
    trains = request.config.getoption("markexpr").startswith("slow")
    jax.config.update("jax_disable_most_optimizations", not trains)
    yield
    if _in_use() > _held[0] + _MUCH:
        jax.clear_caches()
        gc.collect()
        _held[0] = _in_use()


def _in_use() -> int:
    """The memory of this process, bytes."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


#: In a CI, how many turns there are for the cases of a test, and for tests that take long.
_TURNS_OF_CASES, _TURNS_OF_LONG_TESTS = 4, 8


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps a part of the tests, for CI, `make part` and `make core`.

    With `WORLDLINE_PART=i/n` one in n of the exhaustive tests is kept; with `WORLDLINE_FILES=i/n`
    the tests of one file in n. With `WORLDLINE_TURN=i`, which is another each day, one in eight of
    those in `long_tests.txt`, and of each other test that has several cases a quarter of them, at
    least one, unless it is marked `whole`. Where a test is run on each engine, MJX is for the
    exhaustive tests: each of its programs compiles for half a minute. Its own tests are in
    `test_mjx*.py`.
    """
    for item in items:
        if "mjx" in item.name.partition("[")[2] and "test_mjx" not in item.nodeid:
            item.add_marker(pytest.mark.exhaustive)
    exhaustive = {item.nodeid for item in items if item.get_closest_marker("exhaustive")}
    files = {item.nodeid: item.nodeid.partition("::")[0] for item in items}
    out = exhaustive - _part(exhaustive, "WORLDLINE_PART")
    kept_files = _part(set(files.values()), "WORLDLINE_FILES")
    out |= {name for name, file in files.items() if file not in kept_files}
    if turn := os.environ.get("WORLDLINE_TURN"):
        whole = {item.nodeid for item in items if item.get_closest_marker("whole")}
        in_turn = [name for name in files if name not in exhaustive | whole]
        out |= _of_other_turns(in_turn, int(turn))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in out])
    items[:] = [item for item in items if item.nodeid not in out]


def _part(names: set[str], variable: str) -> set[str]:
    """Of some names the part `i/n` that an environment variable asks for; all if it is not set."""
    number, parts = map(int, os.environ.get(variable, "0/1").split("/"))
    return set(sorted(names)[number % parts :: parts])


def _of_other_turns(names: list[str], turn: int) -> set[str]:
    """The tests whose turn it is not."""
    listed = set((Path(__file__).parent / "long_tests.txt").read_text().splitlines())
    long, cases = [], dict[str, list[str]]()
    for name in names:
        test = name.partition("[")[0]
        if {name.removeprefix("tests/"), test.removeprefix("tests/")} & listed:
            long.append(name)
        else:
            cases.setdefault(test, []).append(name)
    kept = set(long[turn % _TURNS_OF_LONG_TESTS :: _TURNS_OF_LONG_TESTS])
    for several in cases.values():
        kept.update(several[turn % min(_TURNS_OF_CASES, len(several)) :: _TURNS_OF_CASES])
    return set(names) - kept


@pytest.fixture
def nans_allowed() -> Iterator[None]:
    """For tests that make a simulation fail, or a task give NaN, to see what becomes of it.

    What a failed simulation leaves in its own fields may be NaN; the alarm would sound at that,
    before the test sees that nothing else is.
    """
    with jax.debug_nans(False):
        yield


@pytest.fixture
def key_reuse_allowed() -> Iterator[None]:
    """For tests of keys that lie in a memory: JAX's check cannot see that a row of keys that was
    used is overwritten by a new one, and takes the whole array as used.
    """
    with jax.debug_key_reuse(False):
        yield


@pytest.fixture(scope="session")
def pendulum() -> Model:
    return Model(toys.PENDULUM)


@pytest.fixture(scope="session")
def boxes() -> Model:
    return Model(toys.BOXES)


@pytest.fixture(scope="session")
def arm() -> Model:
    return Model(toys.ARM)


@pytest.fixture(scope="session")
def mechanism() -> Model:
    return Model(toys.MECHANISM)


@pytest.fixture(scope="session")
def puck() -> Model:
    return Model(toys.PUCK)
