"""A server on loopback that sends the page's files, and the overview that a test wants, as fast as it wants.

with OverviewServer({"time": 1.0, "models": {}}) as server:
    server.send("patch", {"running": 1})
"""

from __future__ import annotations

import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

from gateway.page.files import POLICY, read_assets
from tests.support.ports import free_port
from tests.support.waiting import DEADLINE, wait_for

STREAM = "/internal/overview/stream"
SECOND = 1.0
"""Seconds after which a real server sends its time, if it has nothing else to say."""
PIECES = 64
"""Messages that may wait for a page; then :meth:`OverviewServer.send` waits for it."""


class OverviewServer:
    """The server: what it answers, and the requests that it got."""

    def __init__(self, overview: dict[str, Any], port: int = 0, *, silent: bool = False) -> None:
        """``silent``: it sends only what it is told to, and not the time of each second."""
        self.overview = overview
        self.history: dict[str, Any] = {"step_s": 10, "samples": []}
        self.answers: dict[str, Any] = {}
        """Path → the JSON of the answer to GET."""
        self.requests: list[str] = []
        """Method and path of each request."""
        self._streams: list[queue.Queue[bytes]] = []
        self._lock = threading.Lock()
        self.silent = silent
        handler = type("Handler", (_Handler,), {"server_of": self})
        self.port = port or free_port()
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def streams(self) -> int:
        """How many pages have ever listened."""
        with self._lock:
            return len(self._streams)

    def send(self, event: str, data: Any) -> None:
        """Send an event to the page that has connected last; wait for it if none has connected yet."""
        wait_for(lambda: self.streams, "a page listens")
        with self._lock:
            last = self._streams[-1]
        last.put(sse(event, data), timeout=DEADLINE)

    def listen(self) -> queue.Queue[bytes]:
        """A page has connected."""
        with self._lock:
            self._streams.append(queue.Queue(PIECES))
            return self._streams[-1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for each in self._streams:
                each.put(b"")
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def sse(event: str, data: Any) -> bytes:
    """Return an event as it goes over the wire."""
    return f"event: {event}\ndata: {json.dumps(data)}\n\n".encode()


class _Handler(BaseHTTPRequestHandler):
    server_of: ClassVar[OverviewServer]

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        server = self.server_of
        path = urlsplit(self.path).path
        server.requests.append(f"{self.command} {self.path}")
        file = read_assets().get("index.html" if path == "/" else path.removeprefix("/page/"))
        if path == STREAM:
            self._stream(server)
        elif file is not None:
            self._answer(200, file.data, file.media_type)
        elif path in server.answers:
            self._answer(200, json.dumps(server.answers[path]).encode(), "application/json")
        else:
            self._answer(404, b'{"error": {"message": "not found", "code": "not_found"}}', "application/json")

    def _answer(self, status: int, data: bytes, media_type: str) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", media_type),
            ("Content-Length", str(len(data))),
            ("Content-Security-Policy", POLICY),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, server: OverviewServer) -> None:
        waiting = server.listen()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(sse("overview", server.overview) + sse("history", server.history))
        self.wfile.flush()
        try:
            while piece := self._next(server, waiting):
                self.wfile.write(piece)
                self.wfile.flush()
        except OSError:  # the page is gone
            return

    @staticmethod
    def _next(server: OverviewServer, waiting: queue.Queue[bytes]) -> bytes:
        try:
            return waiting.get(timeout=None if server.silent else SECOND)
        except queue.Empty:
            return sse("patch", {"time": server.overview["time"]})
