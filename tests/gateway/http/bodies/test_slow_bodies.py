"""Timeouts for slow bodies, over real connections."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import falcon
import gevent
import pytest
from gevent.socket import wait_read

from gateway.http import errors
from gateway.http.bodies import body_limits
from gateway.http.connections import wsgi_environ
from gateway.http.connections.client_socket import ClientSocket
from gateway.http.connections.connection import ClientConnection
from gateway.http.connections.start_queue import StartQueue
from gateway.http.request_counts import RequestCounts
from gateway.middleware import RequestIdentity
from tests.gateway.process.chat_requests import error_of
from tests.gateway.raw_http import parsed

DEADLINE = 10.0
TIMEOUT = 0.3
LONG_TIMEOUT = 1.0
"""A timeout for tests in which a slow machine must not look like a slow client."""
LIMIT = 32 * 1024 * 1024
HEAD = b"POST /read HTTP/1.1\r\nHost: a\r\n%b\r\n\r\n"


class BodyLength:
    """Answers with the length of the body."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        resp.text = str(len(body_limits.read(req, LIMIT)))


class OneRouteWorker:
    """The parts of the process that a connection needs, over an application with one route."""

    keeps_connections = True
    keep_alive_s = DEADLINE

    def __init__(self) -> None:
        self.base_environ = wsgi_environ.process_environ(("127.0.0.1", 1), 1)
        self.idle: dict[Any, None] = {}
        self.start_queue = StartQueue()
        self.request_counts = RequestCounts()
        self.app: Any = falcon.App(middleware=[RequestIdentity()])
        self.app.add_route("/read", BodyLength())
        errors.install_error_handlers(self.app)

    def wsgi(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        pieces: Iterable[bytes] = self.app(environ, start_response)
        return pieces


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The client's end of a connection with short timeouts."""
    monkeypatch.setattr(body_limits, "IDLE_TIMEOUT_S", TIMEOUT)
    with socket.create_server(("127.0.0.1", 0)) as listener, gevent.Timeout(DEADLINE):
        ours = socket.create_connection(listener.getsockname())
        accepted, address = listener.accept()
        server_end = ClientSocket(accepted.family, accepted.type, accepted.proto, accepted.detach())
        serving = gevent.spawn(ClientConnection(OneRouteWorker(), server_end, address).serve)
        with ours:
            ours.settimeout(DEADLINE)
            yield ours
        serving.get()


def answer(client: socket.socket) -> bytes:
    """Everything until the server ends the connection; other greenlets run meanwhile."""
    pieces = []
    with contextlib.suppress(ConnectionResetError):
        while True:
            wait_read(client.fileno(), timeout=DEADLINE)
            if not (data := client.recv(65536)):
                break
            pieces.append(data)
    return b"".join(pieces)


@pytest.mark.parametrize(
    "sent",
    [
        HEAD % b"Content-Length: 100" + b"{",
        HEAD % b"Content-Length: %d" % LIMIT + b"{",
        HEAD % b"Transfer-Encoding: chunked",
        HEAD % b"Transfer-Encoding: chunked" + b"%x\r\nabc" % LIMIT,
        HEAD % b"Transfer-Encoding: chunked" + b"3\r\nabc",
        HEAD % b"Transfer-Encoding: chunked" + b"0\r\n",
    ],
)
def test_a_body_that_stops_arriving_is_408(client: socket.socket, sent: bytes) -> None:
    began = time.monotonic()
    client.sendall(sent)
    response = parsed(answer(client))
    assert TIMEOUT <= time.monotonic() - began < DEADLINE / 2
    assert (response[0], response[1]["connection"], error_of(response)["code"]) == (408, "close", "timeout")


def test_a_body_that_arrives_in_small_parts_is_waited_for(
    client: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_limits, "IDLE_TIMEOUT_S", 2 * LONG_TIMEOUT)
    monkeypatch.setattr(body_limits, "MIN_BYTES_PER_SECOND", 4096)
    client.sendall(HEAD % b"Connection: close\r\nTransfer-Encoding: chunked")
    pieces = [b"800", b"0\r\n", *[b"x" * 4096] * 8, b"\r\n0\r", b"\n\r\n"]
    due = gevent.get_hub().loop.timer(LONG_TIMEOUT / 5, LONG_TIMEOUT / 5)
    due.start(lambda: client.sendall(pieces.pop(0)) if pieces else due.stop())
    response = parsed(answer(client))
    due.close()
    assert (response[0], response[2]) == (200, b"32768")


@pytest.mark.parametrize(
    ("framing", "piece"),
    [
        (b"Content-Length: 100", b"x"),
        (b"Content-Length: %d" % LIMIT, b"x"),
        (b"Transfer-Encoding: chunked", b"1\r\nx\r\n"),
    ],
)
def test_a_body_that_arrives_too_slowly_is_408(client: socket.socket, framing: bytes, piece: bytes) -> None:
    client.sendall(HEAD % framing)
    due = gevent.get_hub().loop.timer(TIMEOUT / 3, TIMEOUT / 3)

    def more() -> None:
        with contextlib.suppress(OSError):
            client.sendall(piece)

    due.start(more)
    response = parsed(answer(client))
    due.close()
    assert response[0] == 408


def test_the_next_request_is_awaited_as_usual(client: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limits, "IDLE_TIMEOUT_S", LONG_TIMEOUT)
    client.sendall(HEAD % b"Content-Length: 3" + b"ab")
    due = gevent.get_hub().loop.timer(LONG_TIMEOUT / 6)
    due.start(client.sendall, b"c")
    wait_read(client.fileno(), timeout=DEADLINE)
    assert client.recv(65536).endswith(b"3")
    due.close()
    due = gevent.get_hub().loop.timer(1.5 * LONG_TIMEOUT)
    due.start(client.sendall, HEAD % b"Connection: close\r\nContent-Length: 4" + b"abcd")
    assert parsed(answer(client))[2] == b"4"
    due.close()
