"""A server of images on loopback, with faults: the path selects the behaviour.

with ImageServer() as images:
    url = images.url("/ok")
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote

from tests.support.images import png

PNG = png(8, 8)
PAGE = b"<html>no image</html>"


class ImageServer:
    """The server, and the requests that it got."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[tuple[str, str]] = []
        """Path and ``Host`` of each request."""
        self.headers: list[dict[str, str]] = []
        self.released = threading.Event()
        """Ends what hangs."""
        self.dripping: set[str] = set()
        """Paths of drips that have begun."""
        self.broken: set[str] = set()
        """Paths of drips whose peer has left."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.owner = self  # type: ignore[attr-defined]
        self._scheme = "http"
        if tls is not None:
            self._scheme = "https"
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"{self._scheme}://{host}:{self.port}{path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _answer(kind: str, rest: str) -> tuple[bytes, dict[str, str]]:
    """Return the body of a path, and headers that are added to the usual ones or replace them."""
    size = int(rest) if rest.isdigit() else 0
    return {
        "ok": (PNG, {}),
        "type": (PNG, {"Content-Type": rest}),
        "page": (PAGE, {}),
        "packed": (PNG, {"Content-Encoding": "gzip"}),
        "large": (PNG + bytes(size), {}),
        "chunked": (PNG + bytes(size), {"Transfer-Encoding": "chunked"}),
        "tiny_chunks": (PNG, {"Transfer-Encoding": "chunked"}),
        "short": (PNG, {"Content-Length": str(len(PNG) + 9)}),
    }[kind]


def _chunked(body: bytes, size: int) -> bytes:
    """Return a body in chunks of a size."""
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        owner: ImageServer = self.server.owner  # type: ignore[attr-defined]
        owner.asked.append((self.path, self.headers.get("Host", "")))
        owner.headers.append(dict(self.headers.items()))
        self.close_connection = True
        kind, _, rest = self.path.partition("?")[0].lstrip("/").partition("/")
        if kind == "hang":
            owner.released.wait(30)
        elif kind == "flood":
            self._flood(owner, rest)
        elif kind == "drip":
            self._drip(owner)
        elif kind == "status":
            self._send(PNG, {}, int(rest))
        elif kind == "to":
            self._send(b"", {"Location": unquote(rest)}, 302)
        else:
            self._send(*_answer(kind, unquote(rest)))

    def _send(self, body: bytes, headers: dict[str, str], status: int = 200) -> None:
        self.send_response(status)
        headers = {"Content-Type": "image/png", **headers}
        chunked = "Transfer-Encoding" in headers
        if not chunked:
            headers = {"Content-Length": str(len(body)), **headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):  # the client has seen enough
            self.wfile.write(_chunked(body, 1 if "tiny" in self.path else len(body)) if chunked else body)

    def _flood(self, owner: ImageServer, what: str) -> None:
        """Send endless data that is not part of an image."""
        head = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n"
        begin, more = {
            "interim": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
            "trailers": (head + _chunked(PNG, len(PNG))[:-2], b"a: %s\r\n" % (b"b" * 500)),
            "extensions": (head, b"0" * 64),
        }[what]
        with contextlib.suppress(OSError):
            self.wfile.write(begin)
            while not owner.released.is_set():
                self.wfile.write(more * 1000)

    def _drip(self, owner: ImageServer) -> None:
        """Send a byte every 50 ms, so that no single read takes long."""
        self.send_response(200)
        self.send_header("Content-Type", "image/png")
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        try:
            self.wfile.write(PNG)
            while not owner.released.wait(0.05):
                owner.dripping.add(self.path)
                self.wfile.write(b"x")
        except OSError:
            owner.broken.add(self.path)

    def log_message(self, *_: Any) -> None:
        pass
