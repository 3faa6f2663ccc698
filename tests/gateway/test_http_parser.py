"""What the quick reader takes, that it reads it as gunicorn does, and that it leaves everything else alone."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from gunicorn.config import Config
from gunicorn.http import RequestParser, wsgi
from hypothesis import given

from gateway.http import llhttp_parser

ADDRESS, LISTENER = ("127.0.0.2", 5), ("127.0.0.1", 13305)
HOST = b"Host: a:1\r\n"


class FakeClientSocket:
    """A socket that has these bytes to read, a few at a time."""

    def __init__(self, data: bytes = b"", step: int = 1 << 20) -> None:
        self.data, self.step = data, step

    def recv(self, size: int) -> bytes:
        piece = self.data[: min(size, self.step)]
        self.data = self.data[len(piece) :]
        return piece


def read(data: bytes, later: bytes = b"", step: int = 1 << 20) -> llhttp_parser.ParsedRequest | None:
    reader = llhttp_parser.LlhttpParser(
        llhttp_parser.process_environ(Config(), LISTENER), FakeClientSocket(later, step), ADDRESS
    )
    return reader.read(data)


def by_gunicorn(data: bytes) -> dict[str, Any]:
    sock = FakeClientSocket(data)
    request = next(RequestParser(Config(), sock, ADDRESS))
    return wsgi.create(request, sock, ADDRESS, LISTENER, Config())[1]


NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,12}", fullmatch=True)
VALUES = st.from_regex(r"[!-~]([ -~]{0,20}[!-~])?", fullmatch=True)
FIELDS = st.dictionaries(NAMES, VALUES, max_size=6)
PATHS = st.from_regex(r"/[A-Za-z0-9._~:@/-]{0,20}(\?[A-Za-z0-9._~:@=&+%,-]{0,20})?", fullmatch=True)


@given(st.sampled_from(["GET", "POST", "HEAD", "DELETE", "OPTIONS"]), PATHS, FIELDS, st.binary(max_size=40))
def test_what_it_takes_it_reads_as_gunicorn_does(method: str, path: str, fields: dict[str, str], body: bytes) -> None:
    lines = {"Host": "h", "Content-Length": str(len(body))} | fields
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    data = head.encode() + b"\r\n" + body
    request = read(data + b"GET /next")
    if request is None:
        return
    theirs = by_gunicorn(data)
    different = {"wsgi.input", "wsgi.errors", "gunicorn.socket", "wsgi.early_hints", "wsgi.multithread"}
    ours = {key: value for key, value in request.environ.items() if key not in different}
    assert ours == {key: value for key, value in theirs.items() if key not in different}
    assert request.body.here
    assert request.body.read() == body == theirs["wsgi.input"].read()
    assert request.body.rest() == b"GET /next"


@pytest.mark.parametrize(
    ("method", "lines", "close"),
    [
        ("GET", b"", False),
        ("POST", b"Content-Length: 0\r\nConnection: close\r\n", True),
        ("HEAD", b"Accept: */*\r\n", False),
    ],
)
def test_plain_ones_are_taken(method: str, lines: bytes, close: bool) -> None:
    request = read(method.encode() + b" /v1/models?a=%20 HTTP/1.1\r\n" + HOST + lines + b"\r\n")
    assert request is not None
    assert (request.method, request.should_close(), request.body.left) == (method, close, 0)
    assert (request.environ["PATH_INFO"], request.environ["QUERY_STRING"]) == ("/v1/models", "a=%20")
    assert (request.environ["REMOTE_ADDR"], request.environ["SERVER_PORT"]) == ("127.0.0.2", "13305")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET / HTTP/1.1\r\n" + HOST,
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        b"GET / HTTP/1.1\r\nAccept: */*\r\n\r\n",
        b"GET / HTTP/1.0\r\n" + HOST + b"\r\n",
        b"PUT / HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET http://a/ HTTP/1.1\r\n" + HOST + b"\r\n",
        b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /%2e HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /a#b HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"a_b: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"a:\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"a: \xe4\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"a: 1\r\n b\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"a : 1\r\n\r\n",
        b"GET / HTTP/1.1\n" + HOST + b"\r\n\r\n",
        b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n",
        b"\r\nGET / HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"".join(b"a-%d: 1\r\n" % number for number in range(100)) + b"\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"Connection: x, close\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: +1\r\n\r\na",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nExpect: 100-continue\r\n\r\na",
        b"GET / HTTP/1.1\r\n" + HOST + b"Proxy: http://a\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"a: " + b"b" * llhttp_parser.MAX_HEAD_BYTES + b"\r\n\r\n",
    ],
)
def test_what_is_not_plain_is_left_alone(data: bytes) -> None:
    assert read(data) is None


def test_a_body_comes_in_pieces() -> None:
    request = read(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 10\r\n\r\nabc", b"defghij" + b"more", step=2)
    assert request is not None
    assert not request.body.here
    assert request.body.read(4) == b"abcd"
    assert request.body.read(100) == b"efghij"
    assert (request.body.left, request.body.rest()) == (0, b"")


def test_a_body_that_ends_early_is_short() -> None:
    request = read(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 10\r\n\r\nabc", b"de")
    assert request is not None
    assert request.body.read(10) == b"abcde"
    assert not request.body.here


def test_names_without_end_are_not_kept() -> None:
    for number in range(2 * llhttp_parser._MAX_KEYS):
        assert read(b"GET / HTTP/1.1\r\n" + HOST + b"x-%d: 1\r\n\r\n" % number) is not None
    assert len(llhttp_parser._KEYS) <= llhttp_parser._MAX_KEYS


def test_every_host_of_a_connection_is_looked_at() -> None:
    reader = llhttp_parser.LlhttpParser(llhttp_parser.process_environ(Config(), LISTENER), FakeClientSocket(), ADDRESS)
    hosts = (b"a", b"a", b"a@b", b"a@b", b"b:1", b"a")
    taken = [reader.read(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host) is not None for host in hosts]
    assert taken == [True, True, False, False, True, True]
