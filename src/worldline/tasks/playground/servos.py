"""Servos: where joints were told to be, and how far from there they were."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp

from worldline.types import Array


class Servos(eqx.Module):
    """Where the joints were told to be, and how far from there they were felt to be."""

    targets: Array
    """Where they were told to be in the last control step, `(nu,)`, rad; 0 at a start."""
    past: Array
    """The errors in the control steps before it, newest first, `(n, nu)`, rad."""

    @classmethod
    def at_start(cls, length: int, joints: int) -> Servos:
        """Servos that have done nothing, of which the errors of so many control steps are seen."""
        past = jnp.zeros((length - 1, joints), jnp.float32)
        return cls(targets=jnp.zeros(joints, jnp.float32), past=past)

    def errors(self, joints: Array) -> Array:
        """The errors, newest first, `(n + 1, nu)`, rad, of joints that are felt now at `joints`."""
        return jnp.concatenate([(joints - self.targets)[None], self.past])

    def next(self, joints: Array, targets: Array) -> Servos:
        """After a control step to new targets, before which the joints were felt at `joints`."""
        return Servos(targets=targets, past=self.errors(joints)[:-1])
