"""The HTTP server of our engine servers: keys, limits, one request at a time, and clients that hang up."""

from __future__ import annotations

import hmac
import json
import select
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final

MAX_WAITING_REQUESTS: Final = 16
"""Requests that run or wait; further ones get status 503."""
CONNECTION_TIMEOUT_S: Final = 60.0
"""How long a connection may be silent, or a reader may take nothing."""
DISCONNECT_POLL_S: Final = 0.1
"""How often a waiting request checks whether its client has hung up."""
JSON_CONTENT_TYPE: Final = "application/json"


class EngineHttpError(Exception):
    """A request that is answered with an error. The text is for its client."""

    def __init__(self, message: str, status: int = 400, kind: str = "invalid_request_error", **facts: int) -> None:
        """``facts`` are sent with the message."""
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {"code": status, "message": message, "type": kind, **facts}


class EngineHttpServer(ThreadingHTTPServer):
    """The listener, a thread for each connection, and one lock on the engine for all of them."""

    allow_reuse_port = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler_class: type[EngineHttpHandler], alias: str, key: str) -> None:
        """Listen at once; raises OSError. ``key``: the key that requests need; empty: none."""
        self.alias = alias
        self.ready = True
        """Whether ``/health`` answers that the model is loaded."""
        self.working = False
        self._key = key.encode()
        self._engine_lock = threading.Lock()
        self._waiting_slots = threading.Semaphore(MAX_WAITING_REQUESTS)
        super().__init__(address, handler_class)

    def open(self) -> None:
        """Answer requests from now on, in threads of their own."""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def get_answer(self, path: str) -> Any:
        """Return the answer to a GET, None for an unknown path."""
        models = [{"id": self.alias, "object": "model", "owned_by": "local"}]
        return {"object": "list", "data": models} if path == "/v1/models" else None

    def is_key_valid(self, shown: str) -> bool:
        """Return whether this is the key."""
        return not self._key or hmac.compare_digest(shown.encode("latin-1", "replace"), self._key)

    @contextmanager
    def engine_lock(self, client_disconnected: Callable[[], bool]) -> Iterator[None]:
        """Wait for the engine and hold it; raises :class:`EngineHttpError` if too many wait, OSError if the client hung up."""
        if not self._waiting_slots.acquire(blocking=False):
            raise EngineHttpError("too many requests wait", 503, "unavailable_error")
        try:
            while not self._engine_lock.acquire(timeout=DISCONNECT_POLL_S):
                if client_disconnected():
                    raise BrokenPipeError
            self.working = True
            try:
                yield
            finally:
                self.working = False
                self._engine_lock.release()
        finally:
            self._waiting_slots.release()

    def server_bind(self) -> None:
        """Bind without looking up the name of this machine."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, *_: object) -> None:
        """Print nothing for a broken connection, and one line for any other error."""
        problem = sys.exc_info()[1]
        if not isinstance(problem, OSError):
            sys.stderr.write(f"[ERROR] a connection failed: {type(problem).__name__}: {problem}\n")


class EngineHttpHandler(BaseHTTPRequestHandler):
    """One connection. Subclasses answer in :meth:`serve`."""

    server: EngineHttpServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "engine", ""
    disable_nagle_algorithm = True
    timeout = CONNECTION_TIMEOUT_S
    largest: ClassVar[int]
    """Bytes of a body."""

    def serve(self, path: str, body: bytes) -> None:
        """Answer a POST; an exception becomes an error answer."""
        raise NotImplementedError

    def failure(self, problem: Exception) -> EngineHttpError:
        """Return the answer to an unexpected error."""
        sys.stderr.write(f"[ERROR] a request failed: {type(problem).__name__}: {problem}\n")
        return EngineHttpError("the server failed on this request", 500, "server_error")

    def do_GET(self) -> None:
        """Answer with the health, the model list, or another answer of :meth:`EngineHttpServer.get_answer`."""
        path = self.path.partition("?")[0]
        if path == "/health":
            ready = self.server.ready
            self.send_json({"status": "ok" if ready else "loading model"}, 200 if ready else 503)
        elif self._admitted():
            answer = self.server.get_answer(path)
            if answer is None:
                self.refuse(not_found_error())
            else:
                self.send_json(answer)

    def do_HEAD(self) -> None:
        """Answer in the same way, without a body."""
        self.do_GET()

    def do_POST(self) -> None:
        """Answer a request, or refuse it."""
        if not self._admitted():
            return
        try:
            self.serve(self.path.partition("?")[0], self._body())
        except EngineHttpError as refusal:
            self.refuse(refusal)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as problem:  # noqa: BLE001 - whatever a library says, its caller gets an answer
            self.refuse(self.failure(problem))

    def _admitted(self) -> bool:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if self.server.is_key_valid(token.strip() if scheme.lower() == "bearer" else self.headers.get("X-Api-Key", "")):
            return True
        self.close_connection = True  # its body stays unread
        self.refuse(EngineHttpError("Invalid API Key", 401, "authentication_error"))
        return False

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        known = length.isascii() and length.isdigit()
        if not known or len(length) > 12 or int(length) > self.largest:
            self.close_connection = True
            if not known:
                raise EngineHttpError("the length of the body is not known", 411)
            raise EngineHttpError("the body is too large", 413)
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise ConnectionAbortedError
        return body

    def client_disconnected(self) -> bool:
        """Return whether the client has hung up."""
        look = select.poll()
        look.register(self.connection, select.POLLIN)
        try:
            return bool(look.poll(0)) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def send_json(self, answer: Any, status: int = 200) -> None:
        """Send a whole answer."""
        self.answer(json.dumps(answer).encode(), status=status)

    def refuse(self, refusal: EngineHttpError) -> None:
        """Send an error."""
        self.send_json({"error": refusal.body}, refusal.status)

    def answer(self, body: bytes, kind: str = JSON_CONTENT_TYPE, status: int = 200) -> None:
        """Send a whole answer unchanged."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def begin_stream(self, kind: str = "text/event-stream", trailer: str = "") -> None:
        """Send the head of a stream, by default of server-sent events. ``trailer``: the header that follows it."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        if trailer:
            self.send_header("Trailer", trailer)
        self.send_header("Connection", "close")
        self.end_headers()

    def send(self, data: bytes) -> None:
        """Send a part of a stream; an empty part ends it."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end_stream(self, trailer: str, value: str) -> None:
        """End a stream with the header that :meth:`begin_stream` has announced."""
        self.wfile.write(f"0\r\n{trailer}: {value}\r\n\r\n".encode())

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer requests that the standard library refuses, in the form of all errors."""
        del explain
        self.close_connection = True
        self.refuse(EngineHttpError(message or "the request is malformed", 405 if code == 501 else int(code)))

    def log_message(self, *_: object) -> None:
        """Do nothing: the worker logs requests."""


def not_found_error() -> EngineHttpError:
    """Return the answer to an unknown path."""
    return EngineHttpError("File Not Found", 404, "not_found_error")
