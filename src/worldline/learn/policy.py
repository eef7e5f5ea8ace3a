"""The policy that a training run makes: a function from observations to actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from worldline.errors import TaskError
from worldline.learn.networks.network import Network
from worldline.learn.networks.vision import ImageEncoder, Observed
from worldline.learn.normalizer import RunningStatistics
from worldline.rendering.camera import image_names
from worldline.types import Array, Key, Observation, PyTree

Squash: TypeAlias = Literal["clip", "tanh"]


class Policy(eqx.Module):
    """A function from observations to actions: normaliser, network and action bounds, a pytree.

    A policy with a memory of its episode has the method `step`, which works for any policy:

    ```
    memory = policy.start()
    while not ended:
        action, memory = policy.step(obs, memory)
    ```
    """

    actor: Network
    """From normalised observations, `(..., nobs)`, to a distribution of unbounded actions with a
    `mean`, `(..., nact)`, and `at(noise)`, the action for standard normal noise."""
    statistics: RunningStatistics
    """Mean and variance of the numbers that the actor reads, `(nobs,)`."""
    low: Array
    """Lowest action, `(nact,)`."""
    high: Array
    """Highest action, `(nact,)`."""
    squash: Squash = eqx.field(static=True)
    """How to bring the network's unbounded output into [-1, 1] before scaling it to the bounds."""
    obs_keys: tuple[str, ...] = eqx.field(static=True, default=("state",))
    """The parts of a dict of observations that the actor reads."""
    encoder: ImageEncoder = eqx.field(default_factory=ImageEncoder)
    """Computes features of the images among these parts; the actor reads them after the numbers."""

    def __call__(self, obs: Any, key: Key | None = None) -> Any:
        """The actions at one or many observations, of a policy without a memory.

        Args:
            obs: `(nobs,)` or `(..., nobs)`, as the environment gives it; or a dict with the
                policy's `obs_keys`.
            key: draws the actions; None: the most likely ones.

        Returns:
            `(nact,)` or `(..., nact)`; NumPy for NumPy, JAX for JAX.

        Raises:
            TaskError: the policy was trained on observations of another size, or has a memory.
        """
        if jax.tree.leaves(self.actor.start()):
            raise TaskError(
                "this policy has a memory: begin an episode with memory = "
                "policy.start(), then action, memory = policy.step(obs, memory)"
            )
        return self.step(obs, (), key)[0]

    def start(self, *lead: int) -> PyTree:
        """The policy's memory at the start of an episode; `()`: the policy has none.

        Args:
            lead: the leading axes of the observations, for example the number of worlds.
        """
        return self.actor.start(*lead)

    def step(self, obs: Any, memory: PyTree, key: Key | None = None) -> tuple[Any, PyTree]:
        """The actions at one or many observations, and the memory for the next step.

        Args:
            obs: as in `__call__`.
            memory: the memory from the previous step, or from `start` at the start of an episode.
            key: as in `__call__`.

        Returns:
            The actions, as `__call__`, and the next memory.

        Raises:
            TaskError: the policy was trained on observations of another size; or the memory belongs
                to another policy, or to another number of observations.
        """
        selected = select(obs, self.obs_keys)
        flat = selected["state"]
        size = self.statistics.mean.shape[0]
        if flat.shape[-1:] != (size,):
            raise TaskError(
                f"the observation has shape {flat.shape}; this policy takes (..., {size})"
            )
        self._check_memory(memory, flat.shape[:-1])
        on_device = any(isinstance(part, jax.Array) for part in jax.tree.leaves(selected))
        selected = {**selected, "state": jnp.asarray(flat, jnp.float32)}
        action, memory = _act(self, selected, memory, key)
        return action if on_device else np.asarray(action), memory

    def restart(self, memory: PyTree, ended: Array) -> PyTree:
        """The memory, `(..., size)`, reset where an episode has ended, `(...)` bool."""
        return self.actor.restart(memory, ended)

    def distribution(self, obs: Observation, memory: PyTree) -> tuple[Any, PyTree]:
        """The distribution of unbounded actions, for `to_action`, and the next memory."""
        return _respond(self, select(obs, self.obs_keys), memory)

    def _check_memory(self, memory: PyTree, lead: tuple[int, ...]) -> None:
        given, known = (jax.tree.map(jnp.shape, tree) for tree in (memory, self.start(*lead)))
        if given != known:
            raise TaskError(
                f"the memory has shape {given}, but for {lead} observations this policy needs "
                f"{known}; begin an episode with policy.start{lead}"
            )

    def to_action(self, raw: Array) -> Array:
        """Converts an unbounded action to the environment's units, `(..., nact)` both."""
        unit = jnp.tanh(raw) if self.squash == "tanh" else jnp.clip(raw, -1.0, 1.0)
        bounded = jnp.isfinite(self.low) & jnp.isfinite(self.high)
        low, high = jnp.where(bounded, self.low, -1.0), jnp.where(bounded, self.high, 1.0)
        scaled = low + 0.5 * (unit + 1.0) * (high - low)
        return jnp.where(bounded, scaled, raw)


def _respond(policy: Policy, selected: Observed, memory: PyTree) -> tuple[Any, PyTree]:
    seen = policy.encoder(policy.statistics.normalize_observed(selected))
    memory, distribution = policy.actor.step(memory, seen)
    return distribution, memory


@eqx.filter_jit
def _act(
    policy: Policy, selected: Observed, memory: PyTree, key: Key | None
) -> tuple[Array, PyTree]:
    distribution, memory = _respond(policy, selected, memory)
    raw = distribution.mean
    if key is not None:
        raw = distribution.at(jax.random.normal(key, raw.shape, jnp.float32))
    return policy.to_action(raw), memory


def select(obs: Observation | Any, keys: Sequence[str]) -> Observed:
    """The parts of an observation that a network reads.

    All numbers are joined as `state`, `(..., n)` float32; each image keeps its name. An observation
    that is an array has one part, `state`.

    Raises:
        TaskError: a part is missing.
    """
    parts = obs if isinstance(obs, dict) else {"state": obs}
    for key in keys:
        if key not in parts:
            raise TaskError(
                f"the observation has {sorted(parts)} but no {key!r} for the policy to read"
            )
    images = {key: parts[key] for key in image_names(keys)}
    numbers = [_as_numbers(parts[key], key) for key in keys if key not in images]
    if not numbers:
        first = next(iter(images.values()))
        numbers = [first[..., 0, 0, :0].astype(np.float32)]
    if len(numbers) == 1:
        return {"state": numbers[0], **images}
    library = jnp if any(isinstance(part, jax.Array) for part in numbers) else np
    return {"state": library.concatenate(numbers, axis=-1), **images}


def _as_numbers(part: Any, name: str) -> Any:
    """A part of an observation as float32; a list, or a list of lists, becomes an array."""
    if hasattr(part, "astype"):
        return part.astype(np.float32)
    try:
        return np.asarray(part, np.float32)
    except (TypeError, ValueError) as error:
        raise TaskError(f"{name!r} of the observation is {part!r}; give numbers") from error
