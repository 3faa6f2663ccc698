"""What the error responses of each engine mean."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from protocol.failures import Code
from workers.backends import llama_server_api
from workers.backends.error_texts import ErrorTexts
from workers.backends.flm.backend import FlmBackend
from workers.backends.llamacpp.engine_texts import ERROR_TEXTS
from workers.engine.error_responses import failure_of_response

SHORTEN = "shorten it, or load the model with a larger ctx_size"


class AnsweringEngine(NamedTuple):
    program: str = "llama-server"
    error_texts: ErrorTexts = ERROR_TEXTS
    most_context: int = 0
    key: str = ""


LLAMA_SERVER, FLM = AnsweringEngine(), AnsweringEngine("flm", FlmBackend.error_texts)


@pytest.mark.parametrize(
    ("status", "body", "code", "http", "message"),
    [
        (400, '{"error":{"code":400,"message":"request (40 tokens) exceeds the available context size (32 tokens), try increasing it","type":"exceed_context_size_error"}}', Code.CONTEXT_EXCEEDED, 400, f"the input has 40 tokens, more than the model's context of 32: {SHORTEN}"),
        (500, '{"error":{"code":500,"message":"input (20 tokens) is too large to process. increase the physical batch size (current batch size: 8)"}}', Code.CONTEXT_EXCEEDED, 400, f"the input has 20 tokens, more than the model's context of 8: {SHORTEN}"),
        (500, '{"error":{"code":500,"message":"Cannot use both json_schema and grammar","type":"server_error"}}', Code.INVALID_REQUEST, 400, "Cannot use both json_schema and grammar"),
        (400, '{"error":{"code":400,"message":"Field \'n_probs\': [json.exception.type_error.302] type must be number, but is string"}}', Code.INVALID_REQUEST, 400, "`n_probs`: type must be number, but is string"),
        (400, '{"error":{"code":400,"message":"[json.exception.out_of_range.406] number overflow parsing \'' + "1" * 900 + '\'"}}', Code.INVALID_REQUEST, 400, ("number overflow parsing '" + "1" * 900)[:500] + "…"),
        (400, '{"error":{"code":400,"message":"Failed to initialize samplers: failed to parse grammar"}}', Code.INVALID_REQUEST, 400, "failed to parse grammar"),
        (500, '{"error":{"code":500,"message":"input is too large to process. more","type":"server_error"}}', Code.CONTEXT_EXCEEDED, 400, None),
        (400, '{"error":{"code":400,"message":"bad n","type":"invalid_request_error"}}', Code.INVALID_REQUEST, 400, "bad n"),
        (501, '{"error":{"code":501,"message":"no","type":"not_supported_error"}}', Code.UNSUPPORTED, 501, "no"),
        (500, '{"error":{"code":500,"message":"oh","type":"server_error"}}', Code.BACKEND_ERROR, 500, "llama-server: oh"),
        (500, "<html>", Code.BACKEND_ERROR, 500, None),
        (500, '{"error":{"code":500,"message":"Failed to parse tools: Missing tool type: {}; tools = [\\n {}\\n]"}}', Code.INVALID_REQUEST, 400, "Failed to parse tools: Missing tool type: {}"),
        (500, '{"error":{"code":500,"message":"Failed to parse messages: Missing tool call type: 5"}}', Code.INVALID_REQUEST, 400, None),
        (500, '{"error":{"code":500,"message":"Failed to load image or audio file","type":"server_error"}}', Code.INVALID_REQUEST, 400, None),
        (500, '{"error":{"code":500,"message":"Unknown reasoning format: zz","type":"server_error"}}', Code.INVALID_REQUEST, 400, None),
        (500, '{"error":{"code":500,"message":"Jinja Exception: roles must alternate","type":"server_error"}}', Code.INVALID_REQUEST, 400, None),
        (400, '{"error":{"code":400,"message":"cannot open /home/me/models/x.gguf here"}}', Code.INVALID_REQUEST, 400, "cannot open … here"),
        (400, '{"error":{"code":400,"message":"and/or is fine"}}', Code.INVALID_REQUEST, 400, "and/or is fine"),
        (500, '{"error":"Failed to load x model!"}', Code.BACKEND_ERROR, 500, "llama-server: Failed to load x model!"),
    ],
)  # fmt: skip
def test_errors_of_llama_server(status: int, body: str, code: Code, http: int, message: Any) -> None:
    failure = failure_of_response(status, body.encode(), LLAMA_SERVER)
    assert (failure.code, failure.http_status) == (code, http)
    assert message is None or failure.message == message


@pytest.mark.parametrize(
    ("status", "body", "code", "http"),
    [
        (500, '{"error":"Max length reached"}', Code.CONTEXT_EXCEEDED, 400),
        (400, '{"error":{"code":400,"message":"Max length reached!","type":"model_error"}}', Code.CONTEXT_EXCEEDED, 400),
        (503, '{"error":"NPU is in use and request queue is full (limit: 10)."}', Code.OVERLOADED, 503),
        (400, '{"error":"[json.exception.type_error.302] type must be string, but is number"}', Code.INVALID_REQUEST, 400),
        (500, '{"error":{"message":"[json.exception.type_error.302] type must be string","code":500}}', Code.INVALID_REQUEST, 400),
    ],
)  # fmt: skip
def test_errors_of_flm(status: int, body: str, code: Code, http: int) -> None:
    failure = failure_of_response(status, body.encode(), FLM)
    assert (failure.code, failure.http_status) == (code, http)
    assert "json.exception" not in failure.message


def test_an_engines_words_mean_nothing_in_another_ones_errors() -> None:
    body = b'{"error":"NPU is in use and request queue is full (limit: 10)."}'
    assert failure_of_response(503, body, LLAMA_SERVER).code == Code.BACKEND_ERROR
    body = b'{"error":{"code":500,"message":"Jinja Exception: roles must alternate"}}'
    assert failure_of_response(500, body, FLM).code == Code.BACKEND_ERROR


def test_our_servers_errors_have_llama_servers_form() -> None:
    ours = AnsweringEngine("oga-server", llama_server_api.ERROR_TEXTS)
    wrong = failure_of_response(400, b'{"error":{"code":400,"message":"Field \'n\': too large"}}', ours)
    assert (wrong.code, wrong.param, wrong.message) == (Code.INVALID_REQUEST, "n", "`n`: too large")
    long = b'{"error":{"code":400,"message":"the prompt (40 tokens) and 32","type":"exceed_context_size_error"}}'
    assert "has 40 tokens" in failure_of_response(400, long, ours).message


@pytest.mark.parametrize(
    ("most", "advice"),
    [
        (0, SHORTEN),
        (64, f"{SHORTEN} of 64 at most"),
        (32, "shorten it, because the model cannot have a larger context"),
        (16, "shorten it, because the model cannot have a larger context"),
    ],
)
def test_a_larger_context_is_advised_only_where_the_model_can_have_one(most: int, advice: str) -> None:
    text = '"request (40 tokens) exceeds the available context size (32 tokens), try increasing it"'
    body = f'{{"error":{{"code":400,"message":{text},"type":"exceed_context_size_error"}}}}'
    failure = failure_of_response(400, body.encode(), AnsweringEngine(most_context=most))
    assert failure.message == f"the input has 40 tokens, more than the model's context of 32: {advice}"


@pytest.mark.parametrize("body", [b"", b"\xff", b'{"error":{"message":"\xff"}}', b'{"error":' + b"[" * 100_000])
def test_an_error_that_cannot_be_read_is_still_one(body: bytes) -> None:
    failure = failure_of_response(500, body, LLAMA_SERVER)
    assert (failure.code, failure.message) == (
        Code.BACKEND_ERROR,
        "llama-server: llama-server answered with status 500",
    )


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("sk-12345", "wrong key (key): none of ours"),
        ("none", "wrong key sk-12345: none of ours"),
        ("", "wrong key sk-12345: none of ours"),
    ],
)
def test_a_key_is_left_out_unless_it_is_a_short_placeholder(key: str, message: str) -> None:
    body = b'{"error":{"code":400,"message":"wrong key sk-12345: none of ours"}}'
    assert failure_of_response(400, body, AnsweringEngine(key=key)).message == message
