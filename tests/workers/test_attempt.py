"""What an attempt tells of answers that an engine should not give."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.failures import Code, Failure
from protocol.work import Run
from workers import heard
from workers.attempt import Attempt
from workers.backends.backend import EngineRequest


class Told:
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
def test_a_whole_answer_that_makes_no_sense_is_told_and_ends_nobody(answer: bytes) -> None:
    owner: Any = Told()
    attempt = Attempt(Run("g", 1, 1, "m", "audio/transcriptions", "r"), b"", "an-engine", "m", owner, lambda: 0.0)
    attempt.started(EngineRequest("POST", "/inference", translate=heard.transcript))
    attempt.began(200)
    attempt.data(answer)
    attempt.ended()
    ((failure, stopped),) = owner.failures
    assert (failure.code, failure.message, stopped) == (
        Code.BACKEND_ERROR,
        "an-engine sent an answer that makes no sense",
        True,
    )
