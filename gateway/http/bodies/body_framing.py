"""``wsgi.input``: the body of one request, read from its connection only when the application reads.

Both kinds have ``read(size)``. It returns between one and ``size`` bytes, and nothing at the end of the body. If the
client waits for ``100 Continue``, they ask for the body before their first wait.
"""

from __future__ import annotations

from typing import Any, Final

import httptools

from protocol.failures import Code, Failure, invalid

_CHUNK_STEP: Final = 16 * 1024
"""Bytes of a chunked body that are decoded in one step: they may be thousands of chunks."""
_MAX_CHUNK_LINE: Final = 4 * 1024
_MAX_TRAILER_BYTES: Final = 8 * 1024
_CHUNKED_HEAD: Final = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


class ConnectionEndedError(Exception):
    """The connection ended, or the time was over, before the end of the body."""


class SizedBody:
    """A body whose length is in the head."""

    __slots__ = ("_continue", "_data", "_position", "_sock", "unread")

    def __init__(self, sock: Any, data: bytes, start: int, length: int, client_waits: bool = False) -> None:
        """Begin at ``start`` of ``data``. The body has ``length`` bytes. ``client_waits``: for ``100 Continue``."""
        self._sock = sock
        self._data = data
        self._position = start
        self._continue = client_waits
        self.unread = length
        """Its bytes that have not been read."""

    @property
    def received(self) -> bool:
        """Whether the rest of it has arrived, so that reading it does not wait."""
        return len(self._data) - self._position >= self.unread

    def read(self, size: int = -1) -> bytes:
        """Return some bytes, at most those that have arrived. Waits for the first one.

        Raises :class:`ConnectionEndedError`, ``OSError``.
        """
        wanted = self.unread if size < 0 else min(size, self.unread)
        if not wanted:
            return b""
        start = self._position
        piece = self._data[start : start + wanted]
        if piece:
            self._position += len(piece)
        else:
            if self._continue:
                self._continue = False
                _send_continue(self._sock)
            piece = self._sock.recv(wanted)
            if not piece:
                raise ConnectionEndedError
        self.unread -= len(piece)
        return piece

    def following(self) -> bytes:
        """Return the bytes that arrived after the body: the beginning of the next request."""
        return self._data[self._position + self.unread :]


class _ChunkEvents:
    """Collects what llhttp finds in a chunked body."""

    __slots__ = ("complete", "pieces", "size_read")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size_read = False
        self.complete = False

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_chunk_header(self) -> None:
        self.size_read = True

    def on_message_complete(self) -> None:
        self.complete = True


class ChunkedBody:
    """A body in chunks.

    llhttp gets one line or one chunk at a time. So the size of a chunk is known before waiting for the chunk, and the
    first byte after the body is known when it ends.
    """

    __slots__ = (
        "_announced",
        "_chunk_left",
        "_continue",
        "_data",
        "_events",
        "_last_chunk",
        "_line",
        "_parser",
        "_position",
        "_sock",
        "_trailer_bytes",
        "limit",
    )

    def __init__(self, sock: Any, data: bytes, start: int, client_waits: bool = False) -> None:
        """Begin at ``start`` of ``data``. ``client_waits``: for ``100 Continue``."""
        self._sock = sock
        self._data = data
        self._position = start
        self._continue = client_waits
        self._events = _ChunkEvents()
        self._parser = httptools.HttpRequestParser(self._events)
        self._parser.feed_data(_CHUNKED_HEAD)
        self._line = b""
        """The beginning of a line whose end has not arrived."""
        self._announced = 0
        self._chunk_left = 0
        """Unread bytes of the present chunk, including the line end after it."""
        self._last_chunk = False
        self._trailer_bytes = 0
        self.limit: int | None = None
        """Bytes that all chunks together may announce."""

    @property
    def received(self) -> bool:
        """Whether all of it was read."""
        return self._events.complete

    def read(self, size: int = -1) -> bytes:
        """Return some bytes. Waits for the first one.

        Raises ``LemonbusError`` for broken chunks and for more than ``limit`` announced bytes,
        :class:`ConnectionEndedError`, ``OSError``.
        """
        events = self._events
        while not events.pieces and not events.complete:
            if self._position == len(self._data):
                self._receive()
            self._decode()
        data = b"".join(events.pieces)
        events.pieces.clear()
        if 0 <= size < len(data):
            events.pieces.append(data[size:])
            data = data[:size]
        return data

    def following(self) -> bytes:
        """Return the bytes that arrived after the body: the beginning of the next request."""
        return self._data[self._position :]

    def _receive(self) -> None:
        if self._continue:
            self._continue = False
            _send_continue(self._sock)
        self._data = self._sock.recv(_CHUNK_STEP)
        self._position = 0
        if not self._data:
            raise ConnectionEndedError

    def _decode(self) -> None:
        """Decode what has arrived, at most one step."""
        end = min(len(self._data), self._position + _CHUNK_STEP)
        try:
            while self._position < end and not self._events.complete:
                if self._chunk_left:
                    taken = min(self._chunk_left, end - self._position)
                    self._chunk_left -= taken
                    self._feed(self._position + taken)
                else:
                    self._decode_line(end)
        except httptools.HttpParserError as problem:
            text = str(problem)
            raise invalid(f"the chunks of the body are broken: {text[:1].lower()}{text[1:]}") from None

    def _decode_line(self, end: int) -> None:
        """Decode a size line, a trailer or the final empty line, or the part of it that has arrived."""
        start = self._position
        line_end = self._data.find(b"\n", start, end) + 1
        self._line += self._data[start : line_end or end]
        self._feed(line_end or end)
        if len(self._line) > _MAX_CHUNK_LINE:
            raise invalid("a line of the chunked body is too long")
        if not line_end:
            return
        line, self._line = self._line, b""
        if self._events.size_read:
            self._events.size_read = False
            self._begin_chunk(int(line.partition(b";")[0], 16))
        elif self._last_chunk:
            self._trailer_bytes += len(line)
            if self._trailer_bytes > _MAX_TRAILER_BYTES:
                raise Failure(Code.HEADERS_TOO_LARGE, "the trailers are too large").raised()

    def _begin_chunk(self, size: int) -> None:
        self._announced += size
        if self.limit is not None and self._announced > self.limit:
            raise Failure(Code.TOO_LARGE, f"the body is larger than {self.limit} bytes").raised()
        self._last_chunk = not size
        self._chunk_left = size + 2 if size else 0

    def _feed(self, end: int) -> None:
        part = self._data[self._position : end]
        self._position = end
        self._parser.feed_data(part)


def _send_continue(sock: Any) -> None:
    sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
