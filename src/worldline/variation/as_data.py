"""Converts distributions, terms and domains to data for JSON, and back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from worldline.errors import ConfigError
from worldline.files import whole_file
from worldline.variation.distributions import Choice, LogUniform, TruncatedNormal, Uniform
from worldline.variation.domain import Domain, Term
from worldline.variation.targets import Target

#: The classes by their names in a file, which stay when a class is renamed.
KINDS: Mapping[str, type[Any]] = {
    "uniform": Uniform,
    "log_uniform": LogUniform,
    "truncated_normal": TruncatedNormal,
    "choice": Choice,
    "target": Target,
    "term": Term,
    "domain": Domain,
}


def to_data(value: Any, kinds: Mapping[str, type[Any]] = KINDS) -> Any:
    """A value as dicts, lists, numbers and strings; `from_data` restores it bit for bit.

    Args:
        value: an object of one of the kinds, or numbers, texts, arrays, and lists or dicts of them.
        kinds: dataclasses, by their names in the data.

    Raises:
        ConfigError: the value is something else, or contains something else.
    """
    name = {kind: name for name, kind in kinds.items()}.get(type(value))
    if isinstance(value, Domain) and name:
        return {"type": name, "terms": to_data(value.terms, kinds)}
    if name:
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"type": name, **to_data(fields, kinds)}
    if isinstance(value, Mapping):
        return {str(key): to_data(item, kinds) for key, item in value.items()}
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return np.asarray(value).tolist()
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [to_data(item, kinds) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ConfigError(f"no file can hold {value!r}; give numbers, texts, distributions or terms")


def from_data(data: Any, kinds: Mapping[str, type[Any]] = KINDS) -> Any:
    """The value from which `to_data` made the data; lists become tuples.

    Raises:
        ConfigError: the data names an unknown kind, or does not fit its kind.
    """
    if isinstance(data, Mapping):
        name = data.get("type")
        items = {key: from_data(item, kinds) for key, item in data.items() if key != "type"}
        if not isinstance(name, str):
            return items
        if name not in kinds:
            raise ConfigError(f"there is no {name!r}; give one of {', '.join(kinds)}")
        try:
            return Domain(*items["terms"]) if kinds[name] is Domain else kinds[name](**items)
        except (KeyError, TypeError) as error:
            raise ConfigError(f"the {name!r} is damaged: {error}") from error
    return (
        tuple(from_data(item, kinds) for item in data) if isinstance(data, list | tuple) else data
    )


def save_domain(path: Path, domain: Domain) -> None:
    """Writes a domain as JSON, which `--domain` and `load_domain` read.

    Raises:
        ConfigError: the domain has a function, which a file cannot store.
        OSError: the file cannot be written.
    """
    content = json.dumps(to_data(domain), indent=1)
    with whole_file(path) as file:
        file.write(content.encode())


def load_domain(path: Path) -> Domain:
    """Reads a domain that `save_domain` wrote.

    Raises:
        ConfigError: the file cannot be read, or contains something else.
    """
    try:
        domain = from_data(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise ConfigError(f"{str(path)!r} holds no domain: {error}") from error
        raise ConfigError(f"cannot read the domain {str(path)!r}: {error}") from error
    if not isinstance(domain, Domain):
        raise ConfigError(f"{str(path)!r} holds no domain; give a file that save_domain wrote")
    return domain
