"""A raw HTTP client for one server: a new connection for each request, and nothing hidden."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tests.support.clients.http_exchange import PATIENCE, HttpExchange
from tests.support.processes import ProcessInfo, engine_key

T = TypeVar("T")
Json = Mapping[str, Any]


class RawHttpClient:
    """Requests to ``127.0.0.1:port``."""

    def __init__(self, port: int, headers: Mapping[str, str] | None = None) -> None:
        self.port = port
        self.headers = dict(headers or {})
        self._connections: list[socket.socket] = []

    def connect(self, receive_buffer: int = 0) -> socket.socket:
        """Return a new connection; with a small ``receive_buffer``, the server notices a slow reader at once."""
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(PATIENCE)
        try:
            connection.connect(("127.0.0.1", self.port))
        except OSError:
            connection.close()
            raise
        self._connections = [*(each for each in self._connections if each.fileno() >= 0), connection]
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def close(self) -> None:
        """Close what a test that failed left open."""
        for connection in self._connections:
            connection.close()

    def raw(self, data: bytes, connection: socket.socket | None = None) -> HttpExchange:
        """Send exactly these bytes."""
        exchange = HttpExchange(connection or self.connect(), head=data.startswith(b"HEAD "))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            exchange.send(data)  # the server may answer before it has read everything; its answer can still be read
        return exchange

    def start(
        self,
        method: str,
        path: str,
        body: Json | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        connection: socket.socket | None = None,
    ) -> HttpExchange:
        """Send a request and read nothing yet."""
        return self.raw(self.request_bytes(method, path, body, headers), connection)

    def request_bytes(
        self, method: str, path: str, body: Json | bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Return a request as it goes over the wire."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        fields = {"Host": f"127.0.0.1:{self.port}", **self.headers}
        if body is not None:
            fields |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
        fields |= headers or {}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + data

    def get(self, path: str, patience: float = PATIENCE, **headers: str) -> HttpExchange:
        return self.start("GET", path, headers=_dashed(headers)).finish(patience)

    def post(self, path: str, body: Json | bytes, patience: float = PATIENCE, **headers: str) -> HttpExchange:
        return self.start("POST", path, body, _dashed(headers)).finish(patience)

    def chat(self, model: str, patience: float = PATIENCE, **fields: Any) -> HttpExchange:
        """A whole chat answer."""
        return self.start_chat(model, **fields).finish(patience)

    def start_chat(
        self, model: str, headers: Mapping[str, str] | None = None, receive_buffer: int = 0, **fields: Any
    ) -> HttpExchange:
        """Send a chat request; ``stream=True`` for a stream."""
        return self.start(
            "POST", "/v1/chat/completions", chat_body(model, **fields), headers, self.connect(receive_buffer)
        )


def engine_client(engine: ProcessInfo) -> RawHttpClient:
    """Return a client of a running engine, with the key that the engine demands."""
    key = engine_key(engine.pid)
    return RawHttpClient(int(engine.option("--port")), {"Authorization": f"Bearer {key}"} if key else {})


def chat_body(model: str, **fields: Any) -> dict[str, Any]:
    """Return a deterministic chat request."""
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], "temperature": 0, **fields}


def run_concurrently(count: int, work: Callable[[int], T], patience: float = 60.0) -> list[T]:
    """Run ``work(0)`` … ``work(count - 1)`` at once and return what they return, in order."""
    with ThreadPoolExecutor(count) as pool:
        jobs = [pool.submit(work, index) for index in range(count)]
        return [job.result(patience) for job in jobs]


def _dashed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
