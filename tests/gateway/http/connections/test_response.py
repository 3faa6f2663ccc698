"""Responses on the wire: framing, ends, closing, and protection against smuggled headers."""

from __future__ import annotations

import pytest

from gateway.http.connections.response import HttpResponseWriter


class FakeRequest:
    def __init__(self, method: str = "GET", version: tuple[int, int] = (1, 1), close: bool = False) -> None:
        self.method, self.version, self.wants_close = method, version, close


class FakeSocket:
    """Remembers what it was given at once."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        self.calls.append(bytes(data))

    def parts(self) -> tuple[bytes, bytes]:
        head, _, body = b"".join(self.calls).partition(b"\r\n\r\n")
        return head, body


def made(
    sock: FakeSocket, status: str = "200 OK", headers: tuple[tuple[str, str], ...] = (), **request: object
) -> HttpResponseWriter:
    response = HttpResponseWriter(FakeRequest(**request), sock)  # type: ignore[arg-type]
    response.start_response(status, list(headers))
    return response


def test_a_whole_answer() -> None:
    sock = FakeSocket()
    response = made(sock, headers=(("content-length", "5"), ("X-A", "b")))
    response.write(b"hello, and more than announced")
    response.close()
    head, body = sock.parts()
    lines = head.split(b"\r\n")
    assert (lines[0], body, response.sent) == (b"HTTP/1.1 200 OK", b"hello", 5)
    assert {b"Connection: keep-alive", b"content-length: 5", b"X-A: b"} < set(lines)
    assert not response.should_close()


def test_a_stream_has_its_head_with_the_first_piece_and_its_end_with_the_last() -> None:
    sock = FakeSocket()
    response = made(sock)
    response.write(b"a")
    response.write(b"")
    response.write(b"bc", last=True)
    response.close()
    assert len(sock.calls) == 2
    assert sock.calls[1] == b"2\r\nbc\r\n0\r\n\r\n"
    assert b"Transfer-Encoding: chunked" in sock.calls[0]
    assert sock.calls[0].endswith(b"\r\n\r\n1\r\na\r\n")


@pytest.mark.parametrize(
    ("status", "request_", "length", "body", "closes"),
    [
        ("204 No Content", {}, False, b"", False),
        ("304 Not Modified", {}, True, b"", False),
        ("200 OK", {"method": "HEAD"}, True, b"", False),
        ("200 OK", {"version": (1, 0)}, False, b"abc", True),
        ("200 OK", {"close": True}, True, b"abc", True),
    ],
)
def test_which_answers_have_a_body_and_which_end_the_connection(
    status: str, request_: dict[str, object], length: bool, body: bytes, closes: bool
) -> None:
    sock = FakeSocket()
    headers = (("Content-Length", "3"),) if length or status.startswith("204") else ()
    response = made(sock, status, headers, **request_)
    response.write(b"abc")
    response.close()
    head, sent = sock.parts()
    assert (sent, b"Content-Length: 3" in head, response.should_close()) == (body, length, closes)
    assert (b"Connection: close" in head) == closes


def test_only_close_is_taken_of_the_applications_hop_by_hop_headers() -> None:
    sock = FakeSocket()
    response = made(sock, headers=(("Connection", "close"), ("Transfer-Encoding", "gzip"), ("Content-Length", "0")))
    response.close()
    head, _ = sock.parts()
    assert b"Connection: close" in head
    assert b"gzip" not in head
    assert response.should_close()


@pytest.mark.parametrize(
    ("status", "header"),
    [
        ("200 OK", ("X-A", "b\r\nX-C: d")),
        ("200 OK", ("X-A\r\nX-C", "d")),
        ("200 OK", ("X A", "d")),
        ("200 OK", ("X-A", "\0")),
        ("200 OK\r\nX-C: d", ("X-A", "b")),
        ("OK", ("X-A", "b")),
    ],
)
def test_nothing_is_smuggled_in(status: str, header: tuple[str, str]) -> None:
    sock = FakeSocket()
    with pytest.raises(ValueError, match=r"invalid status|cannot be|not valid"):
        made(sock, status, (header,))
    assert sock.calls == []


def test_after_a_hand_over_nothing_is_written() -> None:
    sock = FakeSocket()
    response = HttpResponseWriter(FakeRequest(), sock)
    response.hand_over()
    response.start_response("101 Switching Protocols", [])
    response.write(b"x")
    response.close()
    assert sock.calls == []
    assert (response.status_code, response.should_close()) == (101, True)
