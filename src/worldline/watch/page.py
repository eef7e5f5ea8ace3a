"""Pages that play by themselves: worlds that go on from a state, in one HTML file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from worldline.env.episodes import WorldsState
from worldline.env.worlds import Worlds
from worldline.learn.policy import Policy
from worldline.rendering.web.page import Frame, page_of, stride_of, write_page
from worldline.types import PyTree
from worldline.watch.session import rest_of, shown_of
from worldline.watch.source import Source


def save_page(
    file: Path,
    source: Source,
    policy: Policy | None,
    *,
    num_worlds: int = 4,
    seconds: float = 20.0,
    seed: int = 1,
) -> int:
    """Records worlds, and writes a page that replays them: to orbit, pause and scrub.

    Args:
        file: the HTML file, which is replaced.
        source: what to record.
        policy: how the worlds act; None: they rest.
        num_worlds: how many, side by side.
        seconds: of simulated time.
        seed: decides the starts.

    Returns:
        The size of the file in bytes.

    Raises:
        MissingExtraError: viser is not installed.
        RunError: the file cannot be written.
    """
    worlds = Worlds(source.env, num_worlds, adaptive=False)
    page = page_from(worlds, worlds.reset(jax.random.key(seed)), policy, seconds)
    write_page(file, page)
    return len(page)


def page_from(worlds: Worlds, state: WorldsState, policy: Policy | None, seconds: float) -> bytes:
    """The page of worlds that go on from a state.

    Args:
        worlds: B of them.
        state: where they are.
        policy: how they act; None: they rest.
        seconds: of simulated time; 0: the state alone.

    Raises:
        MissingExtraError: viser is not installed.
    """
    env = worlds.env
    stride = stride_of(env.control_timestep)
    between = stride * env.control_timestep
    frames = _frames(worlds, state, policy, max(1, round(seconds / between)), stride)
    return page_of(env.model.mj, frames, between, worlds.num_worlds)


def _frames(
    worlds: Worlds, state: WorldsState, policy: Policy | None, count: int, stride: int
) -> Iterator[Frame]:
    """So many moments, with `stride` control steps from one to the next."""
    rest = np.tile(rest_of(worlds.env), (worlds.num_worlds, 1))

    def step(carry: PyTree, _: None) -> tuple[PyTree, None]:
        policy, state, memory = carry
        action = rest
        if policy is not None:
            action, memory = policy.step(state.obs, memory, None)
        state, taken = worlds.step(state, action)
        if policy is not None:
            memory = policy.restart(memory, taken.terminated | taken.truncated)
        return (policy, state, memory), None

    @jax.jit
    def advance(carry: PyTree) -> PyTree:
        return jax.lax.scan(step, carry, length=stride)[0]

    carry = policy, state, () if policy is None else policy.start(worlds.num_worlds)
    for left in range(count - 1, -1, -1):
        now: WorldsState = carry[1]
        physics = now.env.physics
        qpos, shown, total = jax.device_get((physics.qpos, shown_of(physics), now.episode_return))
        yield Frame(qpos, shown, f"world 0: return {total[0]:.0f}")
        if left:
            carry = advance(carry)
