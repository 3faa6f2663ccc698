"""What an attempt reports of responses that an engine should not send."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.failures import Code, Failure
from protocol.messages.work import Run
from workers.backends.base import EngineRequest
from workers.backends.whispercpp import transcription
from workers.requests.attempt import Attempt


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
    attempt = Attempt(Run("g", 1, 1, "m", endpoint, "r"), b"", "an-engine", "m", owner, lambda: 0.0)
    attempt.start(request)
    attempt.began(200)
    return attempt


@pytest.mark.parametrize("answer", [b"no JSON", b'{"segments":7}', b'{"more":' + b"[" * 100_000])
def test_an_unreadable_answer_is_an_error_and_kills_no_engine(answer: bytes) -> None:
    owner = RecordingOwner()
    request = EngineRequest("POST", "/inference", translate=transcription.convert_transcription)
    attempt = attempt_with(owner, "audio/transcriptions", request)
    attempt.data(answer)
    attempt.ended()
    ((failure, stopped),) = owner.failures
    assert (failure.code, failure.message, stopped) == (
        Code.BACKEND_ERROR,
        "an-engine sent a response that makes no sense",
        True,
    )


@pytest.mark.parametrize(("body", "complete"), [(b'{"results":[]}', True), (b'{"results":[', False), (b"", False)])
def test_a_response_that_the_end_of_the_connection_ends_must_be_whole(body: bytes, complete: bool) -> None:
    owner = RecordingOwner()
    attempt = attempt_with(owner, "rerank", EngineRequest("POST", "/v1/rerank"))
    if body:
        attempt.data(body)
    attempt.ended(until_close=True)
    assert owner.bodies == [body] * complete
    assert [failure.message for failure, _ in owner.failures] == ["an-engine ended its response early"] * (not complete)
