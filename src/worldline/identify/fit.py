"""The least-squares fit of a model's constants to a recording.

Levenberg-Marquardt (Marquardt, 1963) over the constants and the start of each segment. The starts
are eliminated from the normal equations segment by segment, so that a long recording costs no more
than its simulation. Columns are weighted by the noise that the fit itself finds in them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from worldline.errors import ConfigError
from worldline.identify.log import Log
from worldline.identify.parameters import Parameter
from worldline.identify.simulation import Linearised, Segments, Unknowns
from worldline.model import Model
from worldline.types import NDArray

#: Half of a 95% interval, in standard deviations of a normal distribution.
_Z95 = 1.959964

#: Times that the columns are weighted anew by their noise.
_WEIGHINGS = 3
#: A fit has converged where all unknowns are nearer to the best than this share of their standard
#: deviations; or where a round that should lower the sum of squares raises it by this share.
_NEAR, _ROUNDING = 3e-2, 1e-5
#: The damping at the first round, its factor after a good and a bad round, and where it gives up.
_DAMPING, _BETTER, _WORSE, _MOST_DAMPING = 1e-3, 0.1, 10.0, 1e8
#: A mass becomes at most so much smaller in a round.
_MOST_SHRINKING = 0.3
#: A direction of the constants is not seen if its curvature is this share of the largest.
_UNSEEN = 1e-9
#: Noise of a column is at least this share of its spread: the numbers of the engine are float32.
_LEAST_NOISE = 1e-6

#: Gets what is being done, and the share of it that is done.
Show = Callable[[str, float], None]


@dataclasses.dataclass(frozen=True)
class Fit:
    """What a recording says of a model's constants."""

    parameters: tuple[Parameter, ...]
    """The P constants."""
    values: NDArray
    """The best value of each, `(P,)`."""
    covariance: NDArray
    """Of the values, `(P, P)`, if what is left is noise."""
    noise: NDArray
    """Root mean square of what is left in each measured column, `(C,)`."""
    noise_before: NDArray
    """The same with the model's own constants and each segment's start as measured, `(C,)`."""
    correlation: float
    """Of what is left with itself one row later. Noise of sensors has 0; more says that the model
    lacks something, and that the intervals are too narrow."""
    rounds: int
    """Rounds of the fit."""
    converged: bool
    """Whether more rounds would change little."""
    measured: NDArray
    """The segments, `(S, T, C)`."""
    before: NDArray
    """The segments as the model simulated them at first, `(S, T, C)`."""
    after: NDArray
    """The segments as they are simulated with the values found, `(S, T, C)`."""

    @property
    def interval(self) -> NDArray:
        """The lowest and the highest value of each constant at 95% confidence, `(P, 2)`."""
        half = _Z95 * np.sqrt(np.diag(self.covariance))
        low = [it.lowest for it in self.parameters]
        return np.stack([np.maximum(self.values - half, low), self.values + half], axis=1)


def fit(
    model: Model,
    log: Log,
    parameters: Sequence[Parameter],
    *,
    segment: float = 1.0,
    most_rounds: int = 50,
    show: Show = lambda what, share: None,
) -> Fit:
    """Finds the constants with which simulations of the segments are nearest to the log.

    Args:
        model: the model.
        log: the recording.
        parameters: the constants.
        segment: about how long a segment is, s.
        most_rounds: rounds of the fit, at most.
        show: gets what is being done, and the share of it.

    Raises:
        ConfigError: the model fails from the first guess, or the log does not tell the constants.
    """
    return Fitter(Segments(model, log, parameters, segment)).run(most_rounds, show)


@dataclasses.dataclass
class _Round:
    """Where a fit is."""

    at: Unknowns
    here: Linearised
    weights: NDArray
    damping: float = _DAMPING
    rounds: int = 0


class Fitter:
    """A fit of segments."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self.parameters = segments.parameters
        self._lowest = np.array([it.lowest for it in self.parameters])
        self._sizes = np.array([it.size for it in self.parameters])
        spread = segments.measured.std(axis=(0, 1))
        self._spread = np.where(spread > 0, spread, 1.0)

    def run(self, most_rounds: int, show: Show) -> Fit:
        """Fits until the noise and the constants stay the same."""
        at = self.segments.first_guess()
        first = self.segments.linearise(at, functools.partial(show, "the model as it is"))
        if first.failed:
            raise ConfigError(
                "the simulation diverges with the model's own constants; give shorter segments "
                "with --segment, or better initial values in the model"
            )
        state = _Round(at, first, 1 / self._spread)
        for _ in range(_WEIGHINGS):
            converged = self._descend(state, most_rounds, show)
            state.weights = 1 / np.maximum(self._noise(state.here), _LEAST_NOISE * self._spread)
        residual = self._residual(state.here)
        return Fit(
            parameters=self.parameters,
            values=state.at.constants,
            covariance=self._covariance(state),
            noise=self._noise(state.here),
            noise_before=np.sqrt(np.mean(self._residual(first) ** 2, axis=(0, 1))),
            correlation=float(np.mean(_neighbours(residual * state.weights))),
            rounds=state.rounds,
            converged=converged,
            measured=self.segments.measured,
            before=first.predicted,
            after=state.here.predicted,
        )

    def _descend(self, state: _Round, most_rounds: int, show: Show) -> bool:
        """Goes down, in place, until a round gains nothing; gives whether it came so far."""
        state.damping = _DAMPING
        cost = self._cost(state.here, state.weights)
        while not self._converged(state, cost):
            if state.rounds == most_rounds or state.damping > _MOST_DAMPING:
                return False
            state.rounds += 1
            trial = self._step(state)
            there = self.segments.linearise(trial, functools.partial(show, f"round {state.rounds}"))
            new = np.inf if there.failed else self._cost(there, state.weights)
            if new < cost:
                cost, state.at, state.here = new, trial, there
                state.damping *= _BETTER
            elif new <= cost * (1 + _ROUNDING):
                return True
            else:
                state.damping *= _WORSE
        return True

    def _converged(self, state: _Round, cost: float) -> bool:
        """Whether an undamped step would move the unknowns by little of what noise moves them."""
        variance = cost / state.here.predicted.size
        return self._equations(state, damping=0.0).gain < _NEAR**2 * variance

    def _step(self, state: _Round) -> Unknowns:
        """The unknowns of the next trial. A constant that would leave its range stays out of it."""
        free = np.ones(len(self.parameters), bool)
        while True:
            equations = self._equations(state, state.damping, free)
            move = equations.solve()
            trial = state.at.constants + move
            stuck = (trial < self._lowest) & (state.at.constants <= self._lowest) & free
            if not stuck.any():
                break
            free &= ~stuck
        starts = state.at.starts + equations.starts(move)
        least = np.where(self._lowest > 0, _MOST_SHRINKING * state.at.constants, -np.inf)
        return Unknowns(np.maximum(trial, np.maximum(self._lowest, least)), starts)

    def _equations(
        self, state: _Round, damping: float, free: NDArray | float = 1.0
    ) -> _NormalEquations:
        """The equations of a round in which some constants are `free`, `(P,)`, to move."""
        weights = state.weights[None, None, :]
        residual = self._residual(state.here) * weights
        by_constants = state.here.by_constants * weights[..., None] * (self._sizes * free)
        by_starts = state.here.by_starts * weights[..., None]
        number = len(residual)
        return _NormalEquations(
            residual.reshape(number, -1),
            by_constants.reshape(number, -1, by_constants.shape[-1]),
            by_starts.reshape(number, -1, by_starts.shape[-1]),
            self._sizes,
            damping,
        )

    def _covariance(self, state: _Round) -> NDArray:
        """The covariance of the constants; refuses those that the log does not tell."""
        curvature = self._equations(state, damping=0.0).reduced
        scale = np.sqrt(np.diag(curvature))
        for it, length in zip(self.parameters, scale, strict=True):
            if length**2 < _UNSEEN * scale.max(initial=0.0) ** 2 or not length:
                raise ConfigError(f"the log does not determine {it.name!r}; leave it out of --fit")
        values, vectors = np.linalg.eigh(curvature / np.outer(scale, scale))
        if values[0] < _UNSEEN * values[-1]:
            shares = zip(self.parameters, np.abs(vectors[:, 0]), strict=True)
            names = ", ".join(it.name for it, share in shares if share > 0.1)
            raise ConfigError(
                f"the log determines only a combination of {names}; leave one out of --fit"
            )
        inverse: NDArray = np.linalg.inv(curvature) * np.outer(self._sizes, self._sizes)
        return inverse

    def _noise(self, here: Linearised) -> NDArray:
        """The root mean square of what is left in each column, for the unknowns that it took."""
        residual = self._residual(here)
        rows, columns = residual.shape[0] * residual.shape[1], residual.shape[2]
        unknowns = len(self.parameters) + here.by_starts.shape[0] * here.by_starts.shape[3]
        left = max(rows - unknowns / columns, 1.0)
        noise: NDArray = np.sqrt((residual**2).sum(axis=(0, 1)) / left)
        return noise

    def _residual(self, here: Linearised) -> NDArray:
        return self.segments.measured - here.predicted

    def _cost(self, here: Linearised, weights: NDArray) -> float:
        return float(((self._residual(here) * weights) ** 2).sum())


class _NormalEquations:
    """The damped normal equations of all unknowns, with the starts eliminated.

    Args:
        residual: `(S, N)`.
        by_constants: `(S, N, P)`, for constants in units of their sizes.
        by_starts: `(S, N, Z)`.
        sizes: of the constants, `(P,)`.
        damping: the share by which each curvature is raised.
    """

    def __init__(
        self,
        residual: NDArray,
        by_constants: NDArray,
        by_starts: NDArray,
        sizes: NDArray,
        damping: float,
    ) -> None:
        self._sizes = sizes
        across = np.swapaxes(by_starts, 1, 2)
        own = across @ by_starts
        own = own * (1 + damping * np.eye(own.shape[-1]))
        self._inverse = np.linalg.pinv(own, hermitian=True)
        self._mixed = across @ by_constants
        self._pull = np.einsum("szn,sn->sz", across, residual)
        straight = np.einsum("snp,snq->pq", by_constants, by_constants)
        straight = straight * (1 + damping * np.eye(len(sizes)))
        taken = self._inverse @ self._mixed
        #: The curvature in the constants, the starts following, `(P, P)`.
        self.reduced: NDArray = straight - np.einsum("szp,szq->pq", self._mixed, taken)
        pull = np.einsum("snp,sn->p", by_constants, residual)
        self._reduced_pull = pull - np.einsum("szp,sz->p", taken, self._pull)

        self._move: NDArray = np.linalg.lstsq(self.reduced, self._reduced_pull, rcond=1e-12)[0]

    @property
    def gain(self) -> float:
        """By how much the sum of squares falls where all unknowns move so, by these equations."""
        of_starts = np.einsum("sz,szy,sy->", self._pull, self._inverse, self._pull)
        return float(of_starts + self._reduced_pull @ self._move)

    def solve(self) -> NDArray:
        """How far the constants move, `(P,)`."""
        return self._move * self._sizes

    def starts(self, move: NDArray) -> NDArray:
        """How far the starts move when the constants move so, `(S, Z)`."""
        rest = self._pull - self._mixed @ (move / self._sizes)
        moved: NDArray = np.einsum("szy,sy->sz", self._inverse, rest)
        return moved


def _neighbours(residual: NDArray) -> NDArray:
    """The correlation of each column `(S, T, C)` with itself one row later, `(C,)`."""
    early, late = residual[:, :-1], residual[:, 1:]
    power = (residual**2).mean(axis=(0, 1))
    product: NDArray = (early * late).mean(axis=(0, 1)) / np.where(power > 0, power, 1.0)
    return product
