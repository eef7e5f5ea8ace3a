"""Without an optional library everything else works, and its bridge says what to install."""

import subprocess
import sys

import pytest

import worldline
from worldline.errors import install_command

BRIDGES = {
    "torchrl": ("torchrl", ["torch", "tensordict", "torchrl"]),
    "sb3": ("sb3", ["stable_baselines3"]),
    "dm_env": ("suite", ["dm_env"]),
    "gymnax": ("gymnax", ["gymnax"]),
    "minari": ("minari", ["minari"]),
    "rsl_rl": ("rsl-rl", ["rsl_rl"]),
    "brax": ("brax", ["brax"]),
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
    assert install_command(extra) in done.stderr.splitlines()[-1]


def test_nothing_else_imports_them() -> None:
    libraries = sorted({name for _, names in BRIDGES.values() for name in names})
    modules = "worldline, worldline.cli.main, worldline.train, worldline.bridges.gymnasium"
    done = run(f"import sys, {modules}; print(sys.modules.keys() & set({libraries}))")
    assert done.stdout.strip() == "set()", done.stderr


#: Makes libraries look as if they were not installed; SciPy looks into `sys.modules` for torch.
HIDE = """
import sys
class Hidden:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {libraries}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden)
"""


@pytest.mark.exhaustive  # `make core` does the same
def test_without_any_every_test_is_found() -> None:
    """A newcomer installs none: a test file that imports one unasked would end `make test`."""
    libraries = [
        "torch",
        "tensordict",
        "torchrl",
        "stable_baselines3",
        "dm_env",
        "gymnax",
        "minari",
    ]
    libraries += ["rsl_rl", "brax", "jax2onnx", "onnx", "onnxruntime", "wandb", "mlflow", "viser"]
    libraries += ["mujoco_menagerie"]
    collect = ["--collect-only", "-q", "-p", "no:cacheprovider", "--ignore=tests/parity", "tests"]
    hide = HIDE.format(libraries=libraries)
    done = run(f"{hide}\nimport pytest\nsys.exit(pytest.main({collect}))")
    assert done.returncode == 0, done.stdout[-2000:]


def test_the_error_is_an_import_error() -> None:
    error = worldline.errors.MissingExtraError("it", "sb3")
    assert isinstance(error, ImportError)
