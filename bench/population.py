"""Population: what several seeds in one program cost, against as many runs one after the other.

`python bench/population.py`, or `worldline bench population`.
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
class PopulationBench:
    """Several seeds in one program, against as many runs one after the other."""

    task: str = "gym/half-cheetah"
    """The task, with its own settings of PPO."""
    seeds: int = 4
    """Members of the population."""
    updates: int = 5
    """Updates in a measurement."""
    repeats: int = 5
    """Measurements of each."""
    num_worlds: int | None = None
    """Worlds of each member; None: the task's own number."""
    cores: int = 2
    """Cores to use."""
    json: Path | None = None
    """Where to write the results."""


def main() -> None:
    """Measures and prints."""
    config = tyro.cli(PopulationBench)
    use_cores(config.cores)  # before JAX starts its threads
    alone, together = contenders(config)
    contended = {"alone": alone, "together": together}
    measured = interleave(contended, config.repeats, say)
    ratio = Ratio.of(measured["together"], measured["alone"])
    finding = Finding(
        what=f"{config.seeds} seeds in one program / {config.seeds} updates in turn",
        value=ratio.median,
        shown=str(ratio),
        detail=f"{config.task}, seconds of an update after compilation",
        at_most=1.0,
    )
    show_findings("Population", [finding])
    save(config.json, {"machine": machine(), "measured": measured, "findings": [finding.json()]})


def contenders(config: PopulationBench) -> tuple[Callable[[], float], Callable[[], float]]:
    """Functions that give the seconds of some updates: of each member in turn, and of all."""
    import jax

    import worldline
    from worldline.learn.population import population
    from worldline.learn.ppo import PPOConfig, ppo

    env = worldline.make(config.task)
    settings = dict(env.task.defaults.get("ppo", {}))
    if config.num_worlds is not None:
        settings["num_worlds"] = config.num_worlds
    ppo_config = PPOConfig(**settings)
    learner = ppo(worldline.Worlds(env, ppo_config.num_worlds), ppo_config)
    members = population(learner)
    keys = jax.random.split(jax.random.key(0), config.seeds)

    def timed(update: Callable[[Any], Any], state: Any) -> tuple[float, Any]:
        began = time.perf_counter()
        for _ in range(config.updates):
            state, metrics = update(state)
        jax.block_until_ready(metrics)
        return time.perf_counter() - began, state

    states = [learner.update(learner.init(key))[0] for key in keys]  # compiled
    all_states = members.update(members.init(keys))[0]

    def alone() -> float:
        results = [timed(learner.update, state) for state in states]
        states[:] = [state for _, state in results]
        return sum(seconds for seconds, _ in results)

    def together() -> float:
        nonlocal all_states
        seconds, all_states = timed(members.update, all_states)
        return seconds

    return alone, together


if __name__ == "__main__":
    tune_process()
    main()
