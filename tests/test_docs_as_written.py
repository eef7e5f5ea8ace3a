"""README and pages do what they say: their code runs as written, and learns.

A section of the README is a program, in a process of its own; so is a whole page of the
documentation, read from top to bottom. `tests/test_docs.py` runs the same code with a step or two
of training.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from test_docs import NOT_RUN, PAGES, PATCHES, README, Block, blocks, name, skip_without_extras

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

#: Seconds; pages that learn from images take an hour and more.
LIMIT = 4 * 3600


def programs() -> list:
    """The code that is one program: a page or a section, and its blocks."""
    found = {}
    for page in PAGES:
        if page == PATCHES:
            continue
        for block in blocks(page):
            if "not as written" not in block.notes:
                title = f"{name(page)}: {block.section}" if page == README else name(page)
                found.setdefault(title, []).append(block)
    return [pytest.param(page, id=title) for title, page in found.items()]


def source(block: Block) -> str:
    """Python that does what a block says, and checks what it has learned."""
    if block.kind == "sh":
        lines = block.code.replace("\\\n", " ").splitlines()
        ours = re.compile(rf"(python|worldline (?!({'|'.join(NOT_RUN)})\b))")
        commands = "\n".join(line for line in lines if ours.match(line))
        return f"subprocess.run(['bash', '-euxc', {commands!r}], check=True)\n"
    learned = block.notes.get("learns")
    return block.code + (f"assert {learned}, {learned!r}\n" if learned else "")


@pytest.mark.parametrize("page", programs())
def test_code_runs_as_written(page, tmp_path):
    text = "".join(source(block) for block in page)
    skip_without_extras(text)
    file = tmp_path / "as_written.py"
    file.write_text(f"import subprocess\n{text}")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, file.name],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
