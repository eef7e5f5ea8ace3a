"""What it costs that every world has its own physics, drawn afresh each episode.

All ratios come from one run.

`python bench/variation.py`, or `worldline bench variation`. See `bench/README.md`.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
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


@dataclasses.dataclass(frozen=True)
class Peer:
    """A library whose worlds can have physics of their own."""

    what: str
    """What it steps."""
    name: str
    """Its environment among the peers'; its worker is `peers/variation_NAME.py`."""
    hows: dict[str, str]
    """How worlds get physics of their own, and what the worker calls that; it has `plain` too."""
    steps: int
    """Control steps of a measurement."""


PEERS_BESIDE = (
    Peer(
        "Brax ant (MJX)",
        "brax",
        {"drawn once, its own wrapper": "once", "drawn each episode, issue 446": "fresh"},
        8,
    ),
    Peer("Playground cheetah (MJX)", "playground", {"drawn once, its own wrapper": "once"}, 16),
    Peer(
        "CARL ant (Brax, spring)", "carl", {"a context for all worlds, at resets": "contexts"}, 64
    ),
)


@dataclasses.dataclass(frozen=True)
class OfBrax:
    """One of Brax's environments as our worlds, with one field of its system drawn."""

    what: str
    """What is drawn of what."""
    name: str
    """Brax's name of the environment."""
    backend: str
    field: str
    """A path into its system."""
    range: tuple[float, float]
    """Of factors of the field's own values, or of its value where `scaled` is false."""
    scaled: bool = True

    def env(self) -> Any:
        """The environment, with a fluid where its viscosity is drawn; Brax's ant has none."""
        from brax import envs

        env = envs.get_environment(self.name, backend=self.backend)
        if self.field == "opt.viscosity":
            fluid = {"opt.viscosity": sum(self.range) / 2, "opt._impl.has_fluid_params": True}
            env.sys = env.sys.tree_replace(fluid)
        return env

    def domain(self) -> Any:
        """What draws the field."""
        from worldline.variation import Domain, Uniform, scale, set_

        draw = scale if self.scaled else set_
        return Domain(draw(self.field, Uniform(*self.range)))


OF_BRAX = {
    "humanoid": OfBrax(
        "Brax humanoid as our worlds, masses", "humanoid", "generalized", "link.inertia.mass",
        (0.9, 1.1),
    ),
    "humanoid-mjx": OfBrax(
        "Brax humanoid (MJX) as our worlds, masses", "humanoid", "mjx", "body_mass", (0.9, 1.1)
    ),
    "ant-mjx": OfBrax(
        "Brax ant (MJX) as our worlds, viscosity", "ant", "mjx", "opt.viscosity", (0.0, 0.2),
        scaled=False,
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class VariationBench:
    """What it costs that every world has its own physics, drawn afresh each episode."""

    tasks: tuple[str, ...] = ("gym/ant", "gym/humanoid")
    """Tasks to step and to train."""
    of_brax: tuple[Literal["humanoid", "humanoid-mjx", "ant-mjx"], ...] = tuple(OF_BRAX)
    """Brax's environments to step as our worlds."""
    num_worlds: int = 256
    """Worlds side by side."""
    steps: int = 32
    """Control steps of a measurement."""
    brax_worlds: int = 16
    """Worlds side by side of Brax's environments."""
    brax_steps: int = 8
    """Control steps of a measurement of these."""
    brax_repeats: int = 30
    """Measurements of each of these."""
    repeats: int = 120
    """Measurements of each of ours, in turn with the others."""
    peer_repeats: int = 30
    """Measurements of each peer."""
    seeds: int = 10
    """Policies whose updates are measured, one after the other."""
    threads: int = 2
    """Cores to use."""
    peers: bool = True
    """Whether to measure Brax, MuJoCo Playground and CARL beside ours."""
    memory_worlds: int = 4096
    """Worlds whose memory is weighed; 0 for none."""
    json: Path | None = None
    """Where to write the results."""


def main(config: VariationBench) -> None:
    """Measures, prints the table and writes the results."""
    use_cores(config.threads)
    findings: list[Finding] = []
    measured: dict[str, Any] = {}
    for task in config.tasks:
        say(f"{task}: compile, warm up")
        contenders = {**stepping_ours(config, task), **training(config, task)}
        rates = interleave(
            contenders, config.repeats, lambda text, task=task: say(f"{task}: {text}")
        )
        measured[task] = rates
        findings += [
            compare(task, rates, "steps", 0.95),
            compare(task, rates, "PPO update", 0.97),
        ]
        if config.memory_worlds:
            findings.append(memory(config, task))
    for name in config.of_brax:
        each = OF_BRAX[name]
        rates = step_brax(config, each)
        measured[name] = rates
        findings += [compare(each.what, rates, "steps", 0.95)] if rates else []
    for peer in PEERS_BESIDE if config.peers else ():
        rates = interleave(
            contenders_of(peer, config),
            config.peer_repeats,
            lambda text, peer=peer: say(f"{peer.what}: {text}"),
        )
        measured[peer.name] = rates
        findings += [compare(peer.what, rates, how, None) for how in peer.hows if rates]
    results = {"machine": machine(), "config": dataclasses.asdict(config) | {"json": None}}
    save(config.json, {**results, "measured": measured, "findings": [f.json() for f in findings]})
    show_findings(f"With variation over without, {config.num_worlds} worlds", findings)


def domain() -> Any:
    """Masses with their inertias, friction and damping: they scale with nbody, ngeom and nv."""
    from worldline.variation import Domain, Uniform, scale

    return Domain(
        scale(("body_mass", "body_inertia"), Uniform(0.9, 1.1)),
        scale("geom_friction", Uniform(0.9, 1.1)),
        scale("dof_damping", Uniform(0.9, 1.1)),
    )


def stepping(worlds: Any, steps: int) -> Callable[[], float]:
    """Random actions in a jitted scan of so many steps: environment steps a second."""
    import jax

    env = worlds.env
    shape = (steps, worlds.num_worlds, *env.action_low.shape)

    @jax.jit
    def program(carry: Any) -> Any:
        state, key = carry
        key, action_key = jax.random.split(key)
        low, high = env.action_low, env.action_high
        actions = jax.random.uniform(action_key, shape, minval=low, maxval=high)
        state, step = jax.lax.scan(worlds.step, state, actions)
        return (state, key), (step.reward, step.terminated, step.truncated)

    state = worlds.reset(jax.random.key(0)), jax.random.key(1)
    for _ in range(4):
        state, _ = jax.block_until_ready(program(state))

    def rate() -> float:
        nonlocal state  # goes on: of constants drawn before, what follows is remembered
        began = time.perf_counter()
        state, _ = jax.block_until_ready(program(state))
        return steps * worlds.num_worlds / (time.perf_counter() - began)

    return rate


def stepping_ours(config: VariationBench, task: str) -> dict[str, Callable[[], float]]:
    """Steps of our task, with and without variation."""
    import worldline

    def contender(drawn: Any) -> Callable[[], float]:
        worlds = worldline.Worlds(worldline.make(task), config.num_worlds, domain=drawn)
        return stepping(worlds, config.steps)

    return {"steps without": contender(None), "steps with": contender(domain())}


def step_brax(config: VariationBench, what: OfBrax) -> dict[str, list[float]]:
    """Steps of Brax's environment, with and without variation; none without Brax."""
    try:
        from worldline.bridges.brax import BraxWorlds
    except ImportError as error:
        say(str(error))
        return {}
    say(f"{what.what}: compile, warm up")

    def contender(drawn: Any) -> Callable[[], float]:
        worlds = BraxWorlds(what.env(), config.brax_worlds, domain=drawn)
        return stepping(worlds, config.brax_steps)

    contenders = {"steps without": contender(None), "steps with": contender(what.domain())}
    return interleave(contenders, config.brax_repeats, lambda text: say(f"{what.what}: {text}"))


def training(config: VariationBench, task: str) -> dict[str, Callable[[], float]]:
    """A whole update of PPO, acting and learning, with the task's settings: updates a second.

    Of several seeds, since how long a step takes depends on what the bodies do; one after the
    other, since a program trains one policy, and rows keep the constants of its worlds.
    """
    import jax

    import worldline
    from worldline.learn.ppo import PPOConfig, ppo

    def contender(drawn: Any) -> Callable[[], float]:
        env = worldline.make(task)
        settings = {**env.task.defaults.get("ppo", {}), "num_worlds": config.num_worlds}
        learner = ppo(worldline.Worlds(env, config.num_worlds, domain=drawn), PPOConfig(**settings))

        def begun(seed: int) -> Any:
            state = learner.init(jax.random.key(seed))
            for _ in range(2):
                state, _ = jax.block_until_ready(learner.update(state))
            return state

        states = [begun(seed) for seed in range(config.seeds)]
        done = itertools.count()

        def rate() -> float:
            turn = min(next(done) * config.seeds // config.repeats, config.seeds - 1)
            began = time.perf_counter()
            states[turn], _ = jax.block_until_ready(learner.update(states[turn]))
            return 1 / (time.perf_counter() - began)

        return rate

    return {"PPO update without": contender(None), "PPO update with": contender(domain())}


def contenders_of(peer: Peer, config: VariationBench) -> dict[str, Callable[[], float]]:
    """A peer's steps a second, its physics varied or not; nothing where it is not installed."""
    try:
        python = peer_python(peer.name)
    except MissingPeerError as error:
        say(str(error))
        return {}
    say(f"{peer.what}: compile, warm up")
    worker, steps = str(PEERS / f"variation_{peer.name}.py"), config.num_worlds * peer.steps
    workers = {
        how: StepWorker(
            [python, worker, how, str(config.num_worlds), str(peer.steps)],
            steps,
            seconds=1.0,
            trial=1,
        )
        for how in ("plain", *peer.hows.values())
    }
    contenders = {f"{what} with": workers[how].rate for what, how in peer.hows.items()}
    return contenders | {f"{what} without": workers["plain"].rate for what in peer.hows}


def compare(task: str, rates: dict[str, list[float]], what: str, at_least: float | None) -> Finding:
    """With variation over without, pair by pair."""
    ours, plain = rates[f"{what} with"], rates[f"{what} without"]
    ratio = Ratio.of(ours, plain)
    speeds = [statistics.median(rate) for rate in (ours, plain)]
    return Finding(
        what=f"{task}: {what}",
        value=ratio.median,
        shown=str(ratio),
        detail="{:,.4g} / {:,.4g} a second".format(*speeds),
        at_least=at_least,
    )


def memory(config: VariationBench, task: str) -> Finding:
    """Bytes of a state that variation adds, over the bytes of the fields that vary."""
    import jax

    import worldline

    def size(tree: Any) -> int:
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))

    env, key = worldline.make(task), jax.random.key(0)
    states = [
        jax.eval_shape(worldline.Worlds(env, config.memory_worlds, domain=drawn).reset, key)
        for drawn in (None, domain())
    ]
    plain, varied = map(size, states)
    fields = size(states[1].variation)
    return Finding(
        what=f"{task}: memory added over that of the varied fields",
        value=(varied - plain) / fields,
        shown=f"{(varied - plain) / fields:.4f}",
        detail=f"{varied:,} - {plain:,} bytes, {config.memory_worlds} worlds",
        at_most=1.001,
    )


if __name__ == "__main__":
    tune_process()
    main(tyro.cli(VariationBench, description=VariationBench.__doc__))
