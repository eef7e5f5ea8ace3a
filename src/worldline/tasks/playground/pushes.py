"""Pushes now and then, along a random horizontal direction: a force for a while, or a knock."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from worldline.types import Array, Key


class Pushes(eqx.Module):
    """The pushes of an episode, which differ in their directions alone."""

    wait: Array
    """Control steps from a push to the next, `()` int32."""
    seconds: Array
    """How long a push lasts, `()`, s."""
    speed: Array
    """What a push adds to the speed of the robot, about, `()`, m/s."""
    waited: Array
    """Control steps since the last push, `()` int32."""
    done: Array
    """Control steps of the present push, `()` int32."""
    direction: Array
    """Of the present push, `(3,)`."""
    acceleration: Array
    """Of the robot in the last control step, by its push, `(3,)`, m/s^2."""

    @classmethod
    def at_start(
        cls,
        key: Key,
        waits: tuple[float, float],
        durations: tuple[float, float],
        speeds: tuple[float, float],
        timestep: float,
    ) -> Pushes:
        """Draws the pushes of an episode, each number uniform between its bounds.

        Args:
            key: decides the draws.
            waits: from a push to the next, s.
            durations: of a push, s.
            speeds: that a push adds, m/s.
            timestep: a control step, s.
        """
        low, high = jnp.array([waits, durations, speeds], jnp.float32).T
        wait, seconds, speed = jax.random.uniform(key, (3,), jnp.float32, low, high)
        return cls(
            wait=jnp.round(wait / timestep).astype(jnp.int32),
            seconds=seconds,
            speed=speed,
            waited=jnp.int32(0),
            done=jnp.int32(0),
            direction=jnp.zeros(3, jnp.float32),
            acceleration=jnp.zeros(3, jnp.float32),
        )

    @property
    def pushing(self) -> Array:
        """Whether a push is on, `()` bool."""
        return self.waited >= self.wait

    def step(self, key: Key, timestep: float) -> Pushes:
        """The pushes during the next control step, with its `acceleration`.

        Args:
            key: decides the direction of a push that is about to begin.
            timestep: a control step, s.
        """
        wave = jnp.sin(jnp.pi * timestep * self.done.astype(jnp.float32) / self.seconds)
        size = 0.5 * wave * self.speed / self.seconds
        over = self.done >= jnp.round(self.seconds / timestep).astype(jnp.int32)
        waited = jnp.where(self.pushing, jnp.where(over, 0, self.waited), self.waited + 1)
        begins = ~self.pushing & (waited >= self.wait)
        return Pushes(
            wait=self.wait,
            seconds=self.seconds,
            speed=self.speed,
            waited=waited,
            done=jnp.where(self.pushing, self.done + 1, jnp.where(begins, 0, self.done)),
            direction=jnp.where(begins, horizontal(key), self.direction),
            acceleration=jnp.where(self.pushing, size * self.direction, 0.0),
        )


class Knocks(eqx.Module):
    """The knocks of an episode: each changes the velocity of the robot at once."""

    wait: Array
    """Control steps from a knock to the next, `()` int32."""
    clock: Array
    """Control steps since the start, `()` int32."""

    @classmethod
    def at_start(cls, key: Key, waits: tuple[float, float], timestep: float) -> Knocks:
        """Draws how long it is from a knock to the next: uniform between `waits`, s."""
        wait = jax.random.uniform(key, (), jnp.float32, *waits)
        steps = jnp.maximum(jnp.round(wait / timestep), 1.0)
        return cls(wait=steps.astype(jnp.int32), clock=jnp.int32(0))

    def change(self, knock: Array) -> Array:
        """The change of velocity as the next control step begins: the knock, or none, `(2,)`."""
        return jnp.where((self.clock + 1) % self.wait == 0, knock, 0.0)

    def counted(self) -> Knocks:
        """After a control step."""
        return Knocks(wait=self.wait, clock=self.clock + 1)


def knock(key: Key, speeds: tuple[float, float]) -> Array:
    """A random change of the horizontal velocity whose size is between `speeds`, `(2,)`, m/s."""
    direction_key, speed_key = jax.random.split(key)
    return jax.random.uniform(speed_key, (), jnp.float32, *speeds) * horizontal(direction_key)[:2]


def horizontal(key: Key) -> Array:
    """A random horizontal direction, `(3,)`."""
    angle = jax.random.uniform(key, (), jnp.float32, 0.0, 2 * jnp.pi)
    return jnp.stack([jnp.cos(angle), jnp.sin(angle), jnp.zeros_like(angle)])
