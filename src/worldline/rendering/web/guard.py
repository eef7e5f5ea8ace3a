"""Guard: which requests the viewer's server answers.

A page on the web can make a browser send requests to this machine. So a request must name this
machine as its host (a foreign name that leads here is refused: DNS rebinding), and one that a page
makes must come from a page of this server. Where the server listens to other machines, each
request also needs the token that the printed URL has; a cookie keeps it after the first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hmac
import http
import secrets
import threading
from collections.abc import Callable, Iterator
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

#: Names of this machine that only this machine resolves to itself.
LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))

#: Addresses that mean every interface of this machine.
_EVERYWHERE = frozenset(("0.0.0.0", "::", ""))

#: How long a server that stops waits for browsers, in seconds.
_GOODBYE_S = 1.0

_patching = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Guard:
    """Decides on requests by their headers."""

    host: str
    """The address that the server listens at."""
    token: str = ""
    """What a request must know; empty: nothing."""

    @classmethod
    def of(cls, host: str) -> Guard:
        """The guard of an address: with a fresh token unless it is of this machine alone."""
        return cls(host, "" if host in LOOPBACK else secrets.token_urlsafe(16))

    def refusal(self, path: str, headers: Any) -> str:
        """Why a request is refused; empty: it is not.

        Args:
            path: the path of the request, with its query.
            headers: with `get_all(name)`, as `websockets.datastructures.Headers`.
        """
        hosts, origins = headers.get_all("Host"), headers.get_all("Origin")
        if len(hosts) != 1 or len(origins) > 1:
            return "a request names one host, and one origin at most"
        name = _hostname(f"//{hosts[0]}")
        if self.host not in _EVERYWHERE and name not in (LOOPBACK | {self.host.lower()}):
            return f"the host {hosts[0]!r} is not this machine"
        if origins and urlsplit(origins[0]).netloc.lower() != hosts[0].lower():
            return f"the origin {origins[0]!r} is foreign"
        if self.token and not self._knows(path, headers):
            return "the token is missing or wrong; use the whole URL that was printed"
        return ""

    def cookie(self, path: str) -> str:
        """The header `Set-Cookie` for a request that has the token in its query; else empty."""
        if not (self.token and self._is_right(_asked(path))):
            return ""
        return f"{_COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/"

    def _knows(self, path: str, headers: Any) -> bool:
        if self._is_right(_asked(path)):
            return True
        for header in headers.get_all("Cookie"):
            with contextlib.suppress(CookieError):
                morsel = SimpleCookie(header).get(_COOKIE)
                if morsel is not None and self._is_right(morsel.value):
                    return True
        return False

    def _is_right(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())

    def url(self, port: int) -> str:
        """What to open in a browser."""
        host = "localhost" if self.host in LOOPBACK | _EVERYWHERE else self.host
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{port}" + (f"/?token={self.token}" if self.token else "")


_COOKIE = "worldline-watch"


def _hostname(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def _asked(path: str) -> str:
    """The token in the query of a path."""
    return parse_qs(urlsplit(path).query).get("token", [""])[0]


@contextlib.contextmanager
def guarding(guard: Guard) -> Iterator[None]:
    """Has a server that `websockets` begins to serve in this block ask a guard first.

    viser gives no way to see a request before it is answered, so its call of
    `websockets.asyncio.server.serve` is given another `process_request` here. Nor does it say how
    long a browser may take to say goodbye when the server stops, which is 10 s by default.
    """
    from websockets.asyncio import server

    serve = server.serve

    @functools.wraps(serve)
    def serve_guarded(*args: Any, process_request: Any = None, **options: Any) -> Any:
        options = {"close_timeout": _GOODBYE_S, **options}
        return serve(*args, process_request=_asking(guard, process_request), **options)

    with _patching:
        server.serve = serve_guarded
        try:
            yield
        finally:
            server.serve = serve


def _asking(guard: Guard, answer: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A `process_request` that answers as another one, if the guard lets the request pass."""

    def process(connection: Any, request: Any) -> Any:
        if why := guard.refusal(request.path, request.headers):
            return connection.respond(http.HTTPStatus.FORBIDDEN, f"refused: {why}\n")
        response = answer(connection, request)
        cookie = guard.cookie(request.path)
        if response is not None and cookie:
            response.headers["Set-Cookie"] = cookie
        return response

    return process
