"""Invalid HTTP to a whole server: a JSON error, never a 500, and the connection ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.clients.error_responses import check_error_response
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
HUGE = 33 * 1024 * 1024


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-A: " + b"x" * 100_000 + b"\r\n\r\n", 431),
    ],
    ids=lambda value: repr(value[:60]) if isinstance(value, bytes) else "",
)
def test_refused_bytes_are_answered_in_json(shared_server: LemonbusServer, data: bytes, status: int) -> None:
    answer = shared_server.client.raw(data).until(lambda it: it.complete, 5)
    check_error_response(answer, shared_server, status)
    assert answer.read_to_close(5)
    answer.hang_up()


@pytest.mark.parametrize("chunked", [True, False])
def test_a_body_over_the_limit(shared_server: LemonbusServer, chunked: bool) -> None:
    head = b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"Content-Length: %d\r\n\r\n" % HUGE
    body = b"x" * HUGE
    data = b"%x\r\n%s\r\n0\r\n\r\n" % (HUGE, body) if chunked else body
    answer = shared_server.client.raw(POST + b"Content-Type: application/json\r\n" + head + data).finish()
    check_error_response(answer, shared_server, 413)


def test_a_large_body_within_the_limit(shared_server: LemonbusServer) -> None:
    pad = {"pad": "z" * 30_000_000}
    answer = shared_server.client.chat("extra.tiny-chat", stream=True, metadata=pad)
    assert answer.text == CHAT_TEXT
    assert answer.complete
    wait_for(lambda: not list((shared_server.runtime / "spool").iterdir()), "the spool file is gone")


@pytest.mark.parametrize("framing", [b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"])
def test_a_hang_up_in_the_middle_of_a_body_is_noticed(shared_server: LemonbusServer, framing: bytes) -> None:
    label = f"half.{len(framing)}"
    shared_server.client.raw(POST + f"X-Request-ID: {label}\r\n".encode() + framing).hang_up()

    def reported() -> dict[str, Any] | None:
        mine = (line for line in shared_server.lines if line.get("request_id") == label)
        return next((line for line in mine if line["event"] == "request"), None)

    line = wait_for(reported, "the request has its line in the log")
    assert (line["status"], line["code"]) == (499, "cancelled")
    assert shared_server.client.get("/live").status == 200


def test_requests_on_one_connection(shared_server: LemonbusServer) -> None:
    connection = shared_server.client.connect()
    for path in ("/live", "/v1/nothing", "/v1/models", "/live"):
        answer = shared_server.client.start("GET", path, connection=connection).until(lambda it: it.complete)
        assert answer.status == (404 if path == "/v1/nothing" else 200)
    body = json.dumps({"model": "extra.tiny-chat", "messages": [{"role": "user", "content": "hi"}], "stream": True})
    stream = shared_server.client.start("POST", "/v1/chat/completions", body.encode(), connection=connection)
    assert stream.until(lambda it: it.complete).done
    assert shared_server.client.start("GET", "/live", connection=connection).finish().status == 200
