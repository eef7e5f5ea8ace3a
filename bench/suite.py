"""What PPO, with one configuration for all, makes of each task of the suite in five minutes.

    worldline bench suite                                  # every task, one after the other
    worldline bench suite --tasks suite/cartpole-swingup suite/walker-walk --seeds 0 1 2

Each training is a process of its own, as a user's `worldline train` is; the minutes count from its
start, compilation included. Prints a table in Markdown: the mean return of deterministic episodes,
from 0 to 1000, the steps that the time allowed, and what others have published of PPO. It takes
hours: each result is written to a file at once, and what is found there, of as many seconds, is not
trained again.
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
#: Of CleanRL, 8 million steps, the mean of 10 seeds and of its stochastic policy:
#: https://docs.cleanrl.dev/rl-algorithms/rpo/ (the column of PPO).
CLEANRL = {
    "acrobot-swingup": 27,
    "acrobot-swingup_sparse": 2,
    "ball_in_cup-catch": 935,
    "cartpole-balance": 790,
    "cartpole-balance_sparse": 986,
    "cartpole-swingup": 590,
    "cartpole-swingup_sparse": 240,
    "cartpole-two_poles": 216,
    "cartpole-three_poles": 160,
    "cheetah-run": 472,
    "finger-spin": 630,
    "finger-turn_easy": 238,
    "finger-turn_hard": 84,
    "fish-upright": 560,
    "fish-swim": 80,
    "hopper-stand": 3,
    "hopper-hop": 6,
    "humanoid-stand": 21,
    "humanoid-walk": 9,
    "humanoid-run": 5,
    "humanoid-run_pure_state": 1,
    "manipulator-bring_ball": 0,
    "manipulator-bring_peg": 1,
    "manipulator-insert_ball": 41,
    "manipulator-insert_peg": 41,
    "pendulum-swingup": 472,
    "point_mass-easy": 534,
    "point_mass-hard": 130,
    "quadruped-walk": 247,
    "quadruped-run": 172,
    "quadruped-escape": 23,
    "quadruped-fetch": 184,
    "reacher-easy": 773,
    "reacher-hard": 638,
    "swimmer-swimmer6": 164,
    "swimmer-swimmer15": 161,
    "walker-stand": 439,
    "walker-walk": 306,
    "walker-run": 128,
}
#: Of rl_games, some 32 million steps, one configuration for each:
#: https://github.com/Denys88/rl_games/blob/master/docs/DEEPMIND_ENVPOOL.md
RL_GAMES = {
    "ball_in_cup-catch": 938,
    "cartpole-balance": 988,
    "cheetah-run": 685,
    "fish-swim": 600,
    "hopper-stand": 557,
    "humanoid-stand": 653,
    "humanoid-walk": 621,
    "humanoid-run": 200,
    "pendulum-swingup": 706,
    "walker-stand": 907,
    "walker-walk": 917,
    "walker-run": 702,
}


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
    """A row for each task: the median over seeds and each, the steps of a training, others'."""
    lines = [
        f"| task | return after {seconds:g} s (each seed) | million steps "
        "| CleanRL, 8 million steps | rl_games, 32 million steps |",
        "|---|---|---|---|---|",
    ]
    for task in dict.fromkeys(result["task"] for result in results):
        mine = [result for result in results if result["task"] == task]
        returns = [result["return"] for result in mine]
        shown = f"{statistics.median(returns):.0f}"
        if len(returns) > 1:
            shown += f" ({', '.join(f'{each:.0f}' for each in returns)})"
        steps = statistics.mean(result["steps"] for result in mine) / 1e6
        name = task.removeprefix("suite/")
        others = " | ".join(str(known.get(name, "")) for known in (CLEANRL, RL_GAMES))
        lines.append(f"| `{task}` | {shown} | {steps:.2g} | {others} |")
    return "\n".join(lines)


def main() -> None:
    """Trains each task and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", help="default: all of the suite")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: 0; 0 1 2 for four tasks")
    parser.add_argument("--seconds", type=float, default=300.0, help="of each training")
    parser.add_argument("--episodes", type=int, default=64, help="of each evaluation")
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
