"""Without an optional library everything else works, and its bridge says what to install."""

import subprocess
import sys

import pytest

import worldline

BRIDGES = {
    "torchrl": ("torchrl", ["torch", "tensordict", "torchrl"]),
    "sb3": ("sb3", ["stable_baselines3"]),
    "dm_env": ("suite", ["dm_env"]),
}


def run(program: str) -> "subprocess.CompletedProcess[str]":
    """A program in a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


@pytest.mark.parametrize("bridge", BRIDGES)
def test_a_missing_extra_is_named(bridge: str) -> None:
    extra, libraries = BRIDGES[bridge]
    hidden = f"import sys; sys.modules.update(dict.fromkeys({libraries}))"
    done = run(f"{hidden}; import worldline.bridges.{bridge}")
    assert "MissingExtraError" in done.stderr
    assert f"pip install 'worldline[{extra}]'" in done.stderr.splitlines()[-1]


def test_nothing_else_imports_them() -> None:
    libraries = sorted({name for _, names in BRIDGES.values() for name in names})
    modules = "worldline, worldline.cli, worldline.train, worldline.bridges.gymnasium"
    done = run(f"import sys, {modules}; print(sys.modules.keys() & set({libraries}))")
    assert done.stdout.strip() == "set()", done.stderr


def test_the_error_is_an_import_error() -> None:
    error = worldline.errors.MissingExtraError("it", "sb3")
    assert isinstance(error, ImportError)
