"""Prints the oldest version of each dependency that is promised to work, as pip's constraints."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
for requirement in project["dependencies"]:
    name, version = re.match(r"([\w-]+)(?:\[\w+\])?>=([\w.]+)", requirement).groups()
    if name != "mujoco":  # the oldest is tested beside dm_control: see `make parity`
        print(f"{name}=={version}")
