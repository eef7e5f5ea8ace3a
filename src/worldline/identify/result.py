"""What a fit gives: a table, a domain around the values, and a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from worldline.files import whole_file
from worldline.identify.fit import Fit
from worldline.identify.parameters import Parameter
from worldline.model import Model
from worldline.types import NDArray
from worldline.variation.distributions import Uniform
from worldline.variation.domain import Domain, Term, scale, set_
from worldline.variation.targets import Target

#: Above this correlation of neighbours, what is left is not the noise of sensors.
_CORRELATED = 0.3


def domain_around(model: Model, result: Fit, margin: float = 0.05) -> Domain:
    """A domain over the 95% intervals of a fit, for the model that was fitted.

    Args:
        model: the model.
        result: the fit.
        margin: each range is wider by this share of the value, up and down.
    """
    low, high = _ranges(result, margin).T
    terms: list[Term] = []
    rows: dict[tuple[str, int], list[int]] = {}
    for index, it in enumerate(result.parameters):
        rows.setdefault((it.field, it.row), []).append(index)
    for (_, row), indices in rows.items():
        it = result.parameters[indices[0]]
        name = "+".join(result.parameters[index].name for index in indices)
        if it.along:
            targets = (it.target, *(_sibling(it, field) for field in it.along))
            factor = Uniform(low[indices[0]] / it.stored, high[indices[0]] / it.stored)
            terms.append(scale(targets, factor, name=name))
        elif it.element is None:
            terms.append(set_(it.target, Uniform(low[indices[0]], high[indices[0]]), name=name))
        else:
            ends = np.array([model.constant(it.field)[row]] * 2)
            for index in indices:
                ends[:, result.parameters[index].element] = low[index], high[index]
            terms.append(set_(it.target, Uniform(*ends), name=name))
    return Domain(*terms)


def _ranges(result: Fit, margin: float) -> NDArray:
    """The lowest and the highest value of each constant in the domain, `(P, 2)`."""
    low, high = result.interval.T
    extra = margin * np.abs(result.values)
    lowest = [it.lowest for it in result.parameters]
    return np.stack([np.maximum(low - extra, lowest), high + extra], axis=1)


def _sibling(parameter: Parameter, field: str) -> Target:
    """The same object's row of another field."""
    return Target(field, parameter.target.kind, parameter.target.patterns)


def table(result: Fit, columns: list[str]) -> Iterator[str]:
    """Lines that say what was found.

    Args:
        result: the fit.
        columns: the names of what was measured, `(C,)`.
    """
    width = max(len(it.name) for it in result.parameters) + 2
    yield f"{'constant':{width}}{'model':>11}{'found':>11}   95% interval"
    for it, value, (low, high) in zip(
        result.parameters, result.values, result.interval, strict=True
    ):
        yield f"{it.name:{width}}{it.stored:11.5g}{value:11.5g}   {low:.5g} to {high:.5g}"
    width = max(map(len, columns)) + 2
    yield f"{'residual':{width}}{'before':>11}{'after':>11}   (root mean square)"
    for name, before, after in zip(columns, result.noise_before, result.noise, strict=True):
        yield f"{name:{width}}{before:11.3g}{after:11.3g}"
    if not result.converged:
        yield (
            f"note: the fit has not converged in {result.rounds} rounds; give shorter segments "
            "with --segment, or better initial values in the model"
        )
    if result.correlation > _CORRELATED:
        yield (
            f"note: residuals of neighbouring rows are correlated ({result.correlation:.2f}), so "
            "they are not sensor noise: the model lacks an effect, and the intervals are too narrow"
        )


def write_result(path: Path, result: Fit, columns: list[str]) -> None:
    """Writes the numbers of a fit as JSON."""
    content: dict[str, Any] = {
        "constants": {
            it.name: {
                "model": it.stored,
                "found": float(value),
                "low": float(low),
                "high": float(high),
            }
            for it, value, (low, high) in zip(
                result.parameters, result.values, result.interval, strict=True
            )
        },
        "covariance": result.covariance.tolist(),
        "left": dict(zip(columns, result.noise.tolist(), strict=True)),
        "left_before": dict(zip(columns, result.noise_before.tolist(), strict=True)),
        "correlation": result.correlation,
    }
    with whole_file(path) as file:
        file.write(json.dumps(content, indent=1).encode())
