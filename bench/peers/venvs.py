"""Makes the peers' virtual environments, one each, under `.bench/venvs`.

Torch goes in first, from the index of CPU builds if one is given, because its builds for graphics
cards, which pip prefers, are gigabytes that no measurement here uses.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENVS = HERE.parents[1] / ".bench" / "venvs"
PEERS = ("brax", "carl", "dm_control", "envpool", "playground", "sb3", "sbx")
TORCH = "torch==2.13.0"


def python(peer: str) -> Path:
    """The interpreter of a peer's environment, whether or not it is there yet."""
    windows = sys.platform == "win32"
    return VENVS / peer / ("Scripts/python.exe" if windows else "bin/python")


def create(peer: str, torch_index: str | None) -> None:
    """Makes one environment from its list of requirements; one that exists is brought up to it."""
    if not python(peer).exists():
        subprocess.run([sys.executable, "-m", "venv", VENVS / peer], check=True)
    install = [python(peer), "-m", "pip", "install", "--quiet"]
    requirements = HERE / f"{peer}.txt"
    if "torch" in requirements.read_text():
        index = ["--index-url", torch_index] if torch_index else []
        subprocess.run([*install, *index, TORCH], check=True)
    subprocess.run([*install, "--requirement", requirements], check=True)


def main() -> None:
    """Makes the environments named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"of {', '.join(PEERS)}")
    parser.add_argument(
        "--torch-index",
        metavar="URL",
        help="where to get torch, such as https://download.pytorch.org/whl/cpu",
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.peers) - set(PEERS):
        parser.error(f"no peer is called {', '.join(sorted(unknown))}; there are {PEERS}")
    for peer in arguments.peers or PEERS:
        print(f"{peer}: {VENVS / peer}", flush=True)
        create(peer, arguments.torch_index)


if __name__ == "__main__":
    main()
