"""Thousands of clients at once in one thread: each sends a request on its own connection and reads the answer. They use

raw sockets and a selector, to leave the processors to the server.
"""

from __future__ import annotations

import resource
import selectors
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Self

from tests.support.clients.http_client import Json, RawHttpClient

PATIENCE_S: Final = 60.0


class BurstClient:
    """One client: the name of its key, and the answer so far."""

    def __init__(self, key: str, connection: socket.socket) -> None:
        self.key = key
        self.connection = connection
        self.received = b""
        self.over = False
        """Whether the server has ended the connection, which it does after the answer."""

    @property
    def status(self) -> int:
        """The status of the answer; 0 before there is one."""
        return int(self.received[9:12] or 0)

    def body(self) -> bytes:
        return self.received.partition(b"\r\n\r\n")[2]


class RequestBurst:
    """Clients of one server. Use it as a context manager: leaving it hangs up."""

    def __init__(self, port: int, path: str, body: Json) -> None:
        """Every client posts ``body`` to ``path``."""
        self._raw, self._path, self._body = RawHttpClient(port), path, body
        self._selector = selectors.DefaultSelector()
        self.answered: list[BurstClient] = []
        """The clients in the order in which their answers were complete."""
        self._sent = 0
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._limits[1], self._limits[1]))

    def send(self, keys: Iterable[str]) -> list[BurstClient]:
        """Connect and send a request for each key, which may occur several times. Their ids are ``KEY.NUMBER``."""
        clients = []
        for key in keys:
            self._sent += 1
            label = f"{key}.{self._sent}"
            fields = {"Authorization": f"Bearer {key}", "Connection": "close", "X-Request-ID": label}
            client = BurstClient(key, self._connect())
            client.connection.sendall(self._raw.request_bytes("POST", self._path, self._body, fields))
            client.connection.setblocking(False)
            self._selector.register(client.connection, selectors.EVENT_READ, client)
            clients.append(client)
            self._read(0)
        return clients

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Read answers until ``condition``; AssertionError after a minute."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}"
            self._read(0.2)

    def _connect(self) -> socket.socket:
        connection = socket.socket()
        connection.settimeout(PATIENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.connect(("127.0.0.1", self._raw.port))
        return connection

    def _read(self, timeout: float) -> None:
        for ready, _ in self._selector.select(timeout):
            client: BurstClient = ready.data
            try:
                data = client.connection.recv(1 << 16)
            except BlockingIOError:
                continue
            client.received += data
            if not data:
                client.over = True
                self.answered.append(client)
                self._hang_up(client.connection)

    def _hang_up(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for ready in list(self._selector.get_map().values()):
            self._hang_up(ready.data.connection)
        self._selector.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)
