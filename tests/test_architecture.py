"""The page on the architecture is true: rooms, places and names are where it says."""

import ast
import re
from pathlib import Path

from test_imports import ROOMS, SOURCE

PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()


def rows(heading):
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| ")
    ][1:]


def test_every_room_is_on_the_page():
    shown = [re.findall(r"`([\w/]+)`", row[0]) for row in rows("The packages")]
    ground, *packages = shown
    assert [name for (name,) in packages] == [f"{room}/" for room in ROOMS[1:] if room != "facade"]
    files = {file.stem for file in SOURCE.glob("*.py")} - {"__init__"}
    assert set(ground) == files


def test_every_answer_is_at_its_place():
    answers = rows("Twenty questions")
    assert len(answers) == 20
    for question, place, name in answers:
        file = SOURCE / place.strip("`")
        assert file.exists(), f"{question} {place} is not there"
        named = {
            node.name
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.ClassDef | ast.FunctionDef)
        }
        assert name.strip("`") in named, f"{question} {place} defines no {name}"


def test_the_tests_that_take_long_are_tests():
    """One that was renamed would run in every CI again, and nobody would see why."""
    tests = Path(__file__).parent
    for line in (tests / "long_tests.txt").read_text().splitlines():
        file, *_, name = line.split("::")
        assert f"def {name.partition('[')[0]}(" in (tests / file).read_text(), line
