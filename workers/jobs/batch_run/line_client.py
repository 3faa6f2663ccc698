"""Sends the lines of batches to this server's own address, each as a request of the batch's owner. One connection a thread."""

from __future__ import annotations

import contextlib
import socket
import threading
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import urlsplit

from protocol.batches import credential
from workers.jobs.batch_run.answers import LineAnswer
from workers.jobs.batch_run.input_lines import BatchLine

_CONNECT_S: Final = 10.0


class LineClient:
    """The server as batches see it."""

    def __init__(self, base_url: str, secret: str) -> None:
        """``secret``: what the gateways know this process by."""
        parts = urlsplit(base_url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._secret = secret
        self._own = threading.local()
        self._open: dict[tuple[str, int], HTTPConnection] = {}
        """Batch and line → the connection that waits for its answer."""

    def send(self, batch: str, owner: str, endpoint: str, line: BatchLine) -> LineAnswer:
        """Send a line and wait for the answer."""
        connection = self._connection()
        key = batch, line.number
        self._open[key] = connection
        try:
            headers = {
                "Content-Type": "application/json",
                "X-Request-ID": f"{batch}-{line.number}",
                credential.HEADER: credential.header(self._secret, owner),
            }
            connection.request("POST", endpoint, line.body, headers)
            response = connection.getresponse()
            body = response.read()
            given = response.headers
            after = given.get("Retry-After", "")
            return LineAnswer(
                response.status,
                body,
                given.get("X-Request-ID", ""),
                float(after) if after.isdigit() else 0.0,
                final=given.get("X-Should-Retry") == "false",
            )
        except (OSError, HTTPException):
            connection.close()
            return LineAnswer(0)
        finally:
            self._open.pop(key, None)

    def abort(self, batch: str) -> None:
        """Break the connections of a batch's lines: the server then stops working on them."""
        for key, connection in list(self._open.items()):
            if key[0] == batch and (sock := connection.sock) is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _connection(self) -> HTTPConnection:
        found: HTTPConnection | None = getattr(self._own, "connection", None)
        if found is None:
            # The engine's watchdog ends what hangs, so the answer may take as long as it likes.
            found = self._own.connection = HTTPConnection(self._host, self._port, timeout=None)
        if found.sock is None:
            with contextlib.suppress(OSError):
                found.sock = socket.create_connection((self._host, self._port), _CONNECT_S)
                found.sock.settimeout(None)
        return found
