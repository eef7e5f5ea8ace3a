"""Who gets an answer: by headers alone, and from a server that runs."""

import contextlib
import http.client
import socket

import pytest

from worldline.errors import ConfigError
from worldline.rendering.web.guard import Guard
from worldline.rendering.web.server import open_server


class Headers(dict):
    def get_all(self, name):
        value = self.get(name, [])
        return [value] if isinstance(value, str) else value


OWN = {"Host": "localhost:8080"}


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        (OWN, ""),
        ({"Host": "127.0.0.1:8080", "Origin": "http://127.0.0.1:8080"}, ""),
        ({"Host": "[::1]:8080"}, ""),
        ({"Host": "evil.example:8080"}, "is not this machine"),
        ({"Host": "localhost.evil.example"}, "is not this machine"),
        ({**OWN, "Origin": "http://evil.example"}, "is foreign"),
        ({**OWN, "Origin": "http://localhost:3000"}, "is foreign"),
        ({**OWN, "Origin": "null"}, "is foreign"),
        ({}, "names one host"),
        ({"Host": ["localhost", "evil.example"]}, "names one host"),
    ],
)
def test_hosts_and_origins_of_this_machine_alone(headers, why):
    refusal = Guard.of("127.0.0.1").refusal("/", Headers(headers))
    assert (why in refusal) if why else not refusal


def test_other_machines_need_the_token():
    guard = Guard.of("0.0.0.0")
    headers = {"Host": "robot.lan:8080"}
    assert "token" in guard.refusal("/", Headers(headers))
    assert "token" in guard.refusal("/?token=wrong", Headers(headers))
    assert not guard.refusal(f"/?token={guard.token}", Headers(headers))
    cookie = guard.cookie(f"/?token={guard.token}")
    assert "HttpOnly" in cookie
    assert not guard.cookie("/?token=wrong")
    kept = {**headers, "Cookie": cookie.partition(";")[0], "Origin": "http://robot.lan:8080"}
    assert not guard.refusal("/", Headers(kept))
    assert "foreign" in guard.refusal("/", Headers({**kept, "Origin": "http://evil.example"}))
    assert Guard.of("0.0.0.0").token != guard.token
    assert guard.url(80) == f"http://localhost:80/?token={guard.token}"
    assert not Guard.of("::1").token


def asked(port, path="/", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace"), dict(answer.getheaders())


def test_the_server_answers_as_its_guard_says():
    pytest.importorskip("viser")
    with open_server() as (server, url):
        port = server.get_port()
        assert url == f"http://localhost:{port}"
        status, page, _ = asked(port)
        assert status == 200
        assert "<html" in page
        status, text, _ = asked(port, Host="evil.example")
        assert status == 403
        assert "'evil.example' is not this machine" in text
        upgrade = {
            "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": "http://evil.example",
        }  # fmt: skip
        assert asked(port, **upgrade)[0] == 403
        with socket.socket() as probe, pytest.raises(OSError, match="in use"):
            probe.bind(("127.0.0.1", port))
    with socket.socket() as probe:  # free again
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


def test_a_token_for_other_machines_and_the_next_port_where_one_is_taken():
    pytest.importorskip("viser")
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with open_server("0.0.0.0", port) as (server, url):
            assert server.get_port() > port
            assert asked(server.get_port())[0] == 403
            path = url.partition(f":{server.get_port()}")[2]
            status, _, headers = asked(server.get_port(), path)
            assert status == 200
            assert "SameSite=Strict" in headers["Set-Cookie"]


def test_an_address_of_another_machine_is_one_line():
    pytest.importorskip("viser")
    with (
        pytest.raises(ConfigError, match=r"cannot listen at '192\.0\.2\.1'"),
        open_server("192.0.2.1"),
    ):
        pass
