"""An engine's answer in bytes: what is passed on, and when it is whole."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from protocol.failures import Code, LemonbusError
from protocol.messages.work import BYTE_STREAMS, Run
from workers.backends.engine_request import EngineRequest
from workers.backends.error_texts import ErrorTexts
from workers.backends.registry import DESCRIPTORS
from workers.requests.engine_answer import EngineAnswer

SOUND = bytes(range(256))


def answer(status: int = 200) -> EngineAnswer:
    backend: Any = SimpleNamespace(
        program="an-engine",
        alias="m",
        most_context=0,
        error_texts=ErrorTexts(),
        reported_build="",
        build="",
        refusal=lambda *_: None,
    )
    times = iter(range(1000))
    (endpoint,) = BYTE_STREAMS
    found = EngineAnswer(Run("g", 1, 1, "m", endpoint, "r", stream=True), backend, lambda: float(next(times)))
    found.expect(EngineRequest("POST", "/v1/audio/speech", b"{}", streamed=True))
    found.status = status
    return found


def test_bytes_are_passed_on_unchanged_even_if_they_look_like_events() -> None:
    it = answer()
    for piece in (SOUND, b"data: [DONE]\n\n", b'{"error":"no"}', b"\xff"):
        filtered = it.feed(piece)
        assert (filtered.data, filtered.tokens) == (piece, 1)
        it.count(filtered.tokens)
    assert it.tokens_sent == 4
    assert it.finish(until_close=False) == b""


def test_its_cost_is_in_the_trailer() -> None:
    it = answer()
    it.count(it.feed(SOUND).tokens)
    it.note_trailer(b"x-usage", b'{"prompt_tokens":12,"completion_tokens":80}')
    it.note_trailer(b"x-other", b"{}")
    it.finish(until_close=False)
    outcome = it.outcome("m")
    assert (outcome.prompt_tokens, outcome.output_tokens, outcome.token_times) == (12, 80, b"")
    assert outcome.first_token_s > 0


UNREADABLE = [
    *(b"", b"no JSON", b"[]", b'{"prompt_tokens":"x"}', b"\xff"),
    *(b'{"prompt_tokens":-1}', b'{"completion_tokens":9000000000000000000}', b'{"completion_tokens":1e400}'),
]


@pytest.mark.parametrize("trailer", UNREADABLE)
def test_without_a_readable_trailer_its_pieces_are_counted(trailer: bytes) -> None:
    it = answer()
    it.count(it.feed(SOUND).tokens)
    it.note_trailer(b"x-usage", trailer)
    it.finish(until_close=False)
    assert (it.outcome("m").prompt_tokens, it.outcome("m").output_tokens) == (0, 1)


@pytest.mark.parametrize(("pieces", "until_close"), [([SOUND], True), ([], False), ([], True)])
def test_it_is_not_whole_if_only_the_connections_end_ended_it_or_without_a_byte(
    pieces: list[bytes], until_close: bool
) -> None:
    it = answer()
    for piece in pieces:
        it.feed(piece)
    with pytest.raises(LemonbusError) as caught:
        it.finish(until_close)
    assert caught.value.failure.code == Code.BACKEND_ERROR
    assert "ended its response early" in caught.value.failure.message


def test_an_error_of_the_engine_is_not_sound() -> None:
    it = answer(status=400)
    assert it.feed(b'{"error":{"message":"no such voice"}}').data == b""
    with pytest.raises(LemonbusError, match="no such voice"):
        it.finish(until_close=False)


def test_a_recipe_serves_each_of_these_endpoints() -> None:
    served = {endpoint for each in DESCRIPTORS.values() for found in each.serves.values() for endpoint in found}
    assert served >= BYTE_STREAMS
