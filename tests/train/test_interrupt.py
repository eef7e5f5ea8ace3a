"""Ctrl-C and SIGTERM, sent to processes that do what a training run does: update, ask, update."""

import signal
import subprocess
import sys
import time

import pytest

from worldline.train.interrupt import graceful_stop

PROGRAM = """
import hashlib, time
from worldline.train.interrupt import graceful_stop
with graceful_stop() as stopped:
    print("ready", flush=True)
    while not stopped():
        {update}
print("saved", flush=True)
"""
#: Hours without a return to Python, where alone its handlers run: as in a program of XLA's.
LONG = "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)"


def start(update: str) -> subprocess.Popen[str]:
    """A process that asks after each `update` whether to stop."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(update=update)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_one_ends_a_run_well(number):
    process = start("time.sleep(0.05)")
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "saved\n")
    assert err.startswith("stopping after this update")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_one_ends_it_at_once(number):
    process = start(LONG)
    time.sleep(0.5)  # it is in the update now
    process.send_signal(number)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (128 + number, "")
    assert err.splitlines()[-1] == "stopped"


def test_two_at_the_same_moment_are_one():
    process = start("time.sleep(0.6)")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "saved\n")


def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with graceful_stop() as stopped:
        assert not stopped()
        signal.raise_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert stopped()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert signal.set_wakeup_fd(-1) == -1
