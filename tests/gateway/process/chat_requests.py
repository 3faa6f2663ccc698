"""Chat requests to a gateway, and the answers that a fake worker gives."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import msgspec

from protocol.messages.events import EventKind
from tests.gateway.fake_worker import ReceivedRequest
from tests.gateway.gateway_harness import GatewayHarness
from tests.gateway.raw_http import request

CHAT: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**CHAT, "stream": True}
PATH = "/v1/chat/completions"
ANSWER = b'{"choices":[{"index":0,"message":{"content":"yes"}}]}'


@contextlib.contextmanager
def open_request(
    harness: GatewayHarness, body: Any = STREAM, path: str = PATH, **headers: str
) -> Iterator[socket.socket]:
    with harness.connect() as connection:
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


def answer_whole(harness: GatewayHarness, received: ReceivedRequest) -> None:
    harness.grant(received)
    harness.publish(received, [received.event(0, EventKind.DELTA, ANSWER, 3), received.done(1)])
