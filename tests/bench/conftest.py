import sys
from pathlib import Path

import pytest


@pytest.fixture
def bench_modules(monkeypatch):
    """The modules of the benchmarks, as their own scripts import them; none of them stays."""
    before = set(sys.modules)
    folder = Path(__file__).parents[2] / "bench"
    monkeypatch.syspath_prepend(str(folder))
    yield
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).parent == folder:
            del sys.modules[name]
