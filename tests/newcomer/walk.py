"""Does what a newcomer does: runs the README and the first pages, with the wheel and no clone.

    make newcomer             # trains for one update wherever a page trains: minutes
    make newcomer WALK=--full # as written, and what should be learned is learned: an hour
    make newcomer WALK=--today # one of its programs, another one each day

Each section of the README is a program, and so is a page. A program runs in an empty folder, in a
process of an environment that has the wheel and what it needs, but nothing for developers.
"""

import argparse
import datetime
import os
import sys
import tempfile
import time
from pathlib import Path

from pages import README, ROOT, programs, run, source

FIRST_PAGES = [README, ROOT / "docs" / "getting-started.md", ROOT / "docs" / "tutorial.md"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("python", type=Path, help="the Python of an environment with the wheel")
    parser.add_argument("--full", action="store_true", help="train as written")
    parser.add_argument("--today", action="store_true", help="one program, another each day")
    arguments = parser.parse_args()
    for variable in ("PYTHONPATH", "DISPLAY", "WAYLAND_DISPLAY"):
        os.environ.pop(variable, None)
    found = programs(FIRST_PAGES)
    if arguments.today:
        title = sorted(found)[datetime.date.today().toordinal() % len(found)]
        found = {title: found[title]}
    failed = [title for title, program in found.items() if not passes(title, program, arguments)]
    print(f"{len(found) - len(failed)} of {len(found)} programs do what their pages say")
    sys.exit(bool(failed))


def passes(title: str, program: list, arguments: argparse.Namespace) -> bool:
    """Runs a program, and says how that went."""
    print(f"{title} ... ", end="", flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="newcomer-") as folder:
        text = source(program, short=not arguments.full)
        printed = run(text, arguments.python.absolute(), Path(folder), limit=2 * 3600)
    print(f"{'failed' if printed else 'passed'} in {time.monotonic() - start:.0f} s")
    print(printed[-4000:], end="")
    return not printed


if __name__ == "__main__":
    main()
