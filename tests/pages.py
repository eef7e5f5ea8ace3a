"""The code in the README and in the pages of the documentation, and how it is run."""

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
#: Has a test of its own.
PATCHES = ROOT / "docs" / "contributing.md"

#: Commands that need peers.
NOT_RUN = ("bench",)
#: Options that make a training one update.
SHORT = ["--steps", "1", "--eval-episodes", "2", "--no-video", "--quiet"]

#: Code, and the comments above it. `not run: WHY` takes it out of all tests, and `not as written:
#: WHY` out of the nightly ones; `learns: EXPRESSION` is true after the code has run as written;
#: `FILE` is an example, which the code must equal and which has a test of its own.
_FENCE = re.compile(
    r"(?P<notes>(?:^<!-- [^\n]+? -->\n)*)^```(?P<kind>\w+)\n(?P<code>.*?)^```$", re.M | re.S
)


class Block(NamedTuple):
    """Code of a page."""

    kind: str
    code: str
    line: int
    section: str
    """The heading that it stands under."""
    notes: dict[str, str]
    """The comments above it: what stands before the colon, and after it."""


def all_blocks(page: Path) -> list[Block]:
    """The code of a page."""
    text = page.read_text()
    found = []
    for fence in _FENCE.finditer(text):
        notes = re.findall(r"<!-- ([^:\n]+?)(?:: ([^\n]+))? -->", fence["notes"])
        headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", text[: fence.start()]), re.M)
        line = text.count("\n", 0, fence.start("code"))
        section = headings[-1] if headings else ""
        found.append(Block(fence["kind"], fence["code"], line, section, dict(notes)))
    return found


def example_of(block: Block) -> str | None:
    """The example that a block shows, such as `examples/memory.py`."""
    return next((note for note in block.notes if note.startswith("examples/")), None)


def blocks(page: Path) -> list[Block]:
    """The Python and shell code of a page that is run."""
    return [
        block
        for block in all_blocks(page)
        if block.kind in ("python", "sh") and "not run" not in block.notes and not example_of(block)
    ]


def shortened(code: str) -> str:
    """The code with one update in place of a training run."""
    return re.sub(r"\bsteps=[\d_]{5,}", "steps=1", code)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def lines(block: Block) -> list[str]:
    """The commands in a shell's block."""
    return block.code.replace("\\\n", " ").splitlines()


def programs(pages: list[Path]) -> dict[str, list[Block]]:
    """The code that is one program, by its name: a page's, or that of a section of the README."""
    found: dict[str, list[Block]] = {}
    for page in pages:
        for block in blocks(page):
            if "not as written" not in block.notes:
                title = f"{name(page)}: {block.section}" if page == README else name(page)
                found.setdefault(title, []).append(block)
    return found


def source(program: list[Block], short: bool = False) -> str:
    """Python that does what the blocks of a program say, and checks what was learned.

    In short, everything is run, each training for one update alone; nothing is learned then.
    """
    return "import subprocess\n" + "".join(_python(block, short) for block in program)


def _python(block: Block, short: bool) -> str:
    if block.kind == "sh":
        commands = "\n".join(_command(line, short) for line in lines(block))
        return f"subprocess.run(['bash', '-euxc', {commands!r}], check=True)\n"
    if short:
        return shortened(block.code)
    learned = block.notes.get("learns")
    return block.code + (f"assert {learned}, {learned!r}\n" if learned else "")


def _command(line: str, short: bool) -> str:
    """What a line in a shell's block runs; nothing where it is not Worldline's or Python's."""
    if not re.match(rf"(python|worldline (?!({'|'.join(NOT_RUN)})\b))", line):
        return ""
    trains = line.startswith("worldline train") and "--help" not in line
    return f"{line.partition(' #')[0]} {' '.join(SHORT)}" if short and trains else line


def run(program: str, python: Path, folder: Path, limit: float, **variables: str) -> str:
    """Runs a program in a process of its own, in a folder; returns what it printed if it failed.

    Commands of the shell are those of the environment of that Python. The limit is in seconds.
    """
    (folder / "as_written.py").write_text(program)
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [python, "as_written.py"],
        cwd=folder,
        env={**os.environ, "PATH": path, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit,
        check=False,
    )
    return done.stdout if done.returncode else ""
