"""How fast worlds step, against MuJoCo's raw batch, EnvPool and Gymnasium: one run, all ratios.

`python bench/step.py`, or `worldline bench step`. See `bench/README.md` for what is timed.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

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
from peers.protocol import GYMNASIUM

Measure: TypeAlias = Callable[[], float]


@dataclasses.dataclass(frozen=True)
class StepBench:
    """How fast worlds step, against MuJoCo's raw batch, EnvPool and Gymnasium."""

    tasks: tuple[str, ...] = ("gym/half-cheetah", "gym/ant", "gym/humanoid")
    """Tasks to step."""
    num_worlds: int = 256
    """Worlds of ours, of the raw batch and of EnvPool."""
    gymnasium_envs: int = 16
    """Environments of Gymnasium's vectors."""
    threads: int = 2
    """Cores for everyone, and threads of the engines."""
    repeats: int = 9
    """Measurements of each contender, in turn with the others."""
    seconds: float = 1.0
    """How long a measurement takes, about."""
    peers: bool = True
    """Whether to measure EnvPool and Gymnasium too."""
    json: Path | None = None
    """Where to write the results."""


@dataclasses.dataclass(frozen=True)
class Promise:
    """What the project has promised of a task, and where in its episodes to measure it."""

    raw: float
    """Our speed over that of the raw batch, at least."""
    warm_up: int
    """Steps before those that are timed, so that episodes have gone out of step with one another,
    or that the time limit falls into what is timed."""
    envpool: float | None = None
    gymnasium: float | None = None


PROMISES = {
    "gym/half-cheetah": Promise(raw=0.90, warm_up=950, envpool=1.3, gymnasium=3.0),
    "gym/ant": Promise(raw=0.90, warm_up=250),
    "gym/humanoid": Promise(raw=0.95, warm_up=100),
}
OTHERWISE = Promise(raw=0.90, warm_up=100)
RANDOM_END = 0.01


def main(config: StepBench) -> None:
    """Measures, prints the table and writes the results."""
    use_cores(config.threads)
    results: dict[str, Any] = {"machine": machine(), "config": _plain(config), "tasks": {}}
    findings: list[Finding] = []
    for task in config.tasks:
        measured, found = bench_task(config, task)
        findings += found
        results["tasks"][task] = measured
        results["findings"] = [finding.json() for finding in findings]
        save(config.json, results)
    what = f"{config.num_worlds} worlds, {config.threads} threads, {config.repeats} repeats"
    show_findings(f"Environment steps a second: {what}; medians of ratios pair by pair", findings)


def bench_task(config: StepBench, task: str) -> tuple[dict[str, list[float]], list[Finding]]:
    """All measurements of one task, in environment steps a second."""
    import worldline
    from worldline.threefry import write_out

    write_out()

    say(f"{task}: compile, warm up, record")
    promise = PROMISES.get(task, OTHERWISE)
    build = functools.partial(Ours, config=config, warm_up=promise.warm_up)
    ours = build(worldline.make(task, physics=_engine(config)))
    replay = ours.replay()
    contenders: dict[str, Measure] = {
        "worldline": ours.rate,
        "raw batch": replay.rate,
        "raw batch, no clock": replay.rate_without_clock,
    }
    if task == "gym/half-cheetah":
        ending = build(worldline.Env(random_end(), physics=_engine(config)))
        contenders["worldline, 1% end"] = ending.rate
        contenders["raw batch, 1% end"] = ending.replay().rate
    workers = start_peers(config, task) if config.peers else {}
    contenders |= {name: worker.rate for name, worker in workers.items()}
    try:
        measured = interleave(contenders, config.repeats, lambda text: say(f"{task}: {text}"))
    finally:
        for worker in workers.values():
            worker.close()
    return measured, list(judge(task, promise, measured))


def judge(task: str, promise: Promise, measured: dict[str, list[float]]) -> list[Finding]:
    """The measurements as ratios, beside what was promised of them."""

    def compare(ours: str, theirs: str, at_least: float | None) -> Finding:
        ratio = Ratio.of(measured[ours], measured[theirs])
        speeds = [statistics.median(measured[name]) for name in (ours, theirs)]
        return Finding(
            what=f"{task}: {ours} / {theirs}",
            value=ratio.median,
            shown=str(ratio),
            detail="{:,.0f} / {:,.0f} steps/s".format(*speeds),
            at_least=at_least,
        )

    findings = [compare("worldline", "raw batch", promise.raw)]
    findings.append(compare("worldline", "raw batch, no clock", None))
    if "worldline, 1% end" in measured:
        # 10% slower at most: 0.9 of the speed without.
        findings.append(compare("worldline, 1% end", "worldline", 0.90))
        findings.append(compare("worldline, 1% end", "raw batch, 1% end", None))
    if "EnvPool" in measured:
        findings.append(compare("worldline", "EnvPool", promise.envpool))
    vectors = [name for name in measured if name.startswith("Gymnasium")]
    if vectors:
        best = max(vectors, key=lambda name: statistics.median(measured[name]))
        findings.append(compare("worldline", best, promise.gymnasium))
    return findings


class Ours:
    """Random actions in a jitted scan over worlds: the timed program, and a recording of it.

    Every repetition starts from the same worlds with the same random key, so that each does the
    same work, which `replay` gives to the raw batch.
    """

    def __init__(self, env: Any, config: StepBench, warm_up: int) -> None:
        import jax

        from worldline import Worlds

        self.env, self.config = env, config
        self.worlds = Worlds(env, config.num_worlds)
        self.traces = 0
        key = jax.random.key(0)
        state = self.worlds.reset(key)
        # Doubles until the program is long enough to time; each length is a program of its own.
        self.steps = 8
        self.program = self._compile(self.steps, record=False)
        carry, _ = self.program((state, key))
        done = self.steps
        while done < warm_up:
            carry, _ = self.program(carry)
            done += self.steps
        self.start = jax.block_until_ready(carry)
        self.steps = max(8, round(config.seconds * self.rate() / config.num_worlds))
        self.program = self._compile(self.steps, record=False)
        self.traces = 0
        carry, _ = self.program(self.start)
        self.end, _ = jax.block_until_ready(self.program(carry))
        if self.traces != 1:
            raise RuntimeError(f"the program was traced {self.traces} times, not once")
        self.end, _ = jax.block_until_ready(self.program(self.start))

    def rate(self) -> float:
        """Environment steps a second, timed; without MuJoCo's clock, as the command line steps."""
        import jax

        from worldline.mujoco_c import without_timers

        with without_timers():
            begin = time.perf_counter()
            jax.block_until_ready(self.program(self.start))
        return self.steps * self.config.num_worlds / (time.perf_counter() - begin)

    def replay(self) -> Replay:
        """The same steps and resets for the raw batch."""
        import jax
        import numpy as np

        _, (actions, ended, states) = self._compile(self.steps, record=True)(self.start)
        ended = np.asarray(ended)
        integration = self.env.physics.integration_state
        rows = [np.flatnonzero(mask) for mask in ended]
        fresh = [
            integration(jax.tree.map(lambda x, t=t, at=at: x[t, at], states))
            for t, at in enumerate(rows)
        ]
        return Replay(
            model=self.env.model.mj,
            substeps=self.env.substeps,
            threads=self.config.threads,
            start=integration(self.start[0].env.physics),
            end=integration(self.end[0].env.physics),
            controls=np.asarray(actions, np.float64),
            rows=rows,
            fresh=fresh,
        )

    def _compile(self, steps: int, record: bool) -> Any:
        """The scan; it gives all that a step gave, or what a replay needs."""
        import jax

        low, high = self.env.action_low, self.env.action_high
        shape = (steps, self.config.num_worlds, *low.shape)

        def step(state: Any, action: Any) -> Any:
            self.traces += 1
            state, given = self.worlds.step(state, action)
            if record:
                return state, (action, given.terminated | given.truncated, state.env.physics)
            return state, (given.reward, given.terminated, given.truncated)

        def program(carry: Any) -> Any:
            state, key = carry
            key, action_key = jax.random.split(key)
            actions = jax.random.uniform(action_key, shape, minval=low, maxval=high)
            state, kept = jax.lax.scan(step, state, actions)
            return (state, key), kept

        return jax.jit(program)


@dataclasses.dataclass
class Replay:
    """Trajectories of ours through `mujoco.batch.Batch`: the same controls, the same resets.

    What is timed is `Batch.step` in a Python loop, with controls and the states of fresh episodes
    copied in; nothing is observed, rewarded or drawn. It ends in our states, bit for bit.
    """

    model: Any
    substeps: int
    threads: int
    start: Any
    """Integration states before the first step, `(B, nstate)`."""
    end: Any
    """Ours after the last, `(B, nstate)`."""
    controls: Any
    """`(T, B, nu)`"""
    rows: list[Any]
    """The worlds whose episode ended in each step."""
    fresh: list[Any]
    """Integration states of their new episodes."""

    def __post_init__(self) -> None:
        import numpy as np
        from mujoco.batch import Batch

        self._batch = Batch(self.model, len(self.start), self.threads)
        self._controls = self._batch.bind("ctrl")
        self._run()
        if not np.array_equal(self._batch.state, self.end):
            raise RuntimeError("the raw batch does not end where our worlds did")

    def rate(self) -> float:
        """Environment steps a second, timed."""
        begin = time.perf_counter()
        self._run()
        steps = len(self.controls) * len(self.start)
        return steps / (time.perf_counter() - begin)

    def rate_without_clock(self) -> float:
        """The same, while MuJoCo does not time its own stages."""
        from worldline.mujoco_c import without_timers

        with without_timers():
            return self.rate()

    def _run(self) -> None:
        batch, controls = self._batch, self._controls
        batch.state[:] = self.start
        for control, rows, fresh in zip(self.controls, self.rows, self.fresh, strict=True):
            controls[:] = control
            batch.step(nstep=self.substeps)
            if len(rows):
                batch.state[rows] = fresh


def random_end() -> Any:
    """Half-cheetah whose episodes end at random, 1% of them a step, by a key in the memory."""
    import jax

    from worldline import Outcome, Start
    from worldline.tasks.gym.runners import HalfCheetah

    @dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
    class RandomEnd(HalfCheetah):
        """Its memory is the key."""

        def start(self, key: Any) -> Start:
            start_key, memory = jax.random.split(key)
            start = super().start(start_key)
            return Start(qpos=start.qpos, qvel=start.qvel, memory=memory)

        def outcome(self, before: Any, action: Any, after: Any, memory: Any) -> Outcome:
            memory, key = jax.random.split(memory)
            outcome = super().outcome(before, action, after, ())
            return Outcome(
                reward=outcome.reward,
                terminated=jax.random.bernoulli(key, RANDOM_END),
                memory=memory,
                metrics=outcome.metrics,
            )

    return RandomEnd()


def start_peers(config: StepBench, task: str) -> dict[str, StepWorker]:
    """Processes that step EnvPool and Gymnasium; a peer that is not installed is left out."""
    if task not in GYMNASIUM:
        return {}
    name, envs = GYMNASIUM[task], str(config.gymnasium_envs)
    commands: dict[str, tuple[Callable[[], str], list[str], int]] = {
        f"Gymnasium {kind}": (
            lambda: sys.executable,
            [str(PEERS / "step_gymnasium.py"), kind, name, envs],
            config.gymnasium_envs,
        )
        for kind in ("sync", "async")
    }
    commands["EnvPool"] = (
        lambda: peer_python("envpool"),
        [str(PEERS / "step_envpool.py"), name, str(config.num_worlds), str(config.threads)],
        config.num_worlds,
    )
    workers = {}
    for peer, (python, arguments, env_steps) in commands.items():
        try:
            workers[peer] = StepWorker([python(), *arguments], env_steps, config.seconds)
        except MissingPeerError as error:
            say(f"{task}: without {peer}: {error}")
    return workers


def _engine(config: StepBench) -> Any:
    from worldline.physics.native import NativePhysics

    return functools.partial(NativePhysics, num_threads=config.threads)


def _plain(config: StepBench) -> dict[str, Any]:
    return {**dataclasses.asdict(config), "json": None}


if __name__ == "__main__":
    main(tyro.cli(StepBench))
