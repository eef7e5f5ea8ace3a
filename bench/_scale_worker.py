"""A process of `worldline bench scale`: does one job, and prints what it measured as JSON.

Which cores it has says who starts it: see `_scale_runs.py`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

#: Updates that are not timed: they are compiled, or follow on one that was.
_WARM_UP = 3
#: All-reduces in one compiled program, so that a call costs next to nothing.
_AT_ONCE = 10
#: Control steps in one compiled program of worlds.
_STEPS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What to do."""

    kind: str
    """One of `KINDS`."""
    seconds: float = 1.0
    """How long to measure."""
    task: str = ""
    worlds: int = 0
    """Of each process."""
    updates: int = 0
    """To time, where processes must take equally many."""
    sizes: tuple[int, ...] = ()
    """Bytes of messages."""
    coordinator: str = ""
    """The host:port of process 0; empty for one process."""
    process: int = 0
    processes: int = 1
    short: bool = False
    """Shorter rollouts, and fewer gradient steps, than the task asks for."""


def main(job: Job) -> None:
    """Joins the other processes, if there are any, and does the job."""
    from worldline.parallel.cluster import join, leave
    from worldline.parallel.config import ClusterConfig
    from worldline.tuning import tune_process

    tune_process()
    cluster = {"coordinator": job.coordinator, "processes": job.processes, "process": job.process}
    mesh = join(ClusterConfig(**cluster) if job.coordinator else ClusterConfig())
    print(json.dumps(KINDS[job.kind](job, mesh)), flush=True)
    leave(0)


def alone(job: Job, mesh: Any) -> dict[str, Any]:
    """Seconds of acting and of learning in an update, and of a world's step of physics."""
    import jax

    learner, config = _learner(job, None)
    halves = learner.halves
    state = learner.init(jax.random.key(0))
    acting, learning = state.acting, state.learning
    took: dict[str, list[float]] = {"acting": [], "learning": []}
    end = time.perf_counter() + job.seconds
    while len(took["acting"]) < _WARM_UP + 3 or time.perf_counter() < end:
        began = time.perf_counter()
        acting, taken = jax.block_until_ready(halves.act(acting, learning))
        middle = time.perf_counter()
        learning, _ = jax.block_until_ready(halves.learn(learning, taken))
        took["acting"].append(middle - began)
        took["learning"].append(time.perf_counter() - middle)
        if len(took["acting"]) == _WARM_UP:
            end = time.perf_counter() + job.seconds
    return {
        **{name: statistics.median(seconds[_WARM_UP:]) for name, seconds in took.items()},
        "worlds": job.worlds,
        "physics": _physics(job, acting),
        "steps": config.unroll_length,
        "gradient_steps": config.epochs * config.minibatches,
    }


def _physics(job: Job, acting: Any) -> float:
    """Seconds of a control step of one of the worlds, physics alone, with random controls."""
    import jax

    import worldline

    env = worldline.make(job.task)
    low, high = env.action_low, env.action_high
    advance = jax.vmap(lambda state, ctrl: env.physics.step(state, {"ctrl": ctrl}, env.substeps))

    @jax.jit
    def steps(state: Any, key: Any) -> Any:
        ctrl = jax.random.uniform(key, (_STEPS, job.worlds, low.size), minval=low, maxval=high)
        return jax.lax.scan(lambda s, c: (advance(s, c), None), state, ctrl)[0]

    state, key = acting.worlds.env.physics, jax.random.key(1)
    return _median(lambda: steps(state, key), job.seconds / 3) / (_STEPS * job.worlds)


def messages(job: Job, mesh: Any) -> dict[str, Any]:
    """What an update sends: each kind of message with its bytes, and how often; not run.

    The devices of the mesh may all be in this process.
    """
    import jax

    from _collectives import collectives

    learner, config = _learner(job, mesh)
    state = learner.init(jax.random.key(0))
    acting, learning = state.acting, state.learning
    _, taken = jax.eval_shape(learner.halves.act, acting, learning)
    programs = (
        jax.jit(learner.halves.act).lower(acting, learning),
        jax.jit(learner.halves.learn).lower(learning, _placed(taken, mesh)),
    )
    found = [each for program in programs for each in collectives(program.compile().as_text())]
    return {
        "gradient_steps": config.epochs * config.minibatches,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(learning.networks)),
        "sent": [dataclasses.asdict(each) for each in found],
    }


def _placed(taken: Any, mesh: Any) -> Any:
    """The shapes of a rollout, with the devices that each array is on."""
    import jax
    from jax.sharding import NamedSharding

    from worldline.learn.placement import layout

    def of(shape: Any, spec: Any) -> Any:
        place = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=place)

    return jax.tree.map(of, taken, layout(taken))


def reduce(job: Job, mesh: Any) -> list[list[float]]:
    """The bytes of all-reduces of all processes, and the seconds of each."""
    import jax
    import jax.numpy as jnp

    from worldline.parallel.mesh import EVERYWHERE, shared, sum_over_shares

    def many(x: Any) -> Any:
        def one(x: Any, _: None) -> Any:
            return sum_over_shares(mesh, x) / job.processes, None

        return jax.lax.scan(one, x, None, length=_AT_ONCE)[0]

    program = jax.jit(shared(mesh, many, (EVERYWHERE,), EVERYWHERE))
    found = []
    for size in job.sizes:
        x = program(jnp.zeros(size // 4, jnp.float32))
        # All processes must take equally many.
        took = [_seconds(lambda x=x: program(x)) for _ in range(_WARM_UP + max(3, job.updates))]
        found.append([size, statistics.median(took[_WARM_UP:]) / _AT_ONCE])
    return found


def train(job: Job, mesh: Any) -> list[float]:
    """Seconds of updates that all processes share."""
    import jax

    learner, _ = _learner(job, mesh)
    state = learner.init(jax.random.key(0))
    took = []
    for _ in range(_WARM_UP + job.updates):
        began = time.perf_counter()
        state, measured = learner.update(state)
        jax.block_until_ready((state, measured))
        took.append(time.perf_counter() - began)
    return took[_WARM_UP:]


def worlds(job: Job, mesh: Any) -> dict[str, float]:
    """Environment steps a second of so many worlds, the process's peak of memory, and the time of
    compilation, without a cache.
    """
    import jax

    import worldline

    jax.config.update("jax_enable_compilation_cache", False)
    before = _peak()
    env = worldline.make(job.task)
    low, high = env.action_low, env.action_high
    stepped = worldline.Worlds(env, job.worlds)

    def steps(state: Any, key: Any) -> Any:
        def one(state: Any, key: Any) -> Any:
            shape = (job.worlds, low.size)
            action = jax.random.uniform(key, shape, minval=low, maxval=high)
            state, given = stepped.step(state, action)
            return state, given.reward.mean()

        state, rewards = jax.lax.scan(one, state, jax.random.split(key, _STEPS))
        return state, rewards.mean()

    key = jax.random.key(0)
    state = jax.block_until_ready(stepped.reset(key))
    began = time.perf_counter()
    program = jax.jit(steps, donate_argnums=0).lower(state, key).compile()
    compiled = time.perf_counter() - began

    def step() -> Any:
        nonlocal state
        state, reward = program(state, key)
        return state, reward

    took = _median(step, job.seconds)
    return {
        "worlds": job.worlds,
        "rate": _STEPS * job.worlds / took,
        "memory": _peak(),
        "before": before,
        "compile": compiled,
    }


def _learner(job: Job, mesh: Any) -> tuple[Any, Any]:
    """PPO with the task's settings, and with the worlds of all processes; and its settings."""
    import worldline
    from worldline.learn.placement import on_devices
    from worldline.learn.ppo import PPOConfig, ppo

    env = worldline.make(job.task)
    total = job.worlds * (1 if mesh is None else mesh.size)
    settings = {**env.task.defaults.get("ppo", {}), "num_worlds": total}
    if job.short:
        settings |= {"unroll_length": 8, "epochs": 2, "minibatches": 4}
    config = PPOConfig(**settings)
    return on_devices(ppo(worldline.Worlds(env, total, mesh=mesh), config), mesh), config


def _median(call: Callable[[], Any], seconds: float) -> float:
    """The median seconds of calls, after one that is not counted."""
    _seconds(call)
    took, end = [_seconds(call)], time.perf_counter() + seconds
    while time.perf_counter() < end:
        took.append(_seconds(call))
    return statistics.median(took)


def _seconds(call: Callable[[], Any]) -> float:
    import jax

    began = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - began


def _peak() -> float:
    """The most memory that this process has had, MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


KINDS = {f.__name__: f for f in (alone, messages, reduce, train, worlds)}

if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    main(Job(**json.loads(sys.argv[1])))
