"""Bodies as they arrive: with a length or in chunks, in pieces, broken, too large, or ended early."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from gateway.http.bodies.body_framing import ChunkedBody, ConnectionEndedError, SizedBody
from protocol.failures import LemonbusError

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class FakeClientSocket:
    """A connection with these bytes to read, at most ``step`` at a time."""

    def __init__(self, data: bytes = b"", step: int = 1 << 20) -> None:
        self.data, self.step = data, step
        self.sent = b""

    def recv(self, size: int) -> bytes:
        piece = self.data[: min(size, self.step)]
        self.data = self.data[len(piece) :]
        return piece

    def sendall(self, data: bytes) -> None:
        self.sent += data


def whole(body: SizedBody | ChunkedBody, size: int = -1) -> bytes:
    data = b""
    while piece := body.read(size):
        assert size < 0 or len(piece) <= size
        data += piece
    return data


def test_a_body_arrives_in_pieces() -> None:
    body = SizedBody(FakeClientSocket(b"defghij", step=2), b"head|abc", 5, 10)
    assert not body.received
    assert whole(body, 4) == b"abcdefghij"
    assert (body.unread, body.received, body.following()) == (0, True, b"")


def test_a_body_that_ends_early_is_an_error() -> None:
    body = SizedBody(FakeClientSocket(b"de"), b"abc", 0, 10)
    with pytest.raises(ConnectionEndedError):
        whole(body)
    with pytest.raises(ConnectionEndedError):
        whole(ChunkedBody(FakeClientSocket(b"bc"), b"5\r\na", 0))


@pytest.mark.parametrize("kind", ["sized", "chunked"])
def test_a_body_is_asked_for_when_it_is_read_and_not_here(kind: str) -> None:
    wire = b"abc" if kind == "sized" else b"3\r\nabc\r\n0\r\n\r\n"

    def body(sock: FakeClientSocket, here: bytes) -> SizedBody | ChunkedBody:
        return SizedBody(sock, here, 0, 3, True) if kind == "sized" else ChunkedBody(sock, here, 0, True)

    waiting, sent_at_once = FakeClientSocket(wire), FakeClientSocket()
    assert whole(body(waiting, b"")) == whole(body(sent_at_once, wire)) == b"abc"
    assert (waiting.sent, sent_at_once.sent) == (CONTINUE, b"")


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=8), st.integers(0, 200), st.integers(1, 40))
def test_chunks_are_joined_and_what_follows_is_kept(chunks: list[bytes], here: int, step: int) -> None:
    wire = b"".join(b"%x;a=b\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\nx: y\r\nz: 1\r\n\r\n"
    sock = FakeClientSocket((wire + b"GET /next")[here:], step)
    body = ChunkedBody(sock, (wire + b"GET /next")[:here], 0)
    assert whole(body, 7) == b"".join(chunks)
    assert body.received
    assert body.read() == b""
    assert body.following() + sock.data == b"GET /next"


@pytest.mark.parametrize(
    "wire",
    [
        b"zz",
        b"\r\n",
        b"-1\r\n",
        b"0x3\r\n",
        b"3 \r\n",
        b"3\n",
        b"f" * 17,
        b"3;a\x00\r\n",
        b"3;a=" + b"b" * 5000,
        b"2\r\n{}nonsense",
        b"3\r\nabc\n",
        b"0\r\n\n",
        b"0\r\nno colon\r\n",
        b"0\r\na: b\r\n c\r\n",
        b"0\r\na: b\n",
        b"0\r\nContent-Length: 5\r\n",
    ],
)
def test_broken_chunks_are_refused_before_more_arrives(wire: bytes) -> None:
    for here in (len(wire), 1):
        with pytest.raises(LemonbusError) as caught:
            whole(ChunkedBody(FakeClientSocket(wire[here:]), wire[:here], 0))
        assert caught.value.failure.http_status == 400


def test_trailers_have_a_limit() -> None:
    with pytest.raises(LemonbusError) as caught:
        whole(ChunkedBody(FakeClientSocket(), b"0\r\n" + b"a: b\r\n" * 3000, 0))
    assert caught.value.failure.http_status == 431


@pytest.mark.parametrize("wire", [b"ffffffff\r\n", b"b\r\n", b"6\r\nabcdef\r\n5\r\n"])
def test_chunks_that_announce_too_much_are_refused_before_they_arrive(wire: bytes) -> None:
    body = ChunkedBody(FakeClientSocket(), wire, 0)
    body.limit = 10
    with pytest.raises(LemonbusError) as caught:
        whole(body)
    assert caught.value.failure.http_status == 413
