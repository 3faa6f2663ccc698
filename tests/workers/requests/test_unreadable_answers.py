"""What an attempt reports of responses that an engine should not send."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.failures import Code, Failure
from protocol.messages.work import Run
from workers.backends.engine_request import EngineRequest
from workers.backends.error_texts import ErrorTexts
from workers.backends.whispercpp import transcription_answer
from workers.requests.attempt import Attempt
from workers.requests.engine_answer import MAX_ERROR_BYTES, MAX_RESPONSE_BYTES

TEXTS = ErrorTexts(caller_mistake=re.compile("bad format"))


class RecordingOwner:
    """Records what attempts report."""

    def __init__(self) -> None:
        self.failures: list[tuple[Failure, bool]] = []
        self.bodies: list[bytes] = []

    def advanced(self, attempt: Attempt, data: bytes, tokens: int) -> None:
        """Nothing is expected."""

    def failed(self, attempt: Attempt, failure: Failure, stopped: bool) -> None:
        self.failures.append((failure, stopped))

    def completed(self, attempt: Attempt, body: bytes) -> None:
        self.bodies.append(body)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def attempt_with(owner: Any, endpoint: str, request: EngineRequest) -> Attempt:
    backend: Any = SimpleNamespace(
        refusal=lambda *_: None,
        servers=(),
        program="an-engine",
        alias="m",
        most_context=0,
        key="",
        error_texts=TEXTS,
        reported_build="",
        clock_shift=0,
        build="",
    )
    attempt = Attempt(Run("g", 1, 1, "m", endpoint, "r"), b"", backend, owner, lambda: 0.0)
    attempt.start(request)
    attempt.began(200)
    return attempt


@pytest.mark.parametrize(
    "answer",
    [b"no JSON", b"{}", b'{"segments":7}', b'{"segments":[{}]}', b'{"text":"\xff"}', b'{"more":' + b"[" * 100_000],
)
def test_an_unreadable_answer_is_an_error_and_kills_no_engine(answer: bytes) -> None:
    owner = RecordingOwner()
    request = EngineRequest("POST", "/inference", translate=transcription_answer.convert_transcription)
    attempt = attempt_with(owner, "audio/transcriptions", request)
    attempt.data(answer)
    attempt.ended()
    ((failure, stopped),) = owner.failures
    assert (failure.code, failure.message, stopped) == (
        Code.BACKEND_ERROR,
        "an-engine sent a response that makes no sense",
        True,
    )


@pytest.mark.parametrize(
    ("endpoint", "answer", "whole"),
    [
        ("images/generations", b'{"data":[{"b64_json":"aaaa"}]}', True),
        ("images/generations", b'{"data":[{"b64_json":""}]}', False),
        ("images/edits", b'{"data":[]}', False),
        ("embeddings", b'{"data":[{"embedding":[0.5,1]}]}', True),
        ("embeddings", b'{"data":[{"embedding":"AAAA"}]}', True),
        ("embeddings", b'{"data":[{"embedding":[]}]}', False),
        ("embedding", b'[{"index":0,"embedding":[[0.5]]}]', True),
        ("embedding", b"[]", False),
        ("rerank", b'{"results":[{"index":0,"relevance_score":1}]}', True),
        ("rerank", b'{"results":[{"index":0}]}', False),
        ("completion", b'[{"content":"a","stop":true}]', True),
        ("completion", b"[]", False),
        ("props", b'{"total_slots":1}', True),
        ("slots", b'["\xff"]', False),
        ("detokenize", b'{"content":null}', False),
    ],
)
def test_a_whole_answer_has_what_its_endpoint_promises(endpoint: str, answer: bytes, whole: bool) -> None:
    owner = RecordingOwner()
    attempt = attempt_with(owner, endpoint, EngineRequest("POST", "/x"))
    attempt.data(answer)
    attempt.ended()
    assert (bool(owner.bodies), bool(owner.failures)) == (whole, not whole)


@pytest.mark.parametrize(("status", "limit"), [(200, MAX_RESPONSE_BYTES), (500, MAX_ERROR_BYTES)])
def test_a_response_without_an_end_is_ended(status: int, limit: int) -> None:
    owner = RecordingOwner()
    attempt = attempt_with(owner, "rerank", EngineRequest("POST", "/v1/rerank"))
    attempt.began(status)
    piece = bytes(limit // 4)
    for _ in range(5):
        assert not owner.failures
        attempt.data(piece)
    ((failure, stopped),) = owner.failures
    assert (failure.message, stopped) == ("an-engine sent too large a response", False)


@pytest.mark.parametrize(
    ("status", "beginning", "message"),
    [
        (400, b'{"error":{"message":"bad format: ', "bad format: x\\x"),
        (500, b'{"error":{"message":"bad format: ', "bad format: x\\x"),
        (400, b"not JSON", "an-engine answered with status 400"),
    ],
)
def test_a_refusal_that_repeats_a_large_request_is_still_a_refusal(status: int, beginning: bytes, message: str) -> None:
    owner = RecordingOwner()
    attempt = attempt_with(owner, "chat/completions", EngineRequest("POST", "/v1/chat/completions"))
    attempt.began(status)
    attempt.data(beginning + rb"x\\" * MAX_ERROR_BYTES)
    ((failure, stopped),) = owner.failures
    assert (failure.code, stopped) == (Code.INVALID_REQUEST, False)
    assert failure.message.startswith(message)


def test_a_redirection_is_not_a_success() -> None:
    owner = RecordingOwner()
    attempt = attempt_with(owner, "props", EngineRequest("GET", "/props"))
    attempt.began(302)
    attempt.data(b"{}")
    attempt.ended()
    ((failure, _),) = owner.failures
    assert failure.code == Code.BACKEND_ERROR


@pytest.mark.parametrize(("body", "complete"), [(b'{"results":[]}', True), (b'{"results":[', False), (b"", False)])
def test_a_response_that_the_end_of_the_connection_ends_must_be_whole(body: bytes, complete: bool) -> None:
    owner = RecordingOwner()
    attempt = attempt_with(owner, "rerank", EngineRequest("POST", "/v1/rerank"))
    if body:
        attempt.data(body)
    attempt.ended(until_close=True)
    assert owner.bodies == [body] * complete
    assert [failure.message for failure, _ in owner.failures] == ["an-engine ended its response early"] * (not complete)
