"""The heads of requests that the parser accepts, with its result, and those that it refuses. The table is the specification."""

from __future__ import annotations

import contextlib
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from gateway.http.bodies.body_framing import SizedBody
from gateway.http.connections import request_parser, wsgi_environ
from gateway.http.connections.request_parser import HttpRequest, InvalidRequestError

BASE = wsgi_environ.connection_environ(wsgi_environ.process_environ(("127.0.0.1", 13305), 1), None, ("127.0.0.2", 5))
HOST = b"Host: a:1\r\n"


def parse(data: bytes) -> HttpRequest:
    """Return the request that ``data`` begins with."""
    end = request_parser.head_end(data)
    assert end, "the head is not whole"
    return request_parser.parse_request(BASE, None, data, end)


def get(lines: bytes = HOST, target: bytes = b"/", version: bytes = b"1.1") -> bytes:
    return b"GET %b HTTP/%b\r\n%b\r\n" % (target, version, lines)


def refused(data: bytes) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        parse(data)
    return caught.value


REFUSED: list[tuple[bytes, int]] = [
    # The request line.
    (b"nonsense\r\n\r\n", 400),
    (b"GET / NONSENSE\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    (b"GET / HTTP/1.1\n" + HOST + b"\r\n", 400),
    (b"GET / HTTP/1.1\n", 400),
    (b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"G(T / HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (get(version=b"9.9"), 400),
    (b"PRI * HTTP/2.0\r\n\r\n", 400),
    (get(target=b"/a\x00b"), 400),
    (get(target=b"/\xff"), 400),
    (get(target=b"/a#b"), 400),
    (get(target=b"a"), 400),
    (get(target=b"http://a@b/"), 400),
    (get(target=b"http://a:port/"), 400),
    (get(target=b"http://[::1/"), 400),
    (get(target=b"http:///a"), 400),
    (get(target=b"ftp://a/"), 400),
    (get(target=b"?a"), 400),
    (b"CONNECT a:1 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (get(target=b"/" + b"a" * 9000), 414),
    (b"GET /" + b"a" * 9000, 414),
    # Headers.
    (get(HOST + b"a: b\x00c\r\n"), 400),
    (get(HOST + b"a: b\x01c\r\n"), 400),
    (get(HOST + b"a b: c\r\n"), 400),
    (get(HOST + b"a : b\r\n"), 400),
    (get(HOST + b": b\r\n"), 400),
    (get(HOST + b"no colon\r\n"), 400),
    (get(HOST + b"a: b\r\n c\r\n"), 400),
    (get(HOST + b"a: b\rc\r\n"), 400),
    (get(HOST + b"a: b\n"), 400),
    (get(HOST + b"a: %b\r\n" % (b"b" * 9000)), 431),
    (get(HOST + b"a: b\r\n" * 100), 431),
    (get(HOST + b"a: %b\r\n" % (b"b" * 8000) * 5), 431),
    (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 10_000, 431),
    (get(HOST + b"Content-Type: a\r\nContent-Type: b\r\n"), 400),
    (get(HOST + b"Authorization: a\r\nAuthorization: b\r\n"), 400),
    (get(HOST + b"Origin: a\r\nOrigin: b\r\n"), 400),
    # Host.
    (get(b""), 400),
    (get(b"X-A: b\r\n"), 400),
    (get(HOST + HOST), 400),
    *[(get(b"Host: %b\r\n" % host.encode()), 400) for host in ("a b", "a/b", "a@b", "a,b:1:2", "[::1", "a]b", "::1")],
    *[(get(b"Host: %b\r\n" % host.encode()), 400) for host in ("a:port", "http://a", "%4", "a#b", "a?b", "ä", '"a"')],
    # Where the body ends.
    *[(get(HOST + b"Content-Length: %b\r\n" % length), 400) for length in (b"-2", b"two", b"+1", b"1, 1", b"0x1", b"")],
    (get(HOST + b"Content-Length: %b\r\n" % (b"9" * 30)), 400),
    (get(HOST + b"Content-Length: 1\r\nContent-Length: 1\r\n"), 400),
    (get(HOST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), 400),
    (get(HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"), 400),
    (get(HOST + b"Transfer-Encoding: chunked\r\n", version=b"1.0"), 400),
    (get(HOST + b"Transfer-Encoding: gzip\r\n"), 400),
    (get(HOST + b"Transfer-Encoding: chunked, gzip\r\n"), 400),
    (get(HOST + b"Transfer-Encoding: chunked, chunked\r\n"), 400),
    (get(HOST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400),
    (get(HOST + b"Transfer-Encoding: \x0bchunked\r\n"), 400),
    (get(HOST + b"Transfer-Encoding: odd\r\n"), 501),
    (get(HOST + b"Transfer-Encoding: gzip, chunked\r\n"), 501),
    (get(HOST + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), 501),
    (get(HOST + b"Expect: a miracle\r\n"), 417),
]


@pytest.mark.parametrize(("data", "status"), REFUSED, ids=[repr(data[:50]) for data, _ in REFUSED])
def test_what_is_refused(data: bytes, status: int) -> None:
    failure = refused(data).failure
    assert failure.http_status == status
    assert len(failure.message) < 200


@pytest.mark.parametrize("line", [b"Host: a/b\r\n", HOST + b"Transfer-Encoding: gzip, chunked\r\n"])
def test_a_refusal_knows_the_request_id(line: bytes) -> None:
    assert refused(get(b"X-Request-ID: head.1\r\n" + line)).request_id == "head.1"


@pytest.mark.parametrize(
    "host",
    [
        "",
        "localhost",
        "127.0.0.1:13305",
        "[::1]",
        "[fe80::1%25eth0]:80",
        "a_b.example.",
        "xn--a.example:",
        "%41",
        ":80",
    ],
)
def test_valid_hosts(host: str) -> None:
    assert parse(get(b"Host: %b\r\n" % host.encode())).environ["HTTP_HOST"] == host


def test_every_host_of_a_connection_is_checked() -> None:
    for host, valid in ((b"a", True), (b"a@b", False), (b"a@b", False), (b"a", True)):
        data = get(b"Host: %b\r\n" % host)
        assert bool(parse(data)) if valid else refused(data)


@pytest.mark.parametrize(
    ("target", "host", "path", "query"),
    [
        (b"/v1/models?a=%20&b", "a:1", "/v1/models", "a=%20&b"),
        (b"/a%2Fb%C3%A4?c?d", "a:1", "/a/b\xc3\xa4", "c?d"),
        (b"//a/../b", "a:1", "//a/../b", ""),
        (b"http://elsewhere:1/a?b", "elsewhere:1", "/a", "b"),
        (b"HTTP://elsewhere", "elsewhere", "/", ""),
        (b"http://[::1]:5/a", "[::1]:5", "/a", ""),
        (b"*", "a:1", "*", ""),
    ],
)
def test_targets(target: bytes, host: str, path: str, query: str) -> None:
    environ = parse(b"OPTIONS %b HTTP/1.1\r\n%b\r\n" % (target, HOST)).environ
    assert (environ["PATH_INFO"], environ["QUERY_STRING"], environ["RAW_URI"]) == (path, query, target.decode())
    assert environ["HTTP_HOST"] == host, "a URL's own host counts, not the header"


@pytest.mark.parametrize(
    ("version", "connection", "wants_close"),
    [
        (b"1.1", b"", False),
        (b"1.1", b"Connection: close\r\n", True),
        (b"1.1", b"Connection: x, Close\r\n", True),
        (b"1.1", b"Connection: keep-alive\r\n", False),
        (b"1.0", b"", True),
        (b"1.0", b"Connection: Keep-Alive\r\n", False),
    ],
)
def test_whether_the_connection_ends(version: bytes, connection: bytes, wants_close: bool) -> None:
    request = parse(get(HOST + connection, version=version))
    assert (request.wants_close, request.version) == (wants_close, (1, int(version[-1:])))


def test_http_1_0_needs_no_host() -> None:
    assert parse(get(b"", version=b"1.0")).environ["SERVER_PROTOCOL"] == "HTTP/1.0"


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "DELETE", "OPTIONS", "PATCH", "BREW", "M-SEARCH", "get"])
def test_methods_pass_as_they_are(method: str) -> None:
    request = parse(b"%b / HTTP/1.1\r\n%bX-A: 1\r\n\r\n" % (method.encode(), HOST))
    assert request.method == request.environ["REQUEST_METHOD"] == method
    assert request.environ["HTTP_X_A"] == "1"


@pytest.mark.parametrize(
    ("lines", "key", "value"),
    [
        (b"a: 1\r\nA: 2\r\n", "HTTP_A", "1,2"),
        (b"a:1 \t\r\n", "HTTP_A", "1"),
        (b"a:\r\n", "HTTP_A", ""),
        (b"a: \xe4\r\n", "HTTP_A", "ä"),
        (b"a_b: 1\r\n", "HTTP_A_B", None),
        (b"Proxy: http://evil\r\n", "HTTP_PROXY", None),
        (b"Content-Type: text/plain\r\n", "CONTENT_TYPE", "text/plain"),
        (b"Connection: upgrade\r\nUpgrade: websocket\r\n", "HTTP_UPGRADE", "websocket"),
    ],
)
def test_headers_in_the_environment(lines: bytes, key: str, value: str | None) -> None:
    assert parse(get(HOST + lines)).environ.get(key) == value


NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,12}", fullmatch=True).map("x-".__add__)
VALUES = st.from_regex(r"([!-~]([ -~]{0,20}[!-~])?)?", fullmatch=True)


@given(st.dictionaries(NAMES, VALUES, max_size=6), st.binary(max_size=40), st.binary(max_size=40))
def test_what_is_written_is_read(fields: dict[str, str], body: bytes, following: bytes) -> None:
    lines = {"Host": "h", "Content-Length": str(len(body))} | fields
    head = b"POST /p HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode() + b"\r\n"
    request = parse(head + body + following)
    seen: dict[str, Any] = {}
    for name, value in fields.items():
        key = "HTTP_" + name.upper().replace("-", "_")
        seen[key] = f"{seen[key]},{value}" if key in seen else value
    assert {key: value for key, value in request.environ.items() if key.startswith("HTTP_X")} == seen
    assert isinstance(request.body, SizedBody)
    assert request.body.received
    assert request.body.read() == body
    assert request.body.following() == following


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for head in (data + b"\r\n\r\n", get(HOST + data + b"\r\n"), get(target=data)):
        with contextlib.suppress(InvalidRequestError):
            if request_parser.head_end(head):
                parse(head)


def test_few_names_and_hosts_are_kept() -> None:
    for number in range(2 * wsgi_environ.MAX_KNOWN_HEADERS):
        parse(get(b"Host: h%d\r\nx-%d: 1\r\n" % (number, number)))
    assert len(wsgi_environ.KNOWN_HEADERS) <= wsgi_environ.MAX_KNOWN_HEADERS
    assert len(request_parser._valid_hosts) <= request_parser._MAX_KEPT_HOSTS
