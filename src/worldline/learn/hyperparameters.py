"""Hyperparameters: numbers of a configuration that are arrays in the training state.

Another value recompiles nothing. Under `jax.vmap`, each member of a population has its own values.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp

from worldline.errors import ConfigError, did_you_mean
from worldline.types import Array

H = TypeVar("H", bound=eqx.Module)
S = TypeVar("S", bound=Any)


def hyperparameters(kind: type[H], config: Any) -> H:
    """The numbers of a configuration that are fields of `kind`, each `()` float32."""
    names = [field.name for field in dataclasses.fields(kind)]
    return kind(**{name: jnp.float32(getattr(config, name)) for name in names})


def with_hyperparameters(state: S, **values: float | Array) -> S:
    """A training state with other values of some hyperparameters; the next update uses them.

    An adaptive learning rate continues from the new value.

    Args:
        state: of PPO, SAC or SHAC.
        values: by the names of `state.learning.hyperparameters`.

    Raises:
        ConfigError: there is no such hyperparameter.
    """
    learning = state.learning
    known = [field.name for field in dataclasses.fields(learning.hyperparameters)]
    for name in values:
        if name not in known:
            raise ConfigError(f"there is no hyperparameter {name!r}{did_you_mean(name, known)}")
    arrays = {name: jnp.asarray(value, jnp.float32) for name, value in values.items()}
    adapted = {field.name for field in dataclasses.fields(learning)} & arrays.keys()
    learning = dataclasses.replace(
        learning,
        hyperparameters=dataclasses.replace(learning.hyperparameters, **arrays),
        **{name: arrays[name] for name in adapted},
    )
    return dataclasses.replace(state, learning=learning)
