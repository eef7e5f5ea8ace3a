"""Other values of a task's options for a policy that is trained: `fast=False`."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Sequence
from typing import Any

from worldline.env.disturb import undisturbed
from worldline.env.env import Env
from worldline.errors import ConfigError, did_you_mean


def with_task_options(env: Env, options: Sequence[str]) -> Env:
    """The environment whose task has other values of some options.

    Args:
        env: the environment.
        options: `NAME=VALUE` each; the value as in Python, and a word without quotes is text.

    Raises:
        ConfigError: one has another form, its name is no option of the task, or a policy would get
            other observations or actions.
        TaskError, ConfigError: the task refuses a value.
    """
    if not options:
        return env
    task = undisturbed(env.task)[0]
    known = {field.name for field in dataclasses.fields(task) if field.init}
    values: dict[str, Any] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not (equals and text):
            raise ConfigError(f"{option!r} has no value; give an option and a value: fast=False")
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigError(f"{type(task).__name__} has no option {name!r}{hint}")
        values[name] = _value(text)
    changed = Env.from_config(dataclasses.replace(task, **values), env.config)
    if _spaces(changed) != _spaces(env):
        raise ConfigError(
            f"{', '.join(options)} changes the observation or the action; the policy was trained "
            "with others, so leave it as it was"
        )
    return changed


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _spaces(env: Env) -> tuple[Any, ...]:
    return env.observation_space, env.action_space
