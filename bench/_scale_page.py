"""The page and the pictures of `worldline bench scale`: its numbers as tables and curves."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from _cost import Network, Work, cost, efficiency, messages_of, network_between, work_of

#: The networks for which the page predicts: a name, seconds of latency, bytes a second.
NETWORKS = (
    ("10 µs, 100 Gbit/s", 10e-6, 12.5e9),
    ("0.1 ms, 10 Gbit/s", 100e-6, 1.25e9),
    ("1 ms, 1 Gbit/s", 1e-3, 0.125e9),
)
HOSTS = (2, 4, 8, 16, 32, 64, 128, 256)
#: What a part of the page says instead of numbers.
UNKNOWN = "(Not measured yet.)"
_PICTURES = {
    "hosts": "Predicted efficiency over hosts, and measured over predicted seconds",
    "worlds": "Steps per second, memory and compilation over worlds",
}
_END = "<!-- end -->\n"


def written(page: str, name: str, text: str) -> str:
    """The page with another text in its part of this name.

    Raises:
        SystemExit: the page has no such part.
    """
    begin = f"<!-- begin: worldline bench scale, {name} -->\n"
    head, found, rest = page.partition(begin)
    _, ends, tail = rest.partition(_END)
    if not found or not ends:
        raise SystemExit(f"the page has no part {begin.strip()} that ends with {_END.strip()}")
    return f"{head}{begin}\n{text}\n\n{_END}{tail}"


def parts(config: Any, results: dict[str, Any], found: dict[Any, Any]) -> dict[str, str]:
    """The texts of the page's parts, by name. One whose numbers are not known says so."""
    measured = results["measured"]
    writers: dict[str, Callable[[], str]] = {
        "machine": lambda: _machine(results, config),
        "work": lambda: _work(config, measured),
        "messages": lambda: _messages(config, measured),
        "network": lambda: _networks(measured),
        "check": lambda: _check(config, found),
        "wire": lambda: _wire(config, measured),
        "hosts": lambda: _hosts(config, measured) + _picture(config, "hosts"),
        "worlds": lambda: _worlds(config, measured) + _picture(config, "worlds"),
    }
    return {name: _unless_unknown(write) for name, write in writers.items()}


def _unless_unknown(write: Callable[[], str]) -> str:
    try:
        return write()
    except KeyError:
        return UNKNOWN


def _picture(config: Any, name: str) -> str:
    """A picture that the benchmark draws, as seen from the page; empty without a folder for it."""
    if config.images is None:
        return ""
    folder = os.path.relpath(config.images, config.page.parent)
    return f"\n\n![{_PICTURES[name]}]({Path(folder, f'scale-{name}.png').as_posix()})"


def _machine(results: dict[str, Any], config: Any) -> str:
    machine = results["machine"]
    versions = ", ".join(f"{name} {machine['versions'][name]}" for name in ("jax", "mujoco"))
    return (
        f"Measured on {machine['time'][:10]}: {machine['processor']}, {config.cores} cores, "
        f"{versions}, Python {machine['python']}."
    )


def _work(config: Any, measured: dict[str, Any]) -> str:
    rows = []
    for task in config.tasks:
        one = measured[f"alone {task}"]
        worlds = measured[f"alone {task}"]["worlds"]
        rows.append(
            (
                f"`{task}`",
                f"{worlds} x {one['steps']}",
                f"{one['physics'] * 1e6:.1f} µs",
                f"{one['acting'] / worlds / one['steps'] * 1e6:.1f} µs",
                f"{one['acting']:.3f} s",
                f"{one['learning']:.3f} s",
                f"{one['gradient_steps']}",
            )
        )
    heads = ("task", "worlds x steps", "physics of a step", "acting, a step", "acting", "learning")
    return _table((*heads, "gradient steps"), rows)


def _messages(config: Any, measured: dict[str, Any]) -> str:
    rows = []
    for task in config.tasks:
        sent = messages_of(measured, task)
        steps = measured[f"messages {task}"]["gradient_steps"]
        largest = max(sent, key=lambda each: each.bytes)
        kinds = ", ".join(sorted({each.kind for each in sent}))
        rows.append(
            (
                f"`{task}`",
                f"{sum(each.times for each in sent)} ({kinds})",
                f"{steps}",
                f"{largest.bytes / 1e3:.0f} kB",
                f"{sum(each.times * each.bytes for each in sent) / 1e6:.1f} MB",
            )
        )
    return _table(("task", "messages", "gradient steps", "largest message", "all together"), rows)


def _networks(measured: dict[str, Any]) -> str:
    rows = []
    for key, name in (("own", "the machine's own (TCP)"), ("carried", "ours, without a delay")):
        if key == "carried" and "network carried" not in measured:  # not on every system
            continue
        network = network_between(measured, key, 0.0)
        told = math.isfinite(network.bandwidth)
        bandwidth = f"{network.bandwidth / 1e6:.0f} MB/s" if told else "too fast to measure"
        rows.append((name, f"{network.software * 1e6:.0f} µs", bandwidth))
    return _table(("network", "a step of the ring", "bytes per second"), rows)


def _check(config: Any, found: dict[Any, Any]) -> str:
    if not found:
        return UNKNOWN
    rows = []
    for (task, number, name), check in found.items():
        parts = check.predicted
        rows.append(
            (
                f"`{task}`",
                str(number),
                f"{config.delay:g} ms" if name == "carried" else "none",
                f"{parts.acting + parts.learning:.3f} s",
                f"{parts.waiting + parts.sending:.3f} s",
                f"{parts.total:.3f} s",
                f"{check.measured:.3f} s",
                f"{check.ratio:.2f}",
            )
        )
    heads = ("task", "processes", "added latency", "computing", "messages", "predicted", "measured")
    return _table((*heads, "measured / predicted"), rows)


def _wire(config: Any, measured: dict[str, Any]) -> str:
    """What the messages of an update take at least: it follows from their number and size alone."""
    sent = {task: messages_of(measured, task) for task in config.tasks}

    def least(task: str, hosts: int, latency: float, bandwidth: float) -> str:
        network = Network(latency=latency, bandwidth=bandwidth, software=0.0)
        work = Work(acting=0.0, learning=0.0, messages=sent[task])
        return f"{cost(work, hosts, hosts, network).total:.3g} s"

    return _by_hosts(config, lambda task, hosts, _, *network: least(task, hosts, *network))


def _hosts(config: Any, measured: dict[str, Any]) -> str:
    def share(task: str, hosts: int, name: str) -> str:
        return f"{efficiency(work_of(measured, task), hosts, _of(measured, name)):.2f}"

    return _by_hosts(config, lambda task, hosts, name, *_: share(task, hosts, name))


def _by_hosts(config: Any, cell: Callable[..., str]) -> str:
    """A table over hosts, with a column for each task and network."""
    rows = [
        (str(hosts), *(cell(task, hosts, *each) for task in config.tasks for each in NETWORKS))
        for hosts in HOSTS
    ]
    heads = [f"`{task}`, {name}" for task in config.tasks for name, *_ in NETWORKS]
    return _table(("hosts", *heads), rows)


def _worlds(config: Any, measured: dict[str, Any]) -> str:
    rows = []
    for count in config.world_counts:
        row = [f"{count:,}"]
        for task in config.tasks:
            one = measured[f"worlds {task} {count}"]
            row += (f"{one['rate']:,.0f}", f"{one['memory']:,.0f} MiB", f"{one['compile']:.1f} s")
        rows.append(tuple(row))
    heads = [
        f"`{task}`: {what}"
        for task in config.tasks
        for what in ("steps per second", "memory", "compilation")
    ]
    return _table(("worlds", *heads), rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _of(measured: dict[str, Any], name: str) -> Network:
    """A network that the page assumes, with the software's time of this machine."""
    software = network_between(measured, "own", 0.0).software
    latency, bandwidth = next((a, b) for each, a, b in NETWORKS if each == name)
    return Network(latency=latency, bandwidth=bandwidth, software=software)


def draw_hosts(path: Path, config: Any, measured: dict[str, Any], found: dict[Any, Any]) -> None:
    """Predicted efficiency over hosts, a panel a task; and measured over predicted seconds."""
    with _panels(path, len(config.tasks) + 1) as panels:
        for panel, task in zip(panels, config.tasks, strict=False):
            for name, *_ in NETWORKS:
                work, network = work_of(measured, task), _of(measured, name)
                rates = [efficiency(work, hosts, network) for hosts in HOSTS]
                panel.plot(HOSTS, rates, "o-", ms=3, label=name)
            panel.set(title=f"{task}: predicted", xlabel="hosts", ylim=(0, 1.05))
            panel.set_xscale("log", base=2)
            panel.set_xticks(HOSTS, [str(hosts) for hosts in HOSTS])
        panels[0].set(ylabel="rate / (hosts x rate of one)")
        panels[0].legend(fontsize="small")
        panel = panels[-1]
        for i, task in enumerate(config.tasks):
            for marker, name in (("o", "own"), ("s", "carried")):
                each = [check for (t, _, n), check in found.items() if (t, n) == (task, name)]
                delay = f", {config.delay:g} ms" if name == "carried" else ""
                x, y = [c.predicted.total for c in each], [c.measured for c in each]
                panel.plot(x, y, marker, color=f"C{i}", mfc="none" if delay else None,
                           label=f"{task}{delay}")  # fmt: skip
        ends = [c.predicted.total for c in found.values()] or [1.0]
        line = [min(ends) / 1.3, max(ends) * 1.3]
        panel.plot(line, line, color="0.6", lw=0.8, zorder=0)
        panel.set(title="an update on this machine", xlabel="predicted, s", ylabel="measured, s")
        panel.set(xscale="log", yscale="log")
        panel.legend(fontsize="small")


def draw_worlds(path: Path, config: Any, measured: dict[str, Any], found: dict[Any, Any]) -> None:
    """Steps per second, memory and compilation of one process over its worlds."""
    what = {"rate": "steps per second", "memory": "peak memory, MiB", "compile": "compilation, s"}
    with _panels(path, len(what)) as panels:
        for panel, (key, label) in zip(panels, what.items(), strict=True):
            for task in config.tasks:
                values = [measured[f"worlds {task} {n}"][key] for n in config.world_counts]
                panel.plot(config.world_counts, values, "o-", ms=3, label=task)
            panel.set(title=label, xlabel="worlds", xscale="log")
            if key == "compile":
                panel.set_ylim(bottom=0)
            else:
                panel.set_yscale("log")
        panels[0].legend(fontsize="small")


@contextlib.contextmanager
def _panels(path: Path, number: int) -> Iterator[list[Any]]:
    """Panels beside each other, which are written to a file in the end."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from worldline.report.figures import STYLE

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.6 * number, 3.2))
        yield list(figure.subplots(1, number, squeeze=False)[0])
        figure.savefig(path)
