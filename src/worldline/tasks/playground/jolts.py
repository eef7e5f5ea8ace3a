"""Jolts: now and then a force and a torque on a cube for a moment, in a random direction."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from worldline.tasks.playground.rotations import normalised
from worldline.types import Array, Key

#: The number of a jolt long ago, before an episode.
_LONG_AGO = -100_000


class Jolts(eqx.Module):
    """The jolts of an episode, which differ in their directions alone."""

    wait: Array
    """Control steps from a jolt to the next, `()` int32."""
    steps: Array
    """Control steps that a jolt lasts, `()` int32."""
    velocity: Array
    """What a jolt adds to the velocity of the cube, about, `(6,)`: along each axis, m/s, and about
    each axis."""
    clock: Array
    """Control steps of the episode, `()` int32."""
    last: Array
    """The clock at the last jolt, `()` int32; long ago at a start."""
    done: Array
    """Control steps since then, in the last control step, `()` int32."""
    direction: Array
    """Of the last jolt, `(6,)` of length 1; zeros at a start."""

    @classmethod
    def at_start(
        cls,
        key: Key,
        waits: tuple[int, int],
        steps: tuple[int, int],
        velocities: tuple[float, float],
        spins: tuple[float, float],
    ) -> Jolts:
        """Draws the jolts of an episode, each number uniform between its bounds.

        Args:
            key: decides the draws.
            waits: from a jolt to the next, in control steps.
            steps: of a jolt, control steps.
            velocities: that a jolt adds along each axis, m/s.
            spins: that it adds about each axis; as strong, within its bounds, as the velocity.
        """
        wait_key, steps_key, speed_key = jax.random.split(key, 3)
        share = jax.random.uniform(speed_key, (), jnp.float32)
        speed, spin = (low + share * (high - low) for low, high in (velocities, spins))
        return cls(
            wait=jax.random.randint(wait_key, (), waits[0], waits[1] + 1, jnp.int32),
            steps=jax.random.randint(steps_key, (), steps[0], steps[1] + 1, jnp.int32),
            velocity=jnp.concatenate([jnp.full(3, speed), jnp.full(3, spin)]),
            clock=jnp.int32(0),
            last=jnp.int32(_LONG_AGO),
            done=jnp.int32(-_LONG_AGO),
            direction=jnp.zeros(6, jnp.float32),
        )

    def next(self, key: Key) -> Jolts:
        """The jolts during the next control step; the key decides the direction of a new one."""
        begins = (self.clock % self.wait == 0) & (self.clock != 0)
        last = jnp.where(begins, self.clock, self.last)
        direction = normalised(jax.random.normal(key, (6,), jnp.float32))
        return dataclasses.replace(
            self,
            last=last,
            done=jnp.maximum(self.clock - last, 0),
            direction=jnp.where(begins, direction, self.direction),
        )

    def force(self, mass: float, timestep: float) -> Array:
        """On the cube in this control step: a force, N, and a torque, N m, `(6,)`.

        Args:
            mass: of the cube, kg.
            timestep: a control step, s.
        """
        steps = self.steps.astype(jnp.float32)
        wave = 0.5 * jnp.sin(jnp.pi * self.done.astype(jnp.float32) / steps)
        size = wave * mass * self.velocity / (steps * timestep)
        return jnp.where(self.done < self.steps, size, 0.0) * self.direction

    def counted(self) -> Jolts:
        """After a control step."""
        return dataclasses.replace(self, clock=self.clock + 1)
