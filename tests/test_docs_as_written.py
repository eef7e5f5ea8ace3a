"""README and pages do what they say: their code runs as written, and learns.

A section of the README is a program, in a process of its own; so is a whole page of the
documentation, read from top to bottom. `tests/test_docs.py` runs the same code with a step or two
of training, and `tests/newcomer/` that of the first pages without a clone.
"""

import sys
from pathlib import Path

import pytest

from pages import PAGES, PATCHES, programs, run, source
from test_docs import skip_without_extras

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

#: Seconds; pages that learn from images take an hour and more.
LIMIT = 4 * 3600


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(source(found), id=title)
        for title, found in programs([page for page in PAGES if page != PATCHES]).items()
    ],
)
def test_code_runs_as_written(program, tmp_path):
    skip_without_extras(program)
    failed = run(program, Path(sys.executable), tmp_path, LIMIT)
    assert not failed, failed[-6000:]
