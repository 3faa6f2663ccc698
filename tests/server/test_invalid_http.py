"""What HTTP's own parser refuses: our JSON all the same, never a 500, and the connection ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.error_responses import check_error_response
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
HUGE = 33 * 1024 * 1024


@pytest.mark.parametrize(
    ("data", "statuses"),
    [
        (POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", (400,)),
        (POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", (400,)),
        (POST + b"Content-Length: -2\r\n\r\n{}", (400,)),
        (POST + b"Content-Length: two\r\n\r\n{}", (400,)),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", (400,)),
        (POST + b"Transfer-Encoding: smoke\r\n\r\n", (400, 501)),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", (501,)),
        (b"GET /v1/models HTTP/1.1\r\n\r\n", (400,)),
        (b"GET /v1/models HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", (400,)),
        (b"GET /v1/models HTTP/1.1\r\nHost: x y\r\n\r\n", (400,)),
        (b"GET /v1/mo\0dels HTTP/1.1\r\nHost: x\r\n\r\n", (400, 404)),
        (b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-A: b\0c\r\n\r\n", (400,)),
        (b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX A: b\r\n\r\n", (400,)),
        (b"GET /v1/models HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", (400,)),
        (b"GET /v1/models HTTP/9.9\r\nHost: x\r\n\r\n", (400, 505)),
        (b"GET /v1/models NONSENSE\r\n\r\n", (400,)),
        (b"\r\n\r\n\r\nnonsense\r\n\r\n", (400,)),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n\r\n", (400,)),
        (b"GET /v1/models?a=" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", (414,)),
        (b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-A: " + b"x" * 100_000 + b"\r\n\r\n", (431,)),
        (b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + b"X-A: b\r\n" * 500 + b"\r\n", (431,)),
    ],
    ids=lambda value: repr(value[:60]) if isinstance(value, bytes) else "",
)
def test_the_parser_answers_in_json(shared_server: LemonbusServer, data: bytes, statuses: tuple[int, ...]) -> None:
    answer = shared_server.client.raw(data).until(lambda it: it.complete, 5)
    check_error_response(answer, shared_server, *statuses)
    assert answer.read_to_close(5)
    answer.hang_up()


@pytest.mark.parametrize("chunked", [True, False])
def test_a_body_over_the_limit(shared_server: LemonbusServer, chunked: bool) -> None:
    head = b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"Content-Length: %d\r\n\r\n" % HUGE
    body = b"x" * HUGE
    data = b"%x\r\n%s\r\n0\r\n\r\n" % (HUGE, body) if chunked else body
    answer = shared_server.client.raw(POST + b"Content-Type: application/json\r\n" + head + data).finish()
    check_error_response(answer, shared_server, 413)


@pytest.mark.parametrize("stream", [True, False])
def test_a_large_body_within_the_limit(shared_server: LemonbusServer, stream: bool) -> None:
    pad = {"pad": "z" * 30_000_000}
    answer = shared_server.client.chat("extra.tiny-chat", stream=stream, metadata=pad)
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


def test_chunks_that_announce_too_much_are_not_waited_for(shared_server: LemonbusServer) -> None:
    answer = shared_server.client.raw(POST + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\nabc").until(
        lambda it: it.complete, 5
    )
    check_error_response(answer, shared_server, 413)
    assert answer.read_to_close(5)
    answer.hang_up()


def test_requests_on_one_connection(shared_server: LemonbusServer) -> None:
    connection = shared_server.client.connect()
    for path in ("/live", "/v1/nothing", "/v1/models", "/live"):
        answer = shared_server.client.start("GET", path, connection=connection).until(lambda it: it.complete)
        assert answer.status == (404 if path == "/v1/nothing" else 200)
    body = json.dumps({"model": "extra.tiny-chat", "messages": [{"role": "user", "content": "hi"}], "stream": True})
    stream = shared_server.client.start("POST", "/v1/chat/completions", body.encode(), connection=connection)
    assert stream.until(lambda it: it.complete).done
    assert shared_server.client.start("GET", "/live", connection=connection).finish().status == 200
