"""A model of the cost: how long an update takes if processes share it.

    time = (acting + learning) * crowd + messages

`crowd` is 1, or processes per core if there are more processes than cores. A sum over P processes
goes round a ring (gloo): in each of 2 (P - 1) steps every process sends 1/P of it to its neighbour.
A step takes the network's latency twice (gloo's receiver says that it is ready, then the bytes
come), the software's time, and the time of its bytes. Most of the software's time is that of the
system, which wakes up a process that waits; it takes no core, so `crowd` does not make it longer.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from _collectives import Collective

#: Steps of a ring for each kind of message, in units of P - 1.
_ROUNDS = {"all-reduce": 2}
#: How often something crosses the network, one after the other, in a step of a ring.
_CROSSINGS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """What lies between processes."""

    latency: float
    """Seconds from one to the next, without software."""
    bandwidth: float
    """Bytes a second, of each process."""
    software: float
    """Seconds of software in a step of a ring, with a core for each process."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """An update's share of one process, on a core of its own."""

    acting: float
    """Seconds."""
    learning: float
    """Seconds."""
    messages: tuple[Collective, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """The parts of an update's time, seconds."""

    acting: float
    learning: float
    waiting: float
    """For the latency of messages, and for the software that sends them."""
    sending: float
    """The bytes of messages."""

    @property
    def total(self) -> float:
        """All of an update."""
        return self.acting + self.learning + self.waiting + self.sending


def cost(work: Work, processes: int, cores: int, network: Network) -> Cost:
    """The time of an update that processes share, each with the same work.

    Args:
        work: of each process.
        processes: how many.
        cores: of all machines together. More processes than cores take turns.
        network: between any two of them.
    """
    crowd = max(1.0, processes / cores)
    waiting = sending = 0.0
    for message in work.messages:
        steps = _ROUNDS.get(message.kind, 1) * (processes - 1)
        step = _CROSSINGS * network.latency + network.software
        waiting += message.times * steps * step
        sending += message.times * steps * message.bytes / processes / network.bandwidth
    return Cost(
        acting=work.acting * crowd,
        learning=work.learning * crowd,
        waiting=waiting,
        sending=sending,
    )


def efficiency(work: Work, processes: int, network: Network) -> float:
    """The rate of processes with a core each, over so many times the rate of one alone."""
    alone = work.acting + work.learning
    return alone / cost(work, processes, processes, network).total


def network_of(seconds: Sequence[tuple[int, float]]) -> Network:
    """The network between two processes with a core each, from the times of two all-reduces.

    All of their latency counts as the software's. If the large one did not take longer, as on a
    busy machine, the bandwidth is too high to be measured: infinite.

    Args:
        seconds: the bytes of a small and of a large one, and its seconds.
    """
    (small, t_small), (large, t_large) = seconds
    # Two steps of a half each: together, all bytes once.
    longer = t_large - t_small
    bandwidth = (large - small) / longer if longer > 0 else math.inf
    software = max(0.0, t_small - small / bandwidth) / 2
    return Network(latency=0.0, bandwidth=bandwidth, software=software)


def work_of(measured: Mapping[str, Any], task: str) -> Work:
    """An update of a task on one core, from the measurements of the benchmark.

    Raises:
        KeyError: it has not been measured.
    """
    alone = measured[f"alone {task}"]
    sent = messages_of(measured, task)
    return Work(acting=alone["acting"], learning=alone["learning"], messages=sent)


def messages_of(measured: Mapping[str, Any], task: str) -> tuple[Collective, ...]:
    """The messages of an update of a task.

    Raises:
        KeyError: they have not been counted.
    """
    return tuple(Collective(**each) for each in measured[f"messages {task}"]["sent"])


def network_between(measured: Mapping[str, Any], name: str, latency: float) -> Network:
    """The measured network of this name, with so many seconds of latency more.

    Raises:
        KeyError: it has not been measured.
    """
    seconds = [(int(size), took) for size, took in measured[f"network {name}"]]
    return dataclasses.replace(network_of(seconds), latency=latency)
