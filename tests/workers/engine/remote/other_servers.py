"""Sockets that stand for the servers of a remote model, and a client that records its answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from protocol.config.server_address import parse_address
from protocol.runtime.loop import Loop
from tests.support.waiting import DEADLINE
from workers.backends.engine_request import EngineRequest
from workers.engine.remote.addresses import Found, find_address
from workers.engine.remote.servers import RemoteServers

TIMEOUT = 60.0
REQUEST = EngineRequest("POST", "/v1/chat/completions", b"{}")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
FAILED = b"HTTP/1.1 503 no\r\nContent-Length: 0\r\n\r\n"


class Client:
    """Records a response."""

    def __init__(self, *, restarts: bool = True) -> None:
        self.restarts = restarts
        self.statuses: list[int] = []
        self.body = b""
        self.ends: list[str] = []

    def began(self, status: int) -> None:
        self.statuses.append(status)

    def data(self, piece: bytes) -> None:
        self.body += piece

    def trailer(self, name: bytes, value: bytes) -> None:
        raise AssertionError((name, value))

    def restart(self) -> bool:
        if self.restarts:
            self.statuses, self.body = [], b""
        return self.restarts

    def ended(self, until_close: bool = False) -> None:
        assert not until_close
        self.ends.append("ended")

    def broke(self, reason: str) -> None:
        self.ends.append(reason)

    def malformed(self, reason: str) -> None:
        raise AssertionError(reason)

    def crashed(self, error: BaseException) -> None:
        raise error


def bound() -> socket.socket:
    opened = socket.socket()
    opened.bind(("127.0.0.1", 0))
    return opened


class OtherServers:
    """Some sockets, which listen or not, another one that never listens, and the object under test.

    A socket that is bound and does not listen refuses connections, and keeps its port from other programs. ``passed``:
    seconds by which the clock is ahead.
    """

    def __init__(
        self, count: int = 2, *, dead_first: bool = False, listening: bool = True, scheme: str = "http"
    ) -> None:
        self.passed = 0.0
        self.loop = Loop(lambda: time.monotonic() + self.passed)
        self.listeners = [bound() for _ in range(count)]
        self.dead = bound()
        for listener in self.listeners if listening else ():
            listener.listen()
        used = [self.dead, *self.listeners] if dead_first else self.listeners
        urls = [f"{scheme}://127.0.0.1:{each.getsockname()[1]}/api/v1" for each in used]
        self.accepted: list[socket.socket] = []
        self.unreachable: list[str] = []
        self.progress: list[float] = []
        self.lookups: list[str] = []
        self.finds_names = True
        self.servers = RemoteServers(
            self.loop,
            [parse_address(url) for url in urls],
            health=lambda: EngineRequest("GET", "/v1/models"),
            is_healthy=lambda status: status == 200,
            timeout=TIMEOUT,
            max_kept=2,
            key="the-key",
            look_up=self.look_up,
            on_unreachable=self.unreachable.append,
            on_progress=lambda: self.progress.append(self.loop.now()),
        )

    def close(self) -> None:
        self.servers.close()
        for each in (*self.listeners, self.dead, *self.accepted):
            each.close()
        self.loop.close()

    def look_up(self, host: str, port: int, then: Callable[[Found | None, str], None]) -> None:
        self.lookups.append(host)
        if not self.finds_names:
            return
        self.loop.call_later(0.0, lambda: then(find_address(host, port), ""))

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end
            self.loop.run_once(0.01)

    def accept(self, number: int, end: bytes = b"\r\n\r\n") -> tuple[socket.socket, bytes]:
        """Accept a connection of a server; return it with the request, at least up to ``end``."""
        self.listeners[number].setblocking(False)
        found: list[socket.socket] = []

        def accepted() -> bool:
            try:
                found.append(self.listeners[number].accept()[0])
            except BlockingIOError:
                return False
            return True

        self.until(accepted)
        self.accepted += found
        found[0].setblocking(False)
        got = b""

        def read() -> bool:
            nonlocal got
            try:
                got += found[0].recv(65536)
            except BlockingIOError:
                return False
            return end in got

        self.until(read)
        return found[0], got
