"""The model of `worldline bench scale`, with numbers computed by hand, and what it counts."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"

pytestmark = pytest.mark.usefixtures("bench_modules")

#: Two processes: a sum of statistics, then three epochs of eight steps with a message in each step,
#: and one in each epoch.
PROGRAM = """\
HloModule jit_update, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%step (state: (s32[], f32[1000])) -> (s32[], f32[1000]) {
  %state = (s32[], f32[1000]) parameter(0)
  %gradient = f32[1000]{0} get-tuple-element(%state), index=1
  %all-reduce.7 = f32[1000]{0} all-reduce(%gradient), channel_id=3, to_apply=%add
  ROOT %next = (s32[], f32[1000]) tuple(%i, %all-reduce.7)
}

%less (state: (s32[], f32[1000])) -> pred[] {
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

%epoch (state: (s32[], f32[1000])) -> (s32[], f32[1000]) {
  %steps = (s32[], f32[1000]) while(%state), condition=%less, body=%step, backend_config={"known_trip_count":{"n":"8"}}
  %both = (f32[8]{0}, s32[]) all-reduce(%mean, %count), channel_id=2, to_apply=%add
  ROOT %next = (s32[], f32[1000]) tuple(%i, %w)
}

ENTRY %main (w: f32[1000]) -> f32[1000] {
  %w = f32[1000]{0} parameter(0)
  %gathered = bf16[4,6]{1,0} all-gather(%part), channel_id=1, dimensions={0}
  %epochs = (s32[], f32[1000]) while(%begin), condition=%less, body=%epoch, backend_config={"known_trip_count":{"n":"3"}}
  ROOT %out = f32[1000]{0} get-tuple-element(%epochs), index=1
}
"""  # noqa: E501


def test_messages_in_loops_count_each_time():
    from _collectives import Collective, collectives

    assert collectives(PROGRAM) == [
        Collective("all-gather", 48, 1),
        Collective("all-reduce", 4000, 24),
        Collective("all-reduce", 36, 3),
    ]


def test_a_message_with_a_start_and_an_end_counts_once():
    from _collectives import Collective, collectives

    begun = "%s = (f32[6]{0}, f32[6]{0}) all-reduce-start(%x), to_apply=%add"
    ended = "%d = f32[6]{0} all-reduce-done(%s)"
    text = f"ENTRY %main (x: f32[6]) -> f32[6] {{\n  {begun}\n  ROOT {ended}\n}}\n"
    assert collectives(text) == [Collective("all-reduce", 24, 1)]


def test_a_loop_without_a_number_of_rounds_is_refused():
    from _collectives import collectives

    unknown = PROGRAM.replace('"known_trip_count":{"n":"8"}', '"other":{}')
    with pytest.raises(ValueError, match="the loop step"):
        collectives(unknown)
    with pytest.raises(ValueError, match="no ENTRY"):
        collectives("nothing")


def test_the_cost_of_an_update_by_hand():
    from _collectives import Collective
    from _cost import Network, Work, cost, efficiency

    network = Network(latency=1e-3, bandwidth=1e6, software=1e-4)
    sent = (Collective("all-reduce", 8000, 10), Collective("all-gather", 400, 2))
    work = Work(acting=0.3, learning=0.1, messages=sent)

    alone = cost(work, 1, 2, network)
    assert (alone.waiting, alone.sending) == (0, 0)
    assert alone.total == pytest.approx(0.4)

    # Four on two cores: each computes for twice as long.
    four = cost(work, 4, 2, network)
    assert (four.acting, four.learning) == pytest.approx((0.6, 0.2))
    assert four.waiting == pytest.approx(10 * 6 * 2.1e-3 + 2 * 3 * 2.1e-3)
    assert four.sending == pytest.approx(10 * 6 * 0.002 + 2 * 3 * 0.0001)

    # Two with a core each: 20 + 2 steps of 2.1 ms, and 80 kB + 400 B at 1 MB/s.
    assert efficiency(work, 2, network) == pytest.approx(0.4 / (0.4 + 22 * 2.1e-3 + 0.0804))


def test_a_network_from_two_messages():
    from _collectives import Collective
    from _cost import Work as _Work
    from _cost import cost, network_of

    network = network_of([(1000, 250e-6), (101_000, 450e-6)])
    assert network.bandwidth == pytest.approx(500e6)
    assert network.software == pytest.approx(124e-6)
    # And it gives back what it was made from.
    for size, seconds in ((1000, 250e-6), (101_000, 450e-6)):
        work = _Work(acting=0, learning=0, messages=(Collective("all-reduce", size, 1),))
        assert cost(work, 2, 2, network).total == pytest.approx(seconds)
    busy = network_of([(1000, 2e-4), (101_000, 1e-4)])
    assert (busy.bandwidth, busy.software) == (math.inf, 1e-4)


#: The first process answers the second, which says how long the fastest of 20 answers took.
ECHO = """
import socket, sys, time
first, second = "10.77.0.1", "10.77.0.2"
if sys.argv[1] == "0":
    connection, (other, _) = socket.create_server((first, 5000)).accept()
    assert other == second == socket.gethostbyname(second)
    while said := connection.recv(1):
        connection.sendall(said)
else:
    assert socket.gethostbyname(socket.gethostname()) == second
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            connection = socket.create_connection((first, 5000))
            break
        except OSError:  # not there yet
            time.sleep(0.02)
    took = []
    for _ in range(20):
        began = time.perf_counter()
        connection.sendall(b"x")
        connection.recv(1)
        took.append(time.perf_counter() - began)
    print(min(took))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's")
@pytest.mark.parametrize("delay", [0.0, 0.02])
def test_a_packet_takes_its_time(delay):
    from _network import DelayedNetwork

    with DelayedNetwork(2, delay) as network:
        running = []
        for index in range(2):
            command, file = network.command(index, [sys.executable, "-c", ECHO, str(index)])
            running.append(subprocess.Popen(command, pass_fds=[file], stdout=-1, stderr=-1))
        try:
            answers = [process.communicate(timeout=20) for process in reversed(running)]
        finally:
            for process in running:
                process.kill()
                process.wait()
    if b"no network of our own" in answers[0][1]:
        pytest.skip(answers[0][1].decode())
    assert 2 * delay <= float(answers[0][0]) < 2 * delay + 0.02


def test_a_part_of_the_page_is_written_again():
    from _scale_page import written

    mark = "<!-- begin: worldline bench scale, work -->\n"
    page = f"Before.\n\n{mark}\nold\n\n<!-- end -->\n\nAfter.\n"
    once = written(page, "work", "| new |")
    assert once == f"Before.\n\n{mark}\n| new |\n\n<!-- end -->\n\nAfter.\n"
    assert written(once, "work", "| new |") == once
    with pytest.raises(SystemExit, match="no part"):
        written(page, "worlds", "| new |")


def test_the_page_has_the_numbers_of_the_file():
    """Page and results were written by one command, and nobody changed one of them since."""
    import scale
    from _scale_page import parts, written

    kept = json.loads((BENCH / "results" / "scale.json").read_text())
    docs = BENCH.parent / "docs"
    file, images = docs / "concepts" / "scale.md", docs / "images"
    config = scale.ScaleBench(**kept["settings"], page=file, images=images)
    again = page = file.read_text()
    for name, text in parts(
        config, kept, dict(scale.predictions(config, kept["measured"]))
    ).items():
        again = written(again, name, text)
    assert again == page


@pytest.mark.slow
def test_everything_once(tmp_path):
    """The whole benchmark, with numbers that are of no use, but for those that are counted."""
    results = tmp_path / "scale.json"
    command = [sys.executable, str(BENCH / "scale.py"), "--quick", "--json", str(results)]
    done = subprocess.run(
        [*command, "--images", str(tmp_path)],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    measured = json.loads(results.read_text())["measured"]
    task = "gym/inverted-pendulum"
    counted, alone = measured[f"messages {task}"], measured[f"alone {task}"]
    gradients = [each for each in counted["sent"] if each["bytes"] >= 4 * counted["parameters"]]
    # A gradient step sends one message, with the gradient and what is reported.
    assert sum(each["times"] for each in gradients) == alone["gradient_steps"] == 8
    assert all(each["bytes"] < 4 * counted["parameters"] + 100 for each in gradients)
    assert {each["kind"] for each in counted["sent"]} == {"all-reduce"}
    assert len(measured[f"train {task} 2 own"]) >= 4
    assert [measured[f"worlds {task} {n}"]["worlds"] for n in (1, 4, 16)] == [1, 4, 16]
    assert (tmp_path / "scale-worlds.png").stat().st_size > 1000
    assert (tmp_path / "scale-hosts.png").stat().st_size > 1000
