"""Does it help? Returns under shifted physics, after training on one world, on many, and knowingly.

`python bench/shift.py`, or `worldline bench shift`. See `bench/README.md`.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import tyro

from _harness import machine, save, say, show_table, use_cores
from worldline.tuning import tune_process

#: What training draws from, and what the policies are judged on.
TRAINED = {"gravity": (-13.0, -7.0), "friction": (0.2, 0.8), "mass_torso": (3.0, 10.0)}
SHIFTS = {
    "nominal": {},
    "gravity -5": {"gravity": -5.0},
    "gravity -15": {"gravity": -15.0},
    "friction 0.1": {"friction": 0.1},
    "friction 1.5": {"friction": 1.5},
    "torso 1.5 kg": {"mass_torso": 1.5},
    "torso 15 kg": {"mass_torso": 15.0},
}


@dataclasses.dataclass(frozen=True)
class ShiftBench:
    """Returns under shifted physics, after training on one world, on many, and knowingly."""

    task: str = "gym/half-cheetah"
    """The task."""
    steps: int = 1_500_000
    """Environment steps of each training."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of each way of training."""
    episodes: int = 32
    """Episodes under each shift."""
    threads: int = 2
    """Cores to use."""
    json: Path | None = None
    """Where to write the results."""


def main(config: ShiftBench) -> None:
    """Trains, judges, prints the table and writes the results."""
    use_cores(config.threads)
    results: dict[str, dict[str, list[float]]] = {}
    for way in ("nominal", "randomised", "visible context", "automatic"):
        results[way] = {shift: [] for shift in SHIFTS}
        for seed in config.seeds:
            began = time.perf_counter()
            env, policy = train(config, way, seed)
            for shift, value in judge(config, env, policy).items():
                results[way][shift].append(value)
            say(f"{way}, seed {seed}: {time.perf_counter() - began:.0f} s")
            save(config.json, {"machine": machine(), "returns": results})
    rows = [(shift, *(spread(results[way][shift]) for way in results)) for shift in SHIFTS]
    title = f"{config.task}: mean return after {config.steps:,} steps (least to most of the seeds)"
    show_table(title, ("", *results), rows)


def train(config: ShiftBench, way: str, seed: int) -> tuple[Any, Any]:
    """An environment and the policy that was trained in it, one of four ways."""
    import jax

    import worldline
    from worldline.learn.curriculum import automatic
    from worldline.learn.ppo import PPOConfig, ppo
    from worldline.learn.run import run
    from worldline.variation import Context, Draw, Uniform

    task = worldline.make(config.task).task
    visible = way == "visible context"
    env = worldline.Env(task, context=Context(TRAINED, visible=None if visible else ()))
    settings = dict(task.defaults.get("ppo", {}))
    if visible:
        settings["actor_obs"] = ("state", "context")
    wide = {name: Uniform(*ends) for name, ends in TRAINED.items()}
    defaults = {name: feature.default for name, feature in env.context.features(env.model).items()}
    narrow = {name: Uniform(value, value) for name, value in defaults.items()}
    context = {"nominal": None, "automatic": Draw(narrow)}.get(way, Draw(wide))
    curriculum = (
        automatic(narrow, wide, widen_at=1500.0, narrow_at=750.0) if way == "automatic" else None
    )
    ppo_config = PPOConfig(**settings)
    worlds = worldline.Worlds(env, ppo_config.num_worlds, context=context)
    learner = ppo(worlds, ppo_config, curriculum=curriculum)
    state = learner.init(jax.random.key(seed))
    for progress in run(learner, state, config.steps):
        state = progress.state
    return env, learner.policy(state)


def judge(config: ShiftBench, env: Any, policy: Any) -> dict[str, float]:
    """The mean return under each shift; all of them side by side in one evaluation."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from worldline.learn.rollout import evaluator

    evaluate = evaluator(env, config.episodes * len(SHIFTS))
    features = env.context.features(env.model)
    context = {
        name: jnp.asarray(
            np.repeat(
                [shift.get(name, feature.default) for shift in SHIFTS.values()], config.episodes
            ),
            jnp.float32,
        )
        for name, feature in features.items()
    }
    returns = evaluate(policy, jax.random.key(100), context).episode_return
    means = np.asarray(returns).reshape(len(SHIFTS), -1).mean(axis=1)
    return dict(zip(SHIFTS, map(float, means), strict=True))


def spread(values: list[float]) -> str:
    """The mean over seeds, and the least and the most."""
    mean = sum(values) / len(values)
    return f"{mean:.0f} ({min(values):.0f} to {max(values):.0f})"


if __name__ == "__main__":
    tune_process()
    main(tyro.cli(ShiftBench, description=ShiftBench.__doc__))
