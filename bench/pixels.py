"""Pixels: frames a second through the environment's step, against the renderer alone and peers.

`python bench/pixels.py`, or `worldline bench pixels`.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import tyro

from _harness import Finding, Ratio, interleave, machine, save, say, show_findings, use_cores

#: Task to the same one at a peer, with the peer's own settings.
PEERS = {
    "suite/cartpole-balance": ("dm_control", ("cartpole", "balance")),
    "gym/ant": ("Gymnasium", "Ant-v5"),
}


@dataclasses.dataclass(frozen=True)
class PixelBench:
    """Frames a second of worlds that are seen, against the renderer alone and against peers."""

    tasks: tuple[str, ...] = (*PEERS, "arm/pick-cube")
    """The tasks, each through the first camera of its model."""
    worlds: tuple[int, ...] = (32, 256)
    """Numbers of worlds."""
    sizes: tuple[int, ...] = (64, 84)
    """Sides of the images, in pixels."""
    depth: bool = False
    """Whether to see distances beside colours."""
    renderer: Literal["auto", "opengl", "warp"] = "auto"
    """What draws the images of ours."""
    seconds: float = 1.0
    """About how long a measurement takes."""
    repeats: int = 5
    """Measurements of each."""
    cores: int = 2
    """Cores to use."""
    json: Path | None = None
    """Where to write the results."""


def main() -> None:
    """Measures and prints."""
    config = tyro.cli(PixelBench)
    os.environ.setdefault("MUJOCO_GL", "egl")  # for the peers, before MuJoCo is imported
    use_cores(config.cores)  # before JAX starts its threads
    findings, measured = [], {}
    for task in config.tasks:
        for size in config.sizes:
            peer = PEERS.get(task)
            for number in config.worlds:
                say(f"{task}: {number} worlds, {size} x {size}")
                contenders = ours(config, task, number, size)
                if peer:
                    try:
                        contenders[peer[0]] = theirs(*peer, size, config.seconds)
                    except ImportError as error:
                        say(f"{peer[0]} is not installed: {error}")
                rates = interleave(contenders, config.repeats, say)
                measured[f"{task}, {number} worlds, {size} x {size}"] = rates
                findings += compared(f"{task}, {number} x {size}", rates)
    show_findings("Frames a second", findings)
    found = [finding.json() for finding in findings]
    save(config.json, {"machine": machine(), "measured": measured, "findings": found})


def compared(what: str, rates: dict[str, list[float]]) -> list[Finding]:
    """Our steps against the renderer alone, and against the peer."""
    findings = []
    for name, at_least in (("images alone", 0.85), ("dm_control", 10.0), ("Gymnasium", 10.0)):
        if name in rates:
            ratio = Ratio.of(rates["steps"], rates[name])
            findings.append(
                Finding(
                    what=f"{what} / {name}",
                    value=ratio.median,
                    shown=str(ratio),
                    detail=f"{max(rates['steps']):.0f} and {max(rates[name]):.0f} frames a second",
                    at_least=at_least,
                )
            )
    return findings


def ours(config: PixelBench, task: str, number: int, size: int) -> dict[str, Callable[[], float]]:
    """Functions that measure frames a second: of steps in worlds that are seen, and of images of
    the same states alone.
    """
    import jax

    import worldline
    from worldline.pixels.camera import Camera
    from worldline.pixels.cameras import Cameras

    env = worldline.make(task)
    name = next(name for name in env.model.names("camera") if name)
    views = {"view": Camera(name, size, size, depth=config.depth)}
    worlds = worldline.Worlds(env, number, cameras=Cameras(env.model, views, config.renderer))
    cameras = worlds.env.cameras
    shape = (number, *worlds.env.action_low.shape)
    frame = {"number": 0}

    @jax.jit
    def step(state: Any, key: Any) -> tuple[Any, Any]:
        action = jax.random.uniform(key, shape, minval=-1.0)
        return worlds.step(state, action)

    state = worlds.reset(jax.random.key(0))
    draw = jax.jit(jax.vmap(cameras.first))

    def one_step() -> Any:
        nonlocal state
        frame["number"] += 1
        state, taken = step(state, jax.random.key(frame["number"]))
        return taken

    def rate_of(run: Callable[[], Any]) -> Callable[[], float]:
        jax.block_until_ready(run())  # compiled
        return lambda: number * calls_a_second(lambda: jax.block_until_ready(run()), config.seconds)

    return {"steps": rate_of(one_step), "images alone": rate_of(lambda: draw(state.env.physics))}


def theirs(peer: str, name: Any, size: int, seconds: float) -> Callable[[], float]:
    """A function that measures a peer's frames a second, one environment with its own settings."""
    import numpy as np

    if peer == "dm_control":
        from dm_control import suite
        from dm_control.suite.wrappers import pixels

        env = pixels.Wrapper(suite.load(*name), render_kwargs={"height": size, "width": size})
        action = np.zeros(env.action_spec().shape)
        env.reset()

        def step() -> None:
            if env.step(action).last():
                env.reset()

    else:
        import gymnasium
        from gymnasium.wrappers import AddRenderObservation

        made = gymnasium.make(name, render_mode="rgb_array", width=size, height=size)
        seen = AddRenderObservation(made)
        seen.reset(seed=0)

        def step() -> None:
            _, _, terminated, truncated, _ = seen.step(seen.action_space.sample())
            if terminated or truncated:
                seen.reset()

    step()
    return lambda: calls_a_second(step, seconds)


def calls_a_second(call: Callable[[], Any], seconds: float) -> float:
    """How often a function runs in a second."""
    calls, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds or calls < 2:
        call()
        calls += 1
    return calls / passed if calls else 0.0


if __name__ == "__main__":
    main()
