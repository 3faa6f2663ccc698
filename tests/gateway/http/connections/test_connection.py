"""Requests on one connection: other greenlets run between them, and an unread body ends the connection."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import falcon
import gevent
import pytest

from gateway.http.bodies import body_limits
from gateway.http.connections import connection, wsgi_environ
from gateway.http.connections.connection import ClientConnection
from gateway.http.connections.start_queue import StartQueue
from gateway.http.errors import DEFAULT_FORMATS
from gateway.http.request_counts import RequestCounts
from gateway.internal_errors import INTERNAL_ERRORS
from protocol.runtime import logs
from tests.gateway.never_pausing_socket import NeverPausingSocket
from tests.gateway.process.chat_requests import error_of
from tests.gateway.raw_http import parsed

GET = b"GET /live HTTP/1.1\r\nHost: a\r\n%b\r\n"
POST = b"POST /live HTTP/1.1\r\nHost: a\r\n%b\r\n"


class FakeGatewayWorker:
    """Answers everything at once, and reads no body."""

    keeps_connections = True
    keep_alive_s = 5.0

    def __init__(self) -> None:
        self.base_environ = wsgi_environ.process_environ(("127.0.0.1", 1), 1)
        self.idle: dict[Any, None] = {}
        self.start_queue = StartQueue()
        self.request_counts = RequestCounts()
        self.error_formats = DEFAULT_FORMATS
        self.error_headers: dict[str, str] = {}

    def wsgi(self, _environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Length", "0")])
        return []


def test_a_busy_connection_yields_to_other_greenlets() -> None:
    client = NeverPausingSocket(*[GET % b""] * 100)
    seen: list[int] = []
    other = gevent.spawn(lambda: seen.append(len(client.answers)))
    ClientConnection(FakeGatewayWorker(), client, ("127.0.0.1", 1)).serve()
    other.join(5)
    assert len(client.answers) == 100
    assert seen[0] < 50


def test_a_body_of_tiny_chunks_yields_to_other_greenlets() -> None:
    class Reading(FakeGatewayWorker):
        def wsgi(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            assert body_limits.read(falcon.Request(environ), 10**6) == b"x" * 20_000
            return super().wsgi(environ, start_response)

    chunks = [b"1\r\nx\r\n" * 1000] * 20
    client = NeverPausingSocket(POST % b"Transfer-Encoding: chunked\r\n", *chunks, b"0\r\n\r\n")
    left: list[int] = []
    other = gevent.spawn(lambda: left.append(len(client.pieces)))
    ClientConnection(Reading(), client, ("127.0.0.1", 1)).serve()
    other.join(5)
    assert len(client.answers) == 1
    assert left[0] > 5


EXPECTS = POST % b"Expect: 100-continue\r\nContent-Length: 9\r\n"


def test_a_body_that_is_awaited_is_asked_for_when_it_is_read() -> None:
    class Reading(FakeGatewayWorker):
        def wsgi(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            assert client.answers == [], "nothing was sent before"
            assert body_limits.read(falcon.Request(environ), 9) == b"123456789"
            return super().wsgi(environ, start_response)

    client = NeverPausingSocket(EXPECTS, b"1234", b"56789", GET % b"")
    ClientConnection(Reading(), client, ("127.0.0.1", 1)).serve()
    asked, first, _second = client.answers[0], *client.answers[1:]
    assert asked == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert b"Connection: keep-alive" in first


def test_a_body_that_is_refused_is_never_asked_for() -> None:
    client = NeverPausingSocket(EXPECTS)
    ClientConnection(FakeGatewayWorker(), client, ("127.0.0.1", 1)).serve()
    (answer,) = client.answers
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Connection: close" in answer


def test_the_head_of_a_request_may_arrive_in_pieces() -> None:
    client = NeverPausingSocket(b"\r\nGET /live HT", b"TP/1.1\r\nHost: a\r", b"\n\r\n\r\n" + GET % b"", GET[:9])
    ClientConnection(FakeGatewayWorker(), client, ("127.0.0.1", 1)).serve()
    assert len(client.answers) == 2


def test_empty_lines_before_a_request_are_bounded() -> None:
    client = NeverPausingSocket(*[b"\r\n"] * 9, GET % b"")
    ClientConnection(FakeGatewayWorker(), client, ("127.0.0.1", 1)).serve()
    (answer,) = client.answers
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_an_unread_received_body_is_skipped() -> None:
    client = NeverPausingSocket(POST % b"Content-Length: 9\r\n" + b"123456789" + GET % b"")
    ClientConnection(FakeGatewayWorker(), client, ("127.0.0.1", 1)).serve()
    assert len(client.answers) == 2


def test_an_error_of_ours_is_500_with_the_request_id(records: list[dict[str, Any]]) -> None:
    class Failing(FakeGatewayWorker):
        def wsgi(self, _environ: dict[str, Any], _start_response: Callable[..., Any]) -> Iterable[bytes]:
            raise RuntimeError("ours")

    logs.configure("gateway", "info", "json")
    before = INTERNAL_ERRORS.count
    client = NeverPausingSocket(GET % b"X-Request-ID: r.1\r\n")
    ClientConnection(Failing(), client, ("127.0.0.1", 1)).serve()
    assert INTERNAL_ERRORS.count == before + 1
    response = parsed(client.answers[0])
    assert (response[0], error_of(response)["request_id"]) == (500, "r.1")
    assert [line["request_id"] for line in records if line["event"] == "internal error"] == ["r.1"]


@pytest.mark.parametrize("line", [b"Content-Length: 9\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_an_unread_unreceived_body_closes_the_connection(line: bytes) -> None:
    client = NeverPausingSocket(POST % line, b"123456789", GET % b"")
    ClientConnection(FakeGatewayWorker(), client, ("127.0.0.1", 1)).serve()
    assert len(client.answers) == 1
    assert b"Connection: close" in client.answers[0]


class EndlessClient(NeverPausingSocket):
    """Goes on sending its body, and notes until when it may."""

    def __init__(self, *pieces: bytes) -> None:
        super().__init__(*pieces)
        self.deadlines: list[float] = []

    def set_read_deadline(self, deadline: float | None) -> None:
        self.deadlines.append(deadline or 0.0)


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> EndlessClient:
    """Return a client whose every reading is a second later."""
    clock = itertools.count()
    monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    return EndlessClient(POST % b"Content-Length: 99\r\n", *[b"x"] * 50)


def test_a_client_that_goes_on_sending_keeps_its_answer(endless: EndlessClient) -> None:
    """Closing with unread data would reset the connection. So the time that is left begins anew with each piece."""
    ClientConnection(FakeGatewayWorker(), endless, ("127.0.0.1", 1)).serve()
    assert endless.pieces == []
    first = endless.deadlines[0]
    last = first - connection._LINGER_S - 1 + connection._LONGEST_LINGER_S
    assert endless.deadlines == [min(first + passed, last) for passed in range(51)]


def test_a_client_that_goes_on_sending_does_not_delay_the_end_of_the_process(endless: EndlessClient) -> None:
    class Ending(FakeGatewayWorker):
        @property
        def keeps_connections(self) -> bool:  # type: ignore[override]
            return len(endless.pieces) > 45

    ClientConnection(Ending(), endless, ("127.0.0.1", 1)).serve()
    first, begun = endless.deadlines[0], endless.deadlines[0] - 1 - connection._LINGER_S
    assert endless.deadlines[:5] == [first + passed for passed in range(5)]
    assert set(endless.deadlines[5:]) == {begun + connection._LINGER_S}
