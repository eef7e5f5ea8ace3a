"""What a card gives: agreement, steps and frames a second, prices, and seconds to a return.

    worldline bench gpu                     # on a machine with a card; without, the rows of its CPU
    worldline bench gpu --minutes 6 --json bench/results/gpu.json

The questions go from the cheapest to the dearest. Each answer is printed and written to the file as
soon as it is there; a question that fails is reported, and the next one asked; what the file holds
is not asked again. So a machine that is lent for minutes answers them in several visits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import tyro

from _harness import SCRATCH, Finding, machine, save, say, show_findings

#: Makes a number, and the words beside it.
Answer: TypeAlias = tuple[float, str]


@dataclasses.dataclass(frozen=True)
class GpuBench:
    """What a card gives, beside the cores of its machine."""

    minutes: float = 6.0
    """No question is begun after so long."""
    num_worlds: tuple[int, ...] = (1024, 4096, 8192)
    """Worlds in the rows of speed."""
    agreement: tuple[str, ...] = (
        "gym/half-cheetah", "gym/hopper", "gym/humanoid", "suite/cartpole-swingup",
        "robot/quadruped-joystick", "arm/pick-cube",
    )  # fmt: skip
    """Tasks of which one control step on Warp is compared with the native engine's."""
    speed: tuple[str, ...] = ("gym/half-cheetah", "gym/ant", "gym/humanoid")
    """Tasks whose steps are timed."""
    seconds: float = 2.0
    """How long a timing takes, about."""
    training_minutes: float = 4.0
    """After so long a training that has not reached its goal is stopped."""
    json: Path = Path(".bench/gpu.json")
    """Where the answers are kept."""


#: Trainings to a return: options of `worldline train`, and the return.
GOALS = {
    "half-cheetah 5000": ("gym/half-cheetah", 5000.0),
    "humanoid 5000": ("gym/humanoid", 5000.0),
    "humanoid 5000 on warp": ("gym/humanoid --physics warp --num-worlds 4096", 5000.0),
    "pixel cartpole 900": (
        "suite/cartpole-balance --pixels fixed --algorithm sac --critic-obs state --action-repeat 8"
        " --num-worlds 16 --unroll-length 8 --batch-size 128 --learning-starts 1000"
        " --learning-rate 1e-3 --episode-length 200 --discount 0.95 --replay-capacity 10_000",
        900.0,
    ),
}


def main(config: GpuBench) -> None:
    """Asks what has no answer yet, and prints the table."""
    # Trainings are processes of their own, which need memory of the card beside this one.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    card = next((d for d in jax.devices() if d.platform != "cpu"), None)
    name = "no card" if card is None else card.device_kind
    if card is None:
        say("JAX has no card here: the rows of the CPU alone, with few worlds")
        config = dataclasses.replace(config, num_worlds=config.num_worlds[:1])
    began, answers = time.monotonic(), _held(config.json, name)
    for what, ask in questions(config, card is not None):
        if what in answers:
            continue
        if time.monotonic() - began > 60 * config.minutes:
            say(f"{config.minutes:g} minutes are over; the same command goes on with {what!r}")
            break
        say(what)
        try:
            value, detail = ask()
        except Exception:  # the other questions are worth asking all the same
            say(f"  failed: {traceback.format_exc()}")
            continue
        say(f"  {value:.4g} {detail}")
        answers[what] = {"value": value, "detail": detail}
        save(config.json, {"card": name, "machine": machine(), "answers": answers})
    rows = [
        Finding(what=what, value=it["value"], shown=f"{it['value']:,.4g}", detail=it["detail"])
        for what, it in answers.items()
    ]
    show_findings(f"{name}; {machine()['cores']} cores", rows)


def _held(path: Path, card: str) -> dict[str, dict[str, Any]]:
    """The answers that a file holds of this kind of card."""
    held = json.loads(path.read_text()) if path.exists() else {}
    return dict(held["answers"]) if held.get("card") == card else {}


def questions(config: GpuBench, card: bool) -> Iterator[tuple[str, Callable[[], Answer]]]:
    """The questions from the cheapest to the dearest, each with what answers it."""
    few = 64 if card else 4
    for task in config.agreement:
        yield f"{task}: a step of warp from native's", functools.partial(agreement, task, few)
    engines = ("warp", "native", "mjx") if card else ("native",)
    for number in config.num_worlds:
        for task in config.speed:
            for engine in engines:
                ask = functools.partial(steps_a_second, config, task, engine, number)
                yield f"{task}: steps/s of {engine}, {number} worlds", ask
            if card:
                ask = functools.partial(plain_warp, config, task, number)
                yield f"{task}: steps/s of MuJoCo Warp alone, {number} worlds", ask
    engine, most = engines[0], config.num_worlds[-1]
    yield "gym/humanoid: varied / not", functools.partial(varied, config, engine, most)
    if card:
        yield "gym/humanoid: deterministic / not", functools.partial(deterministic, config, most)
    for side in (64, 128):
        worlds = 1024 if card else 64
        ask = functools.partial(frames_a_second, config, engine, side, worlds)
        yield f"frames/s, {side} x {side}, {worlds} worlds", ask
    for goal in GOALS if card else [it for it in GOALS if "warp" not in it]:
        for device in ("cpu", "gpu") if card else ("cpu",):
            ask = functools.partial(seconds_to, config, goal, device)
            yield f"{goal}: s, learning on the {device}", ask


def agreement(task: str, num_worlds: int) -> Answer:
    """How far a control step on Warp ends from the native engine's, over 1 + the size; and whether
    two steps on Warp are the same.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    import worldline

    def stepped(engine: str) -> Any:
        worlds = worldline.Worlds(worldline.make(task, physics=engine), num_worlds)
        state = worlds.reset(jax.random.key(0))
        nact = len(worlds.env.action_low)
        action = jax.random.uniform(jax.random.key(1), (num_worlds, nact), jnp.float32, -1)
        action = jnp.clip(action, worlds.env.action_low, worlds.env.action_high)
        twice = [worlds.after(state, jax.device_put(action, worlds.device)) for _ in range(2)]
        return jax.device_get([(it.physics.qpos, it.physics.qvel) for it in twice])

    ours, again = stepped("warp")
    theirs, _ = stepped("native")
    apart = max(np.max(np.abs(a - b) / (1 + np.abs(b))) for a, b in zip(ours, theirs, strict=True))
    same = all(np.array_equal(a, b) for a, b in zip(ours, again, strict=True))
    return float(apart), "the same twice" if same else "not the same twice"


def steps_a_second(config: GpuBench, task: str, engine: Any, num_worlds: int) -> Answer:
    """Environment steps a second: random actions, observations, rewards, fresh episodes."""
    import worldline

    env = worldline.make(task, physics=engine)
    rate = _rate(config, worldline.Worlds(env, num_worlds))
    return rate, f"on {env.device.device_kind}"


def _rate(config: GpuBench, worlds: Any) -> float:
    """Environment steps a second of worlds, in a compiled loop."""
    import jax
    import jax.numpy as jnp

    low, high = worlds.env.action_low, worlds.env.action_high

    @functools.partial(jax.jit, static_argnames="length")
    def run(state: Any, key: Any, length: int) -> tuple[Any, Any]:
        def step(state: Any, key: Any) -> tuple[Any, Any]:
            size = (worlds.num_worlds, len(low))
            action = jax.random.uniform(key, size, jnp.float32, -1.0, 1.0)
            state, step = worlds.step(state, jnp.clip(action, low, high))
            return state, (step.reward.sum(), jax.tree.map(jnp.sum, step.obs))

        return jax.lax.scan(step, state, jax.random.split(key, length))

    def seconds(state: Any, length: int) -> tuple[Any, float]:
        key = jax.device_put(jax.random.key(1), worlds.device)
        began = time.perf_counter()
        state, _ = jax.block_until_ready(run(state, key, length))
        return state, time.perf_counter() - began

    state = jax.jit(worlds.reset)(jax.device_put(jax.random.key(0), worlds.device))
    state, _ = seconds(state, 8)  # compiles
    state, trial = seconds(state, 8)
    length = 8 * max(1, round(config.seconds / trial))
    if length > 8:
        state, _ = seconds(state, length)
    state, taken = seconds(state, length)
    return length * worlds.num_worlds / taken


def plain_warp(config: GpuBench, task: str, num_worlds: int) -> Answer:
    """Control steps a second of MuJoCo Warp alone: a graph of physics steps, and nothing else."""
    import mujoco
    import mujoco_warp as mjw
    import warp as wp

    import worldline

    env = worldline.make(task)
    model, data = env.model.mj, mujoco.MjData(env.model.mj)
    mujoco.mj_forward(model, data)
    m, d = mjw.put_model(model), mjw.put_data(model, data, nworld=num_worlds)

    def control_step() -> None:
        for _ in range(env.substeps):
            mjw.step(m, d)

    control_step()  # compiles
    with wp.ScopedCapture() as capture:
        control_step()
    wp.synchronize()
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < config.seconds:
        for _ in range(10):
            wp.capture_launch(capture.graph)
        wp.synchronize()
        steps += 10
    return steps * num_worlds / (time.perf_counter() - began), f"{env.substeps} physics steps each"


def varied(config: GpuBench, engine: str, num_worlds: int) -> Answer:
    """The speed of humanoids whose constants are drawn each episode, over that without."""
    import worldline

    env = worldline.make("gym/humanoid", physics=engine)
    domain = env.task.domains["light"]
    own, plain = (
        _rate(config, worldline.Worlds(env, num_worlds, domain=it)) for it in (domain, None)
    )
    return own / plain, f"{own:,.0f} / {plain:,.0f} steps/s on {engine}, {num_worlds} worlds"


def deterministic(config: GpuBench, num_worlds: int) -> Answer:
    """The speed of humanoids on Warp whose sums have one order, over that without."""
    from worldline.physics.warp import WarpPhysics

    ordered = functools.partial(WarpPhysics, deterministic=True)
    ours, _ = steps_a_second(config, "gym/humanoid", ordered, num_worlds)
    plain, _ = steps_a_second(config, "gym/humanoid", "warp", num_worlds)
    return ours / plain, f"{ours:,.0f} / {plain:,.0f} steps/s, {num_worlds} worlds"


def frames_a_second(config: GpuBench, engine: str, side: int, num_worlds: int) -> Answer:
    """Frames a second of cart-poles that are seen, physics and observation included."""
    import worldline

    task = worldline.make("suite/cartpole-balance").task
    env = worldline.Env(task, engine, cameras={"fixed": worldline.Camera("fixed", side, side)})
    return _rate(config, worldline.Worlds(env, num_worlds)), f"{env.cameras.note}, {engine}"


def seconds_to(config: GpuBench, goal: str, device: str) -> Answer:
    """Seconds from the start of the process until an evaluation reached a return."""
    command, wanted = GOALS[goal]
    folder = SCRATCH / "gpu" / f"{goal}-{device}".replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    train = [sys.executable, "-m", "worldline.cli", "train", *shlex.split(command)]
    options = ["--learner-device", device, "--steps", str(10**9), "--evaluations", str(10**5)]
    began, best = time.monotonic(), -float("inf")
    process = subprocess.Popen([*train, *options, "--no-video", "--quiet", "--out", str(folder)])
    try:
        while time.monotonic() - began < 60 * config.training_minutes and process.poll() is None:
            time.sleep(0.5)
            for row in _rows(folder / "metrics.jsonl"):
                best = max(best, row.get("eval/return") or best)
                if best >= wanted:
                    return row["seconds"], f"return {best:.0f}"
    finally:
        process.kill()
        process.wait()
    return float("inf"), f"best return {best:.0f} in {time.monotonic() - began:.0f} s"


def _rows(file: Path) -> list[dict[str, Any]]:
    with contextlib.suppress(OSError, ValueError):
        return [json.loads(line) for line in file.read_text().splitlines()]
    return []


if __name__ == "__main__":
    main(tyro.cli(GpuBench))
