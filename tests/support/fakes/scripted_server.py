"""A server with OpenAI's API whose answers are written byte for byte by a test, one for each name of a model.

with ScriptedServer({"broken": b"HTTP/1.1 200 OK\\r\\n…"}) as far:
    section = {"url": far.url, "served_name": "broken"}
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from tests.support.waiting import DEADLINE

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_MODEL = re.compile(rb'"model"\s*:\s*"([^"]+)"|name="model"\r\n\r\n([^\r]+)')


def response(body: bytes | Any, status: str = "200 OK", kind: str = "application/json", **headers: str) -> bytes:
    """Return a whole response with a length. ``body``: bytes, or what is to be JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{more}\r\n"
    return head.encode() + data


def chunked(*pieces: bytes, kind: str = "text/event-stream", end: bytes = b"0\r\n\r\n") -> bytes:
    """Return a response in chunks. ``end``: what follows them, nothing for one that is cut off."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + end


class ScriptedServer:
    """The server. After an answer it closes the connection, or keeps it open if the name of the model begins with ``open-``."""

    def __init__(self, answers: Mapping[str, bytes], host: str = "127.0.0.1", prefix: str = "") -> None:
        self.answers = dict(answers)
        self.models: Sequence[str] = ()
        """Those that it lists."""
        self.listing = True
        """Whether it answers the request for its list; otherwise it closes the connection."""
        self.heads: list[str] = []
        """The head of each request that it got."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self.port = self._listener.getsockname()[1]
        self._prefix = prefix
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}{prefix}/v1"
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for each in (self._listener, *self._connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                connection = self._listener.accept()[0]
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(DEADLINE)
        with suppress(OSError):  # the other side has hung up
            data = b""
            while b"\r\n\r\n" not in data:
                data += _more(connection)
            head, _, body = data.partition(b"\r\n\r\n")
            length = _LENGTH.search(head)
            while len(body) < int(length[1] if length else 0):
                body += _more(connection)
            self.heads.append(head.decode("latin-1"))
            if self._answer(connection, head, body):
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):  # a reset would take what was sent with it
                    pass

    def _answer(self, connection: socket.socket, head: bytes, body: bytes) -> bool:
        """Answer; return whether the connection ends."""
        if head.startswith(f"GET {self._prefix}/v1/models ".encode()):
            if self.listing:
                connection.sendall(response({"object": "list", "data": [{"id": name} for name in self.models]}))
            return True
        found = _MODEL.search(body)
        name = ((found[1] or found[2]) if found else b"").decode()
        connection.sendall(self.answers.get(name, response({"detail": "Not Found"}, "404 no")))
        return not name.startswith("open-")


def _more(connection: socket.socket) -> bytes:
    got = connection.recv(65536)
    if not got:
        raise ConnectionError
    return got
