"""What users may rely on, as lists: public names, commands with their options, tasks with theirs.

    python tests/kept.py > tests/kept.json    # when something is added on purpose

It asks only the command line and `worldline.__all__`, so that it runs on any version's code.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

ALGORITHMS = ("ppo", "sac", "shac")
COMMANDS = ("resume", "eval", "render", "export", "list", "init", "identify", "sweep")


def main() -> None:
    """Prints the lists as JSON."""
    print(json.dumps(kept(), indent=1, sort_keys=True))


def kept() -> dict[str, Any]:
    """All of it, by kind."""
    import worldline

    tasks = list(worldline.list_tasks())
    options = {name: options_of(name, "--help") for name in COMMANDS}
    for name in ALGORITHMS:
        options[f"train {name}"] = options_of("train", "gym/ant", "--algorithm", name, "--help")
    return {
        "names": sorted(worldline.__all__),
        "tasks": tasks,
        "options": options,
        "task_options": {task: fields_of(task) for task in tasks},
    }


def options_of(*command: str) -> list[str]:
    """The options that a command's help names."""
    said = subprocess.run(
        [sys.executable, "-m", "worldline.cli", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"(?<![\w-])--[a-z][\w.-]*", said.stdout)
    return sorted({option.rstrip(".-") for option in found})


def fields_of(task: str) -> list[str]:
    """The options of a task: the fields of its class."""
    import dataclasses

    from worldline.tasks.registry import task_class

    return sorted(field.name for field in dataclasses.fields(task_class(task)))


if __name__ == "__main__":
    main()
