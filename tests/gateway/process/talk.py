"""What is asked of a gateway, and what it is answered."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import msgspec

from protocol.events import Kind
from tests.gateway.rawhttp import request
from tests.gateway.standin import StandIn
from tests.gateway.standworker import Asked

CHAT: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**CHAT, "stream": True}
PATH = "/v1/chat/completions"
ANSWER = b'{"choices":[{"index":0,"message":{"content":"yes"}}]}'


@contextlib.contextmanager
def opened(house: StandIn, body: Any = STREAM, path: str = PATH, **headers: str) -> Iterator[socket.socket]:
    with house.connect() as connection:
        connection.sendall(request("POST", path, body, **headers))
        yield connection


def error_of(response: tuple[int, dict[str, str], bytes]) -> dict[str, Any]:
    """Check the JSON error body of the rules; return its ``error``."""
    status, headers, body = response
    assert status >= 400
    assert headers["content-type"] == "application/json"
    document = msgspec.json.decode(body)
    error: dict[str, Any] = document["error"]
    assert document["status"] == "error"
    assert document["message"] == error["message"]
    assert set(error) >= {"message", "type", "code", "param", "request_id"}
    assert error["request_id"] == headers["x-request-id"]
    return error


def serve_whole(house: StandIn, asked: Asked) -> None:
    house.grant(asked)
    house.publish(asked, [asked.event(0, Kind.DELTA, ANSWER, 3), asked.done(1)])
