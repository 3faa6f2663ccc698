"""A fake server for tests of the commands: canned responses by path, and a record of the requests."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import simple_websocket


class Reply:
    """An answer: a JSON value, or pieces of a stream; ``cut`` breaks the connection after them."""

    def __init__(
        self,
        value: Any = None,
        status: int = 200,
        *,
        pieces: Iterable[str] | None = None,
        cut: bool = False,
        **headers: str,
    ) -> None:
        self.status = status
        self.pieces = [json.dumps(value)] if pieces is None else pieces
        self.cut = cut
        self.headers = {"Content-Type": "application/json" if pieces is None else "text/event-stream"}
        self.headers |= {name.replace("_", "-"): value for name, value in headers.items()}


class FakeServer:
    """The fake server; ``asked`` has (method, path, body, headers) of every request."""

    def __init__(self) -> None:
        self.replies: dict[tuple[str, str], Reply | Callable[[Any], Reply]] = {}
        self.asked: list[tuple[str, str, Any, dict[str, str]]] = []
        self.talk: Callable[[simple_websocket.Server], None] | None = None
        """What a WebSocket connection to ``/logs/stream`` does."""
        self.url = ""

    def last(self) -> Any:
        """Return the body of the last request."""
        return self.asked[-1][2]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.asked.append(
            (handler.command, handler.path, json.loads(body) if body else None, dict(handler.headers.items()))
        )
        reply = self.replies.get((handler.command, handler.path), Reply({"error": {"message": "no such path"}}, 404))
        if callable(reply):
            reply = reply(self.last())
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for piece in reply.pieces:
            data = piece.encode()
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        if not reply.cut:
            handler.wfile.write(b"0\r\n\r\n")
        handler.close_connection = True

    def upgrade(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.append(("WS", handler.path, None, dict(handler.headers.items())))
        environ: dict[str, Any] = {
            "HTTP_" + name.upper().replace("-", "_"): value for name, value in handler.headers.items()
        }
        environ |= {"REQUEST_METHOD": "GET", "PATH_INFO": handler.path, "werkzeug.socket": handler.connection}
        socket = simple_websocket.Server(environ)
        assert self.talk is not None
        with contextlib.suppress(simple_websocket.ConnectionClosed):
            self.talk(socket)
            socket.close()
        handler.close_connection = True


@contextmanager
def running_fake_server() -> Iterator[FakeServer]:
    """Run a fake server on a free port."""
    fake_server = FakeServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if "Upgrade" in self.headers and fake_server.talk is not None:
                fake_server.upgrade(self)
            else:
                fake_server.answer(self)

        def do_POST(self) -> None:
            fake_server.answer(self)

        def do_DELETE(self) -> None:
            fake_server.answer(self)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake_server.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake_server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
