"""Finite differences in float64 of an engine that runs on the host, many simulations at once.

- Forwards, each world is moved a little along its tangent, to both sides.
- Backwards, each coordinate of the operands is moved in turn. All moved worlds are rows of one
  batch, and the differences of their results are multiplied with the cotangents at once: the
  Jacobian is never stored.

Orientations move in their tangent space, three coordinates a unit quaternion, as MuJoCo's
velocities do, so that no step leaves the sphere. Plain NumPy; `autodiff` puts it into JAX.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from worldline.host.calls import HostCall
from worldline.settings import Positive, check_settings
from worldline.types import NDArray


@dataclasses.dataclass(frozen=True, kw_only=True)
class FiniteDifferences:
    """How an engine without derivatives of its own is differentiated.

    Raises:
        ConfigError: the step is not positive.
    """

    step: Positive = 1e-6
    """How far a coordinate is moved: in its own unit (m, rad, m/s, N m, ...), and for a constant
    of the model relative to its size; for one of damping a hundred times as far."""
    centred: bool = True
    """True: to both sides, with an error that falls with the square of the step. False: to one
    side, at half the cost, with one that falls with the step."""

    def __post_init__(self) -> None:
        check_settings(self)


#: The settings of an engine that was given none.
CENTRED = FiniteDifferences()


class Chart:
    """The coordinates in which rows of numbers move: one a number, but three a unit quaternion.

    Args:
        size: numbers in a row.
        quaternions: where the quaternions begin in it.
    """

    def __init__(self, size: int, quaternions: Sequence[int] = ()) -> None:
        plain: list[tuple[int, int]] = []
        turns: list[tuple[range, range]] = []
        position = coordinate = 0
        while position < size:
            if position in quaternions:
                ends = (position + 4, coordinate + 3)
                turns.append((range(position, ends[0]), range(coordinate, ends[1])))
                position, coordinate = ends
            else:
                plain.append((position, coordinate))
                position, coordinate = position + 1, coordinate + 1
        self.size, self.coordinates = size, coordinate
        self._plain, self._plain_at = np.array(plain, int).reshape(-1, 2).T
        self._turns = np.array([quaternion for quaternion, _ in turns], int).reshape(-1, 4)
        self._turns_at = np.array([turn for _, turn in turns], int).reshape(-1, 3)

    def move(self, values: NDArray, by: NDArray) -> NDArray:
        """Rows `(N, size)` moved by coordinates `(N, coordinates)`."""
        moved = values.copy()
        moved[:, self._plain] += by[:, self._plain_at]
        if not self._turns.size:
            return moved
        quaternion, half = values[:, self._turns], 0.5 * by[:, self._turns_at]
        angle = np.linalg.norm(half, axis=-1, keepdims=True)
        turn = np.sinc(angle / np.pi) * half
        moved[:, self._turns] = np.cos(angle) * quaternion + np.einsum(
            "nqij,nqi->nqj", _turning(quaternion), turn
        )
        return moved

    def to_coordinates(self, values: NDArray, tangent: NDArray) -> NDArray:
        """Tangents of the rows, `(N, E, size)`, as tangents of the coordinates."""
        result = np.zeros((*tangent.shape[:-1], self.coordinates))
        result[..., self._plain_at] = tangent[..., self._plain]
        if not self._turns.size:
            return result
        result[..., self._turns_at] = np.einsum(
            "nqij,neqj->neqi", self._rates(values), tangent[..., self._turns]
        )
        return result

    def from_coordinates(self, values: NDArray, cotangent: NDArray) -> NDArray:
        """Cotangents of the coordinates, `(N, E, coordinates)`, as cotangents of the rows."""
        result = np.zeros((*cotangent.shape[:-1], self.size))
        result[..., self._plain] = cotangent[..., self._plain_at]
        if not self._turns.size:
            return result
        result[..., self._turns] = np.einsum(
            "nqij,neqi->neqj", self._rates(values), cotangent[..., self._turns_at]
        )
        return result

    def _rates(self, values: NDArray) -> NDArray:
        """How a rotation vector follows from a change of its quaternion, `(N, nquat, 3, 4)`."""
        quaternion = values[:, self._turns]
        squared = np.maximum(np.sum(quaternion**2, axis=-1), 1e-30)
        return 2 * _turning(quaternion) / squared[..., None, None]


def _turning(quaternion: NDArray) -> NDArray:
    """The `(..., 3, 4)` whose rows are q i, q j and q k for each quaternion q, `w` first."""
    a, b, c, d = np.moveaxis(quaternion, -1, 0)
    rows = [(-b, a, d, -c), (-c, -d, a, b), (-d, c, -b, a)]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


class Axis(NamedTuple):
    """A quantity to differentiate in: where it lies, and how it may move."""

    operand: int
    """The number of the flat operand that holds it."""
    start: int
    """Its first column there."""
    chart: Chart
    scale: NDArray
    """The step of each coordinate is `FiniteDifferences.step` times this, `(W, coordinates)`."""
    below: NDArray
    """How far down each coordinate may go, `(W, coordinates)`, negative or 0; -inf: freely. A
    difference across a bound would be wrong."""
    above: NDArray
    """How far up, positive or 0; inf: freely."""

    @classmethod
    def free(cls, operand: int, start: int, chart: Chart, rows: int) -> Axis:
        """An axis of unit scale without bounds."""
        endless = np.full((rows, chart.coordinates), np.inf)
        return cls(operand, start, chart, np.ones_like(endless), -endless, endless)

    def columns(self) -> slice:
        """The columns of its operand that it takes."""
        return slice(self.start, self.start + self.chart.size)


class Simulations(NamedTuple):
    """The simulations of W worlds, and a way to run others like them."""

    operands: list[NDArray]
    """`(W, n)` float64 each."""
    simulate: Callable[[list[NDArray]], tuple[list[NDArray], NDArray]]
    """Runs at most `limit` rows of operands. Returns the outputs that have a derivative,
    `(rows, n)` float64 each, and which rows went well, `(rows,)` bool."""
    limit: int
    """The most rows of one call of `simulate`."""


class DifferentiableCall(HostCall):
    """A call of the host whose derivatives are finite differences.

    The host reads the first `shareable` operands, of which the very first is a mask of the worlds
    to run, `()` bool. The operands after them only carry tangents.
    """

    @property
    @abc.abstractmethod
    def differentiable(self) -> tuple[int, ...]:
        """The numbers of the results that have a derivative."""

    @property
    @abc.abstractmethod
    def settings(self) -> FiniteDifferences:
        """How to differentiate."""

    @property
    @abc.abstractmethod
    def operand_shapes(self) -> list[tuple[int, ...]]:
        """The shape of every operand of one world."""

    @abc.abstractmethod
    def simulations(self, operands: Sequence[NDArray]) -> Simulations:
        """The simulations of operands `(W, n)`, without the mask, all of which are to be run."""

    @abc.abstractmethod
    def axes(self, wrt: Sequence[int], simulations: Simulations) -> list[Axis]:
        """How the operands of these numbers move."""


def forwards(*arrays: NDArray, call: DifferentiableCall, wrt: Sequence[int]) -> list[NDArray]:
    """Computes the tangents of the results.

    Args:
        *arrays: the operands that the host reads, then a tangent for each of `wrt`, `(B, ...)`.
        call: what is differentiated.
        wrt: which operands move, by number.

    Returns:
        One for each of `call.differentiable`, `(B, ...)` float32; zero where a world is masked out,
        or where a simulation near it fails.
    """
    mask, simulations = _chosen(call, arrays)
    results = [np.zeros((len(mask), *call.results[i][0]), np.float32) for i in call.differentiable]
    if not mask.any():
        return results
    axes = call.axes(wrt, simulations)
    tangents = [_flat(x)[mask][:, None].astype(np.float64) for x in arrays[call.shareable :]]
    directions = np.concatenate(
        [
            axis.chart.to_coordinates(
                simulations.operands[axis.operand][:, axis.columns()], tangent
            )
            for axis, tangent in zip(axes, tangents, strict=True)
        ],
        axis=-1,
    )
    worlds = np.flatnonzero(mask)
    for world, _, differences in _differences(simulations, axes, directions, call.settings):
        for result, difference in zip(results, differences, strict=True):
            _flat(result)[worlds[world]] = difference
    return results


def backwards(
    *arrays: NDArray, call: DifferentiableCall, wrt: Sequence[int], of: Sequence[int], several: int
) -> list[NDArray]:
    """Computes the cotangents of the operands.

    Args:
        *arrays: the operands that the host reads, then for each of `of` its cotangents, `(B, ...)`.
        call: what is differentiated.
        wrt: which operands have a cotangent, by number.
        of: which results have one, numbered within `call.differentiable`.
        several: how many cotangents of each result are given.

    Returns:
        One for each of `wrt`, `(B, several, n)` float32.
    """
    mask, simulations = _chosen(call, arrays)
    sizes = [int(np.prod(call.operand_shapes[i])) for i in wrt]
    results = [np.zeros((len(mask), several, size), np.float32) for size in sizes]
    if not mask.any():
        return results
    axes = call.axes(wrt, simulations)
    cotangents = [
        x.reshape(len(mask), several, -1)[mask].astype(np.float64) for x in arrays[call.shareable :]
    ]
    sums = np.zeros((int(mask.sum()), several, sum(a.chart.coordinates for a in axes)))
    for world, direction, differences in _differences(simulations, axes, None, call.settings):
        sums[world, :, direction] = sum(
            np.einsum("pn,pen->pe", differences[i], cotangent[world])
            for i, cotangent in zip(of, cotangents, strict=True)
        )
    ends = list(itertools.accumulate(axis.chart.coordinates for axis in axes))
    for result, axis, part in zip(results, axes, np.split(sums, ends[:-1], axis=-1), strict=True):
        values = simulations.operands[axis.operand][:, axis.columns()]
        result[mask] = axis.chart.from_coordinates(values, part)
    return results


def _chosen(call: DifferentiableCall, arrays: Sequence[NDArray]) -> tuple[NDArray, Simulations]:
    """Which worlds to run, `(B,)` bool, and their simulations."""
    mask, *operands = arrays[: call.shareable]
    rows = [np.broadcast_to(_flat(x), (len(mask), _flat(x).shape[1]))[mask] for x in operands]
    return mask, call.simulations(rows)


def _flat(array: NDArray) -> NDArray:
    """`(rows, ...)` to `(rows, n)`."""
    return array.reshape(len(array), int(np.prod(array.shape[1:])))


def _differences(
    simulations: Simulations,
    axes: Sequence[Axis],
    directions: NDArray | None,
    settings: FiniteDifferences,
) -> Iterator[tuple[NDArray, NDArray, list[NDArray]]]:
    """The derivative of every output along every direction, as many at once as fit in a batch.

    Args:
        simulations: the worlds, W of them.
        axes: what moves, n coordinates in all.
        directions: `(W, K, n)`; None for each coordinate by itself, K = n.
        settings: how far, and to how many sides.

    Yields:
        For P pairs of a world and a direction: the numbers of the worlds `(P,)`, those of the
        directions `(P,)`, and the derivatives of the outputs, `(P, nout)` each.
    """
    scale, below, above = (
        np.concatenate([getattr(axis, name) for axis in axes], axis=1)
        for name in ("scale", "below", "above")
    )
    worlds, coordinates = scale.shape
    number = coordinates if directions is None else directions.shape[1]
    base = None if settings.centred else _in_pieces(simulations, worlds)
    size = max(1, simulations.limit // (2 if settings.centred else 1))
    for first in range(0, worlds * number, size):
        pairs = np.arange(first, min(first + size, worlds * number))
        world, direction = np.divmod(pairs, number)
        along = (
            np.eye(coordinates)[direction] if directions is None else directions[world, direction]
        )
        largest = np.abs(along / scale[world]).max(axis=1)
        length = settings.step / np.where(largest > 0, largest, 1.0)
        delta = length[:, None] * along
        ends = _ends(delta, below[world], above[world], settings.centred)
        moved = (_moved(simulations, axes, world, end[:, None] * delta) for end in ends)
        outputs, good = simulations.simulate(list(map(np.concatenate, zip(*moved, strict=True))))
        sides = [output.reshape(len(ends), len(pairs), -1) for output in outputs]
        sound: NDArray = np.all(good.reshape(len(ends), -1), axis=0)
        if base is None:
            width, others = ends[0] - ends[1], [side[1] for side in sides]
        else:
            width, others = ends[0], [output[world] for output in base[0]]
            sound = sound & base[1][world]
        derivatives = []
        for side, other in zip(sides, others, strict=True):
            difference = (side[0] - other) / (width * length)[:, None]
            # A world of which a neighbour fails has no derivative; zero, and not NaN.
            valid = sound[:, None] & np.isfinite(difference)
            derivatives.append(np.where(valid, difference, 0.0))
        yield world, direction, derivatives


def _ends(delta: NDArray, below: NDArray, above: NDArray, centred: bool) -> NDArray:
    """How many times `delta`, `(P, n)`, to move for each end of a difference.

    Both ways, `(2, P)`; one way where a bound, `(P, n)`, forbids the other, and wherever
    differences are not `centred`, `(1, P)`. Where the bounds forbid both ways, they are passed.
    """
    up, down = (((side * delta >= below) & (side * delta <= above)).all(axis=1) for side in (1, -1))
    ends = np.stack([up | ~down, -(down | ~up).astype(int)])
    return ends if centred else np.where(ends[:1] == 1, 1, -1)


def _in_pieces(simulations: Simulations, worlds: int) -> tuple[list[NDArray], NDArray]:
    """The outputs of the worlds as they are, and which went well."""
    pieces = [
        simulations.simulate([x[first : first + simulations.limit] for x in simulations.operands])
        for first in range(0, worlds, simulations.limit)
    ]
    outputs, good = zip(*pieces, strict=True)
    return [np.concatenate(parts) for parts in zip(*outputs, strict=True)], np.concatenate(good)


def _moved(
    simulations: Simulations, axes: Sequence[Axis], world: NDArray, delta: NDArray
) -> list[NDArray]:
    """The operands of the worlds numbered `world`, `(P,)`, moved by coordinates `(P, n)`."""
    operands = [x[world] for x in simulations.operands]
    at = 0
    for axis in axes:
        values, columns = operands[axis.operand], axis.columns()
        part = delta[:, at : at + axis.chart.coordinates]
        values[:, columns] = axis.chart.move(values[:, columns], part)
        at += axis.chart.coordinates
    return operands
