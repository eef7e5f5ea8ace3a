"""The public names are a decision: this list; and importing them is cheap."""

import importlib.metadata
import subprocess
import sys

import pytest

import worldline

PUBLIC = [
    "Camera",
    "Env",
    "EnvState",
    "Model",
    "Outcome",
    "Policy",
    "Start",
    "Step",
    "Task",
    "WorldlineError",
    "Worlds",
    "WorldsState",
    "__version__",
    "check_domain",
    "check_env",
    "list_tasks",
    "load_policy",
    "load_state",
    "make",
    "register",
    "show",
]

#: What `import worldline` must not import; what an environment must not; what training must not.
HEAVY = {
    "import worldline": (
        "equinox gymnasium imageio jax matplotlib mujoco numpy optax rich tensorboardX tyro"
    ),
    "import worldline; [getattr(worldline, name) for name in worldline.__all__]": (
        "gymnasium imageio matplotlib optax rich tensorboardX tyro"
    ),
    "import worldline; worldline.make('robot/reach')": (
        "gymnasium imageio matplotlib optax rich tensorboardX tyro"
    ),
    "import worldline.learn.ppo": "gymnasium imageio matplotlib rich tensorboardX tyro",
}


def test_the_public_names_are_these():
    assert sorted(worldline.__all__) == PUBLIC
    assert dir(worldline) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_each_name_is_there_and_says_what_it_is(name):
    value = getattr(worldline, name)
    if name != "__version__":
        assert value.__name__ == name
        assert value.__doc__
        assert value.__module__.startswith("worldline.")
    assert getattr(worldline, name) is value


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'worldline' has no attribute 'Wrlds'"):
        worldline.Wrlds  # noqa: B018


def test_the_version_is_the_packages():
    assert importlib.metadata.version("worldline") == worldline.__version__


@pytest.mark.parametrize("code", HEAVY)
def test_imports_are_light(code):
    listed = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = set(listed.stdout.split())
    assert not imported & set(HEAVY[code].split())
