"""HTTP as bytes: writes requests, and reads the answers on a connection."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import msgspec


def request(method: str, path: str, body: Any, **headers: str) -> bytes:
    """Return an HTTP request that closes its connection; ``body``: bytes, or a value for JSON."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    if data or method == "POST":
        lines.append(f"Content-Length: {len(data)}")
        headers = {"Content_Type": "application/json", **headers}
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in {"Connection": "close", **headers}.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def send(connection: socket.socket, data: bytes) -> None:
    """Send all, unless the server closes before: its answer can still be read."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(data)


def read_to_end(connection: socket.socket) -> bytes:
    """Return everything until the other side closes."""
    pieces = []
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(65536):
            pieces.append(data)
    return b"".join(pieces)


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    """Return what came until ``mark`` was in it."""
    data = b""
    while mark not in data:
        more = connection.recv(65536)
        assert more, f"closed before {mark!r}: {data!r}"
        data += more
    return data


def parsed(response: bytes) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers (lower case) and body; a broken chunked body ends with ``<broken>``."""
    head, _, body = response.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    if headers.get("transfer-encoding") == "chunked":
        body = dechunked(body)
    return int(first.split(" ")[1]), headers, body


def dechunked(body: bytes) -> bytes:
    """Return the content of a chunked body."""
    content = b""
    while True:
        size, found, body = body.partition(b"\r\n")
        if not found:
            return content + b"<broken>"
        length = int(size, 16)
        if length == 0:
            return content
        content, body = content + body[:length], body[length + 2 :]
