"""An answer of a remote model that begins again on another server: possible until the client has got a part of it."""

from __future__ import annotations

import pytest

from protocol.messages.work import Run
from tests.workers.backend_stand_in import backend_stand_in
from workers.backends.engine_request import EngineRequest
from workers.requests.attempt import Attempt, AttemptPhase
from workers.stream.chunk_translator import ChunkTranslator

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
WORD = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
WHOLE = b'{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"yes"}}]}'


class RestartedAnswer:
    """What an attempt reports."""

    def __init__(self, *, stream: bool = True, endpoint: str = "chat/completions") -> None:
        self.sent = b""
        self.body = b""
        backend = backend_stand_in(program="the remote server")
        times = iter(range(10_000))
        run = Run("g", 1, 1, "m", endpoint, "r", stream=stream)
        self.attempt = Attempt(run, b"{}", backend, self, lambda: float(next(times)))  # type: ignore[arg-type]
        translator = ChunkTranslator(chat=True, model="m")
        chat = endpoint == "chat/completions"
        self.attempt.start(
            EngineRequest(
                "POST",
                f"/v1/{endpoint}",
                b"{}",
                streamed=stream,
                end_marker=False,
                translate=translator.feed if stream and chat else None,
                restart=translator.restart,
            )
        )
        self.began_at = self.attempt.answer.began_at

    def advanced(self, _attempt: Attempt, data: bytes, _tokens: int) -> None:
        self.sent += data

    def completed(self, _attempt: Attempt, body: bytes) -> None:
        self.body = body

    def answer(self, *pieces: bytes) -> None:
        self.attempt.began(200)
        for piece in pieces:
            self.attempt.data(piece)


@pytest.mark.parametrize("before", [(), (ROLE,), (b": waiting\n\n",), (ROLE, WORD[:20]), (WORD[:-1] % b"no",)])
def test_a_stream_begins_again_before_its_first_token(before: tuple[bytes, ...]) -> None:
    owner = RestartedAnswer()
    owner.answer(*before)
    assert owner.attempt.restart()
    assert owner.attempt.answer.began_at == owner.began_at, "the client has waited since then"
    owner.answer(ROLE, WORD % b"yes", END)
    owner.attempt.ended()
    assert (owner.sent.count(b'"assistant"'), owner.sent.count(b"yes"), b"no" in owner.sent) == (1, 1, False)


def test_a_stream_does_not_begin_again_after_its_first_token() -> None:
    owner = RestartedAnswer()
    owner.answer(ROLE, WORD % b"yes")
    assert not owner.attempt.restart()


def test_a_whole_answer_begins_again_until_its_end() -> None:
    owner = RestartedAnswer(stream=False)
    owner.answer(WHOLE[:-5])
    assert owner.attempt.restart()
    owner.answer(WHOLE)
    owner.attempt.ended()
    assert owner.body == WHOLE


def test_sound_begins_again_before_its_first_byte() -> None:
    owner = RestartedAnswer(endpoint="audio/speech")
    owner.answer(b"{")
    assert owner.attempt.restart()
    owner.answer(b"sound")
    assert owner.sent == b"sound"
    assert not owner.attempt.restart()


def test_a_cancelled_request_does_not_begin_again() -> None:
    owner = RestartedAnswer()
    owner.attempt.enter(AttemptPhase.STOPPING)
    assert not owner.attempt.restart()
