"""gunicorn's response with two habits of ours: the head leaves with the first chunk, and ``close`` is obeyed."""

from __future__ import annotations

from typing import Any, Final

from gunicorn.http.wsgi import Response as GunicornResponse
from gunicorn.util import to_bytestring

_LAST_CHUNK: Final = b"0\r\n\r\n"


class Response(GunicornResponse):  # type: ignore[misc]
    """Writes one HTTP response."""

    status_code: int
    _ended = False

    def process_headers(self, headers: list[tuple[str, str]]) -> None:
        """Notice ``Connection: close``, which gunicorn drops from an application's headers."""
        for name, value in headers:
            if name.lower() == "connection" and value.lower() == "close":
                self.force_close()
        super().process_headers(headers)

    def _head(self) -> bytes:
        lines = self.default_headers()
        lines.extend(f"{name}: {value}\r\n" for name, value in self.headers)
        lines.append("\r\n")
        self.headers_sent = True
        head: bytes = to_bytestring("".join(lines), "latin-1")
        return head

    def _send(self, data: bytes) -> None:
        """Send all of it: in one system call where the socket has room, which gevent's sendall never does."""
        try:
            sent = self.sock._sock.send(data)  # noqa: SLF001 - the non-blocking socket below gevent's
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self.sock.sendall(memoryview(data)[sent:])

    def send_headers(self) -> None:
        """Send the head alone."""
        if not self.headers_sent:
            self._send(self._head())

    def write(self, data: bytes, last: bool = False) -> None:
        """Send a piece of the body; the head goes with the first one in one segment, the end with the last one."""
        if self._omits_body:
            self.send_headers()
            return
        if self.response_length is not None:
            data = data[: self.response_length - self.sent]
        if not data:
            return
        self.sent += len(data)
        framed = b"%X\r\n%b\r\n" % (len(data), data) if self.chunked else data
        if last and self.chunked:
            framed += _LAST_CHUNK
            self._ended = True
        self._send(framed if self.headers_sent else self._head() + framed)

    def close(self) -> None:
        """Send what is missing at the end."""
        self.send_headers()
        if self.chunked and not self._ended:
            self._send(_LAST_CHUNK)

    def hand_over(self) -> None:
        """Write nothing any more: the socket speaks another protocol now. It is closed afterwards."""
        self.headers_sent = True
        self._omits_body = True
        self.chunked = False
        self.force_close()

    def start_response(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        """Begin, unless the socket was handed over."""
        if self.headers_sent and exc_info is None:
            self.status = status
            self.status_code = int(status[:3])
            return self.write
        return super().start_response(status, headers, exc_info)
