"""The request that nearly every client sends, read by llhttp in one go: its head came whole, its body has a length.

Whatever else HTTP allows (chunked bodies, ``KillAfter``, upgrades, HTTP/1.0, repeated or odd headers, escapes in the
path, anything that is wrong) is not plain: :func:`read` leaves it to gunicorn's parser, which takes forty times as
long, and decides what is refused and how.  So this file only has to be sure of what it accepts.
"""

from __future__ import annotations

import re
from typing import Any, Final

import httptools
from gunicorn.http.wsgi import base_environ

from gateway.http.gunicorn_parser import is_host

MAX_HEAD_BYTES: Final = 8 * 1024
"""Bytes; gunicorn's limits are no lower."""
_MAX_FIELDS: Final = 100
"""gunicorn's limit."""
_METHODS: Final = {b"GET": "GET", b"POST": "POST", b"HEAD": "HEAD", b"DELETE": "DELETE", b"OPTIONS": "OPTIONS"}
_TARGET: Final = re.compile(rb"(/[A-Za-z0-9/._~:@-]*)(?:\?([A-Za-z0-9/._~:@=&+%,-]*))?")
_VALUE: Final = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_SPECIAL: Final = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer", b"proxy"})
"""Headers that change how a request is read, or must not become what a gateway interface calls something else."""
_STEP: Final = 1024 * 1024
_KEYS: dict[bytes, str] = {}
"""Names as clients write them → keys of the environment; bounded by :data:`_MAX_KEYS`."""
_MAX_KEYS: Final = 512
_hosts: set[str] = set()
"""What was found valid: a server has few names."""
_MAX_HOSTS: Final = 64


class SizedBody:
    """``wsgi.input`` of a body whose length is known: what came with the head, then the socket."""

    __slots__ = ("_data", "_sock", "_taken", "left")

    def __init__(self, sock: Any, data: bytes, start: int, length: int) -> None:
        """Begin at ``start`` of ``data``; the body is ``length`` bytes long."""
        self._sock = sock
        self._data = data
        self._taken = start
        self.left = length
        """Bytes of it that nobody has read."""

    @property
    def here(self) -> bool:
        """Whether all that is left of it has arrived: reading does not wait."""
        return len(self._data) - self._taken >= self.left

    def read(self, size: int | None = None) -> bytes:
        """Return up to ``size`` bytes, waiting for them; fewer only at the end, or if the client left."""
        wanted = self.left if size is None or size < 0 else min(size, self.left)
        start = self._taken
        piece = self._data[start : start + wanted]
        self._taken += len(piece)
        self.left -= len(piece)
        if len(piece) == wanted:
            return piece
        pieces = [piece]
        missing = wanted - len(piece)
        while missing:
            piece = self._sock.recv(min(missing, _STEP))
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
            self.left -= len(piece)
        return b"".join(pieces)

    def rest(self) -> bytes:
        """Return what came behind the body: the beginning of the next request."""
        return self._data[self._taken + self.left :]


class ParsedRequest:
    """A plain request; :class:`gateway.http.response.HttpResponseWriter` reads it as it reads gunicorn's."""

    __slots__ = ("body", "environ", "method", "must_close", "version")

    def __init__(self, method: str, environ: dict[str, Any], body: SizedBody, close: bool) -> None:
        """Hold on to what was read."""
        self.method = method
        self.environ = environ
        self.body = body
        self.must_close = close
        self.version = (1, 1)

    def should_close(self) -> bool:
        """Return whether the client wants the connection to end."""
        return self.must_close


class _HeadCallbacks:
    """Takes llhttp's calls."""

    __slots__ = ("fields", "target")

    def __init__(self) -> None:
        self.target = b""
        self.fields: list[tuple[bytes, bytes]] = []

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))


class LlhttpParser:
    """Reads the plain requests of one connection."""

    __slots__ = ("_base", "_sock")

    def __init__(self, base: dict[str, Any], sock: Any, addr: Any) -> None:
        """``base``: what all environments of the process have in common (:func:`common`)."""
        self._sock = sock
        self._base = base | {
            "gunicorn.socket": sock,
            "REMOTE_ADDR": addr[0] if isinstance(addr, tuple) else str(addr),
            "REMOTE_PORT": str(addr[1]) if isinstance(addr, tuple) else "",
        }

    def read(self, data: bytes) -> ParsedRequest | None:
        """Return the request that ``data`` begins with, or None if it is not plain."""
        end = data.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES) + 4
        if end < 4:
            return None
        head = _HeadCallbacks()
        parser = httptools.HttpRequestParser(head)
        try:
            parser.feed_data(data[:end])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return None
        method = _METHODS.get(parser.get_method())
        target = _TARGET.fullmatch(head.target)
        if method is None or target is None or len(head.fields) > _MAX_FIELDS:
            return None
        # llhttp forgives blanks where gunicorn does not.
        if not data.startswith(b"%b %b HTTP/1.1\r\n" % (parser.get_method(), head.target)):
            return None
        return self._request(method, target, head.fields, data, end)

    def _request(
        self, method: str, target: re.Match[bytes], fields: list[tuple[bytes, bytes]], data: bytes, end: int
    ) -> ParsedRequest | None:
        environ = self._base.copy()
        length = 0
        close = False
        for name, value in fields:
            key = _KEYS.get(name) or _environ_key(name)
            # Twice the same, or nothing plain in it: more than one reading is possible.
            if not key or key in environ or not _VALUE.fullmatch(value):
                return None
            environ[key] = text = value.decode("ascii")
            if key == "CONTENT_LENGTH":
                if not _LENGTH.fullmatch(value):
                    return None
                length = int(value)
            elif key == "HTTP_CONNECTION":
                word = text.lower()
                if word not in ("close", "keep-alive"):
                    return None
                close = word == "close"
        if "HTTP_HOST" not in environ:
            return None
        host = environ["HTTP_HOST"]
        if host not in _hosts and not _is_host(host):
            return None
        body = SizedBody(self._sock, data, end, length)
        path, query = target.groups()
        environ["wsgi.input"] = body
        environ["REQUEST_METHOD"] = method
        environ["PATH_INFO"] = path.decode("ascii")
        environ["QUERY_STRING"] = query.decode("ascii") if query else ""
        environ["RAW_URI"] = target.string.decode("ascii")
        return ParsedRequest(method, environ, body, close)


def _environ_key(name: bytes) -> str:
    """Return the environment's key for a header, empty for one that is not plain."""
    lower = name.lower()
    # An underscore would be taken for a dash by whoever reads the environment.
    if lower in _SPECIAL or b"_" in lower:
        return ""
    key = lower.decode("ascii", "replace").upper().replace("-", "_")
    if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        key = "HTTP_" + key
    if len(_KEYS) < _MAX_KEYS:
        _KEYS[name] = key
    return key


def _is_host(text: str) -> bool:
    valid = is_host(text)
    if valid and len(_hosts) < _MAX_HOSTS:
        _hosts.add(text)
    return valid


def process_environ(cfg: Any, listener: Any) -> dict[str, Any]:
    """Return what the environments of all requests of a process have in common."""
    base: dict[str, Any] = base_environ(cfg)
    return base | {
        "wsgi.multithread": True,
        "wsgi.url_scheme": "http",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "SERVER_NAME": listener[0] if isinstance(listener, tuple) else str(listener),
        "SERVER_PORT": str(listener[1]) if isinstance(listener, tuple) else "",
        "SCRIPT_NAME": "",
    }
