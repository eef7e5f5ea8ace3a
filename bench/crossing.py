"""How many robots cross uneven ground: trained on it with a curriculum, or on even ground alone.

`python bench/crossing.py`, or `worldline bench crossing`. See `bench/README.md`.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from _harness import Finding, machine, save, say, show_findings, use_cores
from worldline.tuning import tune_process

if TYPE_CHECKING:
    from worldline.learn.policy import Policy


@dataclasses.dataclass(frozen=True)
class CrossingBench:
    """How many robots cross uneven ground: trained on it with a curriculum, or on even ground."""

    run: Path = Path("runs/terrain")
    """The run of `examples/terrain.py`."""
    flat: Path | None = Path("runs/flat")
    """The run of `examples/terrain.py --flat`; None: without it."""
    levels: tuple[int, ...] = (0, 2, 3, 4, 5)
    """Levels to cross; those of `examples/terrain.py` are 0 to 5."""
    episodes: int = 256
    """Episodes for each kind and level."""
    speed: float = 0.6
    """The command: straight ahead, m/s."""
    clearance: float | None = None
    """A robot has also fallen if its torso's underside is lower above the ground, m. By default as
    in training."""
    seconds: float = 12.0
    """The time of an episode."""
    threads: int = 2
    """Cores to use."""
    json: Path | None = None
    """Where to write the results."""


def main(config: CrossingBench) -> None:
    """Measures, prints the table and writes the results."""
    from worldline import load_policy
    from worldline.report import RunFolder
    from worldline.train.stored import environment_of

    use_cores(config.threads)
    task = environment_of(RunFolder.open(config.run)).task.plain
    runs = {"trained there": config.run, **({"trained flat": config.flat} if config.flat else {})}
    findings = []
    for kind, name in enumerate(task.terrain.kinds):
        for level in config.levels:
            height = height_of(task.terrain, name, level)
            for how, run in runs.items():
                say(f"{name}, level {level}, {how}")
                share = crossed(config, task, load_policy(run), kind, level)
                asked = how == "trained there" and round(height, 3) == 0.1
                findings.append(
                    Finding(
                        what=f"{name}, {100 * height:.0f} cm: {how}",
                        value=share,
                        shown=f"{100 * share:.0f}%",
                        at_least=0.8 if asked else None,
                    )
                )
    options = {name: str(value) for name, value in dataclasses.asdict(config).items()}
    results = {"machine": machine(), "config": options}
    save(config.json, {**results, "findings": [found.json() for found in findings]})
    show_findings("Share of episodes that cross their tile without a fall", findings)


def height_of(terrain: Any, kind: str, level: int) -> float:
    """The height of a step, or of rough ground from its lowest point to its highest, m."""
    low, high = terrain.roughness if kind == "rough" else terrain.step_height
    return float(low + (high - low) * level / max(1, terrain.levels - 1))


def crossed(config: CrossingBench, task: Any, policy: Policy, kind: int, level: int) -> float:
    """The share of robots that walk from the middle of a tile to its border, and do not fall."""
    import jax
    import jax.numpy as jnp

    import worldline
    from worldline.variation import Context

    # The task with one command for all of the time. If the task keeps a heading, it may turn the
    # robot back as fast as in training.
    turns = task.heading_gain != 0
    slowest, fastest = (
        (config.speed, 0.0, turns * most[2]) for most in (task.lowest_command, task.fastest)
    )
    steady = {"slowest": slowest, "fastest": fastest, "stand_probability": 0.0}
    task = dataclasses.replace(task, **steady, command_time=10 * config.seconds)
    if config.clearance is not None:
        task = dataclasses.replace(task, clearance=config.clearance)
    env = worldline.Env(task, context=Context(["terrain_level", "terrain_kind"], visible=()))
    number, steps = config.episodes, round(config.seconds / task.control_timestep)
    worlds = worldline.Worlds(env, number, steps + 1)
    middle = {"terrain_level": level + 0.5, "terrain_kind": kind + 0.5}
    context = {name: jnp.full(number, value) for name, value in middle.items()}
    start = worlds.reset(jax.random.key(0), context=context)
    origin = start.env.physics.qpos[:, :2]
    far = task.terrain.tile / 2 - task.terrain.margin

    def step(carry: Any, _: None) -> tuple[Any, None]:
        state, memory, walks, there = carry
        action, memory = policy.step(state.obs, memory, None)
        state, result = worlds.step(state, action, walks)
        walks &= ~result.terminated
        place = jnp.abs(state.env.physics.qpos[:, :2] - origin).max(axis=-1)
        there |= walks & (place > far)
        return (state, memory, walks & ~there, there), None

    none, everyone = jnp.zeros(number, bool), jnp.ones(number, bool)
    carry = (start, policy.start(number), everyone, none)
    walk = jax.jit(lambda carry: jax.lax.scan(step, carry, length=steps)[0])
    return float(walk(carry)[3].mean())


if __name__ == "__main__":
    tune_process()
    main(tyro.cli(CrossingBench))
