"""Pixels: frames a second through the environment's step, against the renderer alone and peers.

`python bench/pixels.py`, or `worldline bench pixels`.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import tyro

from _harness import (
    PEERS,
    Finding,
    MissingPeerError,
    Ratio,
    StepWorker,
    interleave,
    machine,
    peer_python,
    save,
    say,
    show_findings,
    use_cores,
)
from worldline.tuning import tune_process

#: A task and its like at the peers, each with its own settings.
DM_CONTROL = {"suite/cartpole-balance": ("cartpole", "balance")}
GYMNASIUM = {"gym/ant": "Ant-v5"}
ENVPOOL = {"suite/cartpole-balance": "CartpoleBalance-v1", "gym/ant": "Ant-v5"}
#: Environments of EnvPool, which draws as many images in a step.
ENVPOOL_BATCH = 16


@dataclasses.dataclass(frozen=True)
class PixelBench:
    """Frames a second of worlds that are seen, against the renderer alone and against peers."""

    tasks: tuple[str, ...] = ("suite/cartpole-balance", "gym/ant", "arm/pick-cube")
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
    use_cores(config.cores)  # before JAX starts its threads
    findings, measured = [], {}
    for task in config.tasks:
        for size in config.sizes:
            others = peers(config, task, size)
            for number in config.worlds:
                what = f"{task}, {number} worlds, {size} x {size}"
                say(what)
                rates_of = {name: worker.rate for name, worker in others.items()}
                rates = interleave(ours(config, task, number, size) | rates_of, config.repeats, say)
                measured[what] = rates
                findings += compared(what, rates)
            for worker in others.values():
                worker.close()
    show_findings("Frames a second", findings)
    found = [finding.json() for finding in findings]
    save(config.json, {"machine": machine(), "measured": measured, "findings": found})


def compared(what: str, rates: dict[str, list[float]]) -> list[Finding]:
    """Our steps against the renderer alone, and against the peers."""
    findings = []
    promised = {"images alone": 0.85, "dm_control": 10.0, "Gymnasium": 10.0, "EnvPool": None}
    for name, at_least in promised.items():
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
    from worldline.env.cameras import Cameras
    from worldline.rendering.camera import Camera

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


def peers(config: PixelBench, task: str, size: int) -> dict[str, StepWorker]:
    """Processes of the peers that have the task, at their own settings."""
    envpool = str(ENVPOOL_BATCH), str(config.cores)
    commands = {
        "dm_control": ("dm_control", "pixels_dm_control.py", DM_CONTROL.get(task), (), 1),
        "Gymnasium": ("", "pixels_gymnasium.py", GYMNASIUM.get(task), (), 1),
        "EnvPool": ("envpool", "pixels_envpool.py", ENVPOOL.get(task), envpool, ENVPOOL_BATCH),
    }
    workers = {}
    for name, (venv, script, known_as, options, frames) in commands.items():
        if known_as is None:
            continue
        names = (known_as,) if isinstance(known_as, str) else known_as
        try:
            python = peer_python(venv) if venv else sys.executable
            command = [python, str(PEERS / script), *names, str(size), *options]
            workers[name] = StepWorker(command, frames, config.seconds, trial=1)
        except (MissingPeerError, RuntimeError) as error:
            say(str(error))
    return workers


def calls_a_second(call: Callable[[], Any], seconds: float) -> float:
    """How often a function runs in a second."""
    calls, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds or calls < 2:
        call()
        calls += 1
    return calls / passed if calls else 0.0


if __name__ == "__main__":
    tune_process()
    main()
