"""The HTTP server that sends model files to other nodes: registered files only, by opaque ids, and only with the key.

It lists nothing, and knows no path: an id that is not registered is not there.
"""

from __future__ import annotations

import hmac
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from protocol.messages.model_transfer import SharedFile
from protocol.wire.bus_address import is_unspecified
from workers.jobs.model_transfer.file_digests import ChangedError, opened

MAX_TRANSFERS: Final = 32
"""Requests with the key that are answered at a time."""
MAX_STRANGERS: Final = 32
"""Connections that have not shown the key. When one more comes, the oldest is closed."""
KEY_S: Final = 5.0
"""How long a connection may take to send a whole request."""
_SILENCE_S: Final = 20.0
"""How long a receiver may take no byte."""
_PATH: Final = re.compile(r"/files/([0-9a-f]{32})")
_RANGE: Final = re.compile(r"bytes=([0-9]{1,18})-")


class FileServer(ThreadingHTTPServer):
    """Sends files. One thread for each connection."""

    daemon_threads = True
    request_queue_size = 4 * MAX_STRANGERS

    def __init__(self, host: str, key: str) -> None:
        """Listen on a port of this address that the system chooses; raises OSError if that is impossible."""
        if is_unspecified(host):
            raise OSError("that means all addresses of the machine")
        self.address_family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
        self.files: Mapping[str, SharedFile] = {}
        """Id → file. Another mapping may take its place at any time."""
        self._expected = f"Bearer {key}".encode()
        self._free = threading.BoundedSemaphore(MAX_TRANSFERS)
        self._lock = threading.Lock()
        self._strangers: dict[socket.socket, float] = {}
        """Connection that has not shown the key → until when it may; the oldest first."""
        super().__init__((host, 0), _Request)

    @property
    def address(self) -> str:
        """``HOST:PORT``."""
        host, port = self.server_address[:2]
        return f"[{host!s}]:{port}" if self.address_family == socket.AF_INET6 else f"{host!s}:{port}"

    def authorizes(self, header: str) -> bool:
        """Return whether a request has the key. Its time does not depend on the key."""
        return hmac.compare_digest(header.encode("utf-8", "replace"), self._expected)

    def server_bind(self) -> None:
        """Bind, without the look-up of a host name that the library does here."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Serve a connection in a thread of its own. It may be closed again before it has shown the key."""
        if isinstance(request, socket.socket):
            with self._lock:
                if len(self._strangers) >= MAX_STRANGERS:
                    self._refuse(next(iter(self._strangers)))
                self._strangers[request] = time.monotonic() + KEY_S
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close the connections that should have shown the key by now. The library calls this several times a second."""
        now = time.monotonic()
        with self._lock:
            for late in [connection for connection, until in self._strangers.items() if until < now]:
                self._refuse(late)

    def _refuse(self, stranger: socket.socket) -> None:
        """Let the thread of a connection end."""
        del self._strangers[stranger]
        with suppress(OSError):  # it has gone
            stranger.shutdown(socket.SHUT_RDWR)

    def finish_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Serve a connection to its end."""
        try:
            super().finish_request(request, client_address)
        finally:
            self._forget(request)

    def _forget(self, connection: object) -> None:
        with self._lock:
            self._strangers.pop(connection, None)  # type: ignore[call-overload]

    @contextmanager
    def admitted(self, connection: socket.socket) -> Iterator[bool]:
        """Keep a connection that has shown the key; yield whether it may be answered now."""
        self._forget(connection)
        free = self._free.acquire(blocking=False)
        try:
            yield free
        finally:
            if free:
                self._free.release()

    def handle_error(self, _request: object, _client_address: object) -> None:
        """Do nothing: a receiver that goes away is usual, and tries again if it needs to."""


class _Request(BaseHTTPRequestHandler):
    """One request; the connection ends with it."""

    server: FileServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "lemonbus", ""
    timeout = _SILENCE_S

    def do_GET(self) -> None:
        """Answer with a file, or the rest of one."""
        if not self.server.authorizes(self.headers.get("Authorization", "")):
            self._answer(401)
            return
        with self.server.admitted(self.connection) as free:
            if free:
                self._answer_with_file()
            else:
                self._answer(503)

    def _answer_with_file(self) -> None:
        asked = _PATH.fullmatch(self.path)
        file = self.server.files.get(asked[1]) if asked else None
        if file is None:
            self._answer(404)
            return
        try:
            self._send_file(file)
        except ChangedError:
            self._answer(410)

    def _send_file(self, file: SharedFile) -> None:
        header = self.headers.get("Range", "")
        asked = _RANGE.fullmatch(header)
        begin = int(asked[1]) if asked else 0
        if (header and asked is None) or (asked and begin >= file.size):
            self._answer(416)
            return
        with opened(file) as stream:
            self._head(206 if asked else 200, file.size - begin)
            if asked:
                self.send_header("Content-Range", f"bytes {begin}-{file.size - 1}/{file.size}")
            self.end_headers()
            if file.size:
                self.connection.sendfile(stream, begin, file.size - begin)
            # If it has become shorter, the end of the connection comes too early, and the receiver asks again.

    def _answer(self, status: int) -> None:
        self._head(status, 0)
        self.end_headers()

    def _head(self, status: int, length: int) -> None:
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Connection", "close")

    def log_message(self, _format: str, *_values: object) -> None:
        """Log nothing: the receiver's job says what it has got."""
