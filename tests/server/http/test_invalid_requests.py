"""Mistakes of clients in requests that HTTP itself accepts: the answer is a clear 4xx with our error body and a request id."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.clients.error_responses import check_error_response
from tests.support.server import LemonbusServer

CHAT = "extra.tiny-chat"
HI = [{"role": "user", "content": "hi"}]
ROUTE = "/v1/chat/completions"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"model": "extra.tiny-chat",}',
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe\x00",
        b'{"model":"\xff"}',
        b'{"model": NaN}',
        b"[" * 100_000,
        b'{"messages":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    ],
    ids=lambda body: repr(body[:24]),
)
def test_bad_json(shared_server: LemonbusServer, body: bytes) -> None:
    check_error_response(shared_server.client.post(ROUTE, body), shared_server, 400)


def test_bad_json_says_where(shared_server: LemonbusServer) -> None:
    answer = shared_server.client.post(ROUTE, b'{\n "model": }')
    assert "line 2 column" in answer.error["message"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", 7),
        ("model", ["extra.tiny-chat"]),
        ("messages", "hi"),
        ("messages", []),
        ("messages", [7]),
        ("messages", [{"role": "user"}]),
        ("messages", [{"content": "hi"}]),
        ("stream", "yes"),
        ("max_tokens", "many"),
        ("max_tokens", 1.5),
        ("max_tokens", -7),
        ("max_tokens", 10**30),
        ("temperature", "hot"),
        ("temperature", 1e400),
        ("top_p", []),
        ("n", 0),
        ("n", -1),
        ("n", 10_000),
        ("stop", ["a", "b", "c", "d", "e"]),
        ("stop", 7),
        ("tools", "all"),
        ("response_format", "json"),
        ("logprobs", "yes"),
        ("stream_options", []),
    ],
)
def test_wrong_fields(shared_server: LemonbusServer, field: str, value: Any) -> None:
    text = json.dumps({"model": CHAT, "messages": HI, field: value}).replace("Infinity", "1e400")
    answer = shared_server.client.post(ROUTE, text.encode())
    check_error_response(answer, shared_server, 400)
    assert field.split("_", maxsplit=1)[0] in answer.error["message"].lower() or answer.error["param"], answer


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"max_tokens": 3, "max_completion_tokens": 4}, 400),
        ({"model": "nobody-knows-it"}, 404),
        ({"model": "../../etc/passwd"}, 404),
        ({"model": "a\0b"}, 404),
        ({"model": "x" * 10_000}, 404),
        ({"messages": [{"role": "user", "content": "y" * 20_000}]}, 400),
    ],
    ids=["two limits", "unknown", "a path", "a NUL", "a long name", "beyond the context"],
)
def test_what_cannot_be(shared_server: LemonbusServer, fields: dict[str, Any], status: int) -> None:
    answer = shared_server.client.post(ROUTE, {"model": CHAT, "messages": HI, **fields})
    check_error_response(answer, shared_server, status, 400)


def test_beyond_the_context_says_so(shared_server: LemonbusServer) -> None:
    answer = shared_server.client.chat(CHAT, messages=[{"role": "user", "content": "y" * 20_000}], stream=True)
    check_error_response(answer, shared_server, 400)
    assert answer.error["code"] == "context_length_exceeded"
    assert "8192" in answer.error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n_probs": "many"}, "n_probs"),
        ({"samplers": [7]}, "samplers"),
        ({"grammar": "no grammar"}, None),
        ({"json_schema": {"type": "no type"}}, None),
        ({"json_schema": {"type": "object"}, "grammar": 'root ::= "a"'}, "grammar"),
        ({"unknown": 10**400}, None),
        ({"messages": [{"role": "user", "content": [{"type": "no type"}]}]}, "messages[0].content[0]"),
    ],
)
def test_the_engines_refusal_has_no_internals(
    shared_server: LemonbusServer, fields: dict[str, Any], param: str | None
) -> None:
    body = json.dumps({"model": CHAT, "messages": HI, "max_tokens": 1, **fields}).encode()
    answer = shared_server.client.post(ROUTE, body)
    check_error_response(answer, shared_server, 400)
    assert answer.error["param"] == param
    message = answer.error["message"]
    assert "exception" not in message
    assert "sampler" not in message or param == "samplers"
    assert len(message) <= 501


def test_lone_surrogates(shared_server: LemonbusServer) -> None:
    answer = shared_server.client.post(
        ROUTE, b'{"model":"extra.tiny-chat","messages":[{"role":"user","content":"\\ud800"}]}'
    )
    assert answer.status in (200, 400), answer
    if answer.status == 400:
        check_error_response(answer, shared_server, 400)


def test_nul_in_a_message(shared_server: LemonbusServer) -> None:
    answer = shared_server.client.chat(CHAT, messages=[{"role": "user", "content": "a\0b"}])
    assert answer.status in (200, 400), answer


def test_thousands_of_messages(shared_server: LemonbusServer) -> None:
    answer = shared_server.client.chat(CHAT, messages=HI * 3000, patience=60)
    check_error_response(answer, shared_server, 400)
    assert answer.error["code"] == "context_length_exceeded"


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "application/xml", "nonsense"])
def test_other_media_types(shared_server: LemonbusServer, kind: str) -> None:
    body = json.dumps({"model": CHAT, "messages": HI, "max_tokens": 1}).encode()
    answer = shared_server.client.start("POST", ROUTE, body, {"Content-Type": kind}).finish()
    if answer.status != 200:  # curl -d sends the content type of a form, so JSON under another type may be accepted
        check_error_response(answer, shared_server, 400, 415)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", ROUTE, 405),
        ("DELETE", "/v1/models", 405),
        ("PUT", "/health", 405),
        ("POST", "/v1/health", 405),
        ("GET", "/v1/load", 405),
        ("POST", "/live", 405),
        ("BREW", "/v1/models", 405),
        ("POST", "/", 405),
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/%00", 404),
        ("GET", "/v1/models/%ff%fe", 404),
        ("GET", "/v2/models", 404),
        ("POST", "/v1/chat", 404),
        ("GET", "/v1//models", 404),
        ("GET", "/v1/../etc/passwd", 404),
    ],
)
def test_wrong_methods_and_paths(shared_server: LemonbusServer, method: str, path: str, status: int) -> None:
    answer = shared_server.client.start(method, path).finish()
    check_error_response(answer, shared_server, status, *((400,) if method == "BREW" else ()))
    if answer.status == 405:
        assert answer.headers["allow"]
