"""What a terrain costs: environment steps of a robot with legs, and MuJoCo's contacts alone.

`python bench/terrain.py`, or `worldline bench terrain`. See `bench/README.md`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tyro

from _harness import Finding, Ratio, interleave, machine, save, say, show_findings, use_cores
from worldline.tuning import tune_process


@dataclasses.dataclass(frozen=True)
class TerrainBench:
    """What a terrain costs: environment steps of a robot with legs, and MuJoCo's contacts alone."""

    task: str = "robot/quadruped-joystick"
    """A task that takes a terrain."""
    kinds: tuple[str, ...] = ("stairs_up", "rough")
    """Kinds of ground, each beside the plane."""
    cell: float = 0.05
    """Distance between two heights of the ground, m."""
    num_worlds: int = 64
    """Worlds side by side."""
    steps: int = 50
    """Control steps of a measurement."""
    repeats: int = 9
    """Measurements of each, in turn."""
    threads: int = 2
    """Cores to use."""
    json: Path | None = None
    """Where to write the results."""


def main(config: TerrainBench) -> None:
    """Measures, prints the table and writes the results."""
    use_cores(config.threads)
    say("compile, warm up")
    contenders = {}
    for kind in ("plane", *config.kinds):
        env = made(config, kind)
        contenders[kind] = environment_steps(config, env)
        contenders[f"{kind}, MuJoCo alone"] = physics_steps(env)
    rates = interleave(contenders, config.repeats, say)
    findings = [found for kind in config.kinds for found in compare(kind, rates)]
    results = {"machine": machine(), "config": dataclasses.asdict(config) | {"json": None}}
    save(config.json, {**results, "rates": rates, "findings": [f.json() for f in findings]})
    show_findings(f"{config.task}: time of a step over that on a plane", findings)


def made(config: TerrainBench, kind: str) -> Any:
    """The task on a plane, or on four levels of a kind of ground."""
    import worldline
    from worldline.tasks.terrain import Terrain

    if kind == "plane":
        return worldline.make(config.task)
    terrain = Terrain(kinds=(kind,), levels=4, cell=config.cell)
    return worldline.make(config.task, terrain=terrain)


def environment_steps(config: TerrainBench, env: Any) -> Callable[[], float]:
    """Steps with small random actions, observation, reward and resets: their number a second."""
    import jax

    import worldline

    worlds = worldline.Worlds(env, config.num_worlds)
    shape = (config.steps, config.num_worlds, *env.action_low.shape)

    @jax.jit
    def program(state: Any, key: Any) -> Any:
        actions = 0.3 * jax.random.uniform(key, shape, minval=-1.0)
        state, step = jax.lax.scan(worlds.step, state, actions)
        return state, (step.reward, step.terminated, step.truncated)

    start = worlds.reset(jax.random.key(0))
    # Legs are on the ground, and some robots have fallen.
    start, _ = jax.block_until_ready(program(start, jax.random.key(1)))
    jax.block_until_ready(program(start, jax.random.key(2)))

    def rate() -> float:
        began = time.perf_counter()
        jax.block_until_ready(program(start, jax.random.key(2)))
        return config.steps * config.num_worlds / (time.perf_counter() - began)

    return rate


def physics_steps(env: Any) -> Callable[[], float]:
    """`mj_step` on one thread, of a robot that stands: steps a second."""
    import jax
    import mujoco
    import numpy as np

    model = env.model.mj
    start = env.task.start(jax.random.key(0))
    data = mujoco.MjData(model)
    data.qpos[:] = np.asarray(start.qpos)
    inputs = {"ctrl": start.qpos[-model.nu :], **start.inputs}
    for name, value in inputs.items():
        getattr(data, name)[:] = np.asarray(value)
    for name, value in start.variation.items():
        getattr(model, name)[:] = np.asarray(value)
    mujoco.mj_step(model, data, 200)
    state = np.empty(mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_INTEGRATION))
    mujoco.mj_getState(model, data, state, mujoco.mjtState.mjSTATE_INTEGRATION)

    def rate(steps: int = 4000) -> float:
        mujoco.mj_setState(model, data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
        began = time.perf_counter()
        mujoco.mj_step(model, data, steps)
        return steps / (time.perf_counter() - began)

    return rate


def compare(kind: str, rates: dict[str, list[float]]) -> list[Finding]:
    """The cost of a kind of ground, in the environment and in MuJoCo alone."""
    findings = []
    for what, of, most in (("environment", "", 2.0), ("MuJoCo alone", ", MuJoCo alone", None)):
        ratio = Ratio.of(rates[f"plane{of}"], rates[f"{kind}{of}"])
        findings.append(
            Finding(what=f"{kind}: {what}", value=ratio.median, shown=str(ratio), at_most=most)
        )
    return findings


if __name__ == "__main__":
    tune_process()
    main(tyro.cli(TerrainBench))
