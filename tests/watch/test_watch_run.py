"""`worldline watch` from its first line to Ctrl-C."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import toys
from worldline.cli.main import main
from worldline.env.env import Env
from worldline.errors import MissingExtraError
from worldline.learn.ppo import PPOConfig
from worldline.rendering.web.server import open_server
from worldline.report import RunFolder
from worldline.train import TrainConfig
from worldline.train.stored import resolved_config
from worldline.watch.run import WatchConfig, watch

#: What needs no library of the extra stands without this mark.
needs_viser = pytest.mark.skipif("not __import__('importlib').util.find_spec('viser')")


@contextlib.contextmanager
def viewer(port):
    """A browser as far as the server can tell, which never says goodbye."""
    import viser
    from websockets.sync.client import connect

    name = f"viser-v{viser.__version__}"
    with connect(f"ws://localhost:{port}", subprotocols=[name], max_size=None) as socket_:
        socket_.recv()
        yield


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


@needs_viser
def test_a_server_that_stops_leaves_no_thread():
    before = set(threading.enumerate())
    with open_server() as (server, _), viewer(server.get_port()):
        assert set(threading.enumerate()) - before
    end = time.monotonic() + 60
    while left := {t for t in threading.enumerate() if t.is_alive()} - before:
        assert time.monotonic() < end, left
        time.sleep(0.05)


@needs_viser
def test_a_taken_port_and_a_run_without_a_policy_are_a_line_each(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "nice", lambda _: 0)  # it would last
    env = Env(toys.Puck(wall=0.3))
    config = resolved_config("puck", env, TrainConfig(), PPOConfig())
    for name, options in (("run", {}), ("alike", {}), ("other", {"options": {"wall": 0.4}})):
        RunFolder.create(tmp_path / name, config | options).close()
    stop, lines = threading.Event(), []
    stop.set()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        others = [str(tmp_path / "alike"), str(tmp_path / "other")]
        watch(str(tmp_path / "run"), WatchConfig(port=port), lines.append, others=others, stop=stop)
    first, second, third = lines
    assert first.startswith(f"port {port} is taken; using the next free port, {port + 1}")
    assert f"at http://localhost:{port + 1} " in second
    assert third == "  no policy yet: waiting for the run's first evaluation"


#: The command, but for the nice manners that would let other tests starve it.
PROGRAM = """
import os, sys
os.nice = lambda _: 0
from worldline.cli.main import main
sys.exit(main(["watch", "pendulum.xml", "--port", "0"]))
"""


@needs_viser
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.exhaustive)]
)
def test_a_signal_ends_it_and_frees_the_port(number, tmp_path):
    (tmp_path / "pendulum.xml").write_text(toys.PENDULUM)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        assert line.startswith("pendulum: 1 world at http://localhost:"), line
        port = int(line.partition("localhost:")[2].split()[0])
        with viewer(port):
            process.send_signal(number)
            rest, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (process.returncode, rest, errors) == (0, "", "")
    assert is_free(port)


def test_without_the_extra_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    for begin in (
        lambda: watch("robot/reach", WatchConfig(), print),
        lambda: open_server().__enter__(),
    ):
        with pytest.raises(MissingExtraError, match=r"pip install .*\[viewer\]"):
            begin()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["robot/reach", "--worlds", "0"], "worlds is 0"),
        (["robot/reach", "--port", "70000"], "port is 70000"),
        (["robot/reach", "--prot", "80"], "did you mean '--port'"),
        ([], "Missing from worldline watch"),
    ],
)
def test_wrong_options_are_one_line(arguments, match, capsys):
    assert main(["watch", *arguments]) == 2
    error = capsys.readouterr().err
    assert match in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1


#: How long the viewer is watched while browsers come and go, in seconds.
LONG_S = float(os.environ.get("WATCH_SECONDS", "1200"))


@needs_viser
@pytest.mark.exhaustive
def test_memory_and_threads_stay_while_browsers_come_and_go(tmp_path):
    """For twenty minutes, or for as many seconds as WATCH_SECONDS says."""
    (tmp_path / "pendulum.xml").write_text(toys.PENDULUM)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        port = int(process.stdout.readline().partition("localhost:")[2].split()[0])
        end, begun, rows = time.monotonic() + LONG_S, time.monotonic(), []
        while time.monotonic() < end:
            visit(port, seconds=3.0)
            time.sleep(0.5)  # nobody looks
            rows.append((time.monotonic() - begun, memory_of(process), threads_of(process)))
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.stdout.close()
    assert is_free(port)
    warm = [row for row in rows if row[0] > LONG_S / 4]
    half = len(warm) // 2
    before, after = (max(size for _, size, _ in part) for part in (warm[:half], warm[half:]))
    assert after < 1.01 * before + 2, rows
    assert max(threads for *_, threads in warm[half:]) <= max(n for *_, n in rows[:-half])


def visit(port, seconds):
    """A browser that looks for some seconds, and goes without a goodbye."""
    import viser
    from websockets.sync.client import connect

    name, end = f"viser-v{viser.__version__}", time.monotonic() + seconds
    with connect(f"ws://localhost:{port}", subprotocols=[name], max_size=None) as socket_:
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                socket_.recv(timeout=0.2)
        socket_.socket.shutdown(socket.SHUT_RDWR)


def memory_of(process):
    """What a process has in memory, in MB."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def threads_of(process):
    """How many threads a process has."""
    return len(list(Path(f"/proc/{process.pid}/task").iterdir()))
