"""How fast gradients through a simulator are: ours against TorchRL's differentiable Brax.

An ant under a linear policy, ten worlds, ten control steps: the gradient of the mean reward in the
policy's weights, forward and backward. Every contender runs in a process of its own and is timed in
turn; then each takes many more gradients while its memory is read.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

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

#: Contender to the engine and the integrator that it runs.
OURS = {
    "native, RK4": ("native", "RK4"),
    "native, Euler": ("native", "Euler"),
    "mjx, RK4": ("mjx", "RK4"),
    "mjx, Euler": ("mjx", "Euler"),
    "mjx, Euler, one iteration unrolled": ("unrolled", "Euler"),
}
PEER = "TorchRL's BraxEnv"

#: What was promised: how many times as fast as the peer.
PROMISED = {"mjx, RK4": 2.0, "mjx, Euler": 5.0}

#: What else is compared: one contender's speed over another's.
PAIRS = (
    ("mjx, Euler", "mjx, Euler, one iteration unrolled"),
    ("native, RK4", "mjx, RK4"),
    ("native, Euler", "mjx, Euler"),
)

#: Moments at which memory is read.
MOMENTS = 10


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10, help="control steps of a rollout")
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each contender")
    parser.add_argument("--seconds", type=float, default=3.0, help="a measurement takes")
    parser.add_argument("--calls", type=int, default=200, help="gradients while memory is read")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=[*OURS, PEER], help="contenders to measure")
    parser.add_argument("--png", type=Path, default=Path(".bench/gradient.png"))
    parser.add_argument("--json", type=Path, help="where to write the results")
    arguments = parser.parse_args()
    use_cores(arguments.cores)
    workers = {}
    for name in arguments.only:
        try:
            say(f"{name}: compiling")
            workers[name] = _worker(name, arguments)
        except MissingPeerError as error:
            say(str(error))
    rates = interleave({n: w.rate for n, w in workers.items()}, arguments.repeats, say)
    memory = {name: _memory(name, worker, arguments.calls) for name, worker in workers.items()}
    for worker in workers.values():
        worker.close()
    findings = [_finding(name, rates, memory[name]) for name in rates]
    findings += [_between(a, b, rates) for a, b in PAIRS if a in rates and b in rates]
    show_findings(f"{arguments.worlds} ants, {arguments.steps} steps: gradients a second", findings)
    save(
        arguments.json,
        {
            "machine": machine(),
            "rates": rates,
            "memory_mib": memory,
            "findings": [finding.json() for finding in findings],
        },
    )
    _draw(arguments.png, memory, arguments.calls)
    say(f"memory over {arguments.calls} gradients: {arguments.png}")


def _worker(name: str, arguments: argparse.Namespace) -> StepWorker:
    """A process that takes gradients, one a step."""
    sizes = [str(arguments.worlds), str(arguments.steps)]
    if name == PEER:
        worker = str(PEERS / "step_torchrl.py")
        command = [peer_python("brax"), worker, "brax", *sizes, "gradient"]
    else:
        command = [sys.executable, str(PEERS / "gradient_worldline.py"), *sizes, *OURS[name]]
    return StepWorker(command, 1, arguments.seconds)


def _memory(name: str, worker: StepWorker, calls: int) -> list[float]:
    """The process's resident memory, MiB, as it takes `calls` gradients more."""
    say(f"{name}: memory over {calls} gradients")
    return [worker.memory_after(max(1, calls // MOMENTS)) for _ in range(MOMENTS)]


def _finding(name: str, rates: dict[str, list[float]], memory: list[float]) -> Finding:
    """A line of the table."""
    rate = statistics.median(rates[name])
    detail = "MiB " + " ".join(f"{value:.0f}" for value in memory)
    if name == PEER or PEER not in rates:
        return Finding(what=name, value=rate, shown=f"{rate:.3g} /s", detail=detail)
    ratio = Ratio.of(rates[name], rates[PEER])
    shown = f"{rate:.3g} /s, {ratio} of the peer's"
    target = PROMISED.get(name)
    return Finding(what=name, value=ratio.median, shown=shown, detail=detail, at_least=target)


def _between(ours: str, theirs: str, rates: dict[str, list[float]]) -> Finding:
    """How many times as fast one contender is as another."""
    ratio = Ratio.of(rates[ours], rates[theirs])
    return Finding(what=f"{ours} / {theirs}", value=ratio.median, shown=str(ratio))


def _draw(path: Path, memory: dict[str, list[float]], calls: int) -> None:
    """Each contender's memory above its first reading, over the gradients that it took since."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(6, 3.6), layout="constrained")
    every = max(1, calls // MOMENTS)
    for name, readings in memory.items():
        grown = [value - readings[0] for value in readings]
        panel.plot([every * (i + 1) for i in range(len(grown))], grown, "o-", label=name)
    panel.set(xlabel="gradients", ylabel="growth of resident memory, MiB")
    panel.grid(alpha=0.3)
    panel.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)
    plt.close(figure)


if __name__ == "__main__":
    main()
