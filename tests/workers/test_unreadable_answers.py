"""What an attempt tells of answers that an engine should not give."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.failures import Code, Failure
from protocol.messages.work import Run
from workers.backends.base import EngineRequest
from workers.backends.whispercpp import transcription
from workers.worker.attempt import Attempt


class RecordingSubscriber:
    """Who is told."""

    def __init__(self) -> None:
        self.failures: list[tuple[Failure, bool]] = []

    def advanced(self, attempt: Attempt, data: bytes, tokens: int) -> None:
        """Nothing is expected."""

    def failed(self, attempt: Attempt, failure: Failure, stopped: bool) -> None:
        self.failures.append((failure, stopped))

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


@pytest.mark.parametrize("answer", [b"no JSON", b'{"segments":7}', b'{"more":' + b"[" * 100_000])
def test_an_unreadable_answer_is_an_error_and_kills_no_engine(answer: bytes) -> None:
    owner: Any = RecordingSubscriber()
    attempt = Attempt(Run("g", 1, 1, "m", "audio/transcriptions", "r"), b"", "an-engine", "m", owner, lambda: 0.0)
    attempt.started(EngineRequest("POST", "/inference", translate=transcription.convert_transcription))
    attempt.began(200)
    attempt.data(answer)
    attempt.ended()
    ((failure, stopped),) = owner.failures
    assert (failure.code, failure.message, stopped) == (
        Code.BACKEND_ERROR,
        "an-engine sent an answer that makes no sense",
        True,
    )
