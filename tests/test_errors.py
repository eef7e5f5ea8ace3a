"""Errors: one family, each also what Python would have raised; and their hints."""

import importlib.metadata

import pytest

from worldline import errors


def test_the_family():
    family = {
        errors.ModelError: ValueError,
        errors.VariationError: ValueError,
        errors.TaskError: ValueError,
        errors.ActionError: ValueError,
        errors.ConfigError: ValueError,
        errors.RunError: RuntimeError,
        errors.TrainingDivergedError: RuntimeError,
        errors.LostProcessError: RuntimeError,
        errors.ExportError: RuntimeError,
        errors.ForkedProcessError: RuntimeError,
        errors.RendererUnavailableError: RuntimeError,
        errors.MissingExtraError: ImportError,
    }
    for error, built_in in family.items():
        assert issubclass(error, errors.WorldlineError)
        assert issubclass(error, built_in)
    named = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.WorldlineError)
    }
    assert named == {errors.WorldlineError, *family}


@pytest.mark.parametrize(
    ("name", "names", "hint"),
    [
        ("xpo", ["xpos", "qvel"], "; did you mean 'xpos'?"),
        ("zzz", ["xpos", "qvel"], "; there are qvel, xpos"),
        ("zzz", [], ""),
        ("zzz", [f"name{i}" for i in range(40)], ""),
        ("body_pos", ["body_pos1", "body_pos2"], "; did you mean 'body_pos1' or 'body_pos2'?"),
    ],
)
def test_did_you_mean(name, names, hint):
    found = errors.did_you_mean(name, names)
    assert sorted(found) == sorted(hint)  # close matches come in order of closeness
    assert found.startswith(hint[:5])


def test_a_missing_extra_says_what_to_install():
    message = str(errors.MissingExtraError("the TorchRL bridge", "torchrl"))
    assert message.endswith(errors.install_command("torchrl"))
    assert message.startswith("the TorchRL bridge needs")


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'worldline[mjx]'"),
        ('{"url": "https://example.org/w.whl"}', "pip install 'worldline[mjx]'"),
        (
            '{"url": "file:///home/me/my%20clone", "dir_info": {"editable": true}}',
            "pip install --editable '/home/me/my clone[mjx]'",
        ),
        ("damaged", "pip install 'worldline[mjx]'"),
    ],
)
def test_an_extra_is_installed_from_where_the_library_came(origin, command, monkeypatch):
    class Installed:
        def read_text(self, name):
            return origin

    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Installed())
    assert errors.install_command("mjx") == command
