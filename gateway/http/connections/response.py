"""Writes one HTTP response: the head goes with the first piece of the body, the end with the last."""

from __future__ import annotations

import re
import time
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Final, Protocol

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SENT_ALONE_BYTES: Final = 64 * 1024
"""A piece of more bytes is not copied behind the head."""
_LAST_CHUNK: Final = b"0\r\n\r\n"
_STATUS: Final = re.compile(r"[1-9][0-9]{2} [ -~]*")
_VALUE: Final = re.compile(r"[ -~\t\x80-\xff]*")
_HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "trailers"}
    | {"transfer-encoding", "upgrade", "server", "date"}
)
"""Headers that only the server sets. Of the application's, only ``Connection: close`` has an effect."""
_LENGTH: Final = "content-length"
_MAX_KEPT_STATUSES: Final = 64
_MAX_KEPT_LINES: Final = 256
_dates: list[Any] = [0, ""]


def _date() -> str:
    """Return the value of ``Date``, made once a second."""
    now = int(time.time())
    if _dates[0] != now:
        _dates[:] = [now, formatdate(now, usegmt=True)]
    date: str = _dates[1]
    return date


# Most status lines and headers are the same in most responses.
@lru_cache(maxsize=_MAX_KEPT_STATUSES)
def _status_code(status: str) -> int:
    """Return the code of a status line; raises ValueError if it is invalid."""
    if not _STATUS.fullmatch(status):
        raise ValueError(f"invalid status {status!r}")
    return int(status[:3])


@lru_cache(maxsize=_MAX_KEPT_LINES)
def _header_line(name: str, value: str) -> tuple[str, str]:
    """Return the name in lower case of a header that is not only passed on, and its line; raises ValueError if it is invalid."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of a header")
    if not _VALUE.fullmatch(value):
        raise ValueError(f"the value of header {name} is not valid")
    lower = name.lower()
    return lower if lower == _LENGTH or lower in _HOP_BY_HOP else "", f"{name}: {value}\r\n"


class Request(Protocol):
    """What a response needs to know about its request."""

    @property
    def method(self) -> str:
        """The HTTP method."""

    @property
    def version(self) -> tuple[int, int]:
        """The HTTP version of the client."""

    @property
    def wants_close(self) -> bool:
        """Whether the client wants to end the connection after the response."""


class HttpResponseWriter:
    """Writes one HTTP response."""

    __slots__ = (
        "_ended",
        "_length",
        "_lines",
        "_must_close",
        "_omits_body",
        "_request",
        "_sock",
        "chunked",
        "headers_sent",
        "sent",
        "status",
        "status_code",
    )

    def __init__(self, request: Request, sock: Any) -> None:
        """Answer ``request`` on ``sock``."""
        self._request = request
        self._sock = sock
        self._lines: list[str] = []
        self._length: int | None = None
        self._must_close = False
        self._omits_body = False
        self._ended = False
        self.status = ""
        self.status_code = 0
        self.chunked = False
        self.headers_sent = False
        self.sent = 0
        """Bytes of the body."""

    def force_close(self) -> None:
        """End the connection after this response."""
        self._must_close = True

    def should_close(self) -> bool:
        """Return whether the connection ends after this response."""
        if self._must_close or self._request.wants_close:
            return True
        return not (self.chunked or self._omits_body or self._length is not None)

    def start_response(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        """Begin the response (WSGI); raises ValueError for a status or header that could smuggle in another one."""
        if self.headers_sent:
            # The head was sent, or the socket was handed over.
            if exc_info:
                raise exc_info[1].with_traceback(exc_info[2])
            self.status, self.status_code = status, int(status[:3])
            return self.write
        self.status, self.status_code = status, _status_code(status)
        self._length = None
        self._lines = lines = []
        code = self.status_code
        bodiless = code == 204 or code < 200
        self._omits_body = bodiless or code == 304 or self._request.method == "HEAD"
        for name, value in headers:
            special, line = _header_line(name, value)
            if not special:
                lines.append(line)
            elif special == "connection":
                self._must_close = self._must_close or value.strip().lower() == "close"
            elif special == _LENGTH and not bodiless:
                self._length = int(value)
                lines.append(line)
        self.chunked = self._length is None and not self._omits_body and self._request.version > (1, 0)
        return self.write

    def _head(self) -> bytes:
        self.headers_sent = True
        major, minor = self._request.version
        connection = "close" if self.should_close() else "keep-alive"
        framing = "Transfer-Encoding: chunked\r\n" if self.chunked else ""
        return (
            f"HTTP/{major}.{minor} {self.status}\r\nServer: lemonbus\r\nDate: {_date()}\r\n"
            f"Connection: {connection}\r\n{framing}{''.join(self._lines)}\r\n"
        ).encode("latin-1")

    def write(self, data: bytes, last: bool = False) -> None:
        """Send a piece of the body. The head goes with the first piece in one segment, and the end with the last."""
        if self._omits_body:
            self._send_head()
            return
        if self._length is not None:
            data = data[: self._length - self.sent]
        if not data:
            return
        self.sent += len(data)
        if len(data) > _SENT_ALONE_BYTES and not self.chunked:
            # No copy for each client that reads slowly.
            self._send_head()
            self._sock.sendall(data)
            return
        framed = b"%X\r\n%b\r\n" % (len(data), data) if self.chunked else data
        if last and self.chunked:
            framed += _LAST_CHUNK
            self._ended = True
        self._sock.sendall(framed if self.headers_sent else self._head() + framed)

    def _send_head(self) -> None:
        if not self.headers_sent:
            self._sock.sendall(self._head())

    def close(self) -> None:
        """Send the rest of the response: its head, or the last chunk."""
        self._send_head()
        if self.chunked and not self._ended:
            self._sock.sendall(_LAST_CHUNK)

    def hand_over(self) -> None:
        """Write nothing from now on: the socket speaks another protocol. The connection ends with the request."""
        self.headers_sent = True
        self._omits_body = True
        self.chunked = False
        self._must_close = True
