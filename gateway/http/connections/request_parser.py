"""Parses the head of one HTTP request with llhttp, and refuses what is invalid.

llhttp finds the fields and refuses broken syntax. This file adds what a server must decide itself: sizes, exactly one
valid ``Host``, and only one way to tell a body's length. :mod:`gateway.http.connections.wsgi_environ` decides how a
header is named in the WSGI environment, and which headers are left out.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

import httptools

from gateway.http.bodies.body_framing import ChunkedBody, SizedBody
from gateway.http.connections.wsgi_environ import KNOWN_HEADERS, header_key
from gateway.http.request_context import REQUEST_ID_KEY
from protocol.failures import Code, Failure

MAX_HEAD_BYTES: Final = 32 * 1024
"""Bytes of a request line and all headers."""
MAX_LINE_BYTES: Final = 8190
"""Bytes of the request line, and of each header."""
MAX_HEADERS: Final = 100
MAX_EMPTY_BYTES: Final = 16
"""Bytes of empty lines before a request. Old clients end a body with one."""
_ANY_PATH: Final = re.compile(rb"[^\s/]+ (/[^\s?]*)")
_REQUEST_LINE: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([!-~]+) HTTP/1\.([01])\r\n")
_PLAIN_PATH: Final = re.compile(rb"/[^?#%]*")
"""The form of nearly all targets: a path with nothing to decode."""
_TARGET: Final = re.compile(rb"(?:[Hh][Tt][Tt][Pp][Ss]?://([^/?#]+))?(/[^?#]*)?(?:\?([^#]*))?|\*")
_HOST: Final = re.compile(
    r"(?:\[[0-9A-Za-z.:%_~-]+\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]{0,5})?",
)
"""A name, an address or nothing, and a port."""
_BARE_LINE_FEEDS: Final = re.compile(rb"\n\r?\n")
"""The end of a head whose lines do not all end with CR LF: nothing more would come."""
_LENGTH: Final = re.compile(r"[0-9]{1,15}")
_STANDARD_METHODS: Final = frozenset({b"GET", b"POST", b"HEAD", b"DELETE", b"OPTIONS", b"PUT", b"PATCH", b"TRACE"})
_CODINGS: Final = frozenset({"chunked", "gzip", "x-gzip", "deflate", "compress", "x-compress", "identity"})
_ONCE: Final = frozenset({"HTTP_HOST", "CONTENT_LENGTH", "CONTENT_TYPE", "HTTP_AUTHORIZATION", "HTTP_ORIGIN"})
"""With a second one, two programs could read the same request differently."""
_MAX_KEPT_HOSTS: Final = 64
_BLANKS: Final = b" \t"
_TLS_HANDSHAKE: Final = 0x16

_valid_hosts: set[str] = set()


class InvalidRequestError(Exception):
    """The head of a request is refused."""

    def __init__(self, failure: Failure, request_id: str | None = None) -> None:
        """Keep the failure, and the client's ``X-Request-ID`` if it was read."""
        super().__init__(failure.message)
        self.failure = failure
        self.request_id = request_id
        self.path = ""
        """The path of the refused request, if it can be told. It decides the form of the error."""


class HttpRequest(NamedTuple):
    """One request whose head was read."""

    method: str
    environ: dict[str, Any]
    body: SizedBody | ChunkedBody
    version: tuple[int, int]
    wants_close: bool
    """Whether the client wants to end the connection after the response."""


class _Head:
    """Collects what llhttp finds."""

    __slots__ = ("fields",)

    def __init__(self) -> None:
        self.fields: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))


def is_host(text: str) -> bool:
    """Return whether a ``Host`` header may have this value."""
    return _HOST.fullmatch(text) is not None


def requested_path(data: bytes) -> str:
    """Return the path in a head that may be malformed or cut; empty if there is none."""
    found = _ANY_PATH.match(data)
    return found[1].decode("latin-1") if found else ""


def skip_empty_lines(data: bytes, skipped: int) -> tuple[bytes, int]:
    """Return ``data`` without the empty lines at its beginning, and ``skipped`` plus their bytes.

    Raises :class:`InvalidRequestError` for more than :data:`MAX_EMPTY_BYTES`.
    """
    left = data.lstrip(b"\r\n")
    skipped += len(data) - len(left)
    if skipped > MAX_EMPTY_BYTES:
        raise _invalid(f"more than {MAX_EMPTY_BYTES} bytes of empty lines before the request")
    return left, skipped


def head_end(data: bytes) -> int:
    """Return the length of the head at the beginning of ``data``, 0 if it is incomplete.

    Raises :class:`InvalidRequestError` as soon as the head is too large, or its first line is not HTTP/1.
    """
    end = data.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES) + 4
    if end >= 4:
        return end
    line_end = data.find(b"\n")
    if (line_end if line_end >= 0 else len(data)) > MAX_LINE_BYTES:
        raise InvalidRequestError(_LINE_TOO_LONG)
    if line_end >= 0 or data[:1] == bytes([_TLS_HANDSHAKE]):
        _match_request_line(data)
    if len(data) >= MAX_HEAD_BYTES:
        raise InvalidRequestError(_HEAD_TOO_LARGE)
    if _BARE_LINE_FEEDS.search(data):
        raise _invalid("every line of the head must end with CR LF")
    return 0


def parse_request(base: dict[str, Any], sock: Any, data: bytes, end: int) -> HttpRequest:
    """Return the request whose head is ``data[:end]``. What follows ``end`` belongs to its body or to the next request.

    ``base``: the common part of the environments of the connection's requests. Raises :class:`InvalidRequestError`.
    """
    line = _match_request_line(data)
    method, target, minor = line.groups()
    if line.end() > MAX_LINE_BYTES:
        raise InvalidRequestError(_LINE_TOO_LONG)
    head = _Head()
    # llhttp knows only registered methods. Another one is well-formed anyway, and is answered with 405.
    standard = data[:end] if method in _STANDARD_METHODS else b"GET" + data[len(method) : end]
    problem = ""
    try:
        httptools.HttpRequestParser(head).feed_data(standard)
    except httptools.HttpParserUpgrade:
        pass  # a resource that does not upgrade ignores the header
    except httptools.HttpParserError as error:
        problem = str(error)
    environ = base.copy()
    modern = minor == b"1"
    try:
        _set_headers(environ, head.fields)
        _check_sizes(head.fields, data[:end])
        _check_codings(environ.get("HTTP_TRANSFER_ENCODING"))
        if problem:
            raise _invalid(f"this is not HTTP/1.1: {problem[:1].lower()}{problem[1:]}")
        _check_host(environ.get("HTTP_HOST"), modern)
        body = _make_body(environ, sock, data, end, modern)
        host, path, query = _split_target(target)
    except InvalidRequestError as refused:
        refused.request_id = environ.get(REQUEST_ID_KEY)
        raise
    if host:
        environ["HTTP_HOST"] = host
    text = method.decode("ascii")
    environ["REQUEST_METHOD"] = text
    environ["SERVER_PROTOCOL"] = "HTTP/1.1" if modern else "HTTP/1.0"
    environ["RAW_URI"] = target.decode("ascii")
    environ["PATH_INFO"] = path
    environ["QUERY_STRING"] = query
    environ["wsgi.input"] = body
    return HttpRequest(text, environ, body, (1, int(minor)), _wants_close(environ, modern))


def _match_request_line(data: bytes) -> re.Match[bytes]:
    line = _REQUEST_LINE.match(data)
    if line is None:
        if data[0] == _TLS_HANDSHAKE:
            raise _invalid("this port speaks HTTP, not HTTPS")
        raise _invalid("the first line must be a method, a path and HTTP/1.1, with one space between them")
    return line


def _split_target(target: bytes) -> tuple[str, str, str]:
    """Return the host of a request target, which overrides the ``Host`` header, and path and query in WSGI's form.

    The host is empty unless the target is a whole URL (RFC 9112, 3.2.2).
    """
    if _PLAIN_PATH.fullmatch(target):
        return "", target.decode("ascii"), ""
    found = _TARGET.fullmatch(target)
    if found is None:
        raise _invalid("the request target must be a path")
    host = (found[1] or b"").decode("ascii")
    if not is_host(host):
        raise _invalid("the host in the request target must be a name or an address, with or without a port")
    path, query = found[2] or (b"*" if target == b"*" else b"/"), found[3] or b""
    if b"%" in path:
        path = unquote_to_bytes(path)
    return host, path.decode("latin-1"), query.decode("latin-1")


def _set_headers(environ: dict[str, Any], fields: list[tuple[bytes, bytes]]) -> None:
    known_key = KNOWN_HEADERS.get
    for name, value in fields:
        key = known_key(name)
        if key is None:
            key = header_key(name)
        if not key:
            continue
        text = value.strip(_BLANKS).decode("latin-1")
        if key in environ:
            if key in _ONCE:
                raise _invalid(f"the header {key.removeprefix('HTTP_').replace('_', '-').title()} is given twice")
            text = f"{environ[key]},{text}"
        environ[key] = text


def _check_sizes(fields: list[tuple[bytes, bytes]], head: bytes) -> None:
    longest = max(map(len, head.split(b"\r\n"))) if len(head) > MAX_LINE_BYTES else 0
    if len(fields) > MAX_HEADERS or longest > MAX_LINE_BYTES:
        raise InvalidRequestError(_HEAD_TOO_LARGE)


def _make_body(environ: dict[str, Any], sock: Any, data: bytes, start: int, modern: bool) -> SizedBody | ChunkedBody:
    """Return the body that begins at ``start`` of ``data``. ``modern``: HTTP/1.1."""
    expected = environ.get("HTTP_EXPECT") if modern else None
    if expected is not None and expected.lower() != "100-continue":
        raise InvalidRequestError(Failure(Code.INVALID_REQUEST, "only 100-continue may be expected", status=417))
    client_waits = expected is not None
    if "HTTP_TRANSFER_ENCODING" in environ:
        if not modern or "CONTENT_LENGTH" in environ:
            raise _invalid("Transfer-Encoding is for HTTP/1.1, without Content-Length")
        return ChunkedBody(sock, data, start, client_waits)
    length = environ.get("CONTENT_LENGTH", "0")
    if not _LENGTH.fullmatch(length):
        raise _invalid("Content-Length must be a number of bytes")
    return SizedBody(sock, data, start, int(length), client_waits)


def _check_codings(codings: str | None) -> None:
    if codings is None:
        return
    given = [each.strip(" \t").lower() for each in codings.split(",")]
    if given == ["chunked"]:
        return
    unknown = not _CODINGS.issuperset(given)
    if unknown or (given[-1] == "chunked" and given.count("chunked") == 1):
        raise InvalidRequestError(Failure(Code.UNSUPPORTED, "Transfer-Encoding may be chunked and nothing else"))
    raise _invalid("Transfer-Encoding must end with chunked, once")


def _check_host(host: str | None, modern: bool) -> None:
    if host is None:
        if modern:
            raise _invalid("the Host header is missing")
    elif host not in _valid_hosts:
        if not is_host(host):
            raise _invalid("the Host header must be a name or an address, with or without a port")
        if len(_valid_hosts) < _MAX_KEPT_HOSTS:
            _valid_hosts.add(host)


def _wants_close(environ: dict[str, Any], modern: bool) -> bool:
    given = environ.get("HTTP_CONNECTION")
    if given is None:
        return not modern
    options = [each.strip() for each in given.lower().split(",")]
    return "close" in options or (not modern and "keep-alive" not in options)


def _invalid(message: str) -> InvalidRequestError:
    return InvalidRequestError(Failure(Code.INVALID_REQUEST, message))


_LINE_TOO_LONG: Final = Failure(Code.URI_TOO_LONG, f"the request line is longer than {MAX_LINE_BYTES} bytes")
_HEAD_TOO_LARGE: Final = Failure(
    Code.HEADERS_TOO_LARGE,
    f"the headers are too large: at most {MAX_HEADERS}, of {MAX_LINE_BYTES} bytes each, {MAX_HEAD_BYTES} together",
)
