"""What PPO, with one configuration for all, makes of each task of the suite in five minutes.

    worldline bench suite                                  # every task, one after the other
    worldline bench suite --tasks suite/cartpole-swingup suite/walker-walk --seeds 0 1 2

Each training is a process of its own, as a user's `worldline train` is; the minutes count from its
start, compilation included. Prints a table in Markdown: the mean return of deterministic episodes,
from 0 to 1000, and the steps that the time allowed. It takes hours: each result is written to a
file at once, and what is found there, of as many seconds, is not trained again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _harness import machine, save, say, use_cores

HERE = Path(__file__).resolve()
#: Those whose returns others have published, with three seeds.
SEVERAL = ("cartpole-swingup", "cheetah-run", "walker-walk", "reacher-easy")


def train(task: str, seed: int, seconds: float, episodes: int) -> None:
    """Trains in this process until the time is over; prints one line of JSON."""
    began = time.perf_counter()

    import jax

    import worldline
    from worldline.learn.ppo import PPOConfig, ppo
    from worldline.learn.rollout import evaluator
    from worldline.learn.run import run

    env = worldline.make(task)
    config = PPOConfig(**env.task.defaults.get("ppo", {}))
    learner = ppo(worldline.Worlds(env, config.num_worlds), config)
    train_key, evaluate_key = jax.random.split(jax.random.key(seed))
    state, steps = learner.init(train_key), 0
    for progress in run(learner, state, steps=10**9):
        state, steps = jax.block_until_ready(progress.state), progress.step
        if time.perf_counter() - began > seconds:
            break
    evaluation = evaluator(env, num_episodes=episodes)(learner.policy(state), evaluate_key)
    returns = jax.device_get(evaluation.episode_return)
    result = {"task": task, "seed": seed, "steps": int(steps), "return": float(returns.mean())}
    print(json.dumps(result), flush=True)


def trained(task: str, seed: int, seconds: float, episodes: int) -> dict[str, Any]:
    """The result of a training in a process of its own."""
    command = [sys.executable, str(HERE), "--one", task, "--seeds", str(seed)]
    command += ["--seconds", str(seconds), "--episodes", str(episodes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{task}, seed {seed}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def seeds_of(task: str, given: list[int] | None) -> list[int]:
    """The seeds to train a task with."""
    if given:
        return given
    return [0, 1, 2] if task.removeprefix("suite/") in SEVERAL else [0]


def table(results: list[dict[str, Any]], seconds: float) -> str:
    """A row for each task: the median over seeds and each, and the steps of a training."""
    lines = [f"| task | return after {seconds:g} s (each seed) | million steps |", "|---|---|---|"]
    for task in dict.fromkeys(result["task"] for result in results):
        mine = [result for result in results if result["task"] == task]
        middle = statistics.median(result["return"] for result in mine)
        each = ", ".join(f"{result['return']:.0f}" for result in mine)
        steps = statistics.mean(result["steps"] for result in mine) / 1e6
        lines.append(f"| `{task}` | {middle:.0f} ({each}) | {steps:.2g} |")
    return "\n".join(lines)


def main() -> None:
    """Trains each task and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", help="default: all of the suite")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: 0; 0 1 2 for four tasks")
    parser.add_argument("--seconds", type=float, default=300.0, help="of each training")
    parser.add_argument("--episodes", type=int, default=16, help="of each evaluation")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--json", type=Path, default=Path(".bench/suite.json"), help="results")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return train(options.one, options.seeds[0], options.seconds, options.episodes)

    from worldline.tasks.registry import list_tasks

    use_cores(options.cores)
    known = json.loads(options.json.read_text())["results"] if options.json.exists() else []
    results = {(r["task"], r["seed"]): r for r in known if r["seconds"] == options.seconds}
    tasks = options.tasks or [name for name in list_tasks() if name.startswith("suite/")]
    wanted = [(task, seed) for task in tasks for seed in seeds_of(task, options.seeds)]
    for task, seed in wanted:
        if (task, seed) not in results:
            say(f"{task}, seed {seed}")
            one = trained(task, seed, options.seconds, options.episodes)
            results[task, seed] = {**one, "seconds": options.seconds, "machine": machine()}
            save(options.json, {"results": list(results.values())})
    print(table([results[key] for key in wanted], options.seconds))
    return None


if __name__ == "__main__":
    main()
