"""Simulates the segments of a recording, and what follows from a small change of each unknown.

A recording of T rows is cut into S segments. Each begins at a state of its own, which is unknown
too: so errors do not grow over the whole recording, and all segments run side by side (multiple
shooting: Bock, 1983). A world is a segment with one unknown moved up or down.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from worldline.identify.log import Log
from worldline.identify.parameters import Parameter, constants_of
from worldline.model import Model
from worldline.physics.base import PhysicsState, Reads
from worldline.physics.native import NativePhysics
from worldline.types import Array, NDArray

#: How far an unknown is moved: a constant by this share of its size, a position and a velocity by
#: so many units. The errors of the central difference and of float32 are then about equal.
_CONSTANT_STEP, _POSITION_STEP, _VELOCITY_STEP = 1e-3, 2e-4, 2e-3

#: At most so many worlds run side by side.
_MOST_WORLDS = 2048

#: A recording's first velocities come from a parabola through so many rows.
_PARABOLA_ROWS = 7


@dataclasses.dataclass(frozen=True)
class Unknowns:
    """What a fit looks for."""

    constants: NDArray
    """The value of each parameter, `(P,)`."""
    starts: NDArray
    """Position and velocity of each joint at the start of each segment, `(S, nq + nv)`."""


@dataclasses.dataclass(frozen=True)
class Linearised:
    """The simulated segments, and how they follow the unknowns."""

    predicted: NDArray
    """What the log would have measured, `(S, T, C)`; C columns."""
    by_constants: NDArray
    """Its derivative by the parameters, `(S, T, C, P)`."""
    by_starts: NDArray
    """Its derivative by the start of the segment, `(S, T, C, nq + nv)`."""
    failed: bool
    """Whether a simulation failed: the others are then not to be used."""


class Segments:
    """The segments of a recording, to be simulated.

    Args:
        model: the model.
        log: the recording.
        parameters: the constants that are looked for.
        seconds: about how long a segment is. A model with actuators that have a state or a delay
            has one segment: nobody knows their state in the middle of a recording.
    """

    def __init__(
        self, model: Model, log: Log, parameters: Sequence[Parameter], seconds: float
    ) -> None:
        self.model, self.log, self.parameters = model, log, tuple(parameters)
        rows = len(log.position)
        remembers = model.na or model.mj.nhistory or model.mj.npluginstate
        least = max(_PARABOLA_ROWS, 2 * log.position.shape[1])
        wished = rows if remembers else max(least, round(seconds / log.period))
        number = max(1, rows // wished)
        length = rows // number
        self.number, self.length = number, length
        cut = slice(0, number * length)
        self.measured = log.measured[cut].reshape(number, length, -1)
        self._controls = log.control[cut].reshape(number, length, -1)[:, :-1]
        self._nstart = model.nq + model.nv
        self._at_once = max(1, min(number, _MOST_WORLDS // self._worlds))
        self._simulate = _simulator(model, self.parameters, log.substeps, log.velocity is not None)

    @property
    def _worlds(self) -> int:
        """How many worlds a segment takes."""
        return 1 + 2 * (len(self.parameters) + self._nstart)

    def first_guess(self) -> Unknowns:
        """The model's constants, and starts as they were measured."""
        nq, rows = self.model.nq, min(_PARABOLA_ROWS, self.length)
        begin = self.measured[:, :rows, :nq]
        time = np.arange(rows) * self.log.period
        if self.log.velocity is None:
            parabola = np.polynomial.polynomial.polyvander(time, 2)
            fitted = np.einsum("ij,sjc->sic", np.linalg.pinv(parabola), begin)
            starts = np.concatenate([fitted[:, 0], fitted[:, 1]], axis=1)
        else:
            starts = self.measured[:, 0]
        return Unknowns(np.array([it.guess for it in self.parameters]), starts)

    def linearise(self, at: Unknowns, show: Callable[[float], None]) -> Linearised:
        """Simulates all segments, with each unknown moved up and down.

        Args:
            at: the values of the unknowns.
            show: gets the share of the work that is done.
        """
        constants, starts, apart = self._moved(at)
        found, failed = [], False
        for begin in range(0, self.number, self._at_once):
            chosen = np.minimum(np.arange(begin, begin + self._at_once), self.number - 1)
            size = min(self._at_once, self.number - begin)
            results, diverged = self._simulate(
                jnp.float32(np.tile(constants, (len(chosen), 1))),
                jnp.float32(starts[chosen].reshape(-1, self._nstart)),
                jnp.float32(self._controls[chosen]),
            )
            shape = (len(chosen), self._worlds, *self.measured.shape[1:])
            found.append(np.asarray(results, np.float64).reshape(shape)[:size])
            failed |= bool(np.asarray(diverged).any())
            show((begin + size) / self.number)
        worlds = np.concatenate(found)  # (S, worlds, T, C)
        up, down = worlds[:, 1::2], worlds[:, 2::2]
        slopes = np.moveaxis((up - down) / apart[:, None, None], 1, -1)
        unknown = len(self.parameters)
        finite = bool(np.isfinite(worlds).all())
        return Linearised(
            worlds[:, 0], slopes[..., :unknown], slopes[..., unknown:], failed or not finite
        )

    def _moved(self, at: Unknowns) -> tuple[NDArray, NDArray, NDArray]:
        """Unknowns as they are, then each moved up and down: constants `(worlds, P)`, starts
        `(S, worlds, nq + nv)`, and how far up is from down, `(P + nq + nv,)`.
        """
        count = len(self.parameters)
        sizes = np.array([_CONSTANT_STEP * it.size for it in self.parameters])
        lowest = np.array([it.lowest for it in self.parameters])
        constants = np.tile(at.constants, (self._worlds, 1))
        starts = np.tile(at.starts[:, None], (1, self._worlds, 1))
        apart = []
        for index, size in enumerate(sizes):
            up, down = 1 + 2 * index, 2 + 2 * index
            constants[up, index] += size
            constants[down, index] = max(lowest[index], constants[down, index] - size)
            apart.append(
                float(np.float32(constants[up, index]) - np.float32(constants[down, index]))
            )
        steps = np.repeat([_POSITION_STEP, _VELOCITY_STEP], [self.model.nq, self.model.nv])
        for index, size in enumerate(steps):
            place = 1 + 2 * (count + index)
            starts[:, place, index] += size
            starts[:, place + 1, index] -= size
            apart.append(2 * size)
        return constants, starts, np.array(apart)


@functools.lru_cache(8)
def _simulator(
    model: Model, parameters: tuple[Parameter, ...], substeps: int, velocity: bool
) -> Callable[..., tuple[Array, Array]]:
    """A compiled function that simulates worlds W of segments n, and measures velocities or not.

    It takes constants `(W, P)`, starts `(W, nq + nv)` and controls `(n, T - 1, nu)`, and gives what
    is measured, `(W, T, C)`, and which worlds failed, `(W,)`.
    """
    physics = NativePhysics(model, Reads(inputs=("ctrl",)))
    nq = model.nq

    def measure(state: PhysicsState) -> Array:
        return jnp.concatenate([state.qpos, state.qvel], axis=-1) if velocity else state.qpos

    def simulate(constants: Array, starts: Array, controls: Array) -> tuple[Array, Array]:
        each = len(starts) // len(controls)
        variation = jax.vmap(lambda values: constants_of(model, parameters, values))(constants)
        first = {"ctrl": jnp.repeat(controls[:, 0], each, axis=0)}
        state = jax.vmap(physics.start)(starts[:, :nq], starts[:, nq:], variation, first)

        def step(
            carry: tuple[PhysicsState, Array], control: Array
        ) -> tuple[tuple[PhysicsState, Array], Array]:
            before, failed = carry
            given = {"ctrl": jnp.repeat(control, each, axis=0)}
            after = jax.vmap(lambda one, inputs: physics.step(one, inputs, substeps))(before, given)
            return (after, failed | after.diverged), measure(after)

        begin = measure(state)
        carry, rows = jax.lax.scan(step, (state, state.diverged), jnp.swapaxes(controls, 0, 1))
        return jnp.moveaxis(jnp.concatenate([begin[None], rows]), 0, 1), carry[1]

    return jax.jit(simulate)
