"""Chat requests to a gateway, and the answers that a fake worker gives."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import msgspec

from protocol.messages.events import Event, EventKind
from tests.gateway.fake_worker import ReceivedRequest
from tests.gateway.gateway_harness import GatewayHarness
from tests.gateway.raw_http import request

CHAT: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**CHAT, "stream": True}
PATH = "/v1/chat/completions"
STREAMS: dict[str, dict[str, Any]] = {
    PATH: CHAT,
    "/v1/completions": {"model": "tiny", "prompt": "hi"},
    "/v1/responses": {"model": "tiny", "input": "hi"},
    "/v1/messages": {"model": "tiny", "max_tokens": 9, "messages": CHAT["messages"]},
    "/api/chat": CHAT,
    "/api/generate": {"model": "tiny", "prompt": "hi"},
    "/completion": {"model": "tiny", "prompt": "hi"},
}
"""Path → request, in each form of a stream."""
END_MARKS = (b"[DONE]", b"response.completed", b"message_stop", b'"done":true', b'"stop":true')
"""What only the end of a whole answer has."""
ANSWER = b'{"choices":[{"index":0,"message":{"content":"yes"}}]}'


@contextlib.contextmanager
def open_request(
    harness: GatewayHarness, body: Any = STREAM, path: str = PATH, **headers: str
) -> Iterator[socket.socket]:
    with harness.connect() as connection:
        connection.sendall(request("POST", path, body, **headers))
        yield connection


def stream_events(received: ReceivedRequest, path: str) -> list[Event]:
    """Return the first token of a streamed answer to a request to this path."""
    if path != "/completion":
        return received.tokens(0, 1)
    native = b'data: {"index":0,"content":"0","tokens":[1],"stop":false}\n\n'
    return [received.event(0, EventKind.DELTA, native, 1)]


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
